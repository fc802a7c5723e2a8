"""What tests of training storage use: as a pytest plugin, and as plain functions for any other test framework.

The plugin (`training_storage.testing.plugin`) is found by pytest once the package is installed. The names here are
loaded when they are first used, so that a test session that uses none of them loads neither CDK nor boto3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_storage.testing.assertions import NotComparedWarning, assert_legal, assert_nothing_lost
    from training_storage.testing.compliance import ComplianceFinding, assert_compliant, compliance_findings
    from training_storage.testing.deployment import DeployedResource, Deployment, DeploymentError, deploy
    from training_storage.testing.linting import lint_findings
    from training_storage.testing.local_aws import LocalAws, LocalAwsError
    from training_storage.testing.normalisation import normalised
    from training_storage.testing.revisions import template_at
    from training_storage.testing.snapshots import assert_matches_snapshot
    from training_storage.testing.sources import Source
    from training_storage.testing.template_snapshot import TemplateSnapshot

_MODULE_OF_NAME = {
    "ComplianceFinding": "compliance",
    "DeployedResource": "deployment",
    "Deployment": "deployment",
    "DeploymentError": "deployment",
    "LocalAws": "local_aws",
    "LocalAwsError": "local_aws",
    "NotComparedWarning": "assertions",
    "Source": "sources",
    "TemplateSnapshot": "template_snapshot",
    "assert_compliant": "compliance",
    "assert_legal": "assertions",
    "assert_matches_snapshot": "snapshots",
    "assert_nothing_lost": "assertions",
    "compliance_findings": "compliance",
    "deploy": "deployment",
    "lint_findings": "linting",
    "normalised": "normalisation",
    "template_at": "revisions",
}

__all__ = [
    "ComplianceFinding",
    "DeployedResource",
    "Deployment",
    "DeploymentError",
    "LocalAws",
    "LocalAwsError",
    "NotComparedWarning",
    "Source",
    "TemplateSnapshot",
    "assert_compliant",
    "assert_legal",
    "assert_matches_snapshot",
    "assert_nothing_lost",
    "compliance_findings",
    "deploy",
    "lint_findings",
    "normalised",
    "template_at",
]


def __getattr__(name: str) -> object:
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
