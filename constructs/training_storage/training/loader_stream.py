"""Streams shards from S3 through s3torchconnector, a few parts ahead of what is used.

The connector's usual reader keeps all that it has read in memory, which for shards is gigabytes a process. Its reader
of ranges keeps nothing, but fetches only when asked. So here a thread asks it for the next range while the one before
is used; the connector splits a range into parts and fetches these at once.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from training_storage.training.shard_errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """

    def __init__(self, uris: Sequence[str], settings: LoaderSettings) -> None:
        # Loaded here: it loads torch, and shards in folders need neither.
        from s3torchconnector import S3ClientConfig, S3MapDataset, S3ReaderConstructor  # noqa: PLC0415

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
        reader = self._objects[self._numbers[uri]]
        return cast("BinaryIO", ReadAhead(reader, range_bytes=self._range_bytes, place=uri))


class ReadAhead:
    """Reads ranges of an object in a thread, in their order.

    Parameters
    ----------
    reader
        Its `read` fetches a range.
    range_bytes
        Of each read.
    place
        Names the object in errors.
    """

    def __init__(self, reader: Any, *, range_bytes: int, place: str) -> None:  # noqa: ANN401 - any reader
        self._place = place
        self._ranges: queue.Queue[bytes | Exception] = queue.Queue(_RANGES_AHEAD)
        self._closed = threading.Event()
        self._range = memoryview(b"")
        self._ended = False
        threading.Thread(target=self._fetch, args=(reader, range_bytes), daemon=True).start()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises
        ------
        ShardError
            If the object cannot be read.
        """
        if not self._range and not self._ended:
            fetched = self._ranges.get()
            if isinstance(fetched, Exception):
                words = " ".join(str(fetched).split())
                raise ShardError(f"the shard {self._place} cannot be read ({words}).") from fetched
            self._ended = not fetched
            self._range = memoryview(fetched)
        data, self._range = bytes(self._range[:size]), self._range[size:]
        return data

    def close(self) -> None:
        """Stop fetching."""
        self._closed.set()

    def _fetch(self, reader: Any, range_bytes: int) -> None:  # noqa: ANN401 - any reader
        fetched: bytes | Exception = b"-"
        while fetched and not isinstance(fetched, Exception):
            try:
                fetched = reader.read(range_bytes)
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
