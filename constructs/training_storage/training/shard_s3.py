"""S3 as packing uses it: one client a process, with the endpoint's rules, made from values that travel to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.training.endpoint import boto3_settings, endpoint_of
from training_storage.training.shard_errors import ShardError, ShardInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.training.contract import Endpoint, StorageContract

_SCHEME = "s3://"
#: A large pool: every request waits for a first byte, so many are on the way at once.
_CONNECTIONS = 64
_TIMEOUT_SECONDS = 60.0


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
        """Return a client with a connection pool of its own."""
        # Loaded here: plans of local folders need no boto3.
        import boto3  # noqa: PLC0415

        endpoint = self.endpoint or endpoint_of()
        settings = boto3_settings(endpoint, connections=_CONNECTIONS, timeout_seconds=_TIMEOUT_SECONDS)
        return boto3.client("s3", region_name=self.region, **settings)


def aws_variables() -> dict[str, str]:
    """Return the variables by which this process reaches AWS, for processes that a server forks."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def is_uri(place: str) -> bool:
    """Whether `place` is in S3, and not a folder."""
    return place.startswith(_SCHEME)


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``; a prefix ends with ``/`` or is empty.

    Raises
    ------
    ShardInputError
        If it is no such URI.
    """
    bucket, _, prefix = uri.removeprefix(_SCHEME).partition("/")
    if not uri.startswith(_SCHEME) or not bucket:
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
        raise ShardError(f"{action} of {place} was refused ({answer.get('Code')}: {words}).") from error
    except BotoCoreError as error:
        raise ShardError(f"{action} of {place} failed ({' '.join(str(error).split())}).") from error


def region_of(access: S3Access) -> str | None:
    """Return the Region that prices are looked up for."""
    return access.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
