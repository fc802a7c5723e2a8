"""What the group's CI holds its platform to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App
from training_storage.testing import TemplateSnapshot

from app import build
from folding.platform import FoldingPlatform

SETTINGS = Path(__file__).resolve().parents[1] / "cdk.json"


@pytest.fixture(scope="module")
def platform() -> FoldingPlatform:
    return build(App(context=json.loads(SETTINGS.read_text(encoding="utf-8"))["context"]))


def test_templates_are_as_reviewed(platform: FoldingPlatform, template_snapshot: TemplateSnapshot) -> None:
    template_snapshot(platform)


def test_aws_would_accept_it_and_reviewers_too(
    platform: FoldingPlatform, assert_compliant: Callable[..., None]
) -> None:
    assert_compliant(platform)
