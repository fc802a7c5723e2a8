"""Copies in S3, against one that computes checksums as AWS does: whole and composite ones, parts, conditions."""

from __future__ import annotations

import base64
import datetime as dt
import random
import zlib
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from training_storage.checkpoint_format import Checksum
from training_storage.operations import express_copy
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.express_copy import ExpressCopy, FileToCopy, OutOfTimeError, unfinished_uploads

MIB = 2**20
SOURCE, LAKE = "b--use1-az4--x-s3", "lake"
START = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
BIG = random.Random(5).randbytes(int(2.5 * MIB))  # noqa: S311 -- test data


def crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def composite(parts: list[bytes]) -> str:
    return f"{crc32(b''.join(base64.b64decode(crc32(part)) for part in parts))}-{len(parts)}"


class Killed(BaseException):
    """The process is gone."""


class Bucket:
    """S3 as far as a copy uses it; every request takes a second, and `kill_at` ends the process at one."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.uploads: dict[str, dict[str, Any]] = {}
        self.clock = START
        self.requests: list[str] = []
        self.writes: list[str] = []
        self.kill_at: int | None = None

    def _tick(self, name: str) -> None:
        self.requests.append(name)
        self.clock += dt.timedelta(seconds=1)
        if self.kill_at is not None and len(self.requests) >= self.kill_at:
            raise Killed

    def put(self, key: str, body: bytes, *, bucket: str = SOURCE, parts: list[bytes] | None = None) -> None:
        self.clock += dt.timedelta(seconds=1)
        self.objects[bucket, key] = {
            "body": body,
            "etag": f"e{zlib.adler32(body)}-{len(self.objects)}",
            "at": self.clock,
            "algorithm": "CRC32",
            "checksum": composite(parts) if parts else crc32(body),
            "type": "COMPOSITE" if parts else "FULL_OBJECT",
            "parts": [len(part) for part in parts or []],
            "metadata": {},
        }

    def head_object(self, *, Bucket: str, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._tick("head")
        found = self.objects.get((Bucket, Key))
        if found is None:
            raise error("404", "HeadObject")
        told = {f"Checksum{found['algorithm']}": found["checksum"], "ChecksumType": found["type"]}
        return {
            "ContentLength": len(found["body"]),
            "ETag": f'"{found["etag"]}"',
            "LastModified": found["at"],
            "Metadata": found["metadata"],
            **(told if found["algorithm"] else {}),
        }

    def get_object_attributes(self, *, Bucket: str, Key: str, PartNumberMarker: int = 0, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._tick("attributes")
        sizes = self.objects[Bucket, Key]["parts"]
        # Pages of two.
        page = [{"PartNumber": n + 1, "Size": size} for n, size in enumerate(sizes)][PartNumberMarker:][:2]
        last = PartNumberMarker + len(page)
        return {"ObjectParts": {"Parts": page, "IsTruncated": last < len(sizes), "NextPartNumberMarker": last}}

    def copy_object(self, *, Bucket: str, Key: str, CopySource: Any, CopySourceIfMatch: str, **options: Any) -> None:  # noqa: N803
        source = self._source(CopySource, CopySourceIfMatch)
        self._free(Bucket, Key, options)
        self._write(Bucket, Key, source["body"], options.get("ChecksumAlgorithm"), "FULL_OBJECT", {})
        self._tick("copy")

    def create_multipart_upload(self, *, Bucket: str, Key: str, Metadata: Any, **options: Any) -> dict[str, Any]:  # noqa: N803
        upload_id = f"u{len(self.uploads)}"
        self.clock += dt.timedelta(seconds=1)
        self.uploads[upload_id] = {
            "Key": Key, "UploadId": upload_id, "Initiated": self.clock, "bucket": Bucket, "parts": {},
            "metadata": Metadata, **options,
        }  # fmt: skip
        self._tick("create")
        return {"UploadId": upload_id}

    def upload_part_copy(
        self,
        *,
        UploadId: str,  # noqa: N803
        PartNumber: int,  # noqa: N803
        CopySource: Any,  # noqa: N803
        CopySourceIfMatch: str,  # noqa: N803
        CopySourceRange: str,  # noqa: N803
        **_: Any,
    ) -> dict[str, Any]:
        source = self._source(CopySource, CopySourceIfMatch)
        first, last = map(int, CopySourceRange.removeprefix("bytes=").split("-"))
        body = source["body"][first : last + 1]
        self.uploads[UploadId]["parts"][PartNumber] = body
        self._tick("part")
        return {"CopyPartResult": {"ETag": f"p{zlib.adler32(body)}", "ChecksumCRC32": crc32(body)}}

    def complete_multipart_upload(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        MultipartUpload: Any,  # noqa: N803
        **options: Any,
    ) -> None:
        if UploadId not in self.uploads:
            raise error("NoSuchUpload", "CompleteMultipartUpload")
        self._free(Bucket, Key, options)
        upload = self.uploads.pop(UploadId)
        named = MultipartUpload["Parts"]
        assert [part["PartNumber"] for part in named] == list(range(1, len(named) + 1))
        bodies = [upload["parts"][part["PartNumber"]] for part in named]
        assert sum(map(len, bodies)) == options["MpuObjectSize"]
        kind = upload.get("ChecksumType")
        if kind == "COMPOSITE":
            assert [part["ChecksumCRC32"] for part in named] == [crc32(body) for body in bodies]
        self._write(Bucket, Key, b"".join(bodies), upload.get("ChecksumAlgorithm"), kind, upload["metadata"], bodies)
        self._tick("complete")

    def abort_multipart_upload(self, *, UploadId: str, **_: Any) -> None:  # noqa: N803
        if self.uploads.pop(UploadId, None) is None:
            raise error("NoSuchUpload", "AbortMultipartUpload")
        self._tick("abort")

    def get_paginator(self, name: str) -> Any:
        return {"list_parts": _Pages(self._list_parts), "list_multipart_uploads": _Pages(self._list_uploads)}[name]

    def _list_parts(self, *, UploadId: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._tick("list")
        parts = self.uploads[UploadId]["parts"]
        return {
            "Parts": [
                {"PartNumber": n, "Size": len(body), "ETag": f"p{zlib.adler32(body)}", "ChecksumCRC32": crc32(body)}
                for n, body in sorted(parts.items())
            ]
        }

    def _list_uploads(self, **_: Any) -> dict[str, Any]:
        self._tick("list")
        return {"Uploads": [dict(upload) for upload in self.uploads.values()]}

    def _source(self, source: dict[str, str], etag: str) -> dict[str, Any]:
        found = self.objects[source["Bucket"], source["Key"]]
        if etag != f'"{found["etag"]}"':
            raise error("PreconditionFailed", "CopyObject")
        return found

    def _free(self, bucket: str, key: str, options: dict[str, Any]) -> None:
        found = self.objects.get((bucket, key))
        if "IfNoneMatch" in options and found is not None:
            raise error("PreconditionFailed", "CopyObject")
        if "IfMatch" in options:
            assert found is not None
            assert options["IfMatch"] == f'"{found["etag"]}"'

    def _write(
        self, bucket: str, key: str, body: bytes, algorithm: Any, kind: Any, metadata: Any, parts: Any = None
    ) -> None:
        self.put(key, body, bucket=bucket, parts=parts if kind == "COMPOSITE" else None)
        # The only algorithm that this S3 computes; of others it keeps none.
        known = algorithm == "CRC32"
        self.objects[bucket, key].update(algorithm="CRC32" if known else None, metadata=metadata)
        self.writes.append(key)


class _Pages:
    def __init__(self, ask: Any) -> None:
        self.paginate = lambda **options: [ask(**options)]


def error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


def copy(s3: Bucket, *paths: str, part_mib: int = 1, **changes: Any) -> list[Any]:
    files = [
        FileToCopy(
            path=path,
            source_key=path,
            lake_key=path,
            bytes=len(s3.objects[SOURCE, path]["body"]),
            etag=s3.objects[SOURCE, path]["etag"],
            claimed=changes.get("claimed"),
            exists=(LAKE, path) in s3.objects,
        )
        for path in paths
    ]
    copier = ExpressCopy(
        client=s3,
        source_bucket=SOURCE,
        lake_bucket=LAKE,
        part_mib=part_mib,
        concurrency=1,
        out_of_time=changes.get("out_of_time", lambda: False),
    )
    return copier.copy(files, uploads=unfinished_uploads(s3, bucket=LAKE, prefix=""))


def claim(body: bytes) -> Checksum:
    return Checksum(algorithm="crc32", value=f"{zlib.crc32(body):08x}")


def test_a_large_object_gets_the_same_checksum_of_the_whole() -> None:
    s3 = Bucket()
    s3.put("big", BIG)
    (file,) = copy(s3, "big")
    assert s3.objects[LAKE, "big"]["body"] == BIG
    assert (file.compared, file.checksum) == ("full-object checksum", crc32(BIG))
    assert [name for name in s3.requests if name in ("create", "part", "complete")] == [
        "create", "part", "part", "part", "complete",
    ]  # fmt: skip


def test_an_object_that_was_written_in_parts_is_copied_in_the_same_parts_and_compared_by_them() -> None:
    s3 = Bucket()
    parts = [random.Random(n).randbytes(size) for n, size in enumerate((5 * MIB, 6 * MIB, 100))]  # noqa: S311
    s3.put("big", b"".join(parts), parts=parts)
    (file,) = copy(s3, "big", part_mib=512)
    assert (file.compared, file.checksum) == ("checksum of part checksums", composite(parts))
    assert s3.objects[LAKE, "big"]["parts"] == [5 * MIB, 6 * MIB, 100]


def test_what_the_marker_says_of_a_file_is_compared_with_the_lake() -> None:
    s3 = Bucket()
    s3.put("x", b"right")
    assert copy(s3, "x", claimed=claim(b"right"))[0].compared == "full-object checksum"
    s3.put("y", b"wrong")
    with pytest.raises(ArchiveError, match="y in the lake differs from the source: its CRC32 is .* the marker says"):
        copy(s3, "y", claimed=claim(b"right"))


def test_an_upload_that_was_left_is_taken_up_and_its_parts_are_not_copied_again() -> None:
    s3 = Bucket()
    s3.put("big", BIG)
    s3.kill_at = 5  # head, list … the second part
    with pytest.raises(Killed):
        copy(s3, "big")
    s3.kill_at = None
    (left,) = s3.uploads.values()
    done = len(left["parts"])
    assert 0 < done < 3
    s3.requests.clear()
    copy(s3, "big")
    assert s3.requests.count("part") == 3 - done
    assert s3.requests.count("create") == 0
    assert (s3.objects[LAKE, "big"]["body"], s3.uploads) == (BIG, {})


@given(kills=st.lists(st.integers(1, 25), max_size=6))
def test_killed_at_any_requests_each_object_ends_whole_and_written_once(kills: list[int]) -> None:
    s3 = Bucket()
    s3.put("big", BIG)
    s3.put("small", b"123")
    for kill in kills:
        s3.kill_at = len(s3.requests) + kill
        try:
            copy(s3, "big", "small")
        except Killed:
            continue
    s3.kill_at = None
    copy(s3, "big", "small")
    assert {key: value["body"] for (bucket, key), value in s3.objects.items() if bucket == LAKE} == {
        "big": BIG,
        "small": b"123",
    }
    assert sorted(s3.writes) == ["big", "small"]
    assert s3.uploads == {}


def test_an_upload_of_an_older_source_is_aborted_not_taken_up() -> None:
    s3 = Bucket()
    s3.put("big", bytes(len(BIG)))
    s3.kill_at = 5
    with pytest.raises(Killed):
        copy(s3, "big")
    s3.kill_at = None
    s3.put("big", BIG)
    copy(s3, "big")
    assert s3.objects[LAKE, "big"]["body"] == BIG
    assert s3.uploads == {}


def test_an_upload_cut_in_other_parts_is_aborted_not_taken_up() -> None:
    s3 = Bucket()
    s3.put("big", BIG)
    s3.kill_at = 5
    with pytest.raises(Killed):
        copy(s3, "big")
    s3.kill_at = None
    copy(s3, "big", part_mib=2)
    assert s3.objects[LAKE, "big"]["body"] == BIG
    assert s3.uploads == {}


def test_an_older_copy_under_the_same_name_is_written_over() -> None:
    s3 = Bucket()
    s3.put("big", bytes(len(BIG)))
    s3.put("small", b"old")
    copy(s3, "big", "small")
    s3.put("big", BIG)
    s3.put("small", b"new")
    copy(s3, "big", "small")
    assert (s3.objects[LAKE, "big"]["body"], s3.objects[LAKE, "small"]["body"]) == (BIG, b"new")


def test_a_source_that_changes_or_goes_meanwhile_fails_and_is_named() -> None:
    s3 = Bucket()
    s3.put("x", b"1")
    file = FileToCopy(path="rank-3.pt", source_key="x", lake_key="x", bytes=1, etag="another")
    copier = ExpressCopy(client=s3, source_bucket=SOURCE, lake_bucket=LAKE)
    with pytest.raises(ArchiveError, match=r"rank-3\.pt changed after it was listed"):
        copier.copy([file], uploads={})
    del s3.objects[SOURCE, "x"]
    with pytest.raises(ArchiveError, match=r"rank-3\.pt is gone from the source"):
        copier.copy([file], uploads={})
    assert s3.writes == []


def test_when_the_time_is_up_nothing_new_is_begun_and_the_next_run_goes_on() -> None:
    s3 = Bucket()
    s3.put("big", BIG)
    with pytest.raises(OutOfTimeError):
        copy(s3, "big", out_of_time=lambda: len(s3.requests) >= 4)
    assert s3.writes == []
    s3.requests.clear()
    copy(s3, "big")
    assert s3.requests.count("part") < 3
    assert s3.objects[LAKE, "big"]["body"] == BIG


def test_an_interrupted_run_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = Bucket()
    names = [f"rank-{rank}" for rank in range(200)]
    for name in names:
        s3.put(name, name.encode())

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(express_copy, "_results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy(s3, *names)
    assert len(s3.writes) < len(names)


def test_a_copy_never_goes_over_what_came_in_between() -> None:
    s3 = Bucket()
    s3.put("x", b"one")
    s3.put("x", b"older", bucket=LAKE)
    stale = s3.objects[LAKE, "x"]["etag"]
    asked: list[dict[str, Any]] = []
    copy = s3.copy_object
    s3.copy_object = lambda **options: (asked.append(options), copy(**options))[1]  # type: ignore[func-returns-value, method-assign]
    etag = s3.objects[SOURCE, "x"]["etag"]
    file = FileToCopy(path="x", source_key="x", lake_key="x", bytes=3, etag=etag, exists=True)
    ExpressCopy(client=s3, source_bucket=SOURCE, lake_bucket=LAKE).copy([file], uploads={})
    assert asked[0]["IfMatch"] == f'"{stale}"'
    new = FileToCopy(path="x", source_key="x", lake_key="new", bytes=3, etag=etag)
    ExpressCopy(client=s3, source_bucket=SOURCE, lake_bucket=LAKE).copy([new], uploads={})
    assert asked[1]["IfNoneMatch"] == "*"


def test_within_a_whole_checkpoint_another_object_is_left_alone() -> None:
    s3 = Bucket()
    s3.put("x", b"one")
    s3.put("x", b"two", bucket=LAKE)
    etag = s3.objects[SOURCE, "x"]["etag"]
    file = FileToCopy(path="x", source_key="x", lake_key="x", bytes=3, etag=etag, exists=True, replaceable=False)
    with pytest.raises(ArchiveError, match="x is in the lake with other content, in a checkpoint that is complete"):
        ExpressCopy(client=s3, source_bucket=SOURCE, lake_bucket=LAKE).copy([file], uploads={})
    assert s3.objects[LAKE, "x"]["body"] == b"two"
