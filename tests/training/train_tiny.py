"""Starts the example with torchrun, kills it, and reads what it was trained on; for its test and its benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.contracts import contract
from training_storage.training.checkpoint_place import open_place
from training_storage.training.recipes.completion import newest_complete

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "train_tiny"
SAMPLES, SHARDS, BATCH, EPOCHS, RANKS = 256, 8, 8, 2, 2
STEPS = SAMPLES // (BATCH * RANKS) * EPOCHS
#: No multiple of an epoch's steps before the end, so that every checkpoint is of the middle of an epoch.
CHECKPOINT_EVERY = 7
_LISTENING = "0A"


@dataclass(frozen=True, kw_only=True)
class Step:
    """The samples of one rank in one global step."""

    epoch: int
    step: int
    rank: int
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What a run printed at its end."""

    steps: int
    weights: str
    output: str


def lustre_contract(folder: Path) -> dict[str, Any]:
    """Return the contract of a job on a file system, whose mount is `folder`/fsx."""
    values: dict[str, Any] = json.loads(json.dumps(contract(instances=64)))
    values["lustre"]["mount_path"] = f"{folder}/fsx"
    values["lustre"]["paths"] = {
        purpose: path.replace("/fsx/", f"{folder}/fsx/", 1) for purpose, path in values["lustre"]["paths"].items()
    }
    values["checkpoints"]["path"] = values["lustre"]["paths"]["checkpoints"]
    values["checkpoints"]["durable_uri"] = f"{folder}/lake/"
    return _on_this_machine(values, folder)


def s3_contract(folder: Path, *, bucket: str, endpoint_url: str) -> dict[str, Any]:
    """Return the contract of a job on S3 alone, at an endpoint of its own."""
    values: dict[str, Any] = json.loads(
        json.dumps(contract(instances=8)).replace(contract(instances=8)["s3"]["bucket"], bucket)
    )
    values["endpoint"] = {"url": endpoint_url, "addressing_style": "auto", "checksums": "when_required"}
    return _on_this_machine(values, folder)


def _on_this_machine(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    values["checkpoints"]["local_path"] = f"{folder}/scratch/checkpoints"
    values["loader"]["cache_path"] = f"{folder}/scratch/cache"
    # Two loader processes for each rank, where there are so many cores.
    values["job"]["accelerators_per_instance"] = max(1, len(os.sched_getaffinity(0)) // 2)
    return values


class Example:
    """The example in a folder of its own.

    Parameters
    ----------
    folder
        Takes the contract and the logs.
    values
        The contract.
    environment
        Credentials and the like.
    """

    def __init__(self, folder: Path, values: dict[str, Any], *, environment: Mapping[str, str]) -> None:
        self.logs = folder / "keys"
        self.logs.mkdir(parents=True)
        self.contract = folder / "storage.json"
        self.contract.write_text(json.dumps(values), encoding="utf-8")
        self._checkpoints = values["checkpoints"]["path"] or values["checkpoints"]["uri"]
        self.environment = {
            **environment,
            "TRAINING_STORAGE_CONTRACT": str(self.contract),
            "PYTHONPATH": str(ROOT / "constructs"),
            "TMPDIR": str(folder),
        }

    def run(self) -> Finished:
        """Train to the end."""
        process = self._start(step_seconds=0.0)
        try:
            output, _ = process.communicate(timeout=180)
        finally:
            kill_tree(process.pid)
        assert process.returncode == 0, output[-3000:]
        # What Python says of its own processes at the very end may come after it.
        last = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
        return Finished(steps=last["steps"], weights=last["weights"], output=output)

    def run_and_kill(self, *, while_running: Callable[[set[int]], None] | None = None) -> int:
        """Kill every process some steps after a checkpoint; return the last step taken."""
        process = self._start(step_seconds=0.2)
        try:
            self._wait(process, lambda: bool(self.steps()))
            if while_running:
                while_running(tree(process.pid))
            self._wait(process, self._is_past_a_checkpoint)
        finally:
            kill_tree(process.pid)
            process.communicate()
        return max(step.step for step in self.steps())

    def newest(self) -> int:
        """Return the step of the newest complete checkpoint, 0 without one; a kill may hit before the pointer moves."""
        _, found = next(newest_complete([open_place(self._checkpoints, region="us-east-1")]), (None, None))
        return (found.step or 0) if found else 0

    def steps(self) -> list[Step]:
        """Return every step of every attempt, older attempts first."""
        found = []
        for log in sorted(self.logs.iterdir(), key=lambda path: path.stat().st_ctime_ns):
            rank = int(log.stem.rpartition("-")[2])
            # The last line of a rank that was killed may be cut.
            lines = [line for line in log.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
            found += [
                Step(epoch=one["epoch"], step=one["step"], rank=rank, keys=tuple(one["keys"]))
                for one in map(json.loads, lines)
            ]
        return found

    def _wait(self, process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not until():
            assert process.poll() is None, process.communicate()[0][-3000:]
            assert time.monotonic() < deadline, "the example did not come so far in time"
            time.sleep(0.02)

    def _is_past_a_checkpoint(self) -> bool:
        """Whether some steps beyond a complete checkpoint are taken by now."""
        last, newest = max((step.step for step in self.steps()), default=0), self.newest()
        return 0 < newest < last - 1

    def _start(self, *, step_seconds: float) -> subprocess.Popen[str]:
        options = {
            "--epochs": EPOCHS,
            "--checkpoint-every-steps": CHECKPOINT_EVERY,
            "--step-seconds": step_seconds,
            "--log-keys": self.logs,
        }
        return subprocess.Popen(
            [EXAMPLE / "run.sh", str(RANKS), *(str(word) for option in options.items() for word in option)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def tree(pid: int) -> set[int]:
    """Return a process and all that it started, directly or not."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def kill_tree(pid: int) -> None:
    """End a process and all that it started with SIGKILL, as a lost node does."""
    for one in tree(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def open_ports(pids: set[int]) -> list[str]:
    """Return the addresses that processes listen on, as the kernel writes them: ``0100007F:1F90``."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == _LISTENING and row[9] in inodes]
