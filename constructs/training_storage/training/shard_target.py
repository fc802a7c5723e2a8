"""Where shards go: a folder or a prefix of S3. Nothing half-written has a shard's name, and nothing is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from training_storage.training.shard_s3 import S3Access, is_uri, refuse_no_place, split_uri
from training_storage.training.shard_target_folder import FolderTarget
from training_storage.training.shard_target_s3 import PrefixTarget

if TYPE_CHECKING:
    from training_storage.training.shard_index import ShardIndex, ShardRecord


class Target(Protocol):
    """A place for shards. It travels to other processes, so it holds values only."""

    @property
    def name(self) -> str: ...  # noqa: D102

    def claimed(self, run: str) -> Any:  # noqa: ANN401 - a context manager
        """Return a context in which nobody else packs here; `run` tells this packing from any other.

        Raises ShardInputError if the place holds anything else than what a packing of the same `run` has left.
        """

    def staging(self, name: str) -> Path:
        """Return a file of this process in which the shard `name` is to be made."""

    def publish(self, staged: Path, record: ShardRecord, *, run: str) -> None:
        """Give the finished file its name, and remove `staged`."""

    def finished(self, name: str, *, run: str) -> ShardRecord | None:
        """Return the record of the shard `name` of an earlier attempt if it is there and whole."""

    def publish_index(self, index: ShardIndex) -> None:
        """Write the index, which ends the packing; the same one may be there already."""


def open_target(place: str, *, access: S3Access, work: str, accept_weaker: bool = False) -> Target:
    """Return the target at `place`, a folder or ``s3://bucket/prefix/``.

    Parameters
    ----------
    place
        Where shards go.
    access
        How S3 is reached.
    work
        A folder for shards on their way to S3. Each process needs one shard's size there.
    accept_weaker
        Write to a store that passes over ``If-None-Match`` too.

    Raises
    ------
    ShardInputError
        If it is neither.
    """
    if is_uri(place):
        bucket, prefix = split_uri(place)
        return PrefixTarget(bucket=bucket, prefix=prefix, access=access, work=work, accept_weaker=accept_weaker)
    refuse_no_place(place, "target")
    return FolderTarget(path=str(Path(place).resolve()))
