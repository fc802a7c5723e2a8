"""Copies objects of a directory bucket into the lake on S3's side: in parallel, in parts, and resumable.

Killed anywhere, the next run goes on: what is copied is recognised and left alone, unfinished uploads are taken up
where their parts fit and aborted where not. Every copy is pinned to the source's ETag, so that a source that changes
meanwhile fails instead of becoming a mixture.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_manifest import ArchivedFile
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.operations.object_state import (
    COMPOSITE,
    FULL_OBJECT,
    SOURCE_ETAG,
    Comparison,
    ObjectState,
    compare,
    is_copy,
    state_of,
)
from training_storage.planning.catalog.s3 import copy_limits, s3_limits
from training_storage.planning.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from training_storage.checkpoint_format import Checksum

#: Requests under way at once. One moves 85 to 90 MB/s (S3 guide, optimizing-performance-design-patterns), so these
#: move 2.8 GB/s; a prefix takes thousands of requests per second.
DEFAULT_CONCURRENCY: Final = 32
#: Large enough for few requests, small enough that a part takes seconds and little is repeated after a kill.
DEFAULT_PART_MIB: Final = 256

_CHECKSUM: Final = "CRC64NVME"
#: Algorithms that S3 can compute for a whole object that arrives in parts.
_WHOLE_IN_PARTS: Final = ("CRC64NVME", "CRC32C", "CRC32")
_ALL_IN_ONE: Final = (*_WHOLE_IN_PARTS, "SHA256", "SHA1")
_ATTEMPTS: Final = 3
_EXISTS: Final = "PreconditionFailed"
_AT_ONCE: Final = ("ConditionalRequestConflict", "OperationAborted")
_GONE: Final = ("404", "NoSuchKey", "NotFound")


class OutOfTimeError(Exception):
    """The time is up; what is copied stays, and the next run goes on."""


@dataclass(frozen=True, kw_only=True)
class FileToCopy:
    """One file of a checkpoint.

    Parameters
    ----------
    path
        Relative to the checkpoint.
    source_key, lake_key
        Where it is, and where it goes.
    bytes, etag
        As the source was listed.
    claimed
        Checksum that the marker names.
    exists
        Whether the lake has an object of that key.
    replaceable
        Whether that object may be replaced if it is no copy of the source; not within a whole checkpoint.
    """

    path: str
    source_key: str
    lake_key: str
    bytes: int
    etag: str
    claimed: Checksum | None = None
    exists: bool = False
    replaceable: bool = True


@dataclass(frozen=True, kw_only=True)
class _Part:
    number: int
    first: int
    length: int


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """How an object is cut into parts, and the checksum that S3 shall compute."""

    parts: tuple[_Part, ...]
    algorithm: str | None
    checksum_type: str | None


class ExpressCopy:
    """Copies files of one directory bucket into the lake.

    Parameters
    ----------
    client
        An S3 client; its pool should hold twice `concurrency` connections.
    source_bucket, lake_bucket
        From where to where.
    part_mib
        Larger objects are copied in parts of this size (more where an object would have too many).
    concurrency
        Part requests under way at once; as many objects are looked at beside them.
    checksums
        Whether to ask for checksums; other stores than AWS may know none.
    copied
        Told the bytes of each part that is in the lake, also of those that were there before.
    out_of_time
        Asked before each request; once true, nothing new is begun.
    """

    def __init__(
        self,
        *,
        client: Any,  # noqa: ANN401 -- boto3 clients have no type
        source_bucket: str,
        lake_bucket: str,
        part_mib: int = DEFAULT_PART_MIB,
        concurrency: int = DEFAULT_CONCURRENCY,
        checksums: bool = True,
        copied: Callable[[int], None] = lambda _: None,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._source_bucket = source_bucket
        self._lake_bucket = lake_bucket
        self._part_bytes = part_mib * MIB
        self._concurrency = concurrency
        self._checksums = checksums
        self._copied = copied
        self._out_of_time = out_of_time
        self._failed = threading.Event()

    def copy(
        self, files: Sequence[FileToCopy], *, uploads: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> list[ArchivedFile]:
        """Bring all `files` into the lake and return what is there now.

        Parameters
        ----------
        uploads
            Unfinished uploads in the lake by key, as ListMultipartUploads describes them.

        Raises
        ------
        ArchiveError
            For the first file that cannot be copied, or whose copy differs; the message names it.
        OutOfTimeError
            If the time is up.
        """
        self._failed.clear()
        with (
            ThreadPoolExecutor(self._concurrency, "archive-part") as part_pool,
            ThreadPoolExecutor(self._concurrency, "archive-object") as object_pool,
        ):
            futures = [
                object_pool.submit(self._guarded, file, part_pool, uploads.get(file.lake_key, ())) for file in files
            ]
            try:
                return _results(futures)
            except BaseException:
                # An interrupted run must not wait until the pools have done everything.
                self._failed.set()
                raise

    def _guarded(
        self, file: FileToCopy, part_pool: ThreadPoolExecutor, uploads: Sequence[Mapping[str, Any]]
    ) -> ArchivedFile:
        try:
            return self._one(file, part_pool, uploads)
        except AWS_ERRORS as error:
            self._failed.set()
            raise ArchiveError(f"{file.path} could not be copied: {why(error, action='s3:CopyObject')}") from error
        except BaseException:
            self._failed.set()
            raise

    def _one(
        self, file: FileToCopy, part_pool: ThreadPoolExecutor, uploads: Sequence[Mapping[str, Any]]
    ) -> ArchivedFile:
        self._go_on()
        source = self._source(file)
        there = self._head(self._lake_bucket, file.lake_key) if file.exists else None
        comparison = is_copy(source, there, claimed=file.claimed) if there else None
        if there is not None and comparison is None and not file.replaceable:
            raise ArchiveError(
                f"{file.path} is in the lake with other content, in a checkpoint that is complete: it is left alone"
            )
        if there is None or comparison is None:
            self._bring(file, source, there, part_pool, uploads)
            there = self._head(self._lake_bucket, file.lake_key)
            if there is None:
                raise ArchiveError(f"{file.path} is not in the lake after it was copied: somebody deletes there")
            comparison = self._checked(file, source, there)
        else:
            self._copied(file.bytes)
            self._abort(file.lake_key, uploads)
        return ArchivedFile(
            path=file.path,
            bytes=there.bytes,
            algorithm=there.algorithm,
            checksum=there.checksum,
            compared=comparison.compared,
            source_etag=source.etag,
        )

    def _source(self, file: FileToCopy) -> ObjectState:
        source = self._head(self._source_bucket, file.source_key)
        if source is None:
            raise ArchiveError(
                f"{file.path} is gone from the source: training has pruned the checkpoint while it was copied; keep "
                "more of them (checkpoints_kept), or copy faster (--concurrency)"
            )
        if source.bytes != file.bytes or source.etag != file.etag.strip('"'):
            raise ArchiveError(
                f"{file.path} changed after it was listed: a finished checkpoint must not be written again"
            )
        return source

    def _checked(self, file: FileToCopy, source: ObjectState, there: ObjectState) -> Comparison:
        comparison = compare(source, there, claimed=file.claimed)
        if comparison.problem is not None:
            raise ArchiveError(f"{file.path} in the lake differs from the source: {comparison.problem}")
        return comparison

    def _bring(
        self,
        file: FileToCopy,
        source: ObjectState,
        stale: ObjectState | None,
        part_pool: ThreadPoolExecutor,
        uploads: Sequence[Mapping[str, Any]],
    ) -> None:
        """Copy one object; one that another run has put there meanwhile is left as it is."""
        cut = self._cut(file, source)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if len(cut.parts) == 1:
                    self._abort(file.lake_key, uploads)
                    self._copy_whole(file, source, stale, cut)
                else:
                    self._copy_parts(file, source, stale, cut, part_pool, uploads)
            except ClientError as error:
                if code_of(error) == _EXISTS:
                    # Either the copy is there by now, which the caller compares, or the source has changed.
                    self._source(file)
                    return
                if code_of(error) in _AT_ONCE and attempt < _ATTEMPTS:
                    uploads = ()
                    continue
                raise
            return

    def _copy_whole(self, file: FileToCopy, source: ObjectState, stale: ObjectState | None, cut: _Cut) -> None:
        self._go_on()
        self._client.copy_object(
            Bucket=self._lake_bucket,
            Key=file.lake_key,
            CopySource={"Bucket": self._source_bucket, "Key": file.source_key},
            CopySourceIfMatch=f'"{source.etag}"',
            # Encryption is the lake's default: its key.
            **({"ChecksumAlgorithm": cut.algorithm} if cut.algorithm else {}),
            # Never over anything that nobody has looked at.
            **({"IfNoneMatch": "*"} if stale is None else {"IfMatch": f'"{stale.etag}"'}),
        )
        self._copied(file.bytes)

    def _copy_parts(
        self,
        file: FileToCopy,
        source: ObjectState,
        stale: ObjectState | None,
        cut: _Cut,
        part_pool: ThreadPoolExecutor,
        uploads: Sequence[Mapping[str, Any]],
    ) -> None:
        upload_id, done = self._taken_up(file, source, cut, uploads)
        if upload_id is None:
            upload_id = self._client.create_multipart_upload(
                Bucket=self._lake_bucket,
                Key=file.lake_key,
                Metadata={**source.metadata, SOURCE_ETAG: source.etag},
                **source.headers,
                **({"ChecksumAlgorithm": cut.algorithm} if cut.algorithm else {}),
                **({"ChecksumType": cut.checksum_type} if cut.checksum_type else {}),
            )["UploadId"]

        def copy_part(part: _Part) -> dict[str, Any]:
            self._go_on()
            try:
                answer = self._client.upload_part_copy(
                    Bucket=self._lake_bucket,
                    Key=file.lake_key,
                    UploadId=upload_id,
                    PartNumber=part.number,
                    CopySource={"Bucket": self._source_bucket, "Key": file.source_key},
                    CopySourceIfMatch=f'"{source.etag}"',
                    CopySourceRange=f"bytes={part.first}-{part.first + part.length - 1}",
                )
            except BaseException:
                # The parts that wait in the pool need not be begun.
                self._failed.set()
                raise
            self._copied(part.length)
            return _completed(part.number, answer["CopyPartResult"], cut.algorithm)

        for part in cut.parts:
            if part.number in done:
                self._copied(part.length)
        missing = [part for part in cut.parts if part.number not in done]
        copied = _results([part_pool.submit(copy_part, part) for part in missing])
        parts = sorted([*done.values(), *copied], key=lambda part: part["PartNumber"])
        self._go_on()
        self._client.complete_multipart_upload(
            Bucket=self._lake_bucket,
            Key=file.lake_key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
            MpuObjectSize=source.bytes,
            **({"ChecksumType": cut.checksum_type} if cut.checksum_type else {}),
            **({"IfNoneMatch": "*"} if stale is None else {"IfMatch": f'"{stale.etag}"'}),
        )

    def _taken_up(
        self, file: FileToCopy, source: ObjectState, cut: _Cut, uploads: Sequence[Mapping[str, Any]]
    ) -> tuple[str | None, dict[int, dict[str, Any]]]:
        """Return an unfinished upload whose parts are parts of this cut of this source, and those parts.

        Parts say neither what they were copied from nor at which offset. The source is right if the upload began after
        it was last written; the offsets are right if the first part is there and as long as it should be, since all
        parts but the last have one length.
        """
        chosen: str | None = None
        done: dict[int, dict[str, Any]] = {}
        rest = []
        for upload in sorted(uploads, key=lambda upload: upload["Initiated"], reverse=True):
            found = {} if chosen or upload["Initiated"] <= source.modified_at else self._parts_of(file, upload, cut)
            if found:
                chosen, done = upload["UploadId"], found
            else:
                rest.append(upload)
        self._abort(file.lake_key, rest)
        return chosen, done

    def _parts_of(self, file: FileToCopy, upload: Mapping[str, Any], cut: _Cut) -> dict[int, dict[str, Any]]:
        algorithms = (upload.get("ChecksumAlgorithm") or cut.algorithm, upload.get("ChecksumType") or cut.checksum_type)
        if algorithms != (cut.algorithm, cut.checksum_type):
            return {}
        lengths = {part.number: part.length for part in cut.parts}
        done = {}
        pages = self._client.get_paginator("list_parts").paginate(
            Bucket=self._lake_bucket, Key=file.lake_key, UploadId=upload["UploadId"]
        )
        try:
            for page in pages:
                for part in page.get("Parts", []):
                    number = part["PartNumber"]
                    if lengths.get(number) != part["Size"]:
                        return {}
                    done[number] = _completed(number, part, cut.algorithm)
        except ClientError as error:
            if code_of(error) == "NoSuchUpload":
                return {}
            raise
        return done if 1 in done else {}

    def _cut(self, file: FileToCopy, source: ObjectState) -> _Cut:
        """Return how to copy an object so that its checksum can be compared with what is known of the source."""
        wanted = file.claimed.algorithm.upper() if file.claimed else None
        if source.checksum_type == COMPOSITE and wanted not in _WHOLE_IN_PARTS and self._checksums:
            lengths = self._part_lengths(file, source)
            if lengths:
                return _Cut(parts=_parts(lengths), algorithm=source.algorithm, checksum_type=COMPOSITE)
        whole = [wanted, source.algorithm if source.is_whole else None, _CHECKSUM]
        single = source.bytes <= self._part_bytes
        able = _ALL_IN_ONE if single else _WHOLE_IN_PARTS
        algorithm = next(name for name in whole if name in able) if self._checksums else None
        if single:
            return _Cut(parts=_parts([source.bytes]), algorithm=algorithm, checksum_type=None)
        length = max(self._part_bytes, math.ceil(source.bytes / s3_limits().parts_maximum))
        count = math.ceil(source.bytes / length)
        lengths = [length] * (count - 1) + [source.bytes - length * (count - 1)]
        return _Cut(parts=_parts(lengths), algorithm=algorithm, checksum_type=FULL_OBJECT if algorithm else None)

    def _part_lengths(self, file: FileToCopy, source: ObjectState) -> list[int]:
        """Return the lengths of the source's own parts: with the same ones the copy gets the same composite checksum.

        Empty where S3 does not tell them, or they make a single part.
        """
        lengths: list[int] = []
        marker = 0
        while True:
            try:
                answer = self._client.get_object_attributes(
                    Bucket=self._source_bucket,
                    Key=file.source_key,
                    ObjectAttributes=["ObjectParts"],
                    **({"PartNumberMarker": marker} if marker else {}),
                )
            except ClientError as error:
                if code_of(error) in ("NotImplemented", "MethodNotAllowed"):
                    return []
                raise
            told = answer.get("ObjectParts") or {}
            lengths += [part["Size"] for part in told.get("Parts", [])]
            marker = told.get("NextPartNumberMarker") or 0
            if not told.get("IsTruncated") or not marker:
                break
        limits = copy_limits()
        legal = limits.part_mib_minimum * MIB, limits.part_mib_maximum * MIB
        fits = all(legal[0] <= length <= legal[1] for length in lengths[:-1])
        return lengths if len(lengths) > 1 and sum(lengths) == source.bytes and fits else []

    def _head(self, bucket: str, key: str) -> ObjectState | None:
        wanted = {"ChecksumMode": "ENABLED"} if self._checksums else {}
        try:
            return state_of(self._client.head_object(Bucket=bucket, Key=key, **wanted))
        except ClientError as error:
            if code_of(error) in _GONE:
                return None
            raise

    def _abort(self, key: str, uploads: Iterable[Mapping[str, Any]]) -> None:
        for upload in uploads:
            abort_upload(self._client, bucket=self._lake_bucket, key=key, upload_id=upload["UploadId"])

    def _go_on(self) -> None:
        if self._failed.is_set() or self._out_of_time():
            raise OutOfTimeError


def unfinished_uploads(client: Any, *, bucket: str, prefix: str) -> dict[str, list[dict[str, Any]]]:  # noqa: ANN401
    """Return the unfinished multipart uploads below `prefix`, by key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        for upload in page.get("Uploads", []):
            found.setdefault(upload["Key"], []).append(upload)
    return found


def abort_upload(client: Any, *, bucket: str, key: str, upload_id: str) -> None:  # noqa: ANN401
    """Abort an upload; one that is gone already is fine."""
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    except ClientError as error:
        if code_of(error) != "NoSuchUpload":
            raise


def _parts(lengths: Sequence[int]) -> tuple[_Part, ...]:
    firsts = [0, *accumulate(lengths)]
    return tuple(
        _Part(number=number, first=first, length=length)
        for number, (first, length) in enumerate(zip(firsts, lengths, strict=False), start=1)
    )


def _completed(number: int, part: Mapping[str, Any], algorithm: str | None) -> dict[str, Any]:
    name = f"Checksum{algorithm}"
    return {"PartNumber": number, "ETag": part["ETag"], **({name: part[name]} if part.get(name) else {})}


def _results(futures: Sequence[Future[Any]]) -> list[Any]:
    """Return all results, or raise the first error that is one: others only stopped because of it."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, OutOfTimeError):
            raise error
    for error in errors:
        raise error
    return [future.result() for future in futures]
