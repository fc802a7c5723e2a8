"""How long a training loop stands still for a checkpoint: published at once, or in the background.

The same loop saves the same bytes to local disk three ways, taking turns in one run: saved only, saved and published
before the next step, and saved and handed to the publisher. The store is the local AWS in a process of its own, on
the last core; each request waits as long as S3 takes to its first byte.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.testing.local_aws import LocalAws
from training_storage.training.capability import AWS
from training_storage.training.checkpoint_s3_place import S3Place
from training_storage.training.endpoint import endpoint_of
from training_storage.training.publish import publish
from training_storage.training.publish_background import CheckpointPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Of one checkpoint.
FILES, FILE_BYTES = 8, 16 * 1024 * 1024
ROUNDS: Final = 5
#: A step keeps the interpreter busy for a part of its time and waits for its accelerator the rest, as real ones do.
STEPS, BUSY_LOOPS, WAIT_SECONDS = 100, 40_000, 0.02
#: What S3's guide says of small requests: 100 to 200 ms.
FIRST_BYTE_SECONDS: Final = 0.1
STALL_MOST: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Seconds for one checkpoint, the least of the rounds."""

    save_s: float
    synchronous_s: float
    background_s: float

    @property
    def share(self) -> float:
        """What background publishing adds to the loop, as a share of saving and publishing synchronously."""
        return self.background_s / self.synchronous_s


class FarAway:
    """A place whose requests take as long as over a network."""

    def __init__(self, place: S3Place) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._place, name)
        if name not in ("read", "files", "create", "swap"):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            time.sleep(FIRST_BYTE_SECONDS)
            return attribute(*arguments, **named)

        return call


def checkpoint_stall() -> Stall:
    """Measure."""
    with LocalAws.start() as aws, tempfile.TemporaryDirectory() as name:
        # The store of a real job computes elsewhere: here it must not take the core that the loop runs on.
        cores = sorted(os.sched_getaffinity(0))
        if aws.pid is not None and len(cores) > 1:
            os.sched_setaffinity(aws.pid, cores[-1:])
            os.setpriority(os.PRIO_PROCESS, aws.pid, 19)
        before = dict(os.environ)
        os.environ.update(aws.settings())
        try:
            aws.client("s3").create_bucket(Bucket="stall-of-checkpoints")
            return _measured(Path(name), aws.endpoint_url)
        finally:
            os.environ.clear()
            os.environ.update(before)


def claims(stall: Stall) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is claimed, as words, measured, limit and whether it holds."""
    yield (
        f"background publishing stalls the loop / a synchronous save of {stall.synchronous_s:.2f} s",
        f"{stall.share:.2%}",
        f"less than {STALL_MOST:.0%}",
        stall.share < STALL_MOST,
    )


def lines(stall: Stall) -> Iterator[str]:
    """Yield the section of the document."""
    yield from ("", "## Publishing checkpoints", "")
    yield (
        f"A loop of {STEPS} steps saves {FILES * FILE_BYTES // 2**20} MiB in {FILES} files to local disk and publishes"
        f" them to a store on loopback whose requests take {FIRST_BYTE_SECONDS * 1000:.0f} ms more. The least of"
        f" {ROUNDS} rounds that take turns, and no median: whatever else the machine does only adds. Of publishing in"
        " the background the whole loop is measured, less that of the loop that saves only."
    )
    yield from ("", "| | the loop stands still |", "|---|---|")
    yield f"| saved to local disk only | {stall.save_s:.2f} s |"
    yield f"| saved and published at once | {stall.synchronous_s:.2f} s |"
    yield f"| published in the background, beyond saving | {stall.background_s:.2f} s |"


def _measured(folder: Path, url: str) -> Stall:
    data = [os.urandom(FILE_BYTES) for _ in range(FILES)]
    place: Any = FarAway(
        S3Place.open("s3://stall-of-checkpoints/job/", endpoint=endpoint_of(url=url), capabilities=AWS)
    )
    local = folder / "local"
    publisher = CheckpointPublisher(place, local_path=local)
    steps = iter(range(1, 10_000))

    def save(target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(data):
            (target / f"rank-{number}.pt").write_bytes(content)

    def saved_only() -> None:
        save(local / "unpublished")

    def synchronously() -> None:
        target = local / f"step-{next(steps):010d}"
        save(target)
        publish(target, place)

    def in_background() -> None:
        with publisher.saving(next(steps)) as target:
            save(target)

    # The first of each makes threads and connections.
    ways: dict[Callable[[], None], list[float]] = {saved_only: [], synchronously: [], in_background: []}
    stalls: dict[Callable[[], None], list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS + 1):
        for way, loops in ways.items():
            loop_s, stall_s = _loop(way)
            publisher.wait()
            if number:
                loops.append(loop_s)
                stalls[way].append(stall_s)
            for old in local.iterdir():
                shutil.rmtree(old)
    # The least of the rounds: whatever else the machine does only adds.
    return Stall(
        save_s=min(stalls[saved_only]),
        synchronous_s=min(stalls[synchronously]),
        # Of the whole loop, so that threads that compete for the interpreter count as well.
        background_s=max(0.0, min(ways[in_background]) - min(ways[saved_only])),
    )


def _loop(checkpoint: Callable[[], None]) -> tuple[float, float]:
    """Save once and take the steps that follow; return the time of all, and of saving alone."""
    started = time.perf_counter()
    checkpoint()
    saved = time.perf_counter()
    for _ in range(STEPS):
        for _ in range(BUSY_LOOPS):
            pass
        time.sleep(WAIT_SECONDS)
    return time.perf_counter() - started, saved - started


if __name__ == "__main__":
    found = checkpoint_stall()
    sys.stdout.write(f"{found}\nshare {found.share:.4f}, at most {STALL_MOST}\n")
