"""S3 as packing uses it: one client a process, with the endpoint's rules, made from values that travel to it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from training_storage.training.endpoint import boto3_settings, endpoint_of
from training_storage.training.place_text import S3_SCHEME, is_no_place
from training_storage.training.publish_pauses import pauses
from training_storage.training.shard_errors import ShardError, ShardInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.training.contract import Endpoint, StorageContract

#: A large pool: every request waits for a first byte, so many are on the way at once.
_CONNECTIONS = 64
#: Of one attempt of ten: S3 answers in a second, and says so in between where it has to work for longer.
_TIMEOUT_SECONDS = 30.0
#: Of an answer that breaks off: the SDK tries a request again, not an answer that has begun.
READ_TRIES: Final = 5
#: What to do about refusals that people meet.
_WAYS_OUT: Final = {
    "AccessDenied": " Ask for the right, or use another role or profile.",
    "ExpiredToken": " Renew the credentials; the same command goes on.",
    "ExpiredTokenException": " Renew the credentials; the same command goes on.",
    "InvalidAccessKeyId": " Check the credentials, and whether they are of this endpoint.",
    "NoSuchBucket": " Check the name and the endpoint.",
    "PermanentRedirect": " Name the bucket's Region with --region.",
    "SignatureDoesNotMatch": " Check the credentials, and whether they are of this endpoint.",
}


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """How S3 is reached; credentials come from the surroundings, never from here.

    Parameters
    ----------
    region
        None for what the surroundings say.
    endpoint
        Where requests go; what the surroundings say if None.
    """

    region: str | None = None
    endpoint: Endpoint | None = None

    @classmethod
    def of(cls, contract: StorageContract) -> S3Access:
        """Return what the contract says."""
        return cls(region=contract.region, endpoint=contract.endpoint)

    def client(self) -> Any:  # noqa: ANN401 - boto3 clients have no type
        """Return a client with a connection pool of its own.

        Raises
        ------
        ShardInputError
            If the surroundings or the endpoint allow none.
        """
        # Loaded here: plans of local folders need no boto3.
        import boto3  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        endpoint = self.endpoint or endpoint_of()
        settings = boto3_settings(endpoint, connections=_CONNECTIONS, timeout_seconds=_TIMEOUT_SECONDS)
        try:
            return boto3.client("s3", region_name=self.region, **settings)
        except (BotoCoreError, ValueError) as error:
            # A profile or Region that does not exist; an endpoint that is no address.
            words = " ".join(str(error).split()).rstrip(".")
            raise ShardInputError(
                f"S3 cannot be used as the surroundings say, got: {words}. Repair AWS_PROFILE, AWS_REGION or the"
                " endpoint."
            ) from None


def aws_variables() -> dict[str, str]:
    """Return the variables by which this process reaches AWS, for processes that a server forks."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def is_uri(place: str) -> bool:
    """Whether `place` is in S3, and not a folder."""
    return place.startswith(S3_SCHEME)


def refuse_no_place(place: str, what: str) -> None:
    """Refuse what is neither a folder nor ``s3://``, but would be taken for a folder of that name.

    Raises
    ------
    ShardInputError
        For nothing at all, and for another scheme, or one in capitals or with a slash too few.
    """
    if is_no_place(place):
        raise ShardInputError(f"the {what} must be a folder or s3://BUCKET/PREFIX/, in small letters, got: {place!r}.")


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``; a prefix ends with ``/`` or is empty.

    Raises
    ------
    ShardInputError
        If it is no such URI.
    """
    bucket, _, prefix = uri.removeprefix(S3_SCHEME).partition("/")
    if not uri.startswith(S3_SCHEME) or not bucket:
        raise ShardInputError(f"an S3 place must be s3://BUCKET/PREFIX/, got: {uri!r}.")
    return bucket, f"{prefix.rstrip('/')}/" if prefix else ""


def status_of(error: Exception) -> int:
    """Return the HTTP status of a refusal; 0 where S3 did not answer."""
    answer = getattr(error, "response", None)
    return int(answer["ResponseMetadata"].get("HTTPStatusCode", 0)) if answer else 0


def said(call: Callable[[], Any], *, action: str, place: str) -> Any:  # noqa: ANN401 - what `call` returns
    """Return what `call` returns; a refusal of S3 becomes one line.

    Raises
    ------
    ShardError
        If S3 refuses or cannot be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - see S3Access.client

    try:
        return call()
    except ClientError as error:
        answer = error.response["Error"]
        words = " ".join(str(answer.get("Message", "")).split())
        code = answer.get("Code")
        raise ShardError(f"{action} of {place} was refused ({code}: {words}).{_WAYS_OUT.get(code, '')}") from error
    except BotoCoreError as error:
        raise ShardError(f"{action} of {place} failed ({' '.join(str(error).split())}).") from error


def body_of(ask: Callable[[], Any]) -> bytes:
    """Return the whole body of what `ask` answers, and ask again where it breaks off."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError  # noqa: PLC0415 - see S3Access.client

    for tries, pause in enumerate(pauses(), 1):
        answer = ask()
        try:
            return bytes(answer["Body"].read())
        except (HTTPClientError, IncompleteReadError):
            if tries == READ_TRIES:
                raise
        time.sleep(pause)
    raise AssertionError("pauses never end")


def region_of(access: S3Access) -> str | None:
    """Return the Region that prices are looked up for."""
    return access.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
