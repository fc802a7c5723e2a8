"""One rank of the tests of torch's distributed checkpoint: ``python -m tests.training.dcp_ranks TARGET``.

Prints what happened as JSON; the tests judge it.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from tests.training.checkpoint_support import PART_MIB
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.checkpoint_place import open_place
from training_storage.training.endpoint import endpoint_of
from training_storage.training.recipes import dcp_streams
from training_storage.training.recipes.torch_dcp import DcpCheckpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.training.checkpoint_place import Place

#: A rank's own tensor: larger than a part, so that S3 gets it in several.
NUMBERS = 1_600_000


def checkpoints(target: str, **options: Any) -> DcpCheckpoints:
    chosen = {"endpoint": endpoint_of(), "region": "us-east-1", "part_size_mib": PART_MIB, "timeout_seconds": 60.0}
    return DcpCheckpoints(target, **{**chosen, **options})


def state_of(step: int) -> dict[str, Any]:
    """Return a state that differs for each step: a shared module, a tensor of this rank's own, plain values."""
    torch.manual_seed(step)
    module = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    own = torch.full((NUMBERS,), float(step * 10 + dist.get_rank()))
    return {
        "module": module,
        "optimizer": optimizer,
        f"own-{dist.get_rank()}": own,
        "progress": {"step": step, "words": ["a", "b"]},
    }


def plain(state: dict[str, Any]) -> dict[str, Any]:
    """Return values that can be compared and printed."""
    return {
        "weight": state["module"].weight.detach().tolist(),
        "momentum": [slot["momentum_buffer"].tolist() for slot in state["optimizer"].state_dict()["state"].values()],
        "own": state[f"own-{dist.get_rank()}"].unique().tolist(),
        "progress": copy.deepcopy(state["progress"]),
    }


def save_and_load(target: str) -> dict[str, Any]:
    """Save, change everything in place at once, and load: what comes back is what was there at the save."""
    saver = checkpoints(target, kept=2)
    saved = []
    expected: dict[str, Any] = {}
    for step in (1, 2, 3):
        state = state_of(step)
        expected = plain(state)
        saver.save(step, state)
        with torch.no_grad():
            state["module"].weight.zero_()
            state[f"own-{dist.get_rank()}"].fill_(-1.0)
            state["progress"]["words"].append("changed")
        # Training goes on: its collectives meet none of the save's.
        for _ in range(20):
            dist.all_reduce(torch.ones(4))
        one = saver.wait()
        assert one is not None
        saved.append({"name": one.name, "bytes": one.bytes, "moved": one.latest_moved, "removed": one.removed})
    assert saver.check() is None
    loaded_state = state_of(99)
    loaded = checkpoints(target).load(loaded_state)
    return {
        "own_group": saver._group is not dist.group.WORLD,
        "saved": saved,
        "expected": expected,
        "loaded": plain(loaded_state),
        "name": loaded.name,
        "step": loaded.step,
    }


def name_used_twice(target: str) -> dict[str, Any]:
    """Save a step whose folder exists."""
    saver = checkpoints(target)
    saver.save(7, state_of(7))
    saver.wait()
    before = state_of(0)
    saver.load(before)
    again = checkpoints(target)
    again.save(7, state_of(8))
    error = error_of(again.wait)
    after = state_of(0)
    loaded = checkpoints(target, attempt="run-2").load(after)
    return {"error": error, "before": plain(before), "after": plain(after), "name": loaded.name}


def rank_1_fails(target: str) -> dict[str, Any]:
    """Let rank 1 fail in the middle of its file; the error comes with the next call, on every rank."""
    saver = checkpoints(target)
    saver.save(1, state_of(1))
    saver.wait()
    failing = _FailingDisk() if dist.get_rank() == 1 else None
    if failing:
        failing.install()
    saver.save(2, state_of(2))
    error = next(errors_of_steps(saver.check))
    if failing:
        failing.remove()
    state = state_of(0)
    loaded = saver.load(state)
    saver.save(3, state_of(3))
    third = saver.close()
    assert third is not None
    return {"error": error, "loaded": loaded.name, "then": third.name}


def newest_is_damaged(target: str) -> dict[str, Any]:
    """Load where one file of the newest checkpoint is not what its marker says."""
    saver = checkpoints(target)
    for step in (1, 2):
        saver.save(step, state_of(step))
    saver.close()
    if dist.get_rank() == 0:
        flip_a_bit(open_place(target, endpoint=endpoint_of(), region="us-east-1"), "step-0000000002", "__1_0.distcp")
    dist.barrier()
    loaded = checkpoints(target).load(state_of(0))
    return {"loaded": loaded.name, "passed_over": [[one.name, one.why] for one in loaded.passed_over]}


def newest_is_unreadable(target: str) -> dict[str, Any]:
    """Load where rank 1 cannot read one file of the newest checkpoint; the other ranks hear of it at once."""
    saver = checkpoints(target)
    for step in (1, 2):
        saver.save(step, state_of(step))
    saver.close()
    loader = checkpoints(target)
    if dist.get_rank() == 1:
        read_range = loader._place.read_range

        def fail(key: str, start: int, end: int) -> Any:
            if "step-0000000002" in key:
                raise OSError(errno.EIO, "Input/output error")
            return read_range(key, start, end)

        loader._place.read_range = fail  # type: ignore[method-assign]
    started = time.monotonic()
    error = error_of(lambda: loader.load(state_of(0)))
    return {"error": error, "seconds": time.monotonic() - started}


def rank_1_cannot_take_it(target: str) -> dict[str, Any]:
    """Load into a state that only rank 1's module does not fit."""
    saver = checkpoints(target)
    saver.save(1, state_of(1))
    saver.close()
    state = state_of(0)
    if dist.get_rank() == 1:
        state["module"].load_state_dict = _refuse
    return {"error": error_of(lambda: checkpoints(target).load(state))}


def rank_1_cannot_begin(target: str) -> dict[str, Any]:
    """Save where only rank 1 fails before the first collective of torch."""
    saver = checkpoints(target)
    if dist.get_rank() == 1:
        saver._writer = _refuse  # type: ignore[method-assign]
    error = error_of(lambda: saver.save(1, state_of(1)))
    return {"error": error}


def _refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("no room\nfor this")


def flip_a_bit(place: Place, name: str, path: str) -> None:
    size = place.files(name)[path].bytes
    data = bytearray(place.read_range(f"{name}/{path}", 0, size))
    data[size // 2] ^= 1
    place.delete(f"{name}/{path}")
    assert place.create(f"{name}/{path}", bytes(data))


class _FailingDisk:
    """Lets a stream fail below, as a full disk or a lost connection does, once a part of the file is written."""

    def install(self) -> None:
        self._made = dcp_streams.HashingStream.__init__

        def make(stream: dcp_streams.HashingStream, raw: Any) -> None:
            self._made(stream, _FailingRaw(raw))

        dcp_streams.HashingStream.__init__ = make  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        dcp_streams.HashingStream.__init__ = self._made  # type: ignore[method-assign]


class _FailingRaw:
    def __init__(self, raw: Any) -> None:
        self._raw, self._written = raw, 0

    def write(self, data: Any) -> None:
        if self._written > NUMBERS:
            raise OSError("No space left on device")
        self._written += memoryview(data).nbytes
        self._raw.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except CheckpointError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def errors_of_steps(check: Callable[[], object]) -> Iterator[str]:
    """Call `check` as a training loop does, step after step, until it raises."""
    for _ in range(1200):
        error = error_of(check)
        if error != "none":
            yield error
        time.sleep(0.05)


SCENARIOS = (
    save_and_load,
    name_used_twice,
    rank_1_fails,
    newest_is_damaged,
    newest_is_unreadable,
    rank_1_cannot_take_it,
    rank_1_cannot_begin,
)


def main() -> None:
    """Run all scenarios as the rank that the environment names, each in a place of its own."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['RENDEZVOUS_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    results = {scenario.__name__: scenario(f"{sys.argv[1]}{scenario.__name__}/") for scenario in SCENARIOS}
    sys.stdout.write(json.dumps(results) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
