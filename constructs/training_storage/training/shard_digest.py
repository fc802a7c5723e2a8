"""Checksums of files and streams."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from training_storage.planning.units import MIB

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

_CHUNK_BYTES = 4 * MIB


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashingWriter:
    """A file that is written once, from start to end, and summed on the way.

    Parameters
    ----------
    file
        Where the bytes go.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._dropped = False
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Write `data`. Tar writers come in small pieces, which are summed together."""
        if self._dropped:
            return len(data)
        self._waiting += data
        if len(self._waiting) >= _CHUNK_BYTES:
            self._pass_on()
        return len(data)

    def drop(self) -> None:
        """Take what still comes and write none of it: a tar writer that is given up writes its end all the same."""
        self._dropped = True

    def finish(self) -> str:
        """Write what waits and return the SHA-256 in hexadecimal digits."""
        self._pass_on()
        self._file.flush()
        return self._hash.hexdigest()

    def _pass_on(self) -> None:
        self._hash.update(self._waiting)
        self._file.write(self._waiting)
        self.bytes += len(self._waiting)
        self._waiting.clear()
