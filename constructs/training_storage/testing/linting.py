"""Runs cfn-lint, where it is installed, over templates; it is loaded once and only when it is used."""

from __future__ import annotations

import functools
import importlib.util
import json
from typing import TYPE_CHECKING, Any, Final

from training_storage.testing.compliance import ComplianceFinding
from training_storage.testing.sources import Source, SynthesizedTemplate, read_some_templates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["DEFAULT_REGION", "IGNORED_RULES", "can_lint", "lint", "lint_findings", "lint_templates"]

#: cfn-lint gives it for every Lambda function that CDK makes: an explicit dependency on a role that Ref implies.
IGNORED_RULES: Final = ("W3005",)
#: What is not deployed in a known Region is held to this one's resource types.
DEFAULT_REGION: Final = "us-east-1"

_BROKEN = {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"NoSuchProperty": 1}}}}


def can_lint() -> bool:
    """Whether cfn-lint is installed."""
    return importlib.util.find_spec("cfnlint") is not None


def lint_findings(
    source: Source, *, region: str | None = None, ignore: Collection[str] = ()
) -> tuple[ComplianceFinding, ...]:
    """Return what cfn-lint finds in the templates of `source`, nested ones included where their files are at hand.

    Rule W3005 is left out: CDK breaks it with every Lambda function. A template's own ``Metadata`` for cfn-lint is
    honoured.

    Parameters
    ----------
    source
        A stack, an app, a template, a ``cdk.out``; see `Source`.
    region
        Where it will be deployed, if the stack does not say so; us-east-1 otherwise.
    ignore
        Ids of more rules to leave out.

    Raises
    ------
    ModuleNotFoundError
        If cfn-lint is missing; the message says how to install it.
    RuntimeError
        If cfn-lint is there but finds nothing in a template with a planted fault, so that clean would mean nothing.
    """
    return lint_templates(read_some_templates(source), region=region, ignore=ignore)


def lint_templates(
    templates: Sequence[SynthesizedTemplate], *, region: str | None = None, ignore: Collection[str] = ()
) -> tuple[ComplianceFinding, ...]:
    """Return what cfn-lint finds in templates that were read; see `lint_findings`."""
    if not can_lint():
        raise ModuleNotFoundError("linting needs cfn-lint, got: none; pip install 'training-storage[testing]'")
    _require_sight()
    return tuple(
        finding
        for template in templates
        for finding in lint(template, region=region or template.region or DEFAULT_REGION, ignore=ignore)
    )


def lint(template: SynthesizedTemplate, *, region: str, ignore: Collection[str] = ()) -> list[ComplianceFinding]:
    """Return what cfn-lint finds in one template and in those nested in it."""
    found = [
        ComplianceFinding(
            tool="cfn-lint",
            rule=rule,
            path="/".join(filter(None, (template.label, *path))),
            message=message,
            remedy=f"mend it, or leave the rule out with ignore=['{rule}']",
        )
        for rule, path, message in _run(template.document, region=region, ignore=ignore)
    ]
    for nested in _nested(template):
        found += lint(nested, region=region, ignore=ignore)
    return found


def _run(document: Mapping[str, Any], *, region: str, ignore: Collection[str] = ()) -> list[tuple[str, list[str], str]]:
    from cfnlint.api import lint as run  # noqa: PLC0415 -- a second, and only for those who have it
    from cfnlint.config import ManualArgs  # noqa: PLC0415

    config = ManualArgs(regions=[region], ignore_checks=[*IGNORED_RULES, *ignore])
    return [
        # What is wrong with the template as a whole has no path.
        (match.rule.id, [str(part) for part in getattr(match, "path", None) or []], " ".join(match.message.split()))
        for match in run(json.dumps(document), config=config)
    ]


@functools.cache
def _require_sight() -> None:
    """Refuse a cfn-lint that sees nothing."""
    if not any("NoSuchProperty" in message for _, _, message in _run(_BROKEN, region=DEFAULT_REGION)):
        raise RuntimeError("cfn-lint must find a property that does not exist, got: nothing; install it anew")


def _nested(template: SynthesizedTemplate) -> list[SynthesizedTemplate]:
    from training_storage.cli.nested import nested_file, nested_stacks  # noqa: PLC0415 -- it loads the command's parts
    from training_storage.testing.assembly import read_json  # noqa: PLC0415

    if template.path is None:
        return []
    found = []
    for logical_id, resource in nested_stacks(template.document):
        file = nested_file(template.path.parent, resource)
        if file is not None and file != template.path.resolve():
            label = "/".join(filter(None, (template.label, logical_id)))
            found.append(SynthesizedTemplate(label=label, document=read_json(file), path=file, region=template.region))
    return found
