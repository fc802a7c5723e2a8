"""Where checkpoints are kept: the few operations that publishing and restoring need, and who offers them.

Two kinds of place exist: a prefix of an S3 bucket (S3, S3 Express One Zone, S3-compatible stores) and a folder of a
file system (FSx for Lustre, local disks). Both give the same promises: a file appears whole or not at all, one that is
there is never replaced, and the pointer is swapped only by whoever has seen what it replaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from training_storage.planning.errors import InvalidJobError
from training_storage.training.place_text import S3_SCHEME

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from training_storage.training.capability import Capabilities
    from training_storage.training.contract import Endpoint

#: What is read or written; memory of another library is not copied.
Data: TypeAlias = bytes | memoryview
Send: TypeAlias = "Callable[[Callable[[], Any]], Future[Any]]"


@dataclass(frozen=True, kw_only=True)
class FileState:
    """Size in bytes of a stored file, and when it was last written."""

    bytes: int
    modified: dt.datetime


@dataclass(frozen=True, kw_only=True)
class Content:
    """A small file that was read whole, and the version that a swap must name to replace it."""

    data: bytes
    version: str


class Parts(Protocol):
    """A file that is handed over part by part, in order."""

    size: int

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts; each is `part_bytes` long but the last."""


class Place(Protocol):
    """A prefix or folder that holds checkpoints. Keys are relative to it, with ``/`` between their parts.

    Every method that takes a key refuses one that leaves the place (InvalidJobError), and ends in a CheckpointError
    that names place and key where the store fails.
    """

    @property
    def uri(self) -> str:
        """How a person names the place; ends with ``/``."""

    @property
    def local_folder(self) -> Path | None:
        """The folder, where files can be used in place; None for an object store."""

    def prepare_writing(self, *, largest_bytes: int) -> None:
        """Refuse before the first byte what the place cannot do with a file of `largest_bytes`."""

    def part_bytes(self, size: int) -> int:
        """Return how long the parts of a file of `size` bytes shall be; at least `size` if it is to come in one."""

    def folders(self) -> list[str]:
        """Return the names of the folders directly below."""

    def files(self, folder: str) -> dict[str, FileState]:
        """Return every file below a folder, by path relative to it; empty where there is no such folder."""

    def read(self, key: str) -> Content | None:
        """Return a small file; None where it does not exist."""

    def read_range(self, key: str, start: int, end: int) -> Data:
        """Return the bytes from `start` up to, not including, `end`; DamagedError where the file is missing."""

    def create(self, key: str, data: Data) -> bool:
        """Write a file whole unless it exists; return whether it was written."""

    def create_from_parts(self, key: str, parts: Parts, *, send: Send) -> bool:
        """Write a file of several parts whole unless it exists; return whether it was written.

        `send(call)` runs `call` in another thread once there is room; the place waits for all of them.
        """

    def swap(self, key: str, data: bytes, *, version: str | None) -> bool:
        """Replace a small file that still has `version`, or make it where `version` is None; return whether it did."""

    def delete(self, key: str) -> None:
        """Remove a file; nothing happens where it does not exist."""


def is_key(key: str) -> bool:
    """Whether a key names something below a place on every store: relative, without ``..`` and control characters."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    plain = all(part not in ("", ".", "..") for part in key.split("/"))
    return plain and not any(character < " " or character == "\x7f" for character in key)


def checked_key(key: str) -> str:
    """Return `key`.

    Raises
    ------
    InvalidJobError
        If it names nothing below a place.
    """
    if not is_key(key):
        raise InvalidJobError(
            f"a name below a place of checkpoints must be relative, without empty parts, '..' and control characters,"
            f" got: {key!r:.200}"
        )
    return key


def open_place(
    target: str,
    *,
    endpoint: Endpoint | None = None,
    region: str | None = None,
    capabilities: Capabilities | None = None,
    accept_weaker: bool = False,
    part_size_mib: int | None = None,
    request_timeout_seconds: float | None = None,
) -> Place:
    """Return the place that `target` names.

    Parameters
    ----------
    target
        ``s3://bucket/prefix/`` or an absolute path such as ``/fsx/checkpoints/``.
    endpoint
        Where S3 requests go; by default AWS, or what AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL name.
    region
        Of the bucket; the surroundings' by default.
    capabilities
        What the store was found to do (`probe`). By default everything for AWS; another store is probed before the
        first write.
    accept_weaker
        Publish to a store that lacks conditional writes, with the weaker guarantee that `Capabilities.weaker` names.
    part_size_mib
        Of uploads; 32 by default, and more where a file would have too many parts.
    request_timeout_seconds
        Of one request, retries not counted; 60 by default.

    Raises
    ------
    InvalidJobError
        If `target` is neither.
    """
    # Imported here: a path needs neither obstore nor boto3.
    if target.startswith(S3_SCHEME):
        from training_storage.training.checkpoint_s3_place import S3Place  # noqa: PLC0415

        return S3Place.open(
            target,
            endpoint=endpoint,
            region=region,
            capabilities=capabilities,
            accept_weaker=accept_weaker,
            part_size_mib=part_size_mib,
            request_timeout_seconds=request_timeout_seconds,
        )
    if target.startswith("/"):
        from training_storage.training.checkpoint_path_place import PathPlace  # noqa: PLC0415

        return PathPlace(target)
    raise InvalidJobError(
        f"a place of checkpoints must be s3://BUCKET/PREFIX/ or an absolute path such as /fsx/checkpoints/, got:"
        f" {target!r:.200}"
    )
