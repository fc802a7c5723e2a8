"""Competing processes publish checkpoints and are killed; an observer restores all the while.

Run as a program of its own: obstore's threads do not survive a fork, so the processes are forked from one that has
loaded everything and sent nothing. It prints what happened as JSON.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import functools
import json
import os
import random
import select
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tests.training.checkpoint_support import PART, content, files_of, s3_place, saved
from training_storage.checkpoint_format import (
    MARKER_NAME,
    POINTER_NAME,
    CheckpointFile,
    Marker,
    Pointer,
    checkpoint_name,
    read_pointer,
)
from training_storage.training.checkpoint_errors import NoCheckpointError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.checkpoint_scan import State, look, newest_first
from training_storage.training.publish import publish
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.training.checkpoint_place import Place

PROCESSES = 8
#: Processes that compete pick one of so many next steps: some the same, some different ones.
WINDOW = 3
#: Every fifth checkpoint has a file that goes up in parts.
LARGE_EVERY = 5
SIZES = {"model.pt": 40_000, "optimizer.pt": 90_000, "deep/rng.json": 300}


def sizes(step: int) -> dict[str, int]:
    return SIZES | ({"large.pt": PART + 1000} if step % LARGE_EVERY == 0 else {})


class Suicidal:
    """A place whose process is killed before or after one of its operations, or between two parts of a file."""

    def __init__(self, place: Place, *, at: int, after: bool) -> None:
        self._place, self._at, self._after, self._count = place, at, after, 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._place, name)
        if name not in ("read", "files", "create", "create_from_parts", "swap"):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            mine = self._count == self._at
            self._count += 1
            if mine and not self._after:
                kill_myself()
            if name == "create_from_parts":
                arguments = (arguments[0], _Counted(arguments[1], self))
            answer = attribute(*arguments, **named)
            if mine:
                kill_myself()
            return answer

        return call

    def part(self) -> None:
        if self._count == self._at:
            kill_myself()
        self._count += 1


class _Counted:
    def __init__(self, parts: Any, owner: Suicidal) -> None:
        self.size, self._parts, self._owner = parts.size, parts, owner

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self._owner.part()
            yield part


def kill_myself() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def forked(call: Callable[[], None]) -> int:
    """Run `call` in a child; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        call()
        sys.stderr.flush()
        os._exit(0)
    except BaseException:  # noqa: BLE001 -- a child must never return into the parent's loop
        traceback.print_exc()
        os._exit(1)


@dataclass(kw_only=True)
class Observed:
    """What an observer saw; each violation is one line."""

    violations: list[str] = field(default_factory=list)
    looks: int = 0
    restores: int = 0
    moves: int = 0
    newest: int = 0


def observe(look_once: Callable[[Place, Path, Observed], None], place: Place, folder: Path, report: Path) -> None:
    """Look until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    seen = Observed()
    while not ended:
        try:
            look_once(place, folder, seen)
        except Exception as error:  # noqa: BLE001 -- a failed look is a violation, not the end
            seen.violations.append(f"{type(error).__name__}: {error}")
        seen.looks += 1
        time.sleep(0.002)
    report.write_text(json.dumps(vars(seen)), encoding="utf-8")


def latest_step(place: Place) -> tuple[int, str]:
    found = place.read(POINTER_NAME)
    pointer = None if found is None else read_pointer(found.data)
    return (0, "") if pointer is None else (pointer.step, pointer.checkpoint)


def watch_pointer(place: Place, _: Path, seen: Observed) -> None:
    """The pointer moves forwards only, and what it names has all its files."""
    step, name = latest_step(place)
    if step < seen.newest:
        seen.violations.append(f"latest went back from {seen.newest} to {step}")
    elif step > seen.newest:
        seen.moves += 1
        found = look(place, name)
        if found.state != State.COMPLETE:
            seen.violations.append(f"latest names {name}, which is {found.state}: {found.why}")
    seen.newest = step


def watch_restore(place: Place, folder: Path, seen: Observed) -> None:
    """Restoring gives a checkpoint with true bytes, never an older one than the pointer named before."""
    step, _ = latest_step(place)
    into = folder / str(seen.looks)
    try:
        restored = restore(place, into)
    except NoCheckpointError as error:
        if step:
            seen.violations.append(f"latest says {step}, restore says {error}")
        return
    seen.restores += 1
    if (restored.step or 0) < step:
        seen.violations.append(f"latest said {step} before restore returned {restored.step}")
    if files_of(restored.folder) != expected(restored.step or 0):
        seen.violations.append(f"{restored.name} was restored with other bytes")
    if any("no end mark" not in passed.why for passed in restored.passed_over):
        seen.violations.append(f"damaged: {restored.passed_over}")
    shutil.rmtree(into)


@functools.lru_cache(maxsize=4)
def expected(step: int) -> dict[str, bytes]:
    return {path: content(step, path, size) for path, size in sizes(step).items()}


def publish_carelessly(folder: Path, place: Any) -> None:
    """What people write first: the pointer is replaced before the files are there, whatever it said."""
    marker = Marker(
        step=int(folder.name[-10:]),
        finished_at=dt.datetime.now(tz=dt.UTC),
        files=tuple(CheckpointFile(path=path, bytes=len(data)) for path, data in files_of(folder).items()),
    )
    pointer = Pointer(checkpoint=folder.name, step=marker.step).to_json().encode()
    for key, data in {
        POINTER_NAME: pointer,
        f"{folder.name}/{MARKER_NAME}": marker.to_json().encode(),
        **{f"{folder.name}/{path}": data for path, data in files_of(folder).items()},
    }.items():
        found = place.read(key)
        place.swap(key, data, version=None if found is None else found.version)


class Arena:
    """Starts, kills and reaps the publishers."""

    def __init__(self, place: Place, folder: Path, *, kills: int, seed: int, careless: bool) -> None:
        self.place, self.folder, self.wanted, self.careless = place, folder, kills, careless
        self.random = random.Random(seed)  # noqa: S311
        self.kills: collections.Counter[str] = collections.Counter()
        self.completed: set[int] = set()
        self.durations: list[float] = []
        self.failed = 0
        self.next_step = 1
        self.running: dict[int, tuple[int, int, float, float | None, str]] = {}

    def run(self) -> None:
        while self.running or sum(self.kills.values()) < self.wanted:
            while len(self.running) < PROCESSES and sum(self.kills.values()) + len(self.running) < self.wanted:
                self.start()
            self.wait()
        # Nobody is killed any more: each step that somebody began can be finished.
        for step in sorted(set(range(1, self.next_step + WINDOW)) - self.completed):
            if (self.folder / checkpoint_name(step)).exists():
                pid = forked(functools.partial(self.publish, step, self.place))
                self.failed += os.waitpid(pid, 0)[1] != 0
                self.completed.add(step)

    def publish(self, step: int, place: Any) -> None:
        if self.careless:
            publish_carelessly(self.folder / checkpoint_name(step), place)
            return
        assert publish(self.folder / checkpoint_name(step), place, timeout_seconds=30, concurrency=4).complete

    def start(self) -> None:
        step = self.next_step + self.random.randrange(WINDOW)
        if not (self.folder / checkpoint_name(step)).exists():
            saved(self.folder, step, sizes(step))
        # Half are killed at an operation, half at a moment spread over the time that publishing takes.
        by_clock = len(self.durations) > PROCESSES and self.random.random() < 0.5
        place: Any = self.place
        kill_at = None
        if by_clock:
            kill_at = self.random.uniform(0, 1.1 * statistics.median(self.durations[-50:]))
        elif sum(self.kills.values()) or len(self.durations) > PROCESSES:
            place = Suicidal(self.place, at=self.random.randrange(14), after=self.random.random() < 0.5)
        started = time.monotonic()
        pid = forked(functools.partial(self.publish, step, place))
        kind = "clock" if by_clock else "operation"
        self.running[pid] = (step, os.pidfd_open(pid), started, None if kill_at is None else started + kill_at, kind)

    def wait(self) -> None:
        """Wait for the next end or the next kill."""
        now = time.monotonic()
        due = min((at for _, _, _, at, _ in self.running.values() if at is not None), default=now + 5)
        ready, _, _ = select.select([run[1] for run in self.running.values()], [], [], max(0.0, due - now))
        for pid, (step, handle, started, at, kind) in list(self.running.items()):
            if handle in ready:
                self.reap(pid, step, handle, started, kind)
            elif at is not None and at <= time.monotonic():
                os.kill(pid, signal.SIGKILL)
                self.reap(pid, step, handle, started, kind)

    def reap(self, pid: int, step: int, handle: int, started: float, kind: str) -> None:
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        del self.running[pid]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills[kind] += 1
        elif status == 0:
            self.durations.append(time.monotonic() - started)
            self.completed.add(step)
            self.next_step = max(self.next_step, step + 1)
        else:
            self.failed += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--careless", action="store_true")
    options = parser.parse_args()
    place: Place
    if options.target.startswith("/"):
        place = PathPlace(options.target)
    else:
        place = s3_place(options.target)
        # The client is made before the forks, and connects after them.
        assert place.client
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports = {call: folder / f"{call.__name__}.json" for call in (watch_pointer, watch_restore)}
        observers = [
            forked(functools.partial(observe, call, place, folder / "restored", report))
            for call, report in reports.items()
        ]
        arena = Arena(place, folder / "local", kills=options.kills, seed=options.seed, careless=options.careless)
        try:
            arena.run()
        finally:
            statuses = []
            for observer in observers:
                os.kill(observer, signal.SIGTERM)
                statuses.append(os.waitpid(observer, 0)[1])
        # Only now may this process use the store itself.
        final = [(found.step, found.state) for found in newest_first(place)]
        latest = place.read(POINTER_NAME)
        assert latest is not None
        result = {
            "observers": statuses,
            **{call.__name__: json.loads(report.read_text(encoding="utf-8")) for call, report in reports.items()},
            "kills": arena.kills,
            "publishers_failed": arena.failed,
            "completed": len(arena.completed),
            "incomplete_at_the_end": [step for step, state in final if state != State.COMPLETE],
            "latest": read_pointer(latest.data).step,
            "highest": final[0][0],
        }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
