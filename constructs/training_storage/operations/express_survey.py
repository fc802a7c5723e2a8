"""What would be lost with a directory bucket: objects that neither the lake has nor a checkpoint makes superfluous."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.checkpoint_format import POINTER_NAME, TRACKER_NAMES
from training_storage.operations.aws_calls import code_of
from training_storage.operations.express_copy import DEFAULT_CONCURRENCY, OutOfTimeError
from training_storage.operations.object_state import ObjectState, compare, state_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator

    from training_storage.operations.archive_settings import S3Place
    from training_storage.operations.checkpoint_listing import FoundCheckpoint, Listing

#: Objects that are compared with the lake between two looks at the clock.
_BATCH: Final = 1000
#: How many of those that would be lost are named.
_NAMED: Final = 3
_GONE: Final = ("404", "NoSuchKey", "NotFound")
#: S3 says this too of an object that is not there, to who may not list that prefix. What cannot be seen proves nothing.
_UNSEEN: Final = (*_GONE, "403", "AccessDenied")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An object as it was listed."""

    key: str
    bytes: int
    modified_at: dt.datetime


def entries(client: Any, bucket: str) -> Iterator[Entry]:  # noqa: ANN401 -- boto3 clients have no type
    """Yield all objects of a bucket."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", []):
            yield Entry(key=found["Key"], bytes=found["Size"], modified_at=found["LastModified"])


class Survey:
    """Tells what may go with a bucket whose newest complete checkpoint is whole in the lake.

    Parameters
    ----------
    client
        S3.
    source, lake
        The job's checkpoints in the bucket and in the lake.
    listing
        What is at the source.
    out_of_time
        Asked before each batch of comparisons.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401
        *,
        source: S3Place,
        lake: S3Place,
        listing: Listing,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._client = client
        self._source = source
        self._lake = lake
        self._out_of_time = out_of_time
        self._lost_folders = _lost_folders(listing)
        self._folders = listing.checkpoints

    def lost(self, found: Iterable[Entry]) -> list[str]:
        """Return the first keys of `found` that would be lost; none if all may go.

        Raises
        ------
        OutOfTimeError
            If the time is up.
        """
        rest = iter(found)
        with ThreadPoolExecutor(DEFAULT_CONCURRENCY, "gate-look") as pool:
            while batch := list(islice(rest, _BATCH)):
                if self._out_of_time():
                    raise OutOfTimeError
                unknown = [entry for entry in batch if not self._is_superfluous(entry)]
                held = pool.map(self._is_in_lake, unknown)
                lost = [entry.key for entry, there in zip(unknown, held, strict=True) if not there]
                if lost:
                    return lost[:_NAMED]
        return []

    def _is_superfluous(self, entry: Entry) -> bool:
        """Whether an object is of a checkpoint that is archived or superseded, or holds nothing by itself."""
        if entry.key.endswith("/") and not entry.bytes:
            return True
        if not entry.key.startswith(self._source.prefix):
            return False
        folder, slash, _ = entry.key.removeprefix(self._source.prefix).partition("/")
        if not slash:
            # What they point to is in the lake, where the archive has moved the same ones.
            return folder in (POINTER_NAME, *TRACKER_NAMES)
        return folder in self._folders and folder not in self._lost_folders

    def _is_in_lake(self, entry: Entry) -> bool:
        source = self._head(self._source.bucket, entry.key, gone=_GONE)
        if source is None:
            return True
        there = self._head(self._lake.bucket, entry.key, gone=_UNSEEN)
        return there is not None and compare(source, there).problem is None

    def _head(self, bucket: str, key: str, *, gone: tuple[str, ...]) -> ObjectState | None:
        try:
            return state_of(self._client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"))
        except ClientError as error:
            if code_of(error) in gone:
                return None
            raise


def _lost_folders(listing: Listing) -> frozenset[str]:
    """Return the folders that are no complete checkpoint and that no complete one makes superfluous.

    One that is not complete cannot be restored; it may go when a complete one is newer, both by time and by step.
    Everything else may be a damaged newest checkpoint, one of a framework that leaves no end mark, or no checkpoint.
    """
    complete = listing.complete()
    step = max((one.step for one in complete if one.step is not None), default=None)
    return frozenset(
        name
        for name, one in listing.checkpoints.items()
        if one.incomplete is not None
        and (
            step is None or one.step is None or one.step >= step or not any(_is_older(one, other) for other in complete)
        )
    )


def _is_older(one: FoundCheckpoint, other: FoundCheckpoint) -> bool:
    """Whether `one` was finished before `other`: by their markers, or else by when S3 got their last files."""
    if one.marker is not None and other.marker is not None:
        return one.finished_at < other.finished_at
    return _written_at(one) <= _written_at(other)


def _written_at(one: FoundCheckpoint) -> dt.datetime:
    return max(file.modified_at for file in one.files.values())
