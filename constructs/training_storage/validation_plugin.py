"""The legality rules as a CDK validation plugin, beside cdk-nag."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import jsii
from aws_cdk import (
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyViolatingResource,
    PolicyViolation,
)

from training_storage.planning.legality import check_template, rules
from training_storage.validation_places import construct_path, nested_templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aws_cdk import IPolicyValidationContext

__all__ = ["StorageLegalityChecks"]

_DISTRIBUTION = "training-storage"


@jsii.implements(IPolicyValidationPlugin)
class StorageLegalityChecks:
    """Fails a synth whose templates hold what FSx for Lustre or S3 Express would refuse.

    Attach it with ``Validations.of(app).add_plugins(StorageLegalityChecks())``. Nested stacks are checked as well. A
    finding is acknowledged as CDK's output says, ``training-storage::<rule>``, on its construct or above it; resources
    of the same logical id in other stacks and stages are left alone.
    """

    @property
    def name(self) -> str:
        """Name of the plugin in the report."""
        return _DISTRIBUTION

    @property
    def version(self) -> str:
        """Version of the library; 0.0.0 from a source tree."""
        try:
            return metadata.version(_DISTRIBUTION)
        except metadata.PackageNotFoundError:
            return "0.0.0"

    @property
    def rule_ids(self) -> list[str]:
        """Ids of all rules."""
        return list(rules())

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        """Check every template that CDK wrote."""
        violations = [
            violation
            for stack in context.stack_templates
            for template in (Path(stack.template_path), *nested_templates(Path(stack.template_path)))
            for violation in _violations(template, region=stack.region)
        ]
        return PolicyValidationPluginReport(success=not violations, violations=violations)


def _violations(path: Path, *, region: str | None) -> Iterator[PolicyViolation]:
    template = json.loads(path.read_text(encoding="utf-8"))
    for found in check_template(template, region=region).findings:
        yield PolicyViolation(
            rule_name=found.finding.rule,
            description=found.finding.message,
            fix=found.finding.remedy,
            severity="error",
            rule_metadata={"source": found.finding.source},
            violating_resources=[_place(path, found.logical_id, found.finding.location or "Properties")],
        )


def _place(template: Path, logical_id: str, location: str) -> PolicyViolatingResource:
    return PolicyViolatingResource(
        # Without it CDK looks the logical id up in the whole app.
        construct_path=construct_path(template, logical_id),
        resource_logical_id=logical_id,
        template_path=str(template),
        locations=[location],
    )
