"""Shards below a prefix of S3: every object is written create-only, after it was made in a local folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_storage.planning.shard_uploads import upload_part_bytes
from training_storage.training.endpoint import endpoint_of, is_aws
from training_storage.training.publish_pauses import pauses
from training_storage.training.shard_claim import SHARD_NAME, locked, occupied
from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_index import INDEX_NAME, ShardIndex, ShardRecord
from training_storage.training.shard_s3 import S3Access, body_of, said, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PRECONDITION_FAILED, _CONFLICT, _NOT_FOUND = 412, 409, 404
_PARTS_AT_ONCE = 4
#: While another writer creates the same object: about 15 seconds.
_CONFLICTS = 12
_PROBE_PREFIX = ".probe-"
#: Says how a checksum was made; the request that completes an upload wants the checksums alone.
_KIND = "ChecksumType"


@dataclass(frozen=True, kw_only=True)
class PrefixTarget:
    """A prefix of a bucket. Every object is written create-only, with what tells its packing in its metadata."""

    bucket: str
    prefix: str
    access: S3Access
    work: str
    accept_weaker: bool = False

    @property
    def name(self) -> str:
        """The URI."""
        return f"s3://{self.bucket}/{self.prefix}"

    @contextmanager
    def claimed(self, run: str) -> Iterator[None]:
        """Look at what is there. Two machines that pack the same waste work and harm nothing."""
        client = self.access.client()
        for page in self._pages(client):
            for item in page.get("Contents", []):
                name = item["Key"][len(self.prefix) :]
                if name and not name.startswith(_PROBE_PREFIX) and not self._is_ours(client, name, run):
                    raise occupied(self.name, name)
        if not self.accept_weaker and not is_aws(self.access.endpoint or endpoint_of()):
            self._probe(client)
        self._make_staged()
        with locked(self._staged, self.name):
            for left in self._staged.glob("*.tmp"):
                left.unlink()
            yield
        shutil.rmtree(self._staged)

    def _probe(self, client: Any) -> None:  # noqa: ANN401 - boto3 clients have no type
        """Refuse a store that takes the condition of a create-only write and passes over it."""
        place = {"Bucket": self.bucket, "Key": f"{self.prefix}{_PROBE_PREFIX}{uuid.uuid4().hex}"}
        try:
            first, second = (
                self._created(partial(client.put_object, **place, Body=body, IfNoneMatch="*")) for body in (b"1", b"22")
            )
        finally:
            with suppress(ShardError):
                self._said(partial(client.delete_object, **place), "deleting")
        if not first or second:
            raise ShardInputError(
                f"the store of {self.name} must refuse to replace an object (If-None-Match), got: it was replaced. Two"
                " packings at once could overwrite each other's shards. To pack all the same, from one place at a time,"
                " add --accept-weaker."
            )

    def _make_staged(self) -> None:
        """Make the folder of staged shards. Its name can be guessed: one of another user could alter what is sent."""
        try:
            self._staged.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise ShardInputError(
                f"{str(self._staged)!r} must be a folder, got: something else. Give --work."
            ) from None
        if self._staged.is_symlink() or self._staged.stat().st_uid != os.geteuid():
            raise ShardInputError(
                f"{str(self._staged)!r} must be a folder of this user, got: another's. Give a --work folder of"
                " your own."
            )

    def _is_ours(self, client: Any, name: str, run: str) -> bool:  # noqa: ANN401 - boto3 clients have no type
        if name == INDEX_NAME:
            return ShardIndex.from_json(self._index_text(client), place=self.name + name).run == run
        return bool(SHARD_NAME.fullmatch(name)) and self._finished(client, name, run) is not None

    def _pages(self, client: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - boto3 clients have no type
        more: dict[str, str] = {}
        while True:
            list_page = partial(client.list_objects_v2, Bucket=self.bucket, Prefix=self.prefix, **more)
            page: dict[str, Any] = self._said(list_page, "listing")
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    @property
    def _staged(self) -> Path:
        # The same folder for every attempt, so that what a killed one left is found and removed.
        return Path(self.work, f"shards-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}")

    def staging(self, name: str) -> Path:
        """Return a file in the work folder."""
        return self._staged / f"{name}.{os.getpid()}.tmp"

    def publish(self, staged: Path, record: ShardRecord, *, run: str) -> None:
        """Upload in parts; the object appears whole or not at all."""
        metadata = {"run": run, "sha256": record.sha256, "samples": str(record.samples), "files": str(record.files)}
        client, key = self.access.client(), self.prefix + record.name
        try:
            made = self._created(partial(_upload, client, staged, bucket=self.bucket, key=key, metadata=metadata))
            if not made and self._finished(client, record.name, run) != record:
                raise occupied(self.name, record.name)
        finally:
            staged.unlink(missing_ok=True)

    def finished(self, name: str, *, run: str) -> ShardRecord | None:
        """Return the record in the object's metadata if the same packing wrote it with this size."""
        return self._finished(self.access.client(), name, run)

    def _finished(self, client: Any, name: str, run: str) -> ShardRecord | None:  # noqa: ANN401 - boto3 has no types
        def ask() -> dict[str, Any] | None:
            try:
                head: dict[str, Any] = client.head_object(Bucket=self.bucket, Key=self.prefix + name)
            except client.exceptions.ClientError as error:
                if status_of(error) == _NOT_FOUND:
                    return None
                raise
            return head

        head = said(ask, action="asking", place=f"{self.name}{name}")
        noted = head["Metadata"] if head else {}
        if noted.get("run") != run:
            return None
        values = {"name": name, "samples": int(noted["samples"]), "files": int(noted["files"])}
        checksum = {"algorithm": "sha256", "value": noted["sha256"]}
        return ShardRecord.from_values({**values, "bytes": head["ContentLength"], "checksum": checksum})

    def publish_index(self, index: ShardIndex) -> None:
        """Write the index, unless the same one is there."""
        client, text = self.access.client(), index.to_json()
        made = self._created(
            partial(
                client.put_object,
                Bucket=self.bucket,
                Key=self.prefix + INDEX_NAME,
                Body=text.encode(),
                ContentType="application/json",
                IfNoneMatch="*",
            )
        )
        if not made and self._index_text(client) != text.encode():
            raise occupied(self.name, INDEX_NAME)

    def _index_text(self, client: Any) -> bytes:  # noqa: ANN401 - boto3 clients have no type
        get = partial(client.get_object, Bucket=self.bucket, Key=self.prefix + INDEX_NAME)
        return bytes(self._said(partial(body_of, get), "reading"))

    def _created(self, create: Callable[[], object]) -> bool:
        """Return whether `create` made the object; False if there was one already."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - local folders need no boto3

        def attempt() -> bool:
            for tries, pause in enumerate(pauses(), 1):
                try:
                    create()
                except ClientError as error:
                    if status_of(error) == _PRECONDITION_FAILED:
                        return False
                    # Another writer creates the same object right now: who wins is not known yet.
                    if status_of(error) != _CONFLICT or tries == _CONFLICTS:
                        raise
                else:
                    return True
                time.sleep(pause)
            raise AssertionError("pauses never end")

        return bool(self._said(attempt, "writing"))

    def _said(self, call: Callable[[], Any], action: str) -> Any:  # noqa: ANN401 - what `call` returns
        return said(call, action=action, place=self.name)


def _upload(client: Any, staged: Path, *, bucket: str, key: str, metadata: dict[str, str]) -> None:  # noqa: ANN401
    """Upload `staged` create-only, in parts where it has more than one.

    boto3's own transfers refuse conditions, so the parts are sent here.
    """
    size = staged.stat().st_size
    part = upload_part_bytes(size)
    if size <= part:
        client.put_object(Bucket=bucket, Key=key, Body=staged.read_bytes(), Metadata=metadata, IfNoneMatch="*")
        return
    place = {"Bucket": bucket, "Key": key}
    upload = client.create_multipart_upload(**place, Metadata=metadata)["UploadId"]

    def send(number: int) -> dict[str, Any]:
        with staged.open("rb") as file:
            file.seek(number * part)
            answer = client.upload_part(**place, UploadId=upload, PartNumber=number + 1, Body=file.read(part))
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum") and name != _KIND}
        return {"PartNumber": number + 1, "ETag": answer["ETag"], **checksums}

    try:
        with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            parts = list(pool.map(send, range(-(-size // part))))
        client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    except BaseException:
        client.abort_multipart_upload(**place, UploadId=upload)
        raise
