"""Publishes a finished checkpoint: every file once, then the marker, then the pointer.

Each step leaves something true behind. Files are create-only, so nobody's file is ever replaced; the marker is written
when every file is there, so that whoever reads it may trust it; the pointer is swapped after the marker, forwards only.
Whoever is killed anywhere publishes the same folder again: what is there already is compared and kept.
"""

from __future__ import annotations

import datetime as dt
import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from training_storage.checkpoint_format import (
    MARKER_NAME,
    POINTER_NAME,
    CheckpointFile,
    CheckpointFormatError,
    Marker,
    Pointer,
    pointer_moves,
    read_marker,
    read_pointer,
    step_of_name,
)
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError, DifferentContentError
from training_storage.training.checkpoint_place import Place, open_place
from training_storage.training.publish_pauses import pauses
from training_storage.training.publish_ranks import gather, record
from training_storage.training.publish_source import is_end_mark, is_plain_name, source_files
from training_storage.training.publish_transfer import Transfer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from training_storage.training.publish_source import SourceFile

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 1800.0
CONCURRENCY: Final = 16
_GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Published:
    """What `publish` did.

    Parameters
    ----------
    place
        Where the checkpoint is.
    name
        Its folder there.
    step
        Its training step.
    files
        Number of files that this rank published.
    bytes
        Their size.
    already_there
        How many of them were there already, with the same content.
    complete
        Whether the marker is written: False on ranks that leave that to rank 0.
    latest_moved
        Whether the pointer names this checkpoint from now on; False where it names a newer one.
    seconds
        How long it took.
    """

    place: str
    name: str
    step: int
    files: int
    bytes: int
    already_there: int
    complete: bool
    latest_moved: bool
    seconds: float


def publish(
    folder: str | os.PathLike[str],
    target: str | Place,
    *,
    step: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    files: Sequence[str] = (),
    barrier: Callable[[], object] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    concurrency: int = CONCURRENCY,
) -> Published:
    """Publish a finished checkpoint folder, and return when it is there.

    Parameters
    ----------
    folder
        The local checkpoint; its name is kept. No file in it may change any more.
    target
        Where: ``s3://bucket/prefix/``, an absolute path, or an open place.
    step
        Training step; by default the number at the end of the folder's name.
    rank, ranks
        Which of how many processes publish files of this checkpoint. Rank 0 writes the marker once every other one has
        left a record of its files. With one rank (the default) the folder is the whole checkpoint.
    files
        Patterns of the files that this rank publishes, such as ``__3_*.distcp``; by default every file of the folder.
        Ranks may publish the same file if its content is the same. The end mark ``.metadata`` is left to rank 0.
    barrier
        Called before rank 0 gathers the records: returns when all ranks have published, such as
        ``torch.distributed.barrier`` of a group of its own. Without one rank 0 looks for the records until they are
        there.
    timeout_seconds
        For everything together.
    concurrency
        Most requests at once; memory is at most twice as many parts (of 32 MiB by default).

    Returns
    -------
    Published
        What was done.

    Raises
    ------
    InvalidJobError
        For arguments that are not allowed.
    DifferentContentError
        If another content has one of the names; nothing was replaced.
    DeadlineError
        If it took too long; names the rank and a key that was not finished.
    CheckpointError
        If the store refuses; names the rank and the key.
    """
    started = time.monotonic()
    folder = _named(folder)
    step = _step(folder, step)
    _check_ranks(rank, ranks)
    mine = source_files(folder, files)
    if rank:
        mine = [file for file in mine if not is_end_mark(file.path)]
    place = open_place(target) if isinstance(target, str) else target
    run = _Publishing(
        place=place,
        name=folder.name,
        step=step,
        rank=rank,
        ranks=ranks,
        barrier=barrier,
        deadline=started + _positive(timeout_seconds, "timeout_seconds"),
        transfer=Transfer(
            place=place, folder=folder.name, rank=rank, concurrency=int(_positive(concurrency, "concurrency"))
        ),
    )
    largest = max((file.bytes for file in mine), default=0)
    try:
        run.within(lambda: place.prepare_writing(largest_bytes=largest), "")
        complete = run.publish(mine)
        moved = complete and run.move_pointer()
    finally:
        run.transfer.close()
    return Published(
        place=place.uri,
        name=folder.name,
        step=step,
        files=len(mine),
        bytes=sum(file.bytes for file in mine),
        already_there=run.transfer.already_there,
        complete=complete,
        latest_moved=moved,
        seconds=time.monotonic() - started,
    )


#: The name in the package, where `publish` is this module.
publish_checkpoint = publish


@dataclass(frozen=True, kw_only=True)
class _Publishing:
    place: Place
    name: str
    step: int
    rank: int
    ranks: int
    barrier: Callable[[], object] | None
    deadline: float
    transfer: Transfer

    def publish(self, files: Sequence[SourceFile]) -> bool:
        """Publish files and, on rank 0, the marker; return whether the checkpoint is complete."""
        finished = self.within(self._finished, MARKER_NAME)
        if finished is not None:
            # Read the local files once more: a folder that only has the same name is another checkpoint.
            self.transfer.compare(files, finished, deadline=self.deadline)
            return True
        ordinary = [file for file in files if not is_end_mark(file.path)]
        done = self.transfer.run(ordinary, deadline=self.deadline)
        if self.ranks > 1:
            self.within(
                lambda: record(self.place, self.name, rank=self.rank, ranks=self.ranks, step=self.step, files=done),
                "record",
            )
            if self.barrier is not None:
                self.barrier()
            if self.rank:
                return False
            done = self.within(
                lambda: gather(self.place, self.name, ranks=self.ranks, step=self.step, deadline=self.deadline),
                "records of all ranks",
                # It ends in time by itself, and then says who is missing.
                grace_seconds=_GRACE_SECONDS,
            )
        # A framework's end mark makes a folder complete by itself, so it goes up when every other file is there.
        last = self.transfer.run([file for file in files if is_end_mark(file.path)], deadline=self.deadline)
        self.within(lambda: self._mark((*done, *last)), MARKER_NAME)
        return True

    def within(self, call: Callable[[], T], what: str, *, grace_seconds: float = 0.0) -> T:
        """Run what asks the place in another thread, and wait for it until the deadline."""
        return self.transfer.within(call, f"{self.name}/{what}", deadline=self.deadline + grace_seconds)

    def move_pointer(self) -> bool:
        """Let the pointer name this checkpoint, unless it names a newer one."""
        new = Pointer(checkpoint=self.name, step=self.step)
        text = new.to_json().encode()
        for pause in pauses():
            current, version = self.within(lambda: read_latest(self.place), "")
            if current == new:
                return True
            if not pointer_moves(current, new):
                return False
            if self.within(functools.partial(self.place.swap, POINTER_NAME, text, version=version), ""):
                return True
            if time.monotonic() + pause > self.deadline:
                break
            time.sleep(pause)
        raise DeadlineError(
            f"rank {self.rank}: {self.place.uri}{POINTER_NAME} could not be moved to {self.name} in time: others keep"
            " moving it. The checkpoint itself is complete."
        )

    def _finished(self) -> Marker | None:
        found = self.place.read(f"{self.name}/{MARKER_NAME}")
        return None if found is None else _marker(found.data, f"{self.place.uri}{self.name}")

    def _mark(self, files: Sequence[CheckpointFile]) -> None:
        files = tuple(sorted(files, key=lambda file: file.path))
        marker = Marker(step=self.step, finished_at=dt.datetime.now(tz=dt.UTC), files=files)
        key = f"{self.name}/{MARKER_NAME}"
        if self.place.create(key, marker.to_json().encode()):
            return
        there = self._finished()
        if there is None or (there.step, _by_path(there.files)) != (self.step, _by_path(files)):
            raise DifferentContentError(
                f"rank {self.rank}: {self.place.uri}{key} exists and names other files; nothing was replaced. "
                + another_name(self.name)
            )


def read_latest(place: Place) -> tuple[Pointer | None, str | None]:
    """Return the pointer and its version; None where there is none.

    Raises
    ------
    CheckpointError
        If there is one that cannot be read: nothing of ours writes such a thing.
    """
    found = place.read(POINTER_NAME)
    if found is None:
        return None, None
    try:
        return read_pointer(found.data), found.version
    except CheckpointFormatError as error:
        raise CheckpointError(
            f"{place.uri}{error}. Restoring does not need it. If a newer version of training-storage writes here,"
            " install that; else delete the file, and publish again"
        ) from None


def another_name(name: str) -> str:
    """Return what to do where a name is taken."""
    return f"Give the folder a name of its own that ends in the step, such as run2-{name}."


def _by_path(files: Sequence[CheckpointFile]) -> list[CheckpointFile]:
    return sorted(files, key=lambda file: file.path)


def _marker(data: bytes, where: str) -> Marker:
    try:
        return read_marker(data)
    except CheckpointFormatError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _named(folder: str | os.PathLike[str]) -> Path:
    """Return the folder's absolute path: its last part is the checkpoint's name at the place."""
    named = Path(folder)
    if not named.name or named.name == "..":
        named = named.resolve()
    if not named.name or not is_plain_name(named.name):
        raise InvalidJobError(
            f"a checkpoint's folder must be named with letters, digits and simple marks, got: {str(folder)!r:.200}"
        )
    return named.absolute()


def _step(folder: Path, given: int | None) -> int:
    named = step_of_name(folder.name)
    if given is None and named is None:
        raise InvalidJobError(
            f"step must be given where the folder's name does not end in it, got: none for {folder.name!r}"
        )
    if given is not None and named is not None and given != named:
        raise InvalidJobError(f"step must be the number at the end of the folder's name {folder.name!r}, got: {given}")
    if folder.name.startswith("."):
        raise InvalidJobError(f"a checkpoint's folder must not be hidden, got: {folder.name!r}")
    return named if given is None else given  # type: ignore[return-value] # one of them is a number


def _check_ranks(rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        raise InvalidJobError(f"rank must be from 0 to ranks - 1, got: rank {rank} of {ranks} ranks")


def _positive(value: float, name: str) -> float:
    if not value > 0:
        raise InvalidJobError(f"{name} must be above 0, got: {value}")
    return value
