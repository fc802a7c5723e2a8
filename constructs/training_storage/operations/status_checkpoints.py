"""Which checkpoints of a job are in the lake and in its directory bucket, found with a handful of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import (
    MARKER_NAME,
    CheckpointFormatError,
    read_marker,
    step_of_name,
)
from training_storage.operations.aws_calls import AWS_ERRORS, code_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

#: Folders whose end mark is looked at, from the newest on. More are there only where nobody prunes.
_LOOKED_AT = 4
_MISSING = ("NoSuchKey", "404", "NotFound")


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """The newest complete checkpoint of a place."""

    name: str
    step: int | None
    finished: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """What lies below a checkpoints' prefix.

    Parameters
    ----------
    place
        The prefix as ``s3://…``.
    folders
        Names of all folders, complete or not.
    complete
        Those of the newest few that hold a completion marker, the newest first.
    unmarked
        Those of the newest few that hold none: incomplete, or of a framework that marks them otherwise.
    """

    place: str
    folders: tuple[str, ...]
    complete: tuple[NewestCheckpoint, ...]
    unmarked: tuple[str, ...]

    @property
    def newest(self) -> NewestCheckpoint | None:
        """The newest complete one; None if none of the newest few is."""
        return self.complete[0] if self.complete else None


def read_checkpoints(s3: Any, *, bucket: str, prefix: str) -> Checkpoints:  # noqa: ANN401 - boto3 clients have no type
    """Return the checkpoints below `prefix`: one request for a thousand folders, and one for each of the newest few.

    Raises
    ------
    botocore.exceptions.ClientError, BotoCoreError
        As s3:ListBucket and s3:GetObject do.
    """
    folders: list[str] = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
        folders += [entry["Prefix"].removeprefix(prefix).strip("/") for entry in page.get("CommonPrefixes") or []]
    complete, unmarked = [], []
    for name in _newest_first(folders)[:_LOOKED_AT]:
        found = _marked(s3, bucket, f"{prefix}{name}/{MARKER_NAME}", name)
        if found is None:
            unmarked.append(name)
        else:
            complete.append(found)
    return Checkpoints(
        place=f"s3://{bucket}/{prefix}",
        folders=tuple(sorted(folders)),
        complete=tuple(complete),
        unmarked=tuple(unmarked),
    )


def is_empty(s3: Any, bucket: str) -> bool:  # noqa: ANN401
    """Whether a bucket holds no object at all: one request."""
    return not s3.list_objects_v2(Bucket=bucket, MaxKeys=1).get("KeyCount", 0)


def _newest_first(folders: Iterable[str]) -> list[str]:
    def order(name: str) -> tuple[int, str]:
        step = step_of_name(name)
        return (-1 if step is None else step, name)

    return sorted(folders, key=order, reverse=True)


def _marked(s3: Any, bucket: str, key: str, name: str) -> NewestCheckpoint | None:  # noqa: ANN401
    try:
        text = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except AWS_ERRORS as error:
        if code_of(error) in _MISSING:
            return None
        raise
    try:
        marker = read_marker(text)
    except CheckpointFormatError:
        return None
    return NewestCheckpoint(name=name, step=marker.step, finished=marker.finished_at)
