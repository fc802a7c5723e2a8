"""The local files of a checkpoint, read once: each part is hashed on its way to the store."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    CheckpointFile,
    CheckpointFormatError,
    Checksum,
    read_marker,
)
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_errors import FileSystemError, SourceChangedError
from training_storage.training.checkpoint_path_place import is_draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

ALGORITHM: Final = "sha256"
#: Below the folder of a checkpoint that several ranks write: what each has finished.
RECORDS_FOLDER: Final = "_parts"
# Others are taken by neither every store nor every file system.
_FORBIDDEN: Final = frozenset('\\{}^%`[]"<>~#|*?\x7f').union(map(chr, range(32)))


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A local file that is to be published.

    Parameters
    ----------
    path
        Relative to the folder, with ``/`` between its parts.
    local
        Where it is.
    bytes
        Its size when the folder was listed.
    expected
        What the folder's own marker says of it; None without one.
    """

    path: str
    local: Path
    bytes: int
    expected: Checksum | None = None


def source_files(folder: Path, patterns: Sequence[str] = ()) -> list[SourceFile]:
    """Return the files of a finished local checkpoint, the largest first, the framework's end mark last.

    Parameters
    ----------
    folder
        The checkpoint.
    patterns
        Which files, such as ``rank-3*``; all by default.

    Raises
    ------
    InvalidJobError
        If the folder is none, holds no such file, holds a name that a store cannot keep, or what is no file: leaving it
        out would make a checkpoint complete that is not.
    FileSystemError
        If a folder cannot be listed.
    """
    if not folder.is_dir():
        raise InvalidJobError(f"a checkpoint must be a folder, got: {str(folder)!r}")
    expected = _expected(folder)
    found = []
    for path, local in _walk(folder):
        if patterns and not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            continue
        if not is_plain_name(path):
            raise InvalidJobError(
                f"a file of a checkpoint must be named with letters, digits and simple marks, got: {path!r} in"
                f" {str(folder)!r}"
            )
        found.append(SourceFile(path=path, local=local, bytes=_size(local), expected=expected.get(path)))
    if not found:
        which = f" that match {', '.join(patterns)}" if patterns else ""
        raise InvalidJobError(f"a checkpoint must hold files{which}, got: none in {str(folder)!r}")
    if not patterns and (gone := set(expected) - {file.path for file in found}):
        raise SourceChangedError(f"{folder / min(gone)} is missing, which {MARKER_NAME} names")
    return sorted(found, key=lambda file: (is_end_mark(file.path), -file.bytes, file.path))


def is_plain_name(path: str) -> bool:
    """Whether every store and file system keeps this name as it is."""
    return not _FORBIDDEN & set(path) and path.isprintable()


def is_end_mark(path: str) -> bool:
    """Whether a file says that a framework has written all the others: it must be published after them."""
    return path == DCP_METADATA_NAME


class SourceParts:
    """The parts of a local file, hashed as they are read; `checksum` is known after the last.

    Parameters
    ----------
    file
        What is read.
    part_bytes
        Length of a part.
    before
        Called before each part is read: raises where publishing has ended.
    turn
        Held while a part is read and hashed, which keeps a core busy.
    """

    def __init__(
        self,
        file: SourceFile,
        *,
        part_bytes: int,
        before: Callable[[], None] = lambda: None,
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        self.size = file.bytes
        self._file, self._part_bytes, self._before = file, part_bytes, before
        self._turn = contextlib.nullcontext() if turn is None else turn
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        """Read the file once.

        Raises
        ------
        SourceChangedError
            If it is not the file that was listed, or changes on the way.
        FileSystemError
            If it cannot be read.
        """
        with _reasons(self._file.local), self._file.local.open("rb", buffering=0) as source:
            state = os.fstat(source.fileno())
            left = self.size
            while left or not self.size:
                self._before()
                with self._turn:
                    part = _read(source.fileno(), min(self._part_bytes, left))
                    self._hash.update(part)
                left -= len(part)
                if (left and not part) or (not left and _changed(source.fileno(), state, self.size)):
                    raise SourceChangedError(
                        f"{self._file.local} changed while it was published; save each checkpoint to a folder of its"
                        " own and leave it alone"
                    )
                if not left and self._file.expected not in (None, self.checksum()):
                    raise SourceChangedError(f"{self._file.local} has another checksum than its {MARKER_NAME} says")
                yield part
                if not self.size:
                    return

    def checksum(self) -> Checksum:
        """Return the checksum of what was read."""
        return Checksum(algorithm=ALGORITHM, value=self._hash.hexdigest())

    def described(self) -> CheckpointFile:
        """Return what the marker says of the file."""
        return CheckpointFile(path=self._file.path, bytes=self.size, checksum=self.checksum())


def _read(file: int, length: int) -> bytes:
    """Return `length` bytes unless the file ends before."""
    first = os.read(file, length)
    if len(first) == length or not first:
        return first
    parts = [first]
    while (missing := length - sum(map(len, parts))) and (more := os.read(file, missing)):
        parts.append(more)
    return b"".join(parts)


def _changed(file: int, before: os.stat_result, size: int) -> bool:
    now = os.fstat(file)
    return (now.st_size, now.st_mtime_ns) != (size, before.st_mtime_ns)


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is to be published; links to folders too, which `_size` refuses."""

    def refuse(error: OSError) -> None:
        raise FileSystemError(f"{error.filename}: cannot be listed ({error.strerror})") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name != RECORDS_FOLDER]
        for name in (*names, *(name for name in folders if Path(parent, name).is_symlink())):
            local = Path(parent, name)
            path = local.relative_to(folder).as_posix()
            if path != MARKER_NAME and not is_draft(name):
                yield path, local


def _size(local: Path) -> int:
    try:
        state = local.stat()
    except OSError as error:
        if local.is_symlink():
            raise InvalidJobError(
                f"a checkpoint must hold files, got: {str(local)!r}, a link to what is not there"
            ) from None
        raise FileSystemError(f"{local}: cannot be read ({error.strerror})") from error
    if stat.S_ISDIR(state.st_mode):
        raise InvalidJobError(
            f"a checkpoint must hold its files itself, got: {str(local)!r}, a link to a folder. Put the folder there."
        )
    if not stat.S_ISREG(state.st_mode):
        raise InvalidJobError(f"a checkpoint must hold files, got: {str(local)!r}, which is neither file nor folder")
    return state.st_size


@contextlib.contextmanager
def _reasons(local: Path) -> Iterator[None]:
    """Turn what the local file system raises into one line; what the place raises is none of it."""
    try:
        yield
    except OSError as error:
        raise FileSystemError(f"{local}: cannot be read ({error.strerror or error})") from error


def _expected(folder: Path) -> Mapping[str, Checksum]:
    marker = folder / MARKER_NAME
    if not marker.is_file():
        return {}
    try:
        with _reasons(marker):
            files = read_marker(marker.read_bytes()).files
    except CheckpointFormatError as error:
        raise SourceChangedError(f"{folder}: {error}") from None
    return {file.path: file.checksum for file in files if file.checksum and file.checksum.algorithm == ALGORITHM}
