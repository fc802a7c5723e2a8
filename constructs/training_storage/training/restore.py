"""Restores the newest complete checkpoint, checked while it is read.

The pointer is not asked: a checkpoint is what its marker says, with every size and checksum true. One that is damaged
is passed over for the next older one, and the result says so.
"""

from __future__ import annotations

import collections.abc
import contextlib
import fnmatch
import hashlib
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from training_storage.checkpoint_format import DCP_METADATA_NAME, MARKER_NAME
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_errors import DamagedError, FileSystemError, NoCheckpointError
from training_storage.training.checkpoint_path_place import DRAFT_PREFIX, PathPlace, locked
from training_storage.training.checkpoint_place import Place, open_place
from training_storage.training.checkpoint_scan import Found, State, look, newest_first, read_file, refuse_newer
from training_storage.training.daemon_threads import DaemonThreads

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Iterator, Sequence

    from training_storage.checkpoint_format import CheckpointFile
    from training_storage.training.checkpoint_place import Data

CONCURRENCY: Final = 16
_LOCKS_FOLDER: Final = ".locks"


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """A checkpoint that was not restored, and why."""

    place: str
    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What `restore` found.

    Parameters
    ----------
    folder
        Where the files are now.
    place
        Where they came from.
    name, step
        The checkpoint.
    files, bytes
        What was asked for of it.
    read_bytes
        How much was read from `place`; the rest was in `folder` already.
    checked
        Whether checksums were compared; a framework's own end mark has none, then only sizes were.
    passed_over
        Newer ones that are incomplete or damaged.
    seconds
        How long it took.
    """

    folder: Path
    place: str
    name: str
    step: int | None
    files: int
    bytes: int
    read_bytes: int
    checked: bool
    passed_over: tuple[PassedOver, ...]
    seconds: float


def restore(
    sources: str | Place | Sequence[str | Place],
    into: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    files: Sequence[str] = (),
    concurrency: int = CONCURRENCY,
) -> Restored:
    """Bring the newest complete checkpoint into a local folder.

    Several processes of a node may call this at once with the same folder: each file is read by one of them, the others
    wait and check it. A file that is there already and true is not read again.

    Parameters
    ----------
    sources
        One or more places, such as ``/fsx/checkpoints/`` and ``s3://lake/checkpoints/default/``. The newest checkpoint
        of all wins; of the same step the one of the place named first.
    into
        The checkpoint becomes a folder of its own name below. None checks the files where they are and returns their
        folder: for Lustre, whose files need no copy.
    name
        One checkpoint instead of the newest; nothing else will do then.
    files
        Patterns of the files that this process needs, such as ``__3_*.distcp``; by default all. ``.metadata`` always
        comes along.
    concurrency
        Most requests at once; memory is at most so many ranges of 16 MiB.

    Raises
    ------
    NoCheckpointError
        If no place holds a complete one.
    DamagedError
        If all complete ones are damaged.
    CheckpointError
        If a place cannot be read, or the newest is of a newer version of this package. No older checkpoint is taken for
        that: work would be lost.
    InvalidJobError
        For arguments that are not allowed.
    """
    started = time.monotonic()
    places = _places(sources)
    if not places:
        raise InvalidJobError("restore needs at least one place, got: none")
    if into is None and any(place.local_folder is None for place in places):
        raise InvalidJobError("into must name a local folder where a source is an object store, got: none")
    if concurrency < 1:
        raise InvalidJobError(f"concurrency must be at least 1, got: {concurrency}")
    passed: list[PassedOver] = []
    damaged = False
    for place, found in _candidates(places, name):
        refuse_newer(place, found)
        if found.state != State.COMPLETE:
            passed.append(PassedOver(place=place.uri, name=found.name, why=found.why or ""))
            damaged = damaged or found.state == State.DAMAGED
            continue
        wanted = _wanted(found, files, place)
        try:
            folder, read_bytes = _fetch(place, found, wanted, into=into, concurrency=concurrency)
        except DamagedError as error:
            passed.append(PassedOver(place=place.uri, name=found.name, why=str(error)))
            damaged = True
            continue
        return Restored(
            folder=folder,
            place=place.uri,
            name=found.name,
            step=found.step,
            files=len(wanted),
            bytes=sum(file.bytes for file in wanted),
            read_bytes=read_bytes,
            checked=all(file.checksum is not None for file in wanted),
            passed_over=tuple(passed),
            seconds=time.monotonic() - started,
        )
    where = ", ".join(place.uri for place in places)
    what = f"checkpoint {name!r}" if name else "complete checkpoint"
    if damaged:
        raise DamagedError(f"every complete checkpoint of {where} is damaged: {_listed(passed)}")
    raise NoCheckpointError(f"no {what} in {where}" + (f": {_listed(passed)}" if passed else ""))


#: The name in the package, where `restore` is this module.
restore_checkpoint = restore


def _places(sources: str | Place | Sequence[str | Place]) -> list[Place]:
    named: list[str | Place]
    if isinstance(sources, str):
        named = [sources]
    elif isinstance(sources, collections.abc.Sequence):
        named = list(sources)
    else:
        named = [sources]
    return [open_place(source) if isinstance(source, str) else source for source in named]


def _candidates(places: Sequence[Place], name: str | None) -> Iterator[tuple[Place, Found]]:
    """Yield checkpoints of all places, the highest step first; of one step in the order of the places."""
    if name is not None:
        for place in places:
            found = look(place, name)
            if found.modified is not None or found.marker is not None:
                yield place, found
        return
    streams = [(place, newest_first(place)) for place in places]
    heads = [(place, stream, next(stream, None)) for place, stream in streams]
    while any(head is not None for _, _, head in heads):
        index = max(
            (index for index, (_, _, head) in enumerate(heads) if head is not None),
            key=lambda index: (_step(heads[index][2]), -index),
        )
        place, stream, newest = heads[index]
        if newest is not None:
            yield place, newest
        heads[index] = (place, stream, next(stream, None))


def _step(found: Found | None) -> int:
    return -1 if found is None or found.step is None else found.step


def _wanted(found: Found, patterns: Sequence[str], place: Place) -> list[CheckpointFile]:
    if not patterns:
        return list(found.files)
    wanted = [file for file in found.files if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in patterns)]
    if not wanted:
        raise InvalidJobError(
            f"files must match a file of {place.uri}{found.name}/, got: {', '.join(patterns)}; it holds"
            f" {', '.join(file.path for file in found.files[:3])} …"
        )
    return wanted + [file for file in found.files if file.path == DCP_METADATA_NAME and file not in wanted]


def _fetch(
    place: Place,
    found: Found,
    wanted: Sequence[CheckpointFile],
    *,
    into: str | os.PathLike[str] | None,
    concurrency: int,
) -> tuple[Path, int]:
    with DaemonThreads(concurrency, name="restore") as pool:
        if into is None:
            folder = (place.local_folder or Path()) / found.name
            for file in wanted:
                for _ in _read(place, f"{found.name}/{file.path}", file, pool=pool, ahead=concurrency):
                    pass
            return folder, sum(file.bytes for file in wanted)
        target = PathPlace(into)
        if place.local_folder is not None and target.local_folder.resolve() == place.local_folder.resolve():
            raise InvalidJobError(f"into must not be the place itself, got: {str(into)!r}. Leave it out.")
        target.prepare_writing(largest_bytes=0)
        read_bytes = 0
        # The end mark comes last here too: a process that dies leaves no folder that looks complete.
        for file in sorted(wanted, key=lambda file: file.path == DCP_METADATA_NAME):
            read_bytes += _fetch_file(place, found.name, file, target, pool=pool, concurrency=concurrency)
        if found.marker is not None and len(wanted) == len(found.files):
            target.create(f"{found.name}/{MARKER_NAME}", found.marker)
    return target.local_folder / found.name, read_bytes


def _fetch_file(
    place: Place,
    name: str,
    file: CheckpointFile,
    target: PathPlace,
    *,
    pool: concurrent.futures.Executor,
    concurrency: int,
) -> int:
    """Bring one file, unless it is there and true; return how many bytes were read from `place`."""
    key = f"{name}/{file.path}"
    path = target.local_folder / key
    locks = target.local_folder / _LOCKS_FOLDER
    with _reasons(path, "written"):
        locks.mkdir(exist_ok=True)
        with locked(locks / hashlib.sha256(key.encode()).hexdigest()):
            if file.checksum is not None and _is_true(target, key, file, pool=pool, concurrency=concurrency):
                return 0
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")
            try:
                with draft.open("xb", buffering=0) as out:
                    for data in _read(place, key, file, pool=pool, ahead=concurrency):
                        _write(out.fileno(), data)
                # Not create-only: a file of that name that is not true is replaced.
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
    return file.bytes


def _read(
    place: Place, key: str, file: CheckpointFile, *, pool: concurrent.futures.Executor, ahead: int
) -> Iterator[Data]:
    """Yield a stored file; an error says that reading failed, not that writing did."""
    with _reasons(f"{place.uri}{key}", "read"):
        yield from read_file(place, key, file, pool=pool, ahead=ahead)


@contextlib.contextmanager
def _reasons(what: object, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileSystemError(f"{what} cannot be {done} ({error.strerror or error})") from error


def _is_true(
    target: PathPlace, key: str, file: CheckpointFile, *, pool: concurrent.futures.Executor, concurrency: int
) -> bool:
    path = target.local_folder / key
    if not path.is_file() or path.stat().st_size != file.bytes:
        return False
    try:
        for _ in read_file(target, key, file, pool=pool, ahead=concurrency):
            pass
    except DamagedError:
        return False
    return True


def _write(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _listed(passed: Sequence[PassedOver]) -> str:
    shown = "; ".join(f"{one.name}: {one.why}" for one in passed[:3])
    return f"{shown}; and {len(passed) - 3} more" if len(passed) > 3 else shown  # noqa: PLR2004 -- three are read
