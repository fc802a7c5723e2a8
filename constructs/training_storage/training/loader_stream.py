"""Streams shards from S3 through s3torchconnector, a few parts ahead of what is used.

The connector's usual reader keeps all that it has read in memory, which for shards is gigabytes a process. Its reader
of ranges keeps nothing, but fetches only when asked. So here a thread asks it for the next range while the one before
is used; the connector splits a range into parts and fetches these at once.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from training_storage.planning.units import MIB
from training_storage.training.shard_errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training_storage.training.loader_settings import LoaderSettings

#: Ranges that are fetched and not yet used; one more is on its way.
_RANGES_AHEAD = 1
_WAIT_SECONDS = 0.1


class ShardStore:
    """Opens shards in S3 with a client of this process.

    Parameters
    ----------
    uris
        Of the shards that this process reads.
    settings
        Of the loader.
    rank
        Of this process; named in errors.
    """

    def __init__(self, uris: Sequence[str], settings: LoaderSettings, *, rank: int) -> None:
        # Loaded here: it loads torch, and shards in folders need neither.
        try:
            from s3torchconnector import S3ClientConfig, S3MapDataset, S3ReaderConstructor  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ShardError(f"shards in S3 need {error.name}: pip install 'training-storage[training]'") from None
        self._rank = rank
        self._timeout_seconds = settings.timeout_seconds
        self._numbers = {uri: number for number, uri in enumerate(uris)}
        self._range_bytes = settings.read_ahead_bytes
        self._objects = S3MapDataset.from_objects(
            uris,
            region=settings.region,
            endpoint=settings.endpoint_url,
            s3client_config=S3ClientConfig(**settings.s3_client_arguments()),
            reader_constructor=S3ReaderConstructor.range_based(buffer_size=0),
        )

    def open(self, uri: str) -> BinaryIO:
        """Return a stream of the shard at `uri`; its errors name it."""
        reader = ReadAhead(
            lambda: self._objects[self._numbers[uri]],
            range_bytes=self._range_bytes,
            place=uri,
            rank=self._rank,
            timeout_seconds=self._timeout_seconds,
        )
        return cast("BinaryIO", reader)


class ReadAhead:
    """Reads ranges of an object in a thread, in their order.

    Parameters
    ----------
    open_reader
        Returns what the object is read by: its `read` fetches a range. Called in the thread, for it may ask the store.
    range_bytes
        Of each read.
    place, rank
        Name the object and this process in errors.
    timeout_seconds
        For each range.
    """

    def __init__(
        self,
        open_reader: Callable[[], Any],
        *,
        range_bytes: int,
        place: str,
        rank: int,
        timeout_seconds: float,
    ) -> None:
        self._place = place
        self._rank = rank
        self._range_bytes = range_bytes
        self._timeout_seconds = timeout_seconds
        self._ranges: queue.Queue[bytes | Exception] = queue.Queue(_RANGES_AHEAD)
        self._closed = threading.Event()
        self._range = memoryview(b"")
        self._ended = False
        # A call into the client cannot be interrupted: a thread whose store is silent ends with the process.
        threading.Thread(target=self._fetch, args=(open_reader,), name="read-ahead", daemon=True).start()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises
        ------
        ShardError
            If the object cannot be read, or the store is silent for too long.
        """
        if not self._range and not self._ended:
            fetched = self._next_range()
            if isinstance(fetched, Exception):
                words = " ".join(str(fetched).split())
                raise ShardError(f"the shard {self._place} cannot be read by rank {self._rank} ({words}).") from fetched
            self._ended = not fetched
            self._range = memoryview(fetched)
        data, self._range = bytes(self._range[:size]), self._range[size:]
        return data

    def _next_range(self) -> bytes | Exception:
        began = time.monotonic()
        try:
            return self._ranges.get(timeout=self._timeout_seconds)
        except queue.Empty:
            raise ShardError(
                f"the shard {self._place} cannot be read by rank {self._rank}: no range of"
                f" {self._range_bytes // MIB} MiB has come within {time.monotonic() - began:.0f} s"
                " (timeout_seconds of the settings). Look after the store and the network, then resume from the last"
                " checkpoint."
            ) from None

    def close(self) -> None:
        """Stop fetching."""
        self._closed.set()

    def _fetch(self, open_reader: Callable[[], Any]) -> None:
        fetched: bytes | Exception = b"-"
        reader: Any = None
        while fetched and not isinstance(fetched, Exception):
            try:
                if reader is None:
                    reader = open_reader()
                fetched = reader.read(self._range_bytes)
            except Exception as error:  # noqa: BLE001 - raised where the range is used
                fetched = error
            while not self._closed.is_set():
                try:
                    self._ranges.put(fetched, timeout=_WAIT_SECONDS)
                    break
                except queue.Full:
                    continue
            if self._closed.is_set():
                return
