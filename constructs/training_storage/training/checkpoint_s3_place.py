"""Checkpoints below a prefix of a bucket: S3, S3 Express One Zone and stores that speak S3's protocol.

obstore reads, lists, and writes what fits into one request; conditions on PutObject make a write create-only or a swap.
Larger files go up in parts through boto3, because only CompleteMultipartUpload with ``If-None-Match`` makes such a file
create-only, and obstore's multipart upload takes no condition.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import math
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from training_storage.planning.catalog.s3 import copy_limits, s3_limits
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.units import MIB
from training_storage.training.capability import AWS, WEAKER, Capabilities
from training_storage.training.checkpoint_errors import (
    CapabilityError,
    CheckpointError,
    DamagedError,
    DeniedError,
    WeakerGuaranteeError,
)
from training_storage.training.checkpoint_place import Content, FileState, checked_key, is_key
from training_storage.training.endpoint import boto3_settings, endpoint_of, is_aws, obstore_settings
from training_storage.training.place_text import S3_SCHEME
from training_storage.training.publish_pauses import pauses

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotFoundError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )
except ModuleNotFoundError as error:  # pragma: no cover -- the base install has no obstore
    raise CheckpointError("S3 needs obstore: pip install 'training-storage[training]'") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from obstore.store import S3Store

    from training_storage.training.checkpoint_place import Data, Parts, Send
    from training_storage.training.contract import Endpoint

T = TypeVar("T")

#: Of one upload request: few requests, yet a part that fails is soon sent again.
_PART_MIB: Final = 32
_CONNECTIONS: Final = 64
_TIMEOUT_SECONDS: Final = 60.0
#: How long obstore keeps credentials before it asks boto3 again, which renews them ten minutes before they end.
_CREDENTIALS: Final = dt.timedelta(minutes=5)
_EXPRESS_SUFFIX: Final = "--x-s3"
#: What to do about what people meet, by what the SDKs say.
_WAYS_OUT: Final = {
    "AccessDenied": ". Ask for the right, or use another role or profile",
    "ExpiredToken": ". Renew the credentials",
    "InvalidAccessKeyId": ". Check the credentials, and whether they are of this endpoint",
    "SignatureDoesNotMatch": ". Check the credentials, and whether they are of this endpoint",
    "redirect without LOCATION": ". Name the bucket's own Region",
    "Encountered object with invalid path": ". Delete that object, which no file can be, or use a prefix of your own",
}
#: Somebody else was first, or our own completion went through and its answer was lost: the caller compares contents.
_NOT_FIRST: Final = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchUpload")
_PART_CHECKSUMS: Final = (
    "ChecksumCRC32",
    "ChecksumCRC32C",
    "ChecksumCRC64NVME",
    "ChecksumSHA1",
    "ChecksumSHA256",
)
_LONGEST_REASON: Final = 300
#: Of a read whose answer breaks off: obstore tries a request again, not an answer that has begun.
_READ_TRIES: Final = 5
# obstore raises Python's own error for what is not there.
_MISSING: Final = (FileNotFoundError, NotFoundError)


class S3Place:
    """A prefix that holds checkpoints; make one with `open`.

    It is safe to use from several threads. Processes make their own: connections do not survive a fork.
    """

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str,
        store: S3Store,
        client: Callable[[], Any],
        compatible: bool,
        capabilities: Capabilities | None,
        accept_weaker: bool,
        part_size_mib: int,
        request_timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._timeout_seconds = request_timeout_seconds
        self._bucket, self._prefix = bucket, prefix
        self._store, self._make_client = store, client
        self._compatible, self._accept_weaker = compatible, accept_weaker
        self._capabilities = capabilities or (Capabilities() if compatible else AWS)
        self._part_bytes = part_size_mib * MIB
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        endpoint: Endpoint | None = None,
        region: str | None = None,
        capabilities: Capabilities | None = None,
        accept_weaker: bool = False,
        part_size_mib: int | None = None,
        request_timeout_seconds: float | None = None,
    ) -> Self:
        """Return the place at `uri`; see `open_place`. No request is made.

        Raises
        ------
        InvalidJobError
            For a URI, endpoint or part size that is not allowed.
        CheckpointError
            If there are no credentials, or no Region is known.
        """
        bucket, prefix = _split(uri)
        limits = copy_limits()
        part = _PART_MIB if part_size_mib is None else part_size_mib
        if not limits.part_mib_minimum <= part <= limits.part_mib_maximum:
            raise InvalidJobError(
                f"part_size_mib must be from {limits.part_mib_minimum} to {limits.part_mib_maximum}, got: {part}"
            )
        where = endpoint_of() if endpoint is None else endpoint
        settings, client = _sdks(bucket, where, region, request_timeout_seconds or _TIMEOUT_SECONDS)
        return cls(
            bucket=bucket,
            prefix=prefix,
            store=settings(prefix),
            client=client,
            compatible=not is_aws(where),
            capabilities=capabilities,
            accept_weaker=accept_weaker,
            part_size_mib=part,
            request_timeout_seconds=request_timeout_seconds or _TIMEOUT_SECONDS,
        )

    @property
    def uri(self) -> str:
        """``s3://bucket/prefix/``."""
        return f"{S3_SCHEME}{self._bucket}/{self._prefix}"

    @property
    def local_folder(self) -> None:
        """None: objects must be copied to be used as files."""
        return

    @property
    def capabilities(self) -> Capabilities:
        """What the store is known to do."""
        return self._capabilities

    def prepare_writing(self, *, largest_bytes: int) -> None:
        """Probe a store that is not AWS, once, and refuse what it lacks unless the weaker promise was accepted."""
        needed = ["read_after_write", "create_only", "compare_and_swap"]
        if largest_bytes > self._part_bytes:
            needed += ["multipart", "multipart_create_only"]
        with self._lock:
            if any(getattr(self._capabilities, name) == "unknown" for name in needed):
                from training_storage.training.capability_probe import probe  # noqa: PLC0415 -- only where needed

                self._capabilities = probe(self, multipart=largest_bytes > self._part_bytes)
        lacking = [name for name in needed if self._capabilities.lacks(name)]
        single = copy_limits().copy_mib_maximum * MIB
        if "multipart" in lacking and largest_bytes > single:
            raise CapabilityError(
                f"{self.uri}: the store takes no uploads in parts, and a file of {largest_bytes:,} bytes is larger than"
                f" the {single:,} of one PUT. Split the file, or publish to another store."
            )
        if lacking and not self._accept_weaker:
            raise WeakerGuaranteeError(
                f"{self.uri}: the store lacks {', '.join(lacking)}, so {'; '.join(WEAKER[name] for name in lacking)}."
                " To publish all the same give accept_weaker=True (--accept-weaker)."
            )

    def part_bytes(self, size: int) -> int:
        """Return the size of a part, so that there are not too many; the whole file where parts are not taken."""
        if self._capabilities.lacks("multipart"):
            return max(size, 1)
        return max(self._part_bytes, math.ceil(size / s3_limits().parts_maximum))

    def folders(self) -> list[str]:
        """Return the names of the folders directly below; hidden ones are none of ours."""
        found = self._read(self.uri, lambda: obstore.list_with_delimiter(self._store))
        if self._compatible and not found["common_prefixes"] and not found["objects"]:
            self._refuse_what_is_no_store()
        names = (prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])
        return [name for name in names if is_key(name) and not name.startswith(".")]

    def _refuse_what_is_no_store(self) -> None:
        """Raise where something else answers: the page of a proxy reads like a place without anything."""
        with _reasons(self.uri):
            answer = self.client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        if not {"Name", "KeyCount", "MaxKeys"} & set(answer):
            raise CheckpointError(
                f"{self.uri}: {self.client.meta.endpoint_url} answers, and not as S3 does. Check the endpoint, and"
                " whether a proxy stands before it"
            )

    def files(self, folder: str) -> dict[str, FileState]:
        """Return every object below a folder."""
        checked_key(folder)
        return self._read(
            f"{self.uri}{folder}/",
            lambda: {
                entry["path"].removeprefix(f"{folder}/"): FileState(
                    bytes=entry["size"], modified=entry["last_modified"]
                )
                for chunk in obstore.list(self._store, folder)
                for entry in chunk
                # Consoles make an empty object for a folder.
                if entry["path"] != folder
            },
        )

    def read(self, key: str) -> Content | None:
        """Return a small object with its ETag."""
        checked_key(key)

        def whole() -> Content | None:
            try:
                answer = obstore.get(self._store, key)
                return Content(data=bytes(answer.bytes()), version=answer.meta["e_tag"] or "")
            except _MISSING as error:
                _refuse_missing_bucket(error, self._bucket)
                return None

        return self._read(f"{self.uri}{key}", whole)

    def read_range(self, key: str, start: int, end: int) -> memoryview:
        """Return some bytes of an object."""
        checked_key(key)

        def some() -> memoryview:
            try:
                return memoryview(obstore.get_range(self._store, key, start=start, end=end))
            except _MISSING as error:
                _refuse_missing_bucket(error, self._bucket)
                raise DamagedError(f"{self.uri}{key} is missing") from None

        return self._read(f"{self.uri}{key}", some)

    def create(self, key: str, data: Data) -> bool:
        """Put an object unless it exists."""
        if self._capabilities.lacks("create_only"):
            if self.exists(key):
                return False
            self.put(key, data)
            return True
        return self.put_new(key, data)

    def create_from_parts(self, key: str, parts: Parts, *, send: Send) -> bool:
        """Upload an object in parts and complete it unless it exists."""
        if self._capabilities.lacks("multipart_create_only"):
            return self.upload(key, parts, send=send, before_completion=lambda: not self.exists(key))
        return self.upload(key, parts, send=send, create_only=True)

    def swap(self, key: str, data: bytes, *, version: str | None) -> bool:
        """Put an object that still has the ETag `version`, or is not there yet where it is None."""
        if version is None:
            return self.create(key, data)
        if self._capabilities.lacks("compare_and_swap"):
            current = self.read(key)
            if current is None or current.version != version:
                return False
            self.put(key, data)
            return True
        return self.put_over(key, data, version=version)

    def delete(self, key: str) -> None:
        """Delete an object."""
        checked_key(key)
        with _reasons(f"{self.uri}{key}"), contextlib.suppress(*_MISSING):
            obstore.delete(self._store, key)

    # ---- single requests, which the probe makes as publishing does -------------------------------------------------

    @functools.cached_property
    def client(self) -> Any:  # noqa: ANN401 -- boto3 clients have no static type
        """The boto3 client; made when a file needs parts."""
        return self._make_client()

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self._bucket

    @property
    def prefix(self) -> str:
        """What stands before every key."""
        return self._prefix

    def exists(self, key: str) -> bool:
        """Whether an object is there."""
        checked_key(key)

        def head() -> bool:
            try:
                obstore.head(self._store, key)
            except _MISSING:
                return False
            return True

        return self._read(f"{self.uri}{key}", head)

    def put(self, key: str, data: Data) -> None:
        """Put an object whatever is there."""
        checked_key(key)
        with _reasons(f"{self.uri}{key}"):
            obstore.put(self._store, key, data, use_multipart=False)

    def put_new(self, key: str, data: Data) -> bool:
        """Put an object with ``If-None-Match: *``; return whether the store took it."""
        checked_key(key)
        with _reasons(f"{self.uri}{key}"):
            try:
                obstore.put(self._store, key, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put_over(self, key: str, data: bytes, *, version: str) -> bool:
        """Put an object with ``If-Match``; return whether the store took it."""
        checked_key(key)
        with _reasons(f"{self.uri}{key}"):
            try:
                obstore.put(self._store, key, data, mode={"e_tag": version})
            except (AlreadyExistsError, PreconditionError):
                return False
            except _MISSING as error:
                _refuse_missing_bucket(error, self._bucket)
                return False
            return True

    def upload(
        self,
        key: str,
        parts: Parts,
        *,
        send: Send,
        create_only: bool = False,
        before_completion: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Upload an object in parts; return whether the store completed it.

        `create_only` completes with ``If-None-Match: *``; without it `before_completion` has the last word.
        """
        checked_key(key)
        with _reasons(f"{self.uri}{key}"):
            upload = Upload(client=self.client, bucket=self._bucket, key=self._prefix + key)
            written = False
            try:
                sent = [send(functools.partial(upload.part, number, part)) for number, part in enumerate(parts, 1)]
                done = [future.result() for future in sent]
                written = before_completion() and upload.complete(done, create_only=create_only)
            finally:
                if not written:
                    upload.abort()
            return written

    def copy(self, key: str, to: str) -> None:
        """Copy an object on the server's side."""
        with _reasons(f"{self.uri}{key}"):
            obstore.copy(self._store, checked_key(key), checked_key(to))

    def _read(self, what: str, call: Callable[[], T]) -> T:
        """Read, again where the answer breaks off; a request that the SDK has tried for long is not tried again."""
        started = time.monotonic()
        for tries, pause in enumerate(pauses(), 1):
            try:
                with _reasons(what):
                    return call()
            except CheckpointError as error:
                late = time.monotonic() - started > self._timeout_seconds
                if type(error) is not CheckpointError or error.__cause__ is None or tries == _READ_TRIES or late:
                    raise
            time.sleep(pause)
        raise AssertionError("pauses never end")


class Upload:
    """One multipart upload."""

    def __init__(self, *, client: Any, bucket: str, key: str) -> None:  # noqa: ANN401
        self._client, self._where = client, {"Bucket": bucket, "Key": key}
        self._id = client.create_multipart_upload(**self._where)["UploadId"]

    def part(self, number: int, data: Data) -> Mapping[str, Any]:
        """Upload a part; return how the completion names it."""
        answer = self._client.upload_part(**self._where, UploadId=self._id, PartNumber=number, Body=data)
        checksums = {name: answer[name] for name in _PART_CHECKSUMS if answer.get(name)}
        return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    def complete(self, parts: list[Mapping[str, Any]], *, create_only: bool) -> bool:
        """Make the object; return False where one is there already."""
        condition = {"IfNoneMatch": "*"} if create_only else {}
        try:
            self._client.complete_multipart_upload(
                **self._where, UploadId=self._id, MultipartUpload={"Parts": parts}, **condition
            )
        except ClientError as error:
            if error.response["Error"].get("Code") in _NOT_FIRST:
                return False
            raise
        return True

    def abort(self) -> None:
        """Drop the parts. Where that fails, the bucket's rule for incomplete uploads does it later."""
        with contextlib.suppress(BotoCoreError, ClientError):
            self._client.abort_multipart_upload(**self._where, UploadId=self._id)


def _split(uri: str) -> tuple[str, str]:
    bucket, _, prefix = uri.removeprefix(S3_SCHEME).partition("/")
    prefix = prefix.strip("/")
    if not bucket or (prefix and not is_key(prefix)):
        raise InvalidJobError(f"a place of checkpoints must be s3://BUCKET/PREFIX/, got: {uri!r:.200}")
    return bucket, f"{prefix}/" if prefix else ""


def _sdks(
    bucket: str, endpoint: Endpoint, region: str | None, timeout_seconds: float
) -> tuple[Callable[[str], S3Store], Callable[[], Any]]:
    """Return what makes the store of a prefix and the client; both have boto3's credentials and Region."""
    import boto3  # noqa: PLC0415 -- heavy
    from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    try:
        session = boto3.Session(region_name=region)
        named = session.region_name or (None if is_aws(endpoint) else "us-east-1")
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise CheckpointError(f"{S3_SCHEME}{bucket}: {one_line(error)}") from None
    if named is None:
        raise CheckpointError(f"{S3_SCHEME}{bucket}: no Region is known; set AWS_REGION")
    if credentials is None:
        raise CheckpointError(f"{S3_SCHEME}{bucket}: no credentials; give the node a role, or set AWS_PROFILE")

    def store(prefix: str) -> S3Store:
        settings = obstore_settings(
            endpoint,
            bucket=bucket,
            region=named,
            express=endpoint.url is None and bucket.endswith(_EXPRESS_SUFFIX),
            timeout_seconds=timeout_seconds,
        )
        return S3Store(
            bucket,
            prefix=prefix or None,
            credential_provider=Boto3CredentialProvider(session, ttl=_CREDENTIALS),
            **settings,
        )

    def client() -> Any:  # noqa: ANN401
        settings = boto3_settings(endpoint, connections=_CONNECTIONS, timeout_seconds=timeout_seconds)
        return session.client("s3", region_name=named, **settings)

    return store, client


@contextlib.contextmanager
def _reasons(what: str) -> Iterator[None]:
    """Turn what obstore and boto3 raise into one line that begins with `what`."""
    try:
        yield
    except (BaseError, BotoCoreError, ClientError, OSError) as error:
        _refuse_missing_bucket(error, what.removeprefix(S3_SCHEME).partition("/")[0])
        kind = DeniedError if _is_denied(error) else CheckpointError
        raise kind(f"{what}: {one_line(error)}") from error


def _is_denied(error: Exception) -> bool:
    if isinstance(error, ClientError):
        return error.response["Error"].get("Code") in ("AccessDenied", "403")
    return isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError))


def one_line(error: Exception) -> str:
    """Return what an SDK's error says, without its debugging output."""
    text = " ".join(str(error).split("\n\n", 1)[0].split())
    # Of a store's answer in XML its own words.
    words = re.search(r"<Code>([^<]*)</Code>(?:<Message>([^<]*)</Message>)?", text)
    if words is not None:
        text = ": ".join(filter(None, words.groups()))
    text = text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
    way_out = next((way_out for sign, way_out in _WAYS_OUT.items() if sign in text), "")
    return f"{text}{way_out}"


def _refuse_missing_bucket(error: Exception, bucket: str) -> None:
    if "NoSuchBucket" in str(error):
        raise CheckpointError(f"bucket {bucket} does not exist") from None
