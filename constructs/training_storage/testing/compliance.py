"""Holds constructs to cdk-nag, to the rules of FSx for Lustre and S3 Express, and to cfn-lint."""

from __future__ import annotations

import functools
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.testing.assembly import read_json
from training_storage.testing.sources import SynthesizedTemplate, read_templates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aws_cdk import App, Stack, Stage

    from training_storage.testing.compliance_plugins import CompliancePlugins

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

    The app is synthesized again, with plugins that answer this time only; what its own plugins find as errors is
    returned as well. Acknowledged findings are not. That cdk-nag and cfn-lint see at all is tried first, once in a
    process, on a bucket that they must find fault with.

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
    found = [finding for finding in _validated(app) if _lies(finding.path, within)]
    if linting.can_lint() if linter is None else linter:
        # From the folder: to synthesize again would fail where a plugin of the app does.
        found += linting.lint_templates(_written(app, scope), ignore=ignore)
    return tuple(dict.fromkeys(found))


def _lies(path: str, within: str) -> bool:
    return not within or f"{path}/".startswith(f"{within}/")


def _written(app: App, scope: Stage | Stack) -> list[SynthesizedTemplate]:
    """Return the templates of `scope` that the last synth wrote."""
    from aws_cdk import Stack  # noqa: PLC0415 -- as above

    if isinstance(scope, Stack) and scope.nested_stack_parent is not None:
        path = next(Path(app.outdir).rglob(scope.template_file))
        return [SynthesizedTemplate(label=scope.node.path, document=read_json(path), path=path, region=scope.region)]
    return [template for template in read_templates(app.outdir) if _lies(template.label, scope.node.path)]


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


_ATTACHED: weakref.WeakKeyDictionary[App, CompliancePlugins] = weakref.WeakKeyDictionary()


def _validated(app: App) -> list[ComplianceFinding]:
    """Synthesize `app` with both plugins; return what any plugin reports and nobody acknowledged."""
    plugins = _attached(app)
    report = Path(app.outdir) / _REPORT
    # One of an earlier synth must not be taken for this one's.
    report.unlink(missing_ok=True)
    plugins.ask()
    try:
        app.synth(force=True)
    except RuntimeError as error:
        # Of the app's own plugins; what they found is in the report.
        if not str(error).startswith(_FAILED):
            raise
    finally:
        answered = plugins.answered()
    if not answered:
        raise RuntimeError("CDK must run the validation plugins during the synth, got: none run; nothing was checked")
    # Without a finding of any plugin CDK may write no report.
    return list(_reported(read_json(report))) if report.exists() else []


def _attached(app: App) -> CompliancePlugins:
    """Return the plugins of `app`; they are attached once."""
    if app not in _ATTACHED:
        try:
            from training_storage.testing.compliance_plugins import CompliancePlugins as Plugins  # noqa: PLC0415 -- CDK
        except ModuleNotFoundError as error:
            if error.name != "cdk_nag":
                raise
            raise ModuleNotFoundError(
                "assert_compliant needs cdk-nag, got: none; pip install 'training-storage[testing]'", name="cdk_nag"
            ) from None
        _ATTACHED[app] = Plugins(app)
    return _ATTACHED[app]


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
