"""What torch's distributed checkpoint writes through: each file is counted and hashed on its way, and only once.

Nothing is read back to make the completion marker, and no second writer can slip a file in unnoticed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import threading
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from training_storage.checkpoint_format import CheckpointFile, Checksum
from training_storage.training.checkpoint_errors import DifferentContentError
from training_storage.training.publish_source import ALGORITHM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch.distributed.checkpoint.planner import SavePlan


class Written:
    """The files that this rank has written, with sizes and checksums."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, CheckpointFile] = {}

    def add(self, name: str, *, size: int, digest: str) -> None:
        """Take down a file that was closed without an error."""
        file = CheckpointFile(path=name, bytes=size, checksum=Checksum(algorithm=ALGORITHM, value=digest))
        with self._lock:
            self._files[name] = file

    def rename(self, name: str, to: str) -> None:
        """Take down that a file has another name now."""
        with self._lock:
            self._files[to] = dataclasses.replace(self._files.pop(name), path=to)

    def files(self) -> tuple[CheckpointFile, ...]:
        """Return what was taken down."""
        with self._lock:
            return tuple(self._files.values())


class HashingStream(io.RawIOBase):
    """A stream that is written in order; `size` and `hexdigest` tell what went through.

    Parameters
    ----------
    raw
        Takes the bytes.
    """

    def __init__(self, raw: Any) -> None:  # noqa: ANN401 -- a file of Python or a writer of s3torchconnector
        super().__init__()
        self._raw, self._hash, self.size = raw, hashlib.sha256(), 0
        self._failure: Exception | None = None

    def write(self, data: Any, /) -> int:  # noqa: ANN401 -- a buffer
        """Write and hash."""
        try:
            self._raw.write(data)
        except Exception as error:
            self._failure = error
            raise
        self._hash.update(data)
        length = memoryview(data).nbytes
        self.size += length
        return length

    def tell(self) -> int:
        """Return how much was written."""
        return self.size

    def writable(self) -> bool:
        """Say yes."""
        return True

    def fileno(self) -> int:
        """Return the file's number, so that it can be synced; a store's stream has none and says so."""
        return int(self._raw.fileno())

    def flush(self) -> None:
        """Flush what is below."""
        if not self.closed:
            self._raw.flush()

    def close(self) -> None:
        """Close this stream; the one below is closed by whoever opened it, who knows whether all went well."""
        super().close()

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was written."""
        return self._hash.hexdigest()

    def raise_failure(self) -> None:
        """Raise why a write failed: torch's archive writer reports only that its end is missing."""
        if self._failure is not None:
            raise self._failure


@contextlib.contextmanager
def recorded(
    opened: AbstractContextManager[Any],
    path: str | os.PathLike[str],
    mode: str,
    *,
    written: Written,
    give_up: Callable[[Any], None] | None = None,
) -> Iterator[io.IOBase]:
    """Open a file for torch, and take down what was written once it is closed without an error.

    Parameters
    ----------
    opened
        Opens the file.
    path, mode
        Of the file; what is read is passed on as it is.
    written
        Where it is taken down.
    give_up
        Told of the file after an exception, before it is closed.
    """
    with opened as raw:
        if mode != "wb":
            yield raw
            return
        stream = HashingStream(raw)
        try:
            yield stream
        except BaseException:
            if give_up is not None:
                give_up(raw)
            stream.raise_failure()
            raise
        raw.flush()
    written.add(name_of(path), size=stream.size, digest=stream.hexdigest())


class RecordingFileSystem(FileSystem):
    """torch's file system, which takes down what it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Written()

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """Open a file; what is written is taken down once it is closed."""
        with recorded(super().create_stream(path, mode), path, mode, written=self.written) as stream:
            yield stream

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file that was written here."""
        super().rename(path, new_path)
        self.written.rename(name_of(path), name_of(new_path))


class NewFolderWriter(FileSystemWriter):
    """torch's writer, for a folder that must not hold anything yet.

    Parameters
    ----------
    path
        The folder.
    is_used
        Says whether the folder holds a file; asked by rank 0 before anything is written.

    Attributes
    ----------
    written
        What this rank has written.
    """

    def __init__(self, path: str, *, is_used: Callable[[], bool]) -> None:
        super().__init__(path, overwrite=False)
        files = RecordingFileSystem()
        self.fs, self.written = files, files.written
        self._is_used, self._is_coordinator = is_used, False

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001 -- torch's signature
        """Remember who asks whether the folder is new."""
        self._is_coordinator = is_coordinator
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Refuse a folder that was used before; no rank has written anything by then."""
        if self._is_coordinator:
            refuse_used(str(self.path), self._is_used)
        return super().prepare_local_plan(plan)


def refuse_used(path: str, is_used: Callable[[], bool]) -> None:
    """Raise if a folder holds files: torch would overwrite them one by one, the end mark first."""
    if is_used():
        raise DifferentContentError(
            f"{path} holds files already, and no file of a checkpoint is ever replaced. Give each attempt names of its"
            " own (attempt=…, or start the job with Slurm or torchrun, which count attempts)"
        )


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of a file of a checkpoint, which has no folders below."""
    return PurePosixPath(os.fspath(path)).name
