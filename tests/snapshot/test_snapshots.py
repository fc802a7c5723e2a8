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

FOUR = {"instances": "4"}
SMALL = {"instances": "8"}
DEFAULT = {"instances": "256"}
MIXED = {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"}
ISOLATED = {"instances": "8", "egress": "isolated"}
EC2 = {"engine": "ec2"}
BLOCKS = {
    "instances": "192",
    "purchase": "capacity-block",
    "capacity_reservation_ids": "cr-0123456789abcdef0,cr-0123456789abcdef1,cr-0123456789abcdef2",
}


def normalised(template: dict[str, Any]) -> Any:
    """Replace what changes with every release of CDK: keys of assets, and the bootstrap rule."""
    kept = {section: content for section, content in template.items() if section != "Rules"}
    kept["Parameters"] = {k: v for k, v in kept.get("Parameters", {}).items() if k != "BootstrapVersion"}
    return json.loads(re.sub(r"\b[0-9a-f]{64}\b", "ASSET", json.dumps(kept)))


@pytest.mark.parametrize(
    ("stack", "context"),
    [
        ("TrainingDataLake", SMALL),
        ("TrainingStorage", FOUR),
        ("TrainingStorage", FOUR | EC2),
        ("TrainingStorage", ISOLATED),
        ("TrainingStorage", DEFAULT),
        ("TrainingStorage", DEFAULT | EC2),
        ("TrainingStorage", MIXED),
        ("TrainingStorage", MIXED | EC2),
        ("TrainingStorage", BLOCKS),
    ],
    ids=[
        "lake",
        "4",
        "4-ec2",
        "8-isolated",
        "256",
        "256-ec2",
        "1200-mixed",
        "1200-mixed-ec2",
        "192-in-capacity-blocks",
    ],
)
def test_the_template_is_as_last_reviewed(
    synthesize: Callable[..., dict[str, Any]], snapshot: SnapshotAssertion, stack: str, context: dict[str, str]
) -> None:
    template = normalised(synthesize(**context)[stack])
    assert template == snapshot(extension_class=JSONSnapshotExtension)
