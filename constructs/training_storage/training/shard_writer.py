"""Writes one shard: the work of a packing process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from training_storage.planning.units import MIB
from training_storage.training.shard_digest import HashingWriter
from training_storage.training.shard_errors import ShardError
from training_storage.training.shard_index import ShardRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.training.shard_manifest import Cut, Manifest, SampleFiles
    from training_storage.training.shard_source import Source
    from training_storage.training.shard_target import Target

#: What reads on the way may hold together, whatever their number.
_AHEAD_BYTES = 256 * MIB
_FILES_BETWEEN_NOTES = 64
_SECONDS_TO_STOP = 10

Sample = tuple["SampleFiles", list[bytes]]


@dataclass(frozen=True, kw_only=True)
class PackingJob:
    """What all shards of a packing share."""

    manifest: Manifest
    source: Source
    target: Target
    run: str


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One shard to write: its packing, its name, and the bounds of its samples."""

    job: PackingJob
    name: str
    begin: Cut
    end: Cut | None


class _Process:
    """What a packing process keeps between shards."""

    tar_writer: Any
    progress: Any
    stop: Any


def start_process(variables: dict[str, str], progress: Any, stop: Any) -> None:  # noqa: ANN401 - shared values have no type
    """Prepare a packing process.

    Parameters
    ----------
    variables
        By which the parent reaches AWS.
    progress
        Shared pair of counters: files and bytes.
    stop
        Shared flag: set once one process has failed.
    """
    os.environ.update(variables)
    # Ctrl-C goes to the whole group; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_in_time, args=(stop,), daemon=True).start()
    _Process.tar_writer = _tar_writer()
    _Process.progress, _Process.stop = progress, stop


def _tar_writer() -> Any:  # noqa: ANN401 - webdataset has no types
    """Return webdataset's writer, loaded without torch, which it does not need and which takes seconds to load."""
    without_torch = "torch" not in sys.modules
    if without_torch:
        # What Python documents for a module that must not be found.
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from webdataset.writer import TarWriter  # noqa: PLC0415 - of the extra `training`
    finally:
        if without_torch:
            del sys.modules["torch"]
    return TarWriter


def _end_in_time(stop: Any) -> None:  # noqa: ANN401 - a shared value has no type
    """End this process when its parent is gone, killed ones included, or when it does not end itself after `stop`.

    Nobody would fetch its shards. A request to a store that is silent takes minutes, and cannot be interrupted.
    """
    parent = parent_process()
    stopped = 0
    while parent is not None and stopped < _SECONDS_TO_STOP:
        if wait([parent.sentinel], timeout=1.0):
            break
        stopped += bool(stop.value)
    os._exit(1)


def is_ready() -> bool:
    """Return at once: what is asked of a process so that it starts before there is work."""
    return True


def pack_shard(task: ShardTask) -> ShardRecord:
    """Write the shard of `task`, or keep the one that an earlier attempt has finished, and return its record."""
    job = task.job
    there = job.target.finished(task.name, run=job.run)
    if there is not None:
        _note(there.files, there.bytes)
        return there
    staged = job.target.staging(task.name)
    try:
        record = _write(task, staged)
        job.target.publish(staged, record, run=job.run)
    except BaseException as error:
        staged.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ShardError(
                f"the shard {task.name} cannot be written, got: {error.strerror or error} at"
                f" {str(error.filename or staged)!r}. Make room there, or pack elsewhere; the same command goes on."
            ) from None
        if isinstance(error, MemoryError):
            raise ShardError(
                f"the shard {task.name} has a sample that does not fit into memory, where each is held whole. Leave it"
                " out, or pack with fewer --processes."
            ) from None
        raise
    return record


def _write(task: ShardTask, staged: Any) -> ShardRecord:  # noqa: ANN401 - a path
    with staged.open("xb") as file:
        out = HashingWriter(file)
        try:
            samples, files = _fill(task, out)
        except BaseException:
            out.drop()
            raise
        digest = out.finish()
    return ShardRecord(name=task.name, samples=samples, files=files, bytes=out.bytes, sha256=digest)


def _fill(task: ShardTask, out: HashingWriter) -> tuple[int, int]:
    """Write the samples of `task`; return how many they and their files are."""
    samples = files = noted_files = noted_bytes = 0
    # Bytes go in as they are, with one time and one owner for all: the same samples give the same file.
    tar = _Process.tar_writer(out, encoder=False, keep_meta=True, compress=False, mtime=0)
    for sample, contents in _read(task):
        fields = {name: data for (name, _), data in zip(sample.files, contents, strict=True)}
        noted_bytes += tar.write({"__key__": sample.key, **fields})
        samples += 1
        files += len(fields)
        if files - noted_files >= _FILES_BETWEEN_NOTES:
            _note(files - noted_files, noted_bytes)
            noted_files, noted_bytes = files, 0
            if _Process.stop.value:
                raise ShardError("stopped, because another process failed.")
    tar.close()
    _note(files - noted_files, noted_bytes)
    return samples, files


def _read(task: ShardTask) -> Iterator[Sample]:
    """Yield the samples of `task` with their contents; where a read waits for a first byte, many are on the way."""
    job = task.job
    read = job.source.reader()
    samples = job.manifest.samples(task.begin, task.end)
    if job.source.requests_at_once == 1:
        for sample in samples:
            yield sample, [read(file) for _, file in sample.files]
        return
    with ThreadPoolExecutor(job.source.requests_at_once) as pool:
        waiting: deque[tuple[SampleFiles, list[Any], int]] = deque()
        ahead = 0
        try:
            for sample in samples:
                size = sum(file.size for _, file in sample.files)
                while waiting and (ahead + size > _AHEAD_BYTES or len(waiting) >= 2 * job.source.requests_at_once):
                    oldest, reads, its_size = waiting.popleft()
                    yield oldest, [one.result() for one in reads]
                    ahead -= its_size
                waiting.append((sample, [pool.submit(read, file) for _, file in sample.files], size))
                ahead += size
            for oldest, reads, _ in waiting:
                yield oldest, [one.result() for one in reads]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _note(files: int, size: int) -> None:
    with _Process.progress.get_lock():
        _Process.progress[0] += files
        _Process.progress[1] += size
