"""Kills a process that saves with torch's distributed checkpoint, again and again: ``… dcp_kills FOLDER ROUNDS``.

After each kill the newest complete checkpoint is loaded and compared. Prints what was found as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
import warnings
from typing import Any

import torch

from training_storage.training.checkpoint_attempt import Attempt
from training_storage.training.checkpoint_errors import NoCheckpointError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.publish import read_latest
from training_storage.training.recipes.torch_dcp import DcpCheckpoints

NUMBERS = 500_000


def save_until_killed(folder: str, attempt: int, first_step: int) -> None:
    """Save one step after the other."""
    checkpoints = DcpCheckpoints(folder, attempt=Attempt(run="run", counts=(attempt,)), kept=2)
    for step in itertools.count(first_step):
        checkpoints.save(step, {"weights": torch.full((NUMBERS,), float(step)), "step": step})


def newest(folder: str) -> tuple[int, int]:
    """Return the step of the newest complete checkpoint, whose content is checked, and that of the pointer."""
    state: dict[str, Any] = {"weights": torch.zeros(NUMBERS), "step": 0}
    pointer, _ = read_latest(PathPlace(folder))
    try:
        loaded = DcpCheckpoints(folder).load(state)
    except NoCheckpointError:
        return 0, pointer.step if pointer else 0
    assert loaded.step == state["step"]
    assert loaded.passed_over == ()
    assert torch.equal(state["weights"], torch.full((NUMBERS,), float(state["step"])))
    return int(state["step"]), pointer.step if pointer else 0


def main() -> None:
    """Kill, load, compare."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, rounds = sys.argv[1], int(sys.argv[2])
    chance = random.Random(20261130)  # noqa: S311 -- when to kill
    found: list[tuple[int, int]] = [(0, 0)]
    for attempt in range(rounds):
        child = os.fork()
        if not child:
            save_until_killed(folder, attempt, found[-1][0] + 1)
        time.sleep(chance.uniform(0.01, 0.4))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.append(newest(folder))
    place = PathPlace(folder)
    folders = [name for name in place.folders() if place.files(name)]
    sys.stdout.write(json.dumps({"found": found, "folders": len(folders)}) + "\n")


if __name__ == "__main__":
    main()
