"""Completes a checkpoint whose files a framework has written to a place itself: the marker, then the pointer."""

from __future__ import annotations

import datetime as dt
import heapq
import logging
import shutil
import time
from typing import TYPE_CHECKING

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    POINTER_NAME,
    Marker,
    Pointer,
    incompleteness,
    pointer_moves,
)
from training_storage.training.checkpoint_errors import (
    CheckpointError,
    DamagedError,
    DeadlineError,
    DifferentContentError,
)
from training_storage.training.checkpoint_scan import State, newest_first
from training_storage.training.publish import read_latest
from training_storage.training.publish_pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from training_storage.checkpoint_format import CheckpointFile
    from training_storage.training.checkpoint_place import Place
    from training_storage.training.checkpoint_scan import Found

_LOG = logging.getLogger("training_storage.checkpoints")


def complete(place: Place, name: str, *, step: int, files: Sequence[CheckpointFile], timeout_seconds: float) -> bool:
    """Write the marker of a folder whose files are all there, and move the pointer to it.

    Parameters
    ----------
    place, name
        Where the folder is.
    step
        Its training step.
    files
        Every file with its size and checksum, as the writers counted them while they wrote.
    timeout_seconds
        For moving the pointer while others move it.

    Returns
    -------
    bool
        Whether the pointer names it from now on; False where it names a newer one.

    Raises
    ------
    DamagedError
        If a file is not there with that size.
    DifferentContentError
        If the folder has a marker already: its name was used before.
    """
    marker = Marker(
        step=step, finished_at=dt.datetime.now(tz=dt.UTC), files=tuple(sorted(files, key=lambda file: file.path))
    )
    text = marker.to_json().encode()
    stored = {path: state.bytes for path, state in place.files(name).items()}
    why = incompleteness(name=name, files=stored, marker=text)
    if why is not None:
        raise DamagedError(f"{place.uri}{name}: {why}")
    if not place.create(f"{name}/{MARKER_NAME}", text):
        raise DifferentContentError(
            f"{place.uri}{name}/{MARKER_NAME} exists: the folder's name was used before; give each attempt its own"
        )
    return _move_pointer(place, Pointer(checkpoint=name, step=step), timeout_seconds=timeout_seconds)


def remove_older(place: Place, *, kept: int) -> list[str]:
    """Remove complete checkpoints but the newest `kept`, and what older attempts left unfinished before them.

    A checkpoint loses its end marks first, so that no one takes a half-removed one for complete. Where something cannot
    be removed, a warning is logged and it stays: the new checkpoint is complete all the same.

    Returns
    -------
    list[str]
        The names of what was removed.
    """
    removed: list[str] = []
    complete_ones = 0
    try:
        for found in newest_first(place):
            if found.state == State.COMPLETE and complete_ones < kept:
                complete_ones += 1
            # An unfinished one beside the newest may be in the making.
            elif found.step is not None and complete_ones >= kept:
                _remove(place, found.name)
                removed.append(found.name)
    except (CheckpointError, OSError) as error:
        _LOG.warning("older checkpoints stay: %s", error)
    return removed


def _remove(place: Place, name: str) -> None:
    for end_mark in (DCP_METADATA_NAME, MARKER_NAME):
        place.delete(f"{name}/{end_mark}")
    if place.local_folder is not None:
        # Hidden drafts of a killed writer as well, which no listing shows.
        shutil.rmtree(place.local_folder / name)
        return
    for path in place.files(name):
        place.delete(f"{name}/{path}")


def _move_pointer(place: Place, new: Pointer, *, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    for pause in pauses():
        current, version = read_latest(place)
        if current == new:
            return True
        if not pointer_moves(current, new):
            return False
        if place.swap(POINTER_NAME, new.to_json().encode(), version=version):
            return True
        if time.monotonic() + pause > deadline:
            break
        time.sleep(pause)
    raise DeadlineError(
        f"{place.uri}{POINTER_NAME} could not be moved to {new.checkpoint} in {timeout_seconds:.0f} s: others keep"
        " moving it. The checkpoint itself is complete."
    )


def newest_complete(places: Sequence[Place]) -> Iterator[tuple[Place, Found]]:
    """Yield the complete checkpoints of places, the highest step first; of one step in the order of the places.

    Each is looked into when its turn comes.

    Raises
    ------
    CheckpointError
        If a place cannot be read. No older checkpoint is taken for that: work would be lost.
    """
    yield from heapq.merge(
        *map(_complete_ones, places), key=lambda one: -1 if one[1].step is None else one[1].step, reverse=True
    )


def _complete_ones(place: Place) -> Iterator[tuple[Place, Found]]:
    return ((place, found) for found in newest_first(place) if found.state == State.COMPLETE)
