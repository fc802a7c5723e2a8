"""Where a packing keeps its listing: a folder of its own, which killed packings do not leave for ever."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.training.shard_errors import ShardInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME, _UNLOCKED_NAME = "shards-listing-", "shards-unlocked-"


def work_folder(work: str | None) -> str:
    """Return the folder for what a packing needs while it works: `work`, else the system's temporary one.

    Raises
    ------
    ShardInputError
        If it is no folder, or cannot be written.
    """
    folder = work or tempfile.gettempdir()
    if not Path(folder).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ShardInputError(f"--work must be a folder that exists and can be written, got: {folder!r}.")
    return folder


@contextmanager
def listing_folder(work: str) -> Iterator[Path]:
    """Make a folder in `work` for this packing's listing, and remove it and those that killed packings have left.

    A lock on the folder, which ends with the process however that ends, says that it is in use.
    """
    _remove_left(Path(work))
    made = Path(tempfile.mkdtemp(prefix=_UNLOCKED_NAME, dir=work))
    lock = os.open(made, os.O_RDONLY)
    folder = made
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only from now on others look at it.
        folder = made.rename(made.with_name(made.name.replace(_UNLOCKED_NAME, _NAME)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left(work: Path) -> None:
    for left in work.glob(f"{_NAME}*"):
        try:
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            # Another user's, or removed by now.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)
