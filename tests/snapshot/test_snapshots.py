"""Whole templates: a change that nobody meant shows here. Update with `pytest tests/snapshot --snapshot-update`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

SMALL = {"instances": "8"}
DEFAULT = {"instances": "256"}
MIXED = {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"}
ISOLATED = {"instances": "8", "egress": "isolated"}


def normalised(template: dict[str, Any]) -> Any:
    """Replace what changes with every release of CDK: keys of assets, and the bootstrap rule."""
    kept = {section: content for section, content in template.items() if section != "Rules"}
    kept["Parameters"] = {k: v for k, v in kept.get("Parameters", {}).items() if k != "BootstrapVersion"}
    return json.loads(re.sub(r"\b[0-9a-f]{64}\b", "ASSET", json.dumps(kept)))


@pytest.mark.parametrize(
    ("stack", "context"),
    [
        ("TrainingDataLake", SMALL),
        ("TrainingStorage", SMALL),
        ("TrainingStorage", ISOLATED),
        ("TrainingStorage", DEFAULT),
        ("TrainingStorage", MIXED),
    ],
    ids=["lake", "8", "8-isolated", "256", "1200-mixed"],
)
def test_the_template_is_as_last_reviewed(
    synthesize: Callable[..., dict[str, Any]], snapshot: SnapshotAssertion, stack: str, context: dict[str, str]
) -> None:
    template = normalised(synthesize(**context)[stack])
    assert template == snapshot(extension_class=JSONSnapshotExtension)
