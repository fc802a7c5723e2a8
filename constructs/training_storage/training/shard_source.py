"""Where small files come from: a folder or a prefix of S3, listed as a stream and read one by one."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_s3 import S3Access, body_of, is_uri, refuse_no_place, said, split_uri, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EXPRESS_SUFFIX = "--x-s3"
_NOWHERE = "a link that leads nowhere"
_CIRCLE = "a link to a folder above it"
_NO_FILE = "no regular file, such as a pipe or a socket"
_PRECONDITION_FAILED, _NOT_FOUND = 412, 404


class SourceFile(NamedTuple):
    """A file: its path relative to the source, its size in bytes, and a mark that changes with its contents.

    `fault` says why it can be no sample whatever its name: it is no regular file, or a link that cannot be followed.
    """

    path: str
    size: int
    mark: str
    fault: str | None = None


class Source(Protocol):
    """A place with small files. It travels to other processes, so it holds values only."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def requests_at_once(self) -> int:
        """How many reads a process has on the way at once; 1 where waiting for one is no loss."""

    @property
    def is_ordered(self) -> bool:
        """Whether each folder is listed in the order of names."""

    def files(self) -> Iterator[SourceFile]:
        """Yield every file, if ordered in each folder in the order of names, without holding the listing in memory."""

    def reader(self) -> Callable[[SourceFile], bytes]:
        """Return a function that reads a file whole; it raises ShardError if the file has changed since."""


def open_source(place: str, *, access: S3Access) -> Source:
    """Return the source at `place`, a folder or ``s3://bucket/prefix/``.

    Raises
    ------
    ShardInputError
        If it is neither.
    """
    if is_uri(place):
        bucket, prefix = split_uri(place)
        return S3Prefix(bucket=bucket, prefix=prefix, access=access)
    refuse_no_place(place, "source")
    if not Path(place).is_dir():
        raise ShardInputError(f"the source must be a folder or s3://BUCKET/PREFIX/, got: {place!r}.")
    return Folder(path=os.path.realpath(place))


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of a file system; links are followed, to files and to folders."""

    path: str

    @property
    def name(self) -> str:
        """The path without links."""
        return self.path

    @property
    def requests_at_once(self) -> int:
        """One: the operating system reads ahead, and processes share the cores already."""
        return 1

    @property
    def is_ordered(self) -> bool:
        """Yes, each folder is sorted."""
        return True

    def files(self) -> Iterator[SourceFile]:
        """Walk the folder; at most one folder of each level is held in memory."""
        return self._walk(self.path, "", above=())

    def _walk(self, folder: str, relative: str, *, above: tuple[tuple[int, int], ...]) -> Iterator[SourceFile]:
        try:
            with os.scandir(folder) as found:
                inside = os.stat(folder)  # noqa: PTH116 - as fast as it gets, for millions
                above = (*above, (inside.st_dev, inside.st_ino))
                entries = sorted(found, key=lambda entry: entry.name)
            for entry in entries:
                path = f"{relative}{entry.name}"
                status = _status(entry)
                if status is None:
                    yield SourceFile(path, 0, "", _NOWHERE)
                elif stat.S_ISREG(status.st_mode):
                    yield SourceFile(path, status.st_size, str(status.st_mtime_ns))
                elif not stat.S_ISDIR(status.st_mode):
                    yield SourceFile(path, 0, "", _NO_FILE)
                elif entry.is_symlink() and (status.st_dev, status.st_ino) in above:
                    yield SourceFile(path, 0, "", _CIRCLE)
                else:
                    yield from self._walk(entry.path, f"{path}/", above=above)
        except OSError as error:
            raise ShardError(f"{error.filename!r} cannot be listed ({error.strerror}).") from error

    def reader(self) -> Callable[[SourceFile], bytes]:
        """Return a function that reads a file of this folder."""

        def read(file: SourceFile) -> bytes:
            try:
                handle = os.open(f"{self.path}/{file.path}", os.O_RDONLY)
                try:
                    # One byte more than listed, so that growth shows without a request for the size.
                    data = os.read(handle, file.size + 1)
                    while 0 < len(data) < file.size and (more := os.read(handle, file.size + 1 - len(data))):
                        data += more
                finally:
                    os.close(handle)
            except OSError as error:
                raise ShardError(f"{file.path!r} cannot be read ({error.strerror}).") from error
            if len(data) != file.size:
                raise changed(file)
            return data

        return read


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return what an entry is, behind its links; None for a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError as error:
        # ENOTDIR and ENAMETOOLONG: the way passes through something that is no folder, or has no name like that.
        if entry.is_symlink() and error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise


@dataclass(frozen=True, kw_only=True)
class S3Prefix:
    """A prefix of a bucket of S3, of S3 Express or of a compatible store."""

    bucket: str
    prefix: str
    access: S3Access

    @property
    def name(self) -> str:
        """The URI."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def requests_at_once(self) -> int:
        """Many: each waits for its first byte."""
        return 32

    @property
    def is_ordered(self) -> bool:
        """Directory buckets of S3 Express list in no order."""
        return not self.is_express

    @property
    def is_express(self) -> bool:
        """Whether it is a directory bucket of S3 Express."""
        return self.bucket.endswith(_EXPRESS_SUFFIX)

    def files(self) -> Iterator[SourceFile]:
        """List the prefix page by page."""
        client = self.access.client()
        more: dict[str, str] = {}
        while True:
            list_page = partial(client.list_objects_v2, Bucket=self.bucket, Prefix=self.prefix, **more)
            page: dict[str, Any] = said(list_page, action="listing", place=self.name)
            for item in page.get("Contents", []):
                yield SourceFile(item["Key"][len(self.prefix) :], item["Size"], item["ETag"])
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def reader(self) -> Callable[[SourceFile], bytes]:
        """Return a function that reads an object, if it is still the one that was listed."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - local folders need no boto3

        client = self.access.client()

        def get(file: SourceFile) -> bytes:
            try:
                key = self.prefix + file.path
                return body_of(lambda: client.get_object(Bucket=self.bucket, Key=key, IfMatch=file.mark))
            except ClientError as error:
                if status_of(error) in (_PRECONDITION_FAILED, _NOT_FOUND):
                    raise changed(file) from error
                raise

        def read(file: SourceFile) -> bytes:
            data: bytes = said(lambda: get(file), action="reading", place=f"{self.name}{file.path}")
            if len(data) != file.size:
                raise changed(file)
            return data

        return read


def changed(file: SourceFile) -> ShardError:
    """Return the error for a file that is not what was listed."""
    return ShardError(f"{file.path!r} has changed since it was listed. Pack again once nothing writes to the source.")
