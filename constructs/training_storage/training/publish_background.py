"""Publishes in the background, so that the training loop waits for the local disk only."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import fcntl
import logging
import os
import shutil
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from training_storage.checkpoint_format import (
    MARKER_NAME,
    CheckpointFormatError,
    checkpoint_name,
    read_marker,
    step_of_name,
)
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_attempt import Attempt
from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError, SourceChangedError
from training_storage.training.checkpoint_path_place import is_same
from training_storage.training.checkpoint_place import Place, open_place
from training_storage.training.endpoint import endpoint_of_contract
from training_storage.training.publish import TIMEOUT_SECONDS, Published, publish
from training_storage.training.publish_source import SourceFile, SourceParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from training_storage.checkpoint_format import CheckpointFile, Marker
    from training_storage.training.contract import StorageContract

_LOG = logging.getLogger("training_storage.checkpoints")
KEPT: Final = 2
#: Of folders that are being filled or emptied: no one takes them for a checkpoint.
_WRITING_PREFIX: Final = ".writing-"
_REMOVING_PREFIX: Final = ".removing-"
_READ_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class _Task:
    folder: Path
    step: int


@dataclass(kw_only=True)
class _Shared:
    """What the thread and its owner both touch, under `changed`."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: collections.deque[_Task] = field(default_factory=collections.deque)
    running: _Task | None = None
    failures: list[Exception] = field(default_factory=list)
    done: list[Published] = field(default_factory=list)
    closing: bool = False


class CheckpointPublisher:
    """Takes finished local checkpoints and publishes them one after the other in a thread.

    A failed upload is raised by the next call, whichever it is: training learns of it, and the local folder stays.

    Parameters
    ----------
    target
        Where: ``s3://bucket/prefix/``, an absolute path, or an open place.
    local_path
        Folder of local checkpoints, on the node's own disks.
    kept
        How many local checkpoints stay, the newest; older ones are removed once they are published whole.
    rank, ranks, barrier, concurrency
        See `publish`. With several ranks each has a folder of its own below `local_path`, named ``rank-00003``.
    attempt
        Goes before the step in names, so that a run that starts again never meets its own half-written folders. The
        same on all ranks, and another one at each start. See `attempt_of_environment`.
    backlog
        How many checkpoints may wait; `submit` then waits itself, at most `timeout_seconds`.
    timeout_seconds
        For each checkpoint.

    Examples
    --------
    >>> publisher = CheckpointPublisher.from_contract(StorageContract.read())  # doctest: +SKIP
    >>> with publisher.saving(step=1200) as folder:  # doctest: +SKIP
    ...     torch.save(model.state_dict(), folder / "model.pt")
    """

    def __init__(
        self,
        target: str | Place,
        *,
        local_path: str | os.PathLike[str],
        kept: int = KEPT,
        rank: int = 0,
        ranks: int = 1,
        barrier: Callable[[], object] | None = None,
        attempt: str | None = None,
        backlog: int = 1,
        timeout_seconds: float = TIMEOUT_SECONDS,
        concurrency: int = 16,
    ) -> None:
        if kept < 1:
            raise InvalidJobError(f"kept must be at least 1: the newest local checkpoint always stays, got: {kept}")
        if attempt is not None:
            Attempt(run=attempt)
        self._place = open_place(target) if isinstance(target, str) else target
        _refuse_the_place_itself(local_path, self._place)
        # Ranks of one node write the same names: each needs a folder of its own.
        self._local = Path(local_path) / f"rank-{rank:05d}" if ranks > 1 else Path(local_path)
        self._kept = kept
        self._rank, self._ranks, self._barrier = rank, ranks, barrier
        self._attempt, self._backlog = attempt, backlog
        self._timeout_seconds, self._concurrency = timeout_seconds, concurrency
        self._shared = _Shared()
        self._thread: threading.Thread | None = None
        _remove_abandoned(self._local)

    @classmethod
    def from_contract(
        cls, contract: StorageContract, *, rank: int = 0, ranks: int = 1, durable: bool = False, **options: object
    ) -> Self:
        """Return a publisher of the job's checkpoints, named by the attempt that the launcher counts.

        Without a launcher one process gets a name that no other has; several ranks then need `attempt`, because they
        must agree on it.

        Parameters
        ----------
        contract
            The node's storage contract.
        rank, ranks
            See `publish`.
        durable
            Publish to the lake, although the job first writes to a faster place.
        options
            Others of the class.
        """
        checkpoints = contract.checkpoints
        uri = checkpoints.durable_uri if durable else checkpoints.write_to
        place = open_place(uri, endpoint=endpoint_of_contract(contract.endpoint), region=contract.region)
        counted = Attempt.of_environment() or (Attempt.unique() if ranks == 1 else None)
        chosen: dict[str, object] = {
            "local_path": checkpoints.local_path,
            "attempt": None if counted is None else counted.name,
            **options,
        }
        return cls(place, rank=rank, ranks=ranks, **chosen)  # type: ignore[arg-type] # checked by the class

    def name_of(self, step: int) -> str:
        """Return the folder's name of a step in this attempt."""
        name = checkpoint_name(step)
        return f"{self._attempt}-{name}" if self._attempt else name

    @contextlib.contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """Yield an empty local folder for the checkpoint of `step`, and submit it when all is written.

        If the block fails, the folder is removed and nothing is published.
        """
        self.raise_failures()
        final = self._local / self.name_of(step)
        if final.exists():
            raise InvalidJobError(f"step must be saved once, got: {step} again, which {str(final)!r} holds")
        with _held_draft(self._local) as draft:
            try:
                yield draft
                draft.rename(final)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        self.submit(final, step=step)

    def submit(self, folder: str | os.PathLike[str], *, step: int | None = None) -> None:
        """Hand over a finished local checkpoint and return at once, or as soon as the backlog allows.

        Raises
        ------
        CheckpointError
            If an earlier upload failed, or this one could not be taken in time because uploads are slower than saves.
        """
        self.raise_failures()
        folder = Path(folder)
        number = step_of_name(folder.name) if step is None else step
        if number is None:
            raise InvalidJobError(
                f"step must be given where the folder's name does not end in it, got: {folder.name!r}"
            )
        shared = self._shared
        with shared.changed:
            if shared.closing:
                raise CheckpointError("the publisher is closed")
            if len(shared.waiting) >= self._backlog:
                _LOG.warning("step %d waits: uploads to %s are slower than saves", number, self._place.uri)
                if not shared.changed.wait_for(
                    lambda: len(shared.waiting) < self._backlog or shared.failures, self._timeout_seconds
                ):
                    raise DeadlineError(
                        f"rank {self._rank}: {folder} was not taken in {self._timeout_seconds:.0f} s: uploads to"
                        f" {self._place.uri} are slower than saves. Save less often, or raise timeout_seconds."
                    )
            self._raise_failures_locked()
            shared.waiting.append(_Task(folder=folder, step=number))
            shared.changed.notify_all()
            if self._thread is None:
                # A daemon: an interpreter that ends in the middle leaves what a kill leaves, and that is harmless.
                self._thread = threading.Thread(target=self._work, name="checkpoint-publisher", daemon=True)
                self._thread.start()

    def raise_failures(self) -> None:
        """Raise what failed in the background since the last call.

        Raises
        ------
        CheckpointError
            The first failure, with the others as notes.
        """
        with self._shared.changed:
            self._raise_failures_locked()

    def wait(self, timeout_seconds: float | None = None) -> tuple[Published, ...]:
        """Wait until everything that was submitted is published; return what was since the last call.

        Raises
        ------
        CheckpointError
            If an upload failed, or time is over.
        """
        shared = self._shared
        with shared.changed:
            limit = self._timeout_seconds * (self._backlog + 1) if timeout_seconds is None else timeout_seconds
            idle = shared.changed.wait_for(lambda: not shared.waiting and shared.running is None, limit)
            self._raise_failures_locked()
            if not idle:
                task = shared.running or shared.waiting[0]
                raise DeadlineError(
                    f"rank {self._rank}: {self._place.uri}{task.folder.name}/ was not published in {limit:.0f} s"
                )
            done, shared.done = shared.done, []
        return tuple(done)

    def close(self) -> tuple[Published, ...]:
        """Publish what is left, end the thread, and return what was published since the last `wait`."""
        try:
            return self.wait()
        finally:
            with self._shared.changed:
                self._shared.closing = True
                self._shared.changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CheckpointError as failed:
            if error is None:
                raise
            error.add_note(f"a checkpoint was not published either: {failed}")

    def _raise_failures_locked(self) -> None:
        if not self._shared.failures:
            return
        first, *others = self._shared.failures
        self._shared.failures = []
        for other in others:
            first.add_note(f"and: {other}")
        raise first

    def _work(self) -> None:
        shared = self._shared
        while True:
            with shared.changed:
                shared.changed.wait_for(lambda: shared.waiting or shared.closing)
                if not shared.waiting:
                    return
                shared.running = task = shared.waiting.popleft()
                shared.changed.notify_all()
            try:
                published: Published | None = self._publish(task)
                failure: Exception | None = None
            except Exception as error:  # noqa: BLE001 -- whatever it is, the loop must hear of it
                published, failure = None, error
            with shared.changed:
                shared.running = None
                if published is not None:
                    shared.done.append(published)
                if failure is not None:
                    _LOG.error("step %d was not published: %s", task.step, failure)
                    shared.failures.append(failure)
                shared.changed.notify_all()

    def _publish(self, task: _Task) -> Published:
        published = publish(
            task.folder,
            self._place,
            step=task.step,
            rank=self._rank,
            ranks=self._ranks,
            barrier=self._barrier,
            timeout_seconds=self._timeout_seconds,
            concurrency=self._concurrency,
        )
        _LOG.info("step %d is published in %.1f s", task.step, published.seconds)
        try:
            remove_published(self._local, self._place, kept=self._kept)
        except (CheckpointError, OSError) as error:
            # It is published all the same. A disk that fills up is an error of a later save.
            _LOG.warning("older local checkpoints stay: %s", error)
        return published


def remove_published(local_path: str | os.PathLike[str], place: Place, *, kept: int = KEPT) -> list[str]:
    """Remove local checkpoints but the newest `kept`; only those that are published whole, never the newest.

    A checkpoint counts as published when its marker at `place` names every local file with its size, and `place` holds
    it with that size; a local file that was touched since then must still have the checksum of the marker. Other
    ranks' files may be named beside them.

    Returns
    -------
    list[str]
        The names of what was removed.
    """
    _refuse_the_place_itself(local_path, place)
    local = Path(local_path)
    names = [path.name for path in local.iterdir() if path.is_dir() and not path.name.startswith(".")]
    steps = {name: step_of_name(name) for name in names}
    numbered = sorted((name for name in names if steps[name] is not None), key=lambda name: (steps[name], name))
    removed = []
    for name in numbered[: -max(1, kept)]:
        if _is_published(local / name, place):
            # Renamed first: whoever looks while it is emptied, or after a kill, sees no half checkpoint.
            doomed = local / f"{_REMOVING_PREFIX}{uuid.uuid4().hex}"
            with contextlib.suppress(FileNotFoundError):
                (local / name).rename(doomed)
                removed.append(name)
    for doomed in local.glob(f"{_REMOVING_PREFIX}*"):
        shutil.rmtree(doomed, ignore_errors=True)
    return removed


def attempt_of_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """Return a name of this attempt at the job that is the same on all ranks and another one after a restart.

    Of Slurm its job, step and restart count, of torchrun its run and restart count; None under neither.
    """
    found = Attempt.of_environment(environment)
    return None if found is None else found.name


def _refuse_the_place_itself(local_path: str | os.PathLike[str], place: Place) -> None:
    """Local checkpoints are removed once they are published: that must never mean the published ones."""
    published = place.local_folder
    if published is None:
        return
    local, there = Path(local_path).resolve(), published.resolve()
    if local == there or there.is_relative_to(local) or local.is_relative_to(there):
        raise InvalidJobError(
            f"local_path must be apart from the place {place.uri}, got: {str(local_path)!r}. Save to the node's own"
            " disks first, or publish each folder where it is with publish_checkpoint."
        )


def _is_published(folder: Path, place: Place) -> bool:
    found = place.read(f"{folder.name}/{MARKER_NAME}")
    if found is None:
        return False
    try:
        marker = read_marker(found.data)
    except CheckpointFormatError:
        return False
    named = {file.path: file for file in marker.files}
    local = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    local.pop(MARKER_NAME, None)
    stored = place.files(folder.name)
    return bool(local) and all(
        name in named
        and name in stored
        and path.stat().st_size == named[name].bytes == stored[name].bytes
        and _is_as_published(path, named[name], marker)
        for name, path in local.items()
    )


def _is_as_published(path: Path, named: CheckpointFile, marker: Marker) -> bool:
    """Whether a local file still holds what was published of it; it is read only where it was touched since."""
    state = path.stat()
    # Time of the last change of its entry too: copying tools set that of its content back.
    touched = dt.datetime.fromtimestamp(max(state.st_mtime, state.st_ctime), tz=dt.UTC)
    if touched < marker.finished_at:
        return True
    parts = SourceParts(
        SourceFile(path=named.path, local=path, bytes=state.st_size, expected=named.checksum), part_bytes=_READ_BYTES
    )
    try:
        for _ in parts:
            pass
    except SourceChangedError:
        return False
    return True


@contextlib.contextmanager
def _held_draft(local: Path) -> Iterator[Path]:
    """Make a folder to be filled, and hold a lock on it: the kernel lets go of it when the process ends."""
    while True:
        draft = local / f"{_WRITING_PREFIX}{uuid.uuid4().hex}"
        draft.mkdir(parents=True)
        held = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Where a file system has no locks nobody can take it for abandoned either.
            with contextlib.suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_EX)
            # Somebody may have removed it before it was held.
            if is_same(held, draft):
                yield draft
                return
        finally:
            os.close(held)


def _remove_abandoned(local: Path) -> None:
    """Remove the folders that killed processes were filling or emptying."""
    for draft in local.glob(f"{_WRITING_PREFIX}*"):
        with contextlib.suppress(OSError):
            held = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _LOG.info("%s is removed: whoever was filling it has ended", draft)
                shutil.rmtree(draft, ignore_errors=True)
            finally:
                os.close(held)
    for doomed in local.glob(f"{_REMOVING_PREFIX}*"):
        shutil.rmtree(doomed, ignore_errors=True)
