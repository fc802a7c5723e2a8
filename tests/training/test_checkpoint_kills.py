"""kill -9 at random points of publishing, in competing processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.training

ROOT = Path(__file__).resolve().parents[2]


def killed(target: str, *options: str, kills: int, aws: LocalAws | None) -> dict[str, Any]:
    environment = dict(os.environ) if aws is None else aws.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "constructs")])
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.training.checkpoint_kills",
            target,
            "--kills",
            str(kills),
            "--seed",
            "7",
            *options,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    assert result["observers"] == [0, 0]
    assert result["publishers_failed"] == 0, run.stderr
    return result


@pytest.mark.parametrize(("kind", "kills"), [("s3", 200), ("path", 80)])
def test_whoever_is_killed_wherever_restore_gives_a_whole_checkpoint_and_latest_never_goes_back(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    if kind == "s3":
        result = killed(request.getfixturevalue("bucket"), kills=kills, aws=request.getfixturevalue("training_aws"))
    else:
        result = killed(str(tmp_path / "lustre"), kills=kills, aws=None)
    pointer, restored = result["watch_pointer"], result["watch_restore"]
    assert pointer["violations"] == []
    assert restored["violations"] == []
    # The figures below say that something was watched: both kinds of kills, many looks, moves and restores.
    assert sum(result["kills"].values()) == kills
    assert min(result["kills"].values()) >= kills // 4
    assert pointer["looks"] >= kills
    assert pointer["moves"] >= 10
    assert restored["restores"] >= 10
    # Whatever was begun could be finished by publishing it again.
    assert result["incomplete_at_the_end"] == []
    assert result["latest"] == result["highest"]


def test_the_observers_notice_a_careless_publisher(tmp_path: Path) -> None:
    result = killed(str(tmp_path / "lustre"), "--careless", kills=40, aws=None)
    assert result["watch_pointer"]["violations"]
    assert result["watch_restore"]["violations"]
