"""Which checkpoints a place holds, and which of them are complete."""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from training_storage.checkpoint_format import (
    CHECKSUM_DIGITS,
    MARKER_NAME,
    SCHEMA_VERSION,
    TRACKER_NAMES,
    CheckpointFile,
    CheckpointFormatError,
    Marker,
    NewerFormatError,
    incompleteness,
    read_marker,
    step_of_name,
)
from training_storage.training.checkpoint_errors import CheckpointError, DamagedError
from training_storage.training.daemon_threads import DaemonThreads
from training_storage.training.publish_source import ALGORITHM, RECORDS_FOLDER

if TYPE_CHECKING:
    import concurrent.futures
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from training_storage.training.checkpoint_place import Data, FileState, Place

#: Of one ranged request: S3's guide recommends 8 to 16 MB.
RANGE_BYTES: Final = 16 * 1024 * 1024


class State(StrEnum):
    """Of a checkpoint."""

    COMPLETE = "complete"
    #: It has no end mark: it is being written, or its writer was killed.
    INCOMPLETE = "incomplete"
    #: It has an end mark, and does not hold what that says.
    DAMAGED = "damaged"
    #: Its marker is of a newer version of this package: nobody here can tell whether it is complete.
    NEWER = "newer"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint of a place.

    Parameters
    ----------
    name
        Its folder.
    step
        Its training step; None where neither marker nor name says it.
    state, why
        Whether it is complete, and why not.
    files
        What restoring it means: what the marker names; all files, without checksums, where a framework's end mark
        takes its place.
    stored_bytes
        Size of what is stored, complete or not.
    modified
        When the last file was written; None for an empty folder.
    marker
        The text of its marker; None without one.
    """

    name: str
    step: int | None
    state: State
    why: str | None
    files: tuple[CheckpointFile, ...]
    stored_bytes: int
    modified: dt.datetime | None
    marker: bytes | None

    def age_seconds(self, *, now: dt.datetime) -> float | None:
        """Return the time since the last file was written."""
        return None if self.modified is None else max(0.0, (now - self.modified).total_seconds())


def newest_first(place: Place) -> Iterator[Found]:
    """Yield the checkpoints of a place, the highest step first. Each is looked into when its turn comes."""
    names = place.folders()
    if not names:
        return
    trackers = _trackers(place)
    # A name without a number says nothing about its turn: these few are looked into at once.
    found = {name: look(place, name, trackers=trackers) for name in names if step_of_name(name) is None}
    steps = {name: found[name].step if name in found else step_of_name(name) for name in names}
    for name in sorted(names, key=lambda name: (-1 if steps[name] is None else steps[name], name), reverse=True):
        checkpoint = found[name] if name in found else look(place, name, trackers=trackers)
        # A folder that is being emptied holds nothing any more.
        if checkpoint.modified is not None or checkpoint.marker is not None:
            yield checkpoint


def look(place: Place, name: str, *, trackers: Mapping[str, str] | None = None) -> Found:
    """Return what a folder holds. The marker is read first: files that it names were there before it."""
    content = place.read(f"{name}/{MARKER_NAME}")
    marker_text = None if content is None else content.data
    stored = {
        path: state
        for path, state in place.files(name).items()
        if path != MARKER_NAME and not path.startswith(f"{RECORDS_FOLDER}/")
    }
    trackers = _trackers(place) if trackers is None else trackers
    why = incompleteness(
        name=name,
        files={path: state.bytes for path, state in stored.items()},
        marker=marker_text,
        trackers=trackers,
    )
    marker, newer = _marker(marker_text)
    files: tuple[CheckpointFile, ...] = ()
    try:
        files = marker.files if marker else _without_checksums(stored)
    except CheckpointFormatError as error:
        # An object's key may hold what no path should.
        why = str(error)
    if newer is not None:
        why = (
            f"its {MARKER_NAME} has schema_version {newer}, this version of training-storage reads {SCHEMA_VERSION}:"
            " install a newer one"
        )
        unfinished = State.NEWER
    else:
        unfinished = State.INCOMPLETE if marker_text is None else State.DAMAGED
    return Found(
        name=name,
        step=marker.step if marker else step_of_name(name),
        state=State.COMPLETE if why is None else unfinished,
        why=why,
        files=files,
        stored_bytes=sum(state.bytes for state in stored.values()),
        modified=max((state.modified for state in stored.values()), default=None),
        marker=marker_text,
    )


def verify_stored(place: Place, found: Found, *, concurrency: int) -> str | None:
    """Read every byte of a complete checkpoint; return what is wrong with it, None if nothing is."""
    with DaemonThreads(concurrency, name="verify-stored") as pool:
        for file in found.files:
            try:
                for _ in read_file(place, f"{found.name}/{file.path}", file, pool=pool, ahead=concurrency):
                    pass
            except DamagedError as error:
                return str(error)
    return None


def read_file(
    place: Place, key: str, file: CheckpointFile, *, pool: concurrent.futures.Executor, ahead: int
) -> Iterator[Data]:
    """Yield a stored file in order, read in parallel ranges, and check it at the end.

    Parameters
    ----------
    place, key
        Where it is.
    file
        What the marker says of it.
    pool
        Threads that read.
    ahead
        Most ranges in memory.

    Raises
    ------
    DamagedError
        If it has another length or checksum, or is missing.
    """
    checksum = _Checksum(file)
    length = 0
    ranges = (
        functools.partial(place.read_range, key, start, min(start + RANGE_BYTES, file.bytes))
        for start in range(0, file.bytes, RANGE_BYTES)
    )
    for data in _ordered(ranges, pool=pool, ahead=ahead):
        length += len(data)
        checksum.update(data)
        yield data
    if length != file.bytes:
        raise DamagedError(f"{place.uri}{key} has {length:,} bytes, {MARKER_NAME} says {file.bytes:,}")
    if not checksum.holds():
        raise DamagedError(f"{place.uri}{key} has another {checksum.algorithm} than {MARKER_NAME} says")


def _ordered(calls: Iterable[Callable[[], Data]], *, pool: concurrent.futures.Executor, ahead: int) -> Iterator[Data]:
    """Run calls ahead in a pool and yield their results in order."""
    waiting: collections.deque[concurrent.futures.Future[Data]] = collections.deque()
    try:
        for call in calls:
            waiting.append(pool.submit(call))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class _Checksum:
    """Of a whole file, in the algorithm of its marker; nothing is checked where the marker has none."""

    def __init__(self, file: CheckpointFile) -> None:
        self._expected = file.checksum
        self.algorithm = file.checksum.algorithm if file.checksum else ""
        self._sha256 = hashlib.sha256()
        self._cyclic = 0
        self._update = None if self.algorithm in ("", ALGORITHM) else _cyclic(self.algorithm)

    def update(self, data: Data) -> None:
        if self._update is not None:
            self._cyclic = self._update(data, self._cyclic)
        elif self._expected is not None:
            self._sha256.update(data)

    def holds(self) -> bool:
        if self._expected is None:
            return True
        digits = CHECKSUM_DIGITS[self.algorithm]
        got = self._sha256.hexdigest() if self._update is None else f"{self._cyclic:0{digits}x}"
        return got == self._expected.value


def _cyclic(algorithm: str) -> Callable[[Data, int], int]:
    """Return the function of a cyclic redundancy check that other writers of markers may use."""
    if algorithm == "crc32":
        return zlib.crc32
    try:
        checksums = importlib.import_module("awscrt.checksums")
    except ModuleNotFoundError:
        raise CheckpointError(
            f"{MARKER_NAME} holds {algorithm} checksums, which need awscrt: pip install 'training-storage[training]'"
        ) from None
    function: Callable[[Data, int], int] = getattr(checksums, algorithm)
    return function


def _marker(text: bytes | None) -> tuple[Marker | None, int | None]:
    """Return what a marker says if it can be read, or its version if a newer release of this package wrote it."""
    try:
        return (None if text is None else read_marker(text)), None
    except NewerFormatError as error:
        return None, error.version
    except CheckpointFormatError:
        return None, None


def refuse_newer(place: Place, found: Found) -> None:
    """Raise for a checkpoint of a newer version: it may be whole, and an older one in its place would lose work."""
    if found.state == State.NEWER:
        raise CheckpointError(f"{place.uri}{found.name} cannot be judged: {found.why}, or name another checkpoint")


def _without_checksums(stored: Mapping[str, FileState]) -> tuple[CheckpointFile, ...]:
    return tuple(CheckpointFile(path=path, bytes=state.bytes) for path, state in sorted(stored.items()))


def _trackers(place: Place) -> dict[str, str]:
    """Return what the frameworks' own files beside the folders say."""
    found = ((name, place.read(name)) for name in TRACKER_NAMES)
    return {name: content.data.decode(errors="replace") for name, content in found if content is not None}
