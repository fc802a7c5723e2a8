"""Checkpoints in a folder of a file system: FSx for Lustre, or a local disk.

A file is written under a hidden name, synced and then linked to its own name: `link` fails where the name exists, which
`rename` would replace. The pointer is read, compared and renamed into place under a lock of the kernel, which ends with
the process that holds it; on Lustre it holds across nodes when the file system is mounted with the option ``flock``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import hashlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.training.checkpoint_errors import CheckpointError, DamagedError, DeniedError, FileSystemError
from training_storage.training.checkpoint_place import Content, FileState, checked_key, is_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from training_storage.training.checkpoint_place import Data, Parts, Send

#: Hidden names of files that are being written; a killed writer leaves one.
DRAFT_PREFIX = ".draft-"
_DRAFT = re.compile(rf"{re.escape(DRAFT_PREFIX)}[0-9a-f]{{32}}")
_PART_BYTES = 16 * 1024 * 1024
_LOCK_SUFFIX = ".lock"


class PathPlace:
    """A folder that holds checkpoints.

    Parameters
    ----------
    folder
        Absolute path; made at the first write.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    @property
    def uri(self) -> str:
        """The path, with a slash at the end."""
        return f"{self._folder}/"

    @property
    def local_folder(self) -> Path:
        """The folder itself: its files need no copy."""
        return self._folder

    def prepare_writing(self, *, largest_bytes: int) -> None:
        """Make the folder; a file system takes files of any size."""
        del largest_bytes
        with self._reasons(""):
            self._folder.mkdir(parents=True, exist_ok=True)

    def part_bytes(self, size: int) -> int:
        """Return the size of a write."""
        del size
        return _PART_BYTES

    def folders(self) -> list[str]:
        """Return the names of the folders directly below; hidden ones are none of ours."""
        with self._reasons(""):
            try:
                with os.scandir(self._folder) as entries:
                    names = [entry.name for entry in entries if entry.is_dir()]
            except FileNotFoundError:
                return []
        return [name for name in names if is_key(name) and not name.startswith(".")]

    def files(self, folder: str) -> dict[str, FileState]:
        """Return every file below a folder, without drafts."""
        top = self._path(folder)
        found = {}
        with self._reasons(folder):
            for path in _files_below(top):
                with contextlib.suppress(FileNotFoundError):
                    state = path.stat()
                    found[path.relative_to(top).as_posix()] = FileState(
                        bytes=state.st_size, modified=dt.datetime.fromtimestamp(state.st_mtime, tz=dt.UTC)
                    )
        return found

    def read(self, key: str) -> Content | None:
        """Return a small file; its version is a hash of what it holds."""
        path = self._path(key)
        with self._reasons(key):
            try:
                # Without waiting: a pipe of that name has no content, and must not stop whoever looks.
                with open(path, "rb", opener=_at_once) as file:
                    data = file.read()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return Content(data=data, version=_version(data))

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Return some bytes of a file."""
        path = self._path(key)
        with self._reasons(key):
            try:
                with path.open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), end - start, start)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise DamagedError(f"{self.uri}{key} is missing") from None

    def create(self, key: str, data: Data) -> bool:
        """Write a file whole unless it exists."""
        return self._create(key, (data,))

    def create_from_parts(self, key: str, parts: Parts, *, send: Send) -> bool:
        """Write a file part by part, in order; one thread fills a disk's queue well enough."""
        del send
        return self._create(key, parts)

    def swap(self, key: str, data: bytes, *, version: str | None) -> bool:
        """Replace a small file under a lock, if it still is what the caller saw."""
        path = self._path(key)
        with self._reasons(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(_lock_of(path)):
                current = self.read(key)
                if (None if current is None else current.version) != version:
                    return False
                draft = _draft(path)
                try:
                    _write(draft, (data,))
                    draft.replace(path)
                finally:
                    draft.unlink(missing_ok=True)
                _sync_folder(path.parent)
        return True

    def delete(self, key: str) -> None:
        """Remove a file, and the folders that it leaves empty."""
        path = self._path(key)
        with self._reasons(key):
            lock = _lock_of(path)
            if lock.exists():
                # Whoever waits for the lock sees that its file is gone, and makes another.
                with locked(lock):
                    path.unlink(missing_ok=True)
                    lock.unlink(missing_ok=True)
            else:
                path.unlink(missing_ok=True)
        for folder in path.relative_to(self._folder).parents:
            if folder != Path():
                with contextlib.suppress(OSError):
                    (self._folder / folder).rmdir()

    def _create(self, key: str, parts: Iterable[Data]) -> bool:
        path = self._path(key)
        with self._reasons(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = _draft(path)
            try:
                _write(draft, parts)
                try:
                    path.hardlink_to(draft)
                except FileExistsError:
                    return False
            finally:
                draft.unlink(missing_ok=True)
            _sync_folder(path.parent)
        return True

    def _path(self, key: str) -> Path:
        return self._folder / checked_key(key)

    @contextlib.contextmanager
    def _reasons(self, key: str) -> Iterator[None]:
        """Turn what the file system raises into one line that begins with the file."""
        try:
            yield
        except OSError as error:
            kind = DeniedError if isinstance(error, PermissionError) else FileSystemError
            raise kind(f"{self.uri}{key}: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file that is made for it; the kernel lets go of it when the process ends.

    Raises
    ------
    CheckpointError
        If the file system has no locks: Lustre mounted without the option ``flock``.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                    raise
                raise CheckpointError(
                    f"{path.parent} has no file locks ({error.strerror}): mount Lustre with the option flock"
                ) from None
            # Whoever held it may have removed the file: a lock on that one keeps nobody out.
            if is_same(file, path):
                yield
                return
        finally:
            os.close(file)


def is_same(file: int, path: Path) -> bool:
    """Whether an open file or folder is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def is_draft(name: str) -> bool:
    """Whether this is the name of a file that is being written."""
    return _DRAFT.fullmatch(name) is not None


def _files_below(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top, onerror=_unless_gone):
        yield from (Path(folder, name) for name in names if not is_draft(name))


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _unless_gone(error: OSError) -> None:
    """Raise: a folder that cannot be listed is not an empty one."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_LOCK_SUFFIX}")


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _draft(path: Path) -> Path:
    return path.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")


def _write(path: Path, parts: Iterable[Data]) -> None:
    """Write a file that survives a power cut before it gets its name."""
    with path.open("xb", buffering=0) as file:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(file.fileno(), view) :]
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
