"""Moves the files of one checkpoint with bounded memory, bounded time and one reading of each file."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from training_storage.training.checkpoint_errors import (
    CheckpointError,
    DeadlineError,
    DifferentContentError,
    SourceChangedError,
)
from training_storage.training.daemon_threads import DaemonThreads
from training_storage.training.publish_pauses import pauses
from training_storage.training.publish_source import SourceParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from training_storage.checkpoint_format import CheckpointFile, Marker
    from training_storage.training.checkpoint_place import Place
    from training_storage.training.publish_source import SourceFile

T = TypeVar("T")

#: How soon threads that wait for memory notice that publishing has ended.
_NOTICE_SECONDS: Final = 0.2
#: Of a file whose upload fails although the SDKs have tried again: a connection cut in a conditional write, say.
_TRIES: Final = 3
_READ_BYTES: Final = 16 * 1024 * 1024


class _EndedError(Exception):
    """Another file failed, or time is over: this one ends too."""


class Transfer:
    """The threads that read, hash and send the files of one rank.

    Parameters
    ----------
    place, folder
        Where the files go.
    rank
        Named in errors.
    concurrency
        Most requests at once. Memory holds a part for each, and one for each file that is being read.
    """

    def __init__(self, *, place: Place, folder: str, rank: int, concurrency: int) -> None:
        self._place, self._folder, self._rank = place, folder, rank
        self._room = threading.Semaphore(concurrency)
        # Hashing keeps a core busy: on half of them it outruns the network, and leaves the rest to training.
        self._turn = threading.Semaphore(max(1, (os.cpu_count() or 1) // 2))
        self._ended = threading.Event()
        # Files are driven by threads of one pool and parts sent by those of another: neither waits for its own kind.
        self._files = DaemonThreads(concurrency, name="publish-file")
        self._requests = DaemonThreads(concurrency, name="publish-part")
        self._lock = threading.Lock()
        self.already_there = 0

    def close(self) -> None:
        """Let go of the threads; those in a request end with it, or with the process."""
        self._ended.set()
        self._files.shutdown(wait=False, cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)

    def within(self, call: Callable[[], T], what: str, *, deadline: float) -> T:
        """Return what `call` returns; a place that does not answer until the `deadline` is an error that names `what`.

        Raises
        ------
        DeadlineError
            If time is over.
        """
        future = self._requests.submit(call)
        done, _ = concurrent.futures.wait([future], timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            raise DeadlineError(
                f"rank {self._rank}: {self._place.uri}{what} was not published in time: the place does not answer"
            )
        return future.result()

    def run(self, files: Sequence[SourceFile], *, deadline: float) -> list[CheckpointFile]:
        """Publish files; return what the marker says of them.

        Raises
        ------
        DeadlineError
            If time is over.
        CheckpointError
            If one fails.
        """
        if not files:
            return []
        there = self.within(lambda: self._place.files(self._folder), f"{self._folder}/", deadline=deadline)

        def one(file: SourceFile) -> CheckpointFile:
            return self._keep(file) if file.path in there else self._send(file)

        return self._each(one, files, deadline=deadline)

    def compare(self, files: Sequence[SourceFile], marker: Marker, *, deadline: float) -> None:
        """Check that local files are those that a finished checkpoint holds.

        Raises
        ------
        DifferentContentError
            If one is not; names it.
        """
        known = {file.path: file for file in marker.files}

        def one(file: SourceFile) -> None:
            if file.path not in known:
                raise DifferentContentError(
                    f"rank {self._rank}: {self._place.uri}{self._folder}/ is complete already, and without {file.path};"
                    " nothing was added. Were there fewer ranks at first? Give the folder a name of its own that ends"
                    f" in the step, such as run2-{self._folder}."
                )
            if self._hashed(file) != known[file.path]:
                raise self._different(file)
            self._count()

        self._each(one, files, deadline=deadline)

    def _each(self, call: Callable[[SourceFile], Any], files: Iterable[SourceFile], *, deadline: float) -> list[Any]:
        running = {self._files.submit(self._named, call, file): file for file in files}
        done, waiting = concurrent.futures.wait(
            running, timeout=max(0.0, deadline - time.monotonic()), return_when=concurrent.futures.FIRST_EXCEPTION
        )
        failed = [future for future in done if future.exception() is not None]
        if failed or waiting:
            self._ended.set()
        # What ended only because another one failed says nothing.
        for future in sorted(failed, key=lambda one: isinstance(one.exception(), _EndedError)):
            future.result()
        if waiting:
            keys = sorted(running[future].path for future in waiting)
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise DeadlineError(
                f"rank {self._rank}: {self._place.uri}{self._folder}/{keys[0]}{more} was not published in time"
            )
        return [future.result() for future in running]

    def _named(self, call: Callable[[SourceFile], Any], file: SourceFile) -> Any:  # noqa: ANN401
        """Publish one file, a few times where that may help: what arrived before counts."""
        for tries, pause in enumerate(pauses(), 1):
            try:
                return call(file)
            except (CheckpointError, OSError) as error:
                if type(error) is not CheckpointError or tries == _TRIES:
                    raise self._of_rank(error, file) from error
            if self._ended.wait(pause):
                break
        raise _EndedError

    def _of_rank(self, error: CheckpointError | OSError, file: SourceFile) -> CheckpointError:
        if isinstance(error, (DifferentContentError, SourceChangedError)):
            return error
        if isinstance(error, CheckpointError):
            return type(error)(f"rank {self._rank}: {error}")
        return CheckpointError(
            f"rank {self._rank}: {self._place.uri}{self._folder}/{file.path}: {error.strerror or error}"
        )

    def _send(self, file: SourceFile) -> CheckpointFile:
        key = f"{self._folder}/{file.path}"
        part_bytes = self._place.part_bytes(file.bytes)
        parts = SourceParts(file, part_bytes=part_bytes, before=self._go_on, turn=self._turn)
        if file.bytes <= part_bytes:
            (data,) = parts
            written = self._place.create(key, data)
        else:
            written = self._place.create_from_parts(key, parts, send=self._send_part)
        if not written:
            return self._keep(file)
        return parts.described()

    def _keep(self, file: SourceFile) -> CheckpointFile:
        """Compare a file with what is stored under its name: the same content counts as published."""
        local = self._hashed(file)
        there = self._place.files(self._folder).get(file.path)
        if there is None:
            raise CheckpointError(f"{self._place.uri}{self._folder}/{file.path} was neither written nor found")
        if there.bytes != file.bytes or self._stored_hash(file) != (local.checksum and local.checksum.value):
            raise self._different(file)
        self._count()
        return local

    def _hashed(self, file: SourceFile) -> CheckpointFile:
        parts = SourceParts(file, part_bytes=_READ_BYTES, before=self._go_on, turn=self._turn)
        for _ in parts:
            pass
        return parts.described()

    def _stored_hash(self, file: SourceFile) -> str:
        found = hashlib.sha256()
        for start in range(0, file.bytes, _READ_BYTES):
            self._go_on()
            end = min(start + _READ_BYTES, file.bytes)
            found.update(self._place.read_range(f"{self._folder}/{file.path}", start, end))
        return found.hexdigest()

    def _different(self, file: SourceFile) -> DifferentContentError:
        return DifferentContentError(
            f"rank {self._rank}: {self._place.uri}{self._folder}/{file.path} exists with another content; nothing was"
            " replaced. Give the folder a name of its own that ends in the step, such as"
            f" run2-{self._folder}."
        )

    def _send_part(self, call: Callable[[], Any]) -> Future[Any]:
        """Send a part in another thread; waits until there is room for it."""
        while not self._room.acquire(timeout=_NOTICE_SECONDS):
            self._go_on()
        try:
            self._go_on()
            future = self._requests.submit(call)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise _EndedError

    def _count(self) -> None:
        with self._lock:
            self.already_there += 1
