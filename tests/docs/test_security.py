"""The page for security reviewers names every finding of cdk-nag that the app acknowledges, with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE = ROOT / "docs" / "security.md"
_KIND = "aws:cdk:acknowledged-rules"
_ID = re.compile(r"(?:Annotation::)?AwsSolutions-(?P<rule>\w+)")
#: Between them: both engines, both hot tiers, and everything that runs on a schedule.
_JOBS: Mapping[str, Mapping[str, str]] = {
    "lustre-pcs": {
        "instances": "256",
        "release_after_days": "7",
        "idle_park_hours": "5",
        "alarm_topic_arn": "arn:aws:sns:us-east-1:111122223333:alarms",
    },
    "express-ec2": {"instances": "1200", "interface": "object", "engine": "ec2"},
}


def _acknowledged(context: Mapping[str, str], folder: Path) -> set[tuple[str, str]]:
    """Return rule and reason of each acknowledgement that the app of `context` makes."""
    from aws_cdk import App  # noqa: PLC0415 -- the page's other checks load no CDK

    from app import build  # noqa: PLC0415

    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context={**flags, **context}, outdir=str(folder))
    build(app)
    found = set()
    for file in Path(app.synth().directory).glob("*.metadata.json"):
        for entries in json.loads(file.read_text(encoding="utf-8")).values():
            for entry in entries:
                # CDK acknowledges notes of its own checks in the same way.
                data = entry["data"] if entry["type"] == _KIND else {}
                found |= {(match["rule"], reason) for id, reason in data.items() if (match := _ID.match(id))}
    return found


def _documented() -> set[tuple[str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(rows)


@pytest.mark.slow
def test_the_acknowledged_findings_on_the_page_are_those_of_the_app(tmp_path: Path) -> None:
    found = set()
    for name, context in _JOBS.items():
        found |= _acknowledged(context, tmp_path / name)
    assert found == _documented()
