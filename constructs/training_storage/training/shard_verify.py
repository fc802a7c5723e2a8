"""Finds shards that are not what the index says: missing, cut, altered, or none of the packing."""

from __future__ import annotations

import hashlib
import os
import re
import time
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from training_storage.planning.units import MIB
from training_storage.training.daemon_threads import DaemonThreads
from training_storage.training.publish_pauses import pauses
from training_storage.training.shard_claim import WORK_NAME
from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_index import INDEX_NAME, ShardIndex
from training_storage.training.shard_s3 import (
    READ_TRIES,
    S3Access,
    body_of,
    is_uri,
    refuse_no_place,
    said,
    split_uri,
    status_of,
)
from training_storage.training.shard_source import S3Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.training.shard_index import ShardRecord

_NOT_FOUND = 404
_CHUNK_BYTES = 4 * MIB
_S3_AT_ONCE = 8
_TAR = re.compile(r"[^/]*\.tar")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something wrong with a shard.

    Parameters
    ----------
    name
        Of the shard.
    kind
        ``missing``, ``truncated``, ``longer``, ``altered``, ``unreadable`` or ``extra``.
    words
        What was expected and what was found.
    """

    name: str
    kind: str
    words: str


class _Place(Protocol):
    name: str

    def index_text(self) -> bytes: ...

    def sizes(self) -> dict[str, int]: ...

    def chunks(self, name: str) -> Iterator[bytes]: ...


def read_index(place: str, *, access: S3Access | None = None) -> ShardIndex:
    """Read the index of the packed data set at `place`, a folder or ``s3://bucket/prefix/``.

    Raises
    ------
    ShardInputError
        If there is no index, or it is not one of this version.
    ShardError
        If S3 refuses.
    """
    opened = _open(place, access or S3Access())
    return ShardIndex.from_json(opened.index_text(), place=f"{opened.name.rstrip('/')}/{INDEX_NAME}")


def verify_shards(
    place: str,
    *,
    access: S3Access | None = None,
    sizes_only: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[ShardIndex, tuple[Finding, ...]]:
    """Compare the shards at `place` with its index.

    Parameters
    ----------
    place
        A folder or ``s3://bucket/prefix/``.
    access
        How S3 is reached.
    sizes_only
        Compare names and sizes alone, which one listing gives; shards that were altered and kept their size pass.
    progress
        Is told how many bytes were read since it was told last.

    Returns
    -------
    tuple
        The index, and what is wrong in the order of names; nothing if all is well.

    Raises
    ------
    ShardInputError
        If there is no index, or it is not one of this version.
    ShardError
        If S3 refuses.
    """
    opened = _open(place, access or S3Access())
    index = ShardIndex.from_json(opened.index_text(), place=f"{opened.name.rstrip('/')}/{INDEX_NAME}")
    sizes = opened.sizes()
    known = {record.name for record in index.shards}
    found = [
        Finding(name=name, kind="extra", words="is not in the index: no part of this packing")
        for name in sizes
        if name not in known
    ]
    whole = []
    for record in index.shards:
        wrong = _size_finding(record, sizes.get(record.name))
        if wrong is None:
            whole.append(record)
        else:
            found.append(wrong)
    if not sizes_only:
        at_once = _S3_AT_ONCE if is_uri(place) else len(os.sched_getaffinity(0))
        with DaemonThreads(at_once, name="verify-shard") as pool:
            reads = [pool.submit(_content_finding, opened, record, progress) for record in whole]
            found += [wrong for read in as_completed(reads) if (wrong := read.result()) is not None]
    return index, tuple(sorted(found, key=lambda finding: finding.name))


def _size_finding(record: ShardRecord, size: int | None) -> Finding | None:
    if size is None:
        return Finding(name=record.name, kind="missing", words="is in the index and not there")
    if size == record.bytes:
        return None
    kind = "truncated" if size < record.bytes else "longer"
    return Finding(name=record.name, kind=kind, words=f"must have {record.bytes} bytes, has {size}")


def _content_finding(place: _Place, record: ShardRecord, progress: Callable[[int], None] | None) -> Finding | None:
    digest = hashlib.sha256()
    try:
        for chunk in place.chunks(record.name):
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    except (OSError, ShardError) as error:
        return Finding(name=record.name, kind="unreadable", words=f"cannot be read ({error})")
    if digest.hexdigest() == record.sha256:
        return None
    return Finding(name=record.name, kind="altered", words="has the right size and another checksum")


def _open(place: str, access: S3Access) -> _Place:
    if is_uri(place):
        bucket, prefix = split_uri(place)
        return _Prefix(S3Prefix(bucket=bucket, prefix=prefix, access=access))
    refuse_no_place(place, "place of shards")
    return _Folder(place)


def _no_index(place: str, *, begun: bool) -> ShardInputError:
    way_out = (
        "Its packing is not finished: run the same `shards pack` again." if begun else "Pack first: `shards pack`."
    )
    return ShardInputError(f"{place} must hold the {INDEX_NAME} of a packed data set, got: none. {way_out}")


class _Folder:
    def __init__(self, path: str) -> None:
        self.name = path
        self._path = Path(path)

    def index_text(self) -> bytes:
        try:
            return (self._path / INDEX_NAME).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise _no_index(self.name, begun=(self._path / WORK_NAME).exists()) from None
        except OSError as error:
            raise ShardError(f"{str(self._path / INDEX_NAME)!r} cannot be read ({error.strerror}).") from error

    def sizes(self) -> dict[str, int]:
        # A link that leads nowhere is a shard that is not there.
        return {path.name: path.stat().st_size for path in self._path.glob("*.tar") if path.exists()}

    def chunks(self, name: str) -> Iterator[bytes]:
        with (self._path / name).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


class _Prefix:
    def __init__(self, prefix: S3Prefix) -> None:
        self.name = prefix.name
        self._prefix = prefix
        self._client = prefix.access.client()

    def index_text(self) -> bytes:
        return bytes(said(self._get_index, action="reading", place=f"{self.name}{INDEX_NAME}"))

    def _get_index(self) -> bytes:
        try:
            return body_of(lambda: self._get(INDEX_NAME))
        except self._client.exceptions.ClientError as error:
            if status_of(error) == _NOT_FOUND:
                raise _no_index(self.name, begun=any(self.sizes())) from None
            raise

    def sizes(self) -> dict[str, int]:
        return {file.path: file.size for file in self._prefix.files() if _TAR.fullmatch(file.path)}

    def chunks(self, name: str) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # noqa: PLC0415 - see body_of

        read = 0
        condition: dict[str, str] = {}
        try:
            for tries, pause in enumerate(pauses(), 1):
                # An answer that broke off goes on where it was, if the object is still the same.
                answer = self._get(name, **condition)
                try:
                    for chunk in answer["Body"].iter_chunks(_CHUNK_BYTES):
                        read += len(chunk)
                        yield chunk
                except HTTPClientError:
                    if tries == READ_TRIES:
                        raise
                else:
                    return
                condition = {"Range": f"bytes={read}-", "IfMatch": answer["ETag"]}
                time.sleep(pause)
        except (BotoCoreError, ClientError) as error:
            raise ShardError(" ".join(str(error).split())) from error

    def _get(self, name: str, **condition: str) -> Any:  # noqa: ANN401 - boto3 has no types
        return self._client.get_object(Bucket=self._prefix.bucket, Key=self._prefix.prefix + name, **condition)
