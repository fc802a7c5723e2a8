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

if TYPE_CHECKING:
    from aws_cdk import IPolicyValidationContext, PolicyValidationStack

__all__ = ["StorageLegalityChecks"]

_DISTRIBUTION = "training-storage"


@jsii.implements(IPolicyValidationPlugin)
class StorageLegalityChecks:
    """Fails a synth whose templates hold what FSx for Lustre or S3 Express would refuse.

    Attach it with ``Validations.of(app).add_plugins(StorageLegalityChecks())``. A finding is acknowledged as CDK's
    output says: ``training-storage::<rule>``.
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
        violations = [violation for stack in context.stack_templates for violation in _violations(stack)]
        return PolicyValidationPluginReport(success=not violations, violations=violations)


def _violations(stack: PolicyValidationStack) -> list[PolicyViolation]:
    template = json.loads(Path(stack.template_path).read_text(encoding="utf-8"))
    return [
        PolicyViolation(
            rule_name=found.finding.rule,
            description=found.finding.message,
            fix=found.finding.remedy,
            severity="error",
            rule_metadata={"source": found.finding.source},
            violating_resources=[
                PolicyViolatingResource(
                    resource_logical_id=found.logical_id,
                    template_path=stack.template_path,
                    locations=[found.finding.location or "Properties"],
                )
            ],
        )
        for found in check_template(template, region=stack.region).findings
    ]
