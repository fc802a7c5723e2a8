"""Keeps shards on the node's own disks: what was read once is not asked for again. Standard library only.

Every loader process of a node shares one folder. A shard's file has its checksum as its name, so that other data sets
and later packings never take each other's place. While a shard is read for the first time it is written beside and
summed; only a whole and true one gets its name.

Loaders go round in epochs, and then the usual rule, to remove what was not used for longest, removes each shard just
before it is needed. So what is in stays in, and what no longer fits is read from the store every time. Only shards of
other data sets make room.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from training_storage.training.shard_errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from training_storage.training.shard_index import ShardRecord

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
        """
        kept = self._open_kept(record)
        if kept is not None:
            return kept
        part = self._reserve(record)
        return io.BufferedReader(CheckedStream(fetch(), record, place=place, part=part), _BUFFER_BYTES)

    def _open_kept(self, record: ShardRecord) -> BinaryIO | None:
        try:
            file = (self._folder / f"{record.sha256}{_WHOLE}").open("rb")
        except FileNotFoundError:
            return None
        if os.fstat(file.fileno()).st_size == record.bytes:
            return file
        file.close()
        return None

    def _reserve(self, record: ShardRecord) -> Part | None:
        """Return a file with room for the shard; None if there is no room or another process is fetching it."""
        if record.bytes > self._limit:
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not self._made_room(record.bytes):
                return None
            return Part.create(self._folder / f"{record.sha256}{_PART}", size=record.bytes)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _made_room(self, size: int) -> bool:
        """Whether `size` bytes fit, after removing what is left of killed processes and of other data sets."""
        files: dict[Path, os.stat_result] = {}
        for path in self._folder.iterdir():
            if path.suffix == _PART and not Part.is_alive(path):
                path.unlink(missing_ok=True)
            elif path.suffix in (_WHOLE, _PART):
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

    def write(self, data: memoryview) -> None:
        """Write the next bytes."""
        self._file.write(data)

    def keep(self) -> None:
        """Give the file its name in the cache."""
        self._file.flush()
        self._path.rename(self._path.with_suffix(_WHOLE))
        self._file.close()

    def drop(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._file.close()


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
    """

    def __init__(self, source: BinaryIO, record: ShardRecord, *, place: str, part: Part | None = None) -> None:
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
        if self._part is not None:
            self._part.write(memoryview(data))
        return len(data)

    def _end(self) -> None:
        self._ended = True
        part, self._part = self._part, None
        if (self._bytes, self._hash.hexdigest()) == (self._record.bytes, self._record.sha256):
            if part is not None:
                part.keep()
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
