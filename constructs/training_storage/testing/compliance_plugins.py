"""The validation plugins that `assert_compliant` attaches to an app.

A plugin cannot be detached. So these answer only while they are asked, and never fail a synth: a test that found
something must not break the next one, which synthesizes the same app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jsii
from aws_cdk import (
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyViolation,
    Validations,
)
from cdk_nag import AwsSolutionsChecks

from training_storage.validation_plugin import StorageLegalityChecks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import App, IPolicyValidationContext

__all__ = ["NAG", "OURS", "CompliancePlugins"]

#: Names of the plugins in CDK's report; acknowledgements may begin with them.
NAG: Final = "AwsSolutions"
OURS: Final = "training-storage"

_NOTHING = PolicyValidationPluginReport(success=True, violations=[])


class CompliancePlugins:
    """Both plugins of one app.

    Parameters
    ----------
    app
        What they are attached to.
    """

    def __init__(self, app: App) -> None:
        self._plugins = (_Nag(app), _Rules())
        Validations.of(app).add_plugins(*self._plugins)

    def ask(self) -> None:
        """Let the next synth be validated."""
        for plugin in self._plugins:
            plugin.asked, plugin.answered = True, False

    def answered(self) -> bool:
        """Whether CDK ran both since they were asked; they are asked no longer."""
        for plugin in self._plugins:
            plugin.asked = False
        return all(plugin.answered for plugin in self._plugins)


@jsii.implements(IPolicyValidationPlugin)
class _Nag:
    """cdk-nag, when it is asked."""

    asked = answered = False

    def __init__(self, app: App) -> None:
        self._pack = AwsSolutionsChecks(app)

    @property
    def name(self) -> str:
        return NAG

    @property
    def version(self) -> str | None:
        return None

    @property
    def rule_ids(self) -> list[str] | None:
        return None

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        if not self.asked:
            return _NOTHING
        found = self._pack.validate(context)
        self.answered = True
        return _mild(found.violations)


class _Rules(StorageLegalityChecks):
    """Our rules, when they are asked."""

    asked = answered = False

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        if not self.asked:
            return _NOTHING
        found = super().validate(context)
        self.answered = True
        return _mild(found.violations)


def _mild(found: Sequence[PolicyViolation]) -> PolicyValidationPluginReport:
    """Return a report that fails no synth."""
    return PolicyValidationPluginReport(
        success=True,
        violations=[
            PolicyViolation(
                rule_name=violation.rule_name,
                description=violation.description,
                severity="warning",
                violating_resources=violation.violating_resources,
            )
            for violation in found
        ],
    )
