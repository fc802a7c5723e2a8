"""Packs small files into shards: listed once, shuffled, cut, written by several processes, the index last."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import sqlite3
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Self

from training_storage.planning.shards import Readers, plan_shards
from training_storage.planning.units import MIB
from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_index import ShardIndex, ShardRecord, shard_name
from training_storage.training.shard_manifest import build_manifest
from training_storage.training.shard_s3 import S3Access, aws_variables
from training_storage.training.shard_source import open_source
from training_storage.training.shard_target import open_target
from training_storage.training.shard_work import listing_folder, work_folder
from training_storage.training.shard_writer import PackingJob, ShardTask, is_ready, pack_shard, start_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from training_storage.training.shard_manifest import Manifest
    from training_storage.training.shard_source import Source

#: What an older version wrote in another way is not gone on with.
_FORMAT_VERSION = 1
_SECONDS_BETWEEN_NOTES = 0.25
_PART_BYTES = 8 * MIB
_SEED_MAXIMUM = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class PackProgress:
    """How far a packing is: `files` and `bytes` of `of_files` and `of_bytes`; while it lists, `of_files` is None."""

    files: int
    bytes: int = 0
    of_files: int | None = None
    of_bytes: int = 0


def pack_shards(
    *,
    source: str,
    target: str,
    shards: int | None = None,
    readers: Readers | None = None,
    seed: int = 0,
    processes: int | None = None,
    access: S3Access | None = None,
    skip_unnamed: bool = False,
    work: str | None = None,
    accept_weaker: bool = False,
    progress: Callable[[PackProgress], None] | None = None,
) -> ShardIndex:
    """Pack the files of `source` into WebDataset shards in `target`.

    A packing that was killed goes on where it was when it is called again in the same way: finished shards are kept if
    they are whole, and the result is the same, byte for byte. Processes are started anew, so scripts must call this
    below ``if __name__ == "__main__":``.

    Parameters
    ----------
    source, target
        A folder or ``s3://bucket/prefix/``. The target must be empty, and lie outside of the source.
    shards
        Number of shards; planned from `readers` if None.
    readers
        Who reads the shards, see `plan_shards`; without them any number of `shards` is taken.
    seed
        Of the shuffle, a whole number from 0.
    processes
        How many shards are written at once; one a core by default.
    access
        How S3 is reached; by what the surroundings say by default.
    skip_unnamed
        Leave out files that can be no sample, such as those without an extension; otherwise they are refused.
    work
        A folder for the listing and for shards on their way to S3; the system's temporary one by default.
    accept_weaker
        Pack into a store that passes over ``If-None-Match`` too, where two packings at once can overwrite each other.
        Stores that are not AWS are asked first.
    progress
        Is told how far the packing is, a few times a second.

    Returns
    -------
    ShardIndex
        What was written to ``index.json``.

    Raises
    ------
    ShardInputError
        For a source, target or number that cannot be packed.
    ShardError
        If a file changes or cannot be read, or a shard cannot be written.
    """
    _check_library()
    access = access or S3Access()
    tell = progress or _tell_nobody
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _SEED_MAXIMUM:
        raise ShardInputError(f"seed must be a whole number from 0 to {_SEED_MAXIMUM}, got: {seed!r}.")
    count = _processes(processes)
    room = work_folder(work)
    place = open_source(source, access=access)
    goal = open_target(target, access=access, work=room, accept_weaker=accept_weaker)
    if f"{goal.name}/".startswith(f"{place.name.rstrip('/')}/"):
        raise ShardInputError(f"the target must lie outside of the source {place.name}, got: {goal.name}.")
    with listing_folder(room) as folder, _listing_errors(room), _Processes(count) as pool:
        manifest = build_manifest(
            place,
            path=folder / "manifest.sqlite",
            seed=seed,
            skip_unnamed=skip_unnamed,
            part_bytes=_PART_BYTES,
            listed=lambda files: tell(PackProgress(files=files)),
        )
        number = _shards(manifest, shards=shards, readers=readers)
        run = _run(manifest, place, seed=seed, shards=number)
        job = PackingJob(manifest=manifest, source=place, target=goal, run=run)
        with goal.claimed(run):
            index = ShardIndex(
                source=place.name,
                seed=seed,
                run=run,
                hidden=manifest.data.hidden,
                unnamed=manifest.data.unnamed,
                shards=pool.pack(job, shards=number, tell=tell),
            )
            goal.publish_index(index)
    return index


@contextmanager
def _listing_errors(room: str) -> Iterator[None]:
    """Say where the listing is when it cannot be kept there."""
    try:
        yield
    except sqlite3.Error as error:
        raise ShardError(
            f"the listing of the source cannot be kept in {room!r} ({error}). Give a folder with more room with --work."
        ) from error


def _check_library() -> None:
    if importlib.util.find_spec("webdataset") is None:
        raise ShardInputError("packing needs the package webdataset: pip install 'training-storage[training]'.")


def _processes(processes: int | None) -> int:
    if processes is None:
        return len(os.sched_getaffinity(0))
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ShardInputError(f"processes must be a whole number from 1, got: {processes!r}.")
    return processes


def _shards(manifest: Manifest, *, shards: int | None, readers: Readers | None) -> int:
    if readers is not None:
        return plan_shards(data=manifest.data, readers=readers, shards=shards).shards
    if shards is None:
        raise ShardInputError("either shards or readers must be given, got: neither.")
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= manifest.data.samples:
        raise ShardInputError(
            f"shards must be a whole number from 1 to {manifest.data.samples}, the number of samples, got: {shards!r}."
        )
    return shards


def _run(manifest: Manifest, source: Source, *, seed: int, shards: int) -> str:
    """Return what tells this packing from any other: the same run writes the same bytes."""
    whole = f"{_FORMAT_VERSION}/{manifest.fingerprint}/{seed}/{shards}/{source.name}"
    return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()


class _Processes:
    """Processes that pack, started at once: they load what they need while the source is being listed.

    Parameters
    ----------
    count
        How many.
    """

    def __init__(self, count: int) -> None:
        context: Any = get_context("spawn")
        self._count = count
        self._counters, self._stop = context.Array("Q", 2), context.Value("b", 0)
        self._pool = ProcessPoolExecutor(
            count,
            mp_context=context,
            initializer=start_process,
            initargs=(aws_variables(), self._counters, self._stop),
        )

    def __enter__(self) -> Self:
        with _interruption_held():
            for _ in range(self._count):
                self._pool.submit(is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.value = 1
        self._pool.shutdown(cancel_futures=True)

    def pack(self, job: PackingJob, *, shards: int, tell: Callable[[PackProgress], None]) -> tuple[ShardRecord, ...]:
        """Write all shards, and return their records in the order of their numbers."""
        rest, waiting = _tasks(job, shards), set[Future[ShardRecord]]()
        records: dict[str, ShardRecord] = {}
        data = job.manifest.data
        try:
            while len(records) < shards:
                with _interruption_held():
                    waiting |= {self._pool.submit(pack_shard, task) for task in islice(rest, self._room(waiting))}
                done, waiting = wait(waiting, timeout=_SECONDS_BETWEEN_NOTES, return_when=FIRST_COMPLETED)
                for future in done:
                    record = future.result()
                    records[record.name] = record
                files, size = self._counters
                tell(PackProgress(files=files, bytes=size, of_files=data.files, of_bytes=data.bytes))
        except BrokenProcessPool:
            raise ShardError(
                "a packing process was killed, perhaps for want of memory. Run the same command again to go on, with"
                " fewer --processes."
            ) from None
        return tuple(records[shard_name(number)] for number in range(shards))

    def _room(self, waiting: Sized) -> int:
        # One waits for each that is being written, and not all of a hundred thousand.
        return 2 * self._count - len(waiting)


@contextmanager
def _interruption_held() -> Iterator[None]:
    """Hold Ctrl-C back while processes are started, which inherit that: they would die with a page of imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tasks(job: PackingJob, shards: int) -> Iterator[ShardTask]:
    cuts = job.manifest.cuts(shards)
    for number, begin in enumerate(cuts):
        end = cuts[number + 1] if number + 1 < shards else None
        yield ShardTask(job=job, name=shard_name(number), begin=begin, end=end)


def _tell_nobody(_: PackProgress) -> None:
    pass
