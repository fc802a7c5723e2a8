"""torch's distributed checkpoint straight to and from S3, through s3torchconnector's writer and reader."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from training_storage.planning.catalog.s3 import copy_limits, s3_limits
from training_storage.planning.units import MIB
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.endpoint import is_aws
from training_storage.training.recipes.dcp_streams import Written, name_of, recorded, refuse_used

try:
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client  # the writer takes no endpoint; its client does
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem
except ModuleNotFoundError as error:  # pragma: no cover -- the base install has neither
    raise CheckpointError(
        f"checkpoints on S3 need s3torchconnector with its extra dcp ({error}): pip install 's3torchconnector[dcp]'"
    ) from error

if TYPE_CHECKING:
    import io
    import os
    from collections.abc import Callable, Iterator

    from torch.distributed.checkpoint.planner import SavePlan

    from training_storage.training.contract import Endpoint

#: torch's own framing beside the tensors, and whatever a planner moves from one rank to another.
_SPARE = 2


def part_bytes(largest_file_bytes: int, *, part_size_mib: int) -> int:
    """Return how long the parts of an upload are: as configured, and longer where the file would have too many.

    Parameters
    ----------
    largest_file_bytes
        Of the largest file that a rank writes.
    part_size_mib
        As configured.

    Raises
    ------
    CheckpointError
        If no part that S3 takes is long enough.
    """
    limits, parts = copy_limits(), s3_limits().parts_maximum
    needed = -(-largest_file_bytes * _SPARE // parts)
    part = max(part_size_mib, limits.part_mib_minimum, -(-needed // MIB)) * MIB
    if part > limits.part_mib_maximum * MIB:
        raise CheckpointError(
            f"a rank's file of {largest_file_bytes:,} bytes must fit into {parts:,} parts of at most"
            f" {limits.part_mib_maximum} MiB with room to spare; save from more ranks"
        )
    return part


def client(endpoint: Endpoint, *, region: str, part: int) -> S3Client:
    """Return a client for the contract's endpoint. It sends no trailing checksums, so every store takes its uploads."""
    path_style = endpoint.addressing_style == "path" or (endpoint.addressing_style == "auto" and not is_aws(endpoint))
    config = S3ClientConfig(part_size=part, force_path_style=path_style)
    return S3Client(region, endpoint=endpoint.url, s3client_config=config)


class RecordingS3FileSystem(S3FileSystem):
    """s3torchconnector's file system, which takes down what it wrote and completes nothing after an exception."""

    def __init__(self, s3_client: S3Client) -> None:
        super().__init__(s3_client.region, s3_client=s3_client)
        self.written = Written()

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """Open an object; what is written is taken down once the upload is completed."""
        opened = super().create_stream(path, mode)
        with recorded(opened, path, mode, written=self.written, give_up=_abort) as stream:
            yield stream

    def rename(self, old_path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Copy an object to another name and remove the old one."""
        super().rename(old_path, new_path)
        self.written.rename(name_of(old_path), name_of(new_path))


def _abort(upload: Any) -> None:  # noqa: ANN401 -- the library has no types
    """Mark an upload as closed, so that it aborts: its finalizer would complete half a file, whole to the eye."""
    upload._closed = True  # noqa: SLF001


class NewPrefixWriter(S3StorageWriter):
    """s3torchconnector's writer, for a prefix below which there is nothing yet."""

    def __init__(self, uri: str, *, s3_client: S3Client, is_used: Callable[[], bool]) -> None:
        super().__init__(s3_client.region, uri, overwrite=False)
        files = RecordingS3FileSystem(s3_client)
        self.fs, self.written = files, files.written  # type: ignore[assignment] # as the library does
        self._is_used, self._is_coordinator = is_used, False

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001 -- torch's signature
        """Remember who asks whether the prefix is new."""
        self._is_coordinator = is_coordinator
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Refuse a prefix that was used before; no rank has written anything by then."""
        if self._is_coordinator:
            refuse_used(str(self.path), self._is_used)
        return super().prepare_local_plan(plan)


def reader(uri: str, *, s3_client: S3Client) -> S3StorageReader:
    """Return s3torchconnector's reader of a checkpoint, which reads only the ranges that a rank needs."""
    made = S3StorageReader(s3_client.region, uri)
    made.fs = S3FileSystem(s3_client.region, s3_client=s3_client, reader_constructor=made._reader_constructor)  # noqa: SLF001 -- the reader takes no endpoint
    made.path = made.fs.init_path(uri)
    return made
