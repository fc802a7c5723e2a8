"""What makes a place a packing's own: a lock, whole files, and the refusal of what others have put there."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from training_storage.training.shard_errors import ShardError, ShardInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What a packing that is not finished keeps beside its shards.
WORK_NAME: Final = ".packing"
SHARD_NAME: Final = re.compile(r"shard-[0-9]{6,}\.tar")


@contextmanager
def locked(folder: Path, place: str) -> Iterator[None]:
    """Hold a lock that ends with this process, however that ends."""
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ShardInputError(f"{place} is being packed by another process. Wait for its end.") from None
        except OSError as error:
            raise ShardInputError(
                f"{str(folder)!r} must be on a file system with locks, got: {error.strerror}. Mount Lustre with the"
                " option flock, or choose another place."
            ) from None
        yield
    finally:
        os.close(lock)


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that it is there whole or not at all, also after a power cut."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ShardError(
            f"{str(path)!r} cannot be written ({error.strerror}). Make room there; the same command goes on."
        ) from error


def sync_folder(path: str) -> None:
    """Make names in the folder `path` outlive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def occupied(place: str, name: str | None) -> ShardInputError:
    """Return the error for a target that holds what this packing did not make; `name` is an example of it."""
    found = f"{name!r}" if name else "shards of another packing"
    return ShardInputError(
        f"the target must be empty or hold an unfinished packing of the same source, seed and number of shards, got:"
        f" {found} in {place}. Choose another target, or empty this one."
    )
