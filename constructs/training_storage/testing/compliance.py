"""Holds constructs to cdk-nag, to the rules of FSx for Lustre and S3 Express, and to cfn-lint."""

from __future__ import annotations

import functools
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from training_storage.testing.assembly import read_json
from training_storage.validation_places import construct_path, nested_templates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aws_cdk import App, IPolicyValidationContext, PolicyValidationPluginReport, PolicyValidationStack, Stack, Stage

    from training_storage.validation_plugin import StorageLegalityChecks

__all__ = ["ComplianceFinding", "assert_compliant", "compliance_findings"]

_NAG, _OURS = "AwsSolutions", "training-storage"
_REPORT: Final = "validation-report.json"
# What CDK puts before the message of an error that came from plugins, whose report is then read.
_FAILED = "ValidationFailed:"


@dataclass(frozen=True, kw_only=True)
class ComplianceFinding:
    """Something that a stack should not hold.

    Parameters
    ----------
    tool
        Who found it: ``cdk-nag``, ``training-storage``, ``cfn-lint``, or another plugin of the app by its name.
    rule
        Id of the rule, for example ``AwsSolutions-S1`` or ``lustre-capacity``.
    path
        The construct, or the place in the template.
    message
        What is wrong; one line.
    remedy
        The way out.
    """

    tool: str
    rule: str
    path: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.path}: {self.message} [{self.rule}; {self.remedy}]"


def assert_compliant(scope: App | Stage | Stack, *, linter: bool | None = None, ignore: Collection[str] = ()) -> None:
    """Fail if cdk-nag, our rules or cfn-lint find something in `scope`.

    Parameters
    ----------
    scope, linter, ignore
        As for `compliance_findings`.

    Raises
    ------
    AssertionError
        Naming every finding in one line, with its place and the way out.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    found = compliance_findings(scope, linter=linter, ignore=ignore)
    if found:
        raise AssertionError("\n".join(str(finding) for finding in found))


def compliance_findings(
    scope: App | Stage | Stack, *, linter: bool | None = None, ignore: Collection[str] = ()
) -> tuple[ComplianceFinding, ...]:
    """Return what cdk-nag (AwsSolutions), our rules and cfn-lint find in `scope`.

    The app is synthesized with the plugins `AwsSolutionsChecks` and `StorageLegalityChecks`, which stay attached to
    it; what other plugins of the app find as errors is returned as well. Acknowledged findings are not. That cdk-nag
    and cfn-lint see at all is tried first, once in a process, on a bucket that both must find fault with.

    Parameters
    ----------
    scope
        An app, or a stage or stack of one; only what lies within it is returned.
    linter
        Whether to run cfn-lint; None runs it where it is installed.
    ignore
        Ids of cfn-lint's rules to leave out, beside W3005. Findings of cdk-nag and ours are acknowledged where they
        stand: ``Validations.of(construct).acknowledge(…)``.

    Raises
    ------
    TypeError, ValueError
        If `scope` is no construct of an app; one line.
    ModuleNotFoundError
        If cdk-nag is missing, or cfn-lint where it is asked for.
    RuntimeError
        If a check turned out to see nothing, or the synth fails for another reason.
    """
    from training_storage.testing import linting  # noqa: PLC0415 -- it builds on this module

    app = _app_of(scope)
    _require_nag()
    within = scope.node.path
    found = [finding for finding in _validated(app) if not within or f"{finding.path}/".startswith(f"{within}/")]
    if linting.can_lint() if linter is None else linter:
        found += linting.lint_findings(scope, ignore=ignore)
    return tuple(dict.fromkeys(found))


def _app_of(scope: object) -> App:
    from aws_cdk import App, Stack, Stage  # noqa: PLC0415 -- only users of CDK get here

    if not isinstance(scope, (Stage, Stack)):
        raise TypeError(
            f"scope must be an App, Stage or Stack, whose constructs cdk-nag reads, got: {type(scope).__name__};"
            " a template is checked with assert_legal and lint_findings"
        )
    root = scope.node.root
    if not isinstance(root, App):
        raise ValueError(  # noqa: TRY004 -- its place is wrong, not its type
            f"scope must be in an App, which runs validation plugins, got: {scope.node.path!r} without one"
        )
    return root


@functools.cache
def _require_nag() -> None:
    """Refuse a cdk-nag that finds nothing in a careless bucket: a missing plugin and a clean app look the same."""
    from aws_cdk import App, Stack  # noqa: PLC0415 -- as above
    from aws_cdk import aws_s3 as s3  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder)
        s3.CfnBucket(Stack(app, "Control"), "Bucket")
        found = {finding.rule for finding in _validated(app)}
    if not {"AwsSolutions-S1", "AwsSolutions-S10"} <= found:
        raise RuntimeError(
            f"cdk-nag must find fault with a bucket without access logs and TLS, got: {sorted(found) or 'nothing'};"
            " check the versions of cdk-nag and aws-cdk-lib"
        )


_ATTACHED: weakref.WeakKeyDictionary[App, Any] = weakref.WeakKeyDictionary()


def _validated(app: App) -> list[ComplianceFinding]:
    """Synthesize `app` with both plugins; return what any plugin reports and nobody acknowledged."""
    ours = _attach(app)
    ours.called = False
    report = Path(app.outdir) / _REPORT
    # One of an earlier synth must not be taken for this one's.
    report.unlink(missing_ok=True)
    try:
        app.synth(force=True)
    except RuntimeError as error:
        if not str(error).startswith(_FAILED):
            raise
    if not ours.called or not report.exists():
        raise RuntimeError("CDK must run the validation plugins during the synth, got: none run; nothing was checked")
    return list(_reported(read_json(report)))


def _attach(app: App) -> Any:  # noqa: ANN401 -- a class that is made where CDK is loaded
    """Attach both plugins to `app`, once."""
    if app not in _ATTACHED:
        from aws_cdk import Validations  # noqa: PLC0415 -- as above

        try:
            from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "assert_compliant needs cdk-nag, got: none; pip install 'training-storage[testing]'"
            ) from None

        ours = _checks()
        Validations.of(app).add_plugins(AwsSolutionsChecks(app), ours)
        _ATTACHED[app] = ours
    return _ATTACHED[app]


def _checks() -> StorageLegalityChecks:
    """Return our plugin; this one sees nested stacks, names each construct, and remembers whether it was asked."""
    from aws_cdk import PolicyValidationPluginReport as Report  # noqa: PLC0415 -- as above
    from aws_cdk import PolicyViolatingResource, PolicyViolation  # noqa: PLC0415

    from training_storage.validation_plugin import StorageLegalityChecks  # noqa: PLC0415 -- loads CDK

    def placed(resource: PolicyViolatingResource) -> PolicyViolatingResource:
        template, logical_id = Path(str(resource.template_path)), str(resource.resource_logical_id)
        path = construct_path(template, logical_id)
        return PolicyViolatingResource(
            construct_path=path,
            # CDK takes one of the two.
            resource_logical_id=None if path else logical_id,
            template_path=str(template),
            locations=resource.locations,
        )

    class Checks(StorageLegalityChecks):
        called = False

        def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
            self.called = True
            stacks = [one for stack in context.stack_templates for one in _with_nested(stack)]
            report = super().validate(SimpleNamespace(stack_templates=stacks))
            violations = [
                PolicyViolation(
                    rule_name=violation.rule_name,
                    description=violation.description,
                    severity=violation.severity,
                    violating_resources=[placed(resource) for resource in violation.violating_resources],
                )
                for violation in report.violations
            ]
            return Report(success=report.success, violations=violations)

    return Checks()


def _with_nested(stack: PolicyValidationStack) -> Iterator[Any]:
    yield stack
    for path in nested_templates(Path(stack.template_path)):
        yield SimpleNamespace(template_path=str(path), region=stack.region)


def _reported(report: dict[str, Any]) -> Iterator[ComplianceFinding]:
    for plugin in report["pluginReports"]:
        name = str(plugin["pluginName"])
        for violation in plugin["violations"]:
            # Others' warnings are not ours to fail on; of cdk-nag's and ours every finding counts.
            if name not in (_NAG, _OURS) and violation.get("severity") != "error":
                continue
            rule = str(violation["ruleName"])
            for place in violation.get("violatingConstructs") or [{}]:
                resource = place.get("cloudFormationResource") or {}
                yield ComplianceFinding(
                    tool="cdk-nag" if name == _NAG else name,
                    rule=rule,
                    path=str(place.get("constructPath") or resource.get("logicalId") or name),
                    message=" ".join(str(violation["description"]).split()),
                    remedy=_remedy(name, rule),
                )


def _remedy(plugin: str, rule: str) -> str:
    identifier = rule if plugin == _NAG else f"{plugin}::{rule}"
    return (
        "mend it, or say why it stands: Validations.of(construct).acknowledge("
        f'Acknowledgment(id="{identifier}", reason="…"))'
    )
