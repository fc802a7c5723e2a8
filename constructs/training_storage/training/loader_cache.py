"""Keeps shards on the node's own disks: what was read once is not asked for again. Standard library only.

Every loader process of a node shares one folder. A shard's file has its checksum as its name, so that other data sets
and later packings never take each other's place. While a shard is read for the first time it is written beside and
summed; only a whole and true one gets its name, after it is on the disk.

A file that an earlier process left is summed once before this process reads from it: disks and power cuts alter files.
That is a few seconds for a shard of gigabytes, where the store would take minutes; a bad one is removed and read from
the store, and none of its samples has been given out.

Loaders go round in epochs, and then the usual rule, to remove what was not used for longest, removes each shard just
before it is needed. So what is in stays in, and what no longer fits is read from the store every time. Only shards of
other data sets make room.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import logging
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from training_storage.training.shard_errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from training_storage.training.shard_index import ShardRecord

_LOG = logging.getLogger("training_storage.loader")
VERIFY_WORDS: Final = "Run `training-storage shards verify` for all that are wrong."
_BUFFER_BYTES = 2**20
_WHOLE, _PART = ".tar", ".part"


class ShardCache:
    """Shards on local disks, bounded in size.

    Parameters
    ----------
    path
        The folder; made if it is not there.
    limit_bytes
        Most that all files may take together.
    keep
        Checksums of the data set in use; other shards may be removed when there is no room.
    """

    def __init__(self, *, path: str, limit_bytes: int, keep: AbstractSet[str]) -> None:
        self._folder = Path(path)
        self._limit = limit_bytes
        self._keep = keep
        self._checked: set[str] = set()

    def prepare(self) -> None:
        """Make the folder, so that what is wrong with it is said before anything is read.

        Raises
        ------
        ShardError
            If it can be no folder of this process.
        """
        if self._limit:
            with self._usable():
                self._folder.mkdir(parents=True, exist_ok=True)
                with _locked(self._folder):
                    pass

    def open(self, record: ShardRecord, *, place: str, fetch: Callable[[], BinaryIO]) -> BinaryIO:
        """Return a stream of the shard of `record`: from disk, or from `fetch` and then also into the cache.

        Parameters
        ----------
        record
            Of the shard.
        place
            Names the shard in errors.
        fetch
            Opens the shard in the store.

        Raises
        ------
        ShardError
            If the folder cannot be used.
        """
        with self._usable():
            kept = self._open_kept(record)
            if kept is not None:
                return kept
            part = self._reserve(record)
        # What this process writes it has summed.
        stream = CheckedStream(
            fetch(), record, place=place, part=part, on_kept=lambda: self._checked.add(record.sha256)
        )
        return io.BufferedReader(stream, _BUFFER_BYTES)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ShardError(
                f"the cache {str(self._folder)!r} must be a folder that this process can read and write, got:"
                f" {error.strerror} ({str(error.filename or self._folder)!r}). Repair it, or choose another one or none"
                " with dataclasses.replace(settings, cache_path=…) or (settings, cache_bytes=0)."
            ) from None

    def _open_kept(self, record: ShardRecord) -> BinaryIO | None:
        if not self._limit:
            return None
        path = self._folder / f"{record.sha256}{_WHOLE}"
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        if self._is_true(file, record):
            file.seek(0)
            return file
        self._drop_bad(path, file)
        return None

    def _is_true(self, file: io.BufferedReader, record: ShardRecord) -> bool:
        """Whether the file is the shard: by its size, and by its checksum when this process reads it first."""
        if os.fstat(file.fileno()).st_size != record.bytes:
            return False
        if record.sha256 in self._checked:
            return True
        try:
            true = hashlib.file_digest(file, "sha256").hexdigest() == record.sha256
        except OSError:
            # A disk that cannot read it any more.
            return False
        if true:
            self._checked.add(record.sha256)
        return true

    def _drop_bad(self, path: Path, file: BinaryIO) -> None:
        with file, _locked(self._folder):
            _LOG.warning("%s in the cache is not the shard that was kept there; it is read from the store again", path)
            # Another process may have removed it and kept a true one by now.
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                path.unlink()
        self._checked.discard(path.stem)

    def _reserve(self, record: ShardRecord) -> Part | None:
        """Return a file with room for the shard; None if there is no room or another process is fetching it."""
        if record.bytes > self._limit:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder):
            if not self._made_room(record.bytes):
                return None
            return Part.create(self._folder / f"{record.sha256}{_PART}", size=record.bytes)

    def _made_room(self, size: int) -> bool:
        """Whether `size` bytes fit, after removing what is left of killed processes and of other data sets."""
        files: dict[Path, os.stat_result] = {}
        for path in self._folder.iterdir():
            if path.suffix == _PART and not Part.is_alive(path):
                path.unlink(missing_ok=True)
            elif path.suffix in (_WHOLE, _PART):
                # Ours change names under the lock only; whoever empties the folder by hand does not hold it.
                with suppress(FileNotFoundError):
                    files[path] = path.stat()
        used = sum(status.st_size for status in files.values())
        strangers = [path for path in files if path.suffix == _WHOLE and path.stem not in self._keep]
        for path in sorted(strangers, key=lambda path: files[path].st_mtime):
            if used + size <= self._limit:
                break
            # A process that has it open reads on.
            path.unlink(missing_ok=True)
            used -= files[path].st_size
        return used + size <= self._limit


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder: names in it appear, change and go under this lock alone."""
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class Part:
    """A shard on its way into the cache; its lock says that somebody is writing it.

    Parameters
    ----------
    path
        Of the file.
    descriptor
        Of the open file, which holds the lock.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._file = os.fdopen(descriptor, "wb")

    @classmethod
    def create(cls, path: Path, *, size: int) -> Part | None:
        """Return a new part with `size` bytes of the disk; None if there is one, or the disk is full."""
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            return None
        return cls(path, descriptor)

    @staticmethod
    def is_alive(path: Path) -> bool:
        """Whether a process is writing the part at `path`."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def write(self, data: memoryview) -> bool:
        """Write the next bytes; a part whose disk fails is removed, and False says so."""
        try:
            self._file.write(data)
        except OSError as error:
            self._give_up(error)
            return False
        return True

    def keep(self) -> bool:
        """Give the file its name in the cache, once it is on the disk; False if that fails, which removes it."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            with _locked(self._path.parent):
                self._path.rename(self._path.with_suffix(_WHOLE))
            self._file.close()
        except OSError as error:
            self._give_up(error)
            return False
        return True

    def drop(self) -> None:
        """Remove the file."""
        with suppress(OSError), _locked(self._path.parent):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()

    def _give_up(self, error: OSError) -> None:
        # The cache saves requests; training goes on without it.
        _LOG.warning("%s is not kept in the cache (%s)", self._path.with_suffix(_WHOLE), error.strerror)
        self.drop()


class CheckedStream(io.RawIOBase):
    """Passes a shard on, sums it, and refuses one that is not what the index says.

    A tar file that was cut reads as fewer samples, without an error: here its end raises.

    Parameters
    ----------
    source
        The shard in the store.
    record
        What the index says of it.
    place
        Names the shard in errors.
    part
        Where it is kept as well.
    on_kept
        Is called when it is.
    """

    def __init__(
        self,
        source: BinaryIO,
        record: ShardRecord,
        *,
        place: str,
        part: Part | None = None,
        on_kept: Callable[[], None] | None = None,
    ) -> None:
        self._on_kept = on_kept
        self._source = source
        self._record = record
        self._place = place
        self._part = part
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._ended = False

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into `buffer`.

        Raises
        ------
        ShardError
            At the end, if the size or the checksum is another.
        """
        if self._ended:
            return 0
        data = self._source.read(len(buffer))
        if not data:
            self._end()
            return 0
        buffer[: len(data)] = data
        self._hash.update(data)
        self._bytes += len(data)
        if self._part is not None and not self._part.write(memoryview(data)):
            self._part = None
        return len(data)

    def _end(self) -> None:
        self._ended = True
        part, self._part = self._part, None
        if (self._bytes, self._hash.hexdigest()) == (self._record.bytes, self._record.sha256):
            if part is not None and part.keep() and self._on_kept is not None:
                self._on_kept()
            return
        if part is not None:
            part.drop()
        if self._bytes != self._record.bytes:
            wrong = f"must have {self._record.bytes} bytes, has {self._bytes}"
        else:
            wrong = "has another checksum than its index says"
        raise ShardError(
            f"the shard {self._place} {wrong}. Run `training-storage shards verify` for all that are wrong."
        )

    def close(self) -> None:
        """Give up what was not read to its end."""
        part, self._part = self._part, None
        if part is not None:
            part.drop()
        self._source.close()
        super().close()
