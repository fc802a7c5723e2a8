"""Whole templates: a change that nobody meant shows here. Update with `pytest tests/snapshot --snapshot-update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.testing.template_snapshot import TemplateSnapshot

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
    synthesize: Callable[..., dict[str, Any]],
    template_snapshot: TemplateSnapshot,
    stack: str,
    context: dict[str, str],
) -> None:
    template_snapshot(synthesize(**context)[stack])
