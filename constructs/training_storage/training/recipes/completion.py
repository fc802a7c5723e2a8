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
    step_of_name,
)
from training_storage.training.checkpoint_errors import (
    CheckpointError,
    DamagedError,
    DeadlineError,
    DifferentContentError,
)
from training_storage.training.checkpoint_scan import State, look, newest_first
from training_storage.training.publish import read_latest
from training_storage.training.publish_pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

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
    if not place.create(f"{name}/{MARKER_NAME}", text) and not _is_there(place, f"{name}/{MARKER_NAME}", text):
        raise DifferentContentError(
            f"{place.uri}{name}/{MARKER_NAME} exists: the folder's name was used before; give each attempt its own"
        )
    return _move_pointer(place, Pointer(checkpoint=name, step=step), timeout_seconds=timeout_seconds)


def _is_there(place: Place, key: str, text: bytes) -> bool:
    """Whether a file that could not be created is the same: its write went through, and only the answer was lost."""
    found = place.read(key)
    return found is not None and found.data == text


def remove_older(
    place: Place, *, saved: str, kept: int, owns: Callable[[str], bool], trusted: Collection[str]
) -> list[str]:
    """Remove what a run has left at a place before its newest `kept` checkpoints, complete or not.

    A checkpoint loses its end marks first, so that no one takes a half-removed one for complete. Where something cannot
    be removed, a warning is logged and it stays: the new checkpoint is complete all the same.

    Parameters
    ----------
    saved
        The folder that was completed just now. It is never removed, nor is anything of a higher step.
    kept
        How many complete checkpoints stay at least; nothing is removed before there are so many.
    owns
        Whether a folder is of this run, and not of an attempt that is still running. Others are never removed.
    trusted
        Folders whose content is known to be true, because it was hashed on its way there or read since: only these
        count as kept. Sizes alone do not show damage.

    Returns
    -------
    list[str]
        The names of what was removed.

    Raises
    ------
    DamagedError
        If `saved` itself is not there whole: somebody else removes checkpoints at this place.
    """
    removed: list[str] = []
    staying = {saved}
    try:
        _refuse_removed(look(place, saved), place)
        steps = {name: step_of_name(name) for name in place.folders() if owns(name)}
        newest = step_of_name(saved) or 0
        older = [name for name, step in steps.items() if name != saved and step is not None and step <= newest]
        for name in sorted(older, key=lambda name: (steps[name], name), reverse=True):
            if len(staying) >= kept:
                _remove(place, name)
                removed.append(name)
            elif name in trusted and look(place, name).state == State.COMPLETE:
                staying.add(name)
    except DamagedError:
        raise
    except (CheckpointError, OSError) as error:
        _LOG.warning("older checkpoints stay: %s", error)
    return removed


def _refuse_removed(saved: Found, place: Place) -> None:
    if saved.state != State.COMPLETE:
        raise DamagedError(
            f"{place.uri}{saved.name} was removed or changed as soon as it was saved ({saved.why}): somebody else"
            " cleans up here. Give each run a job name, and so a place, of its own"
        )


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


def newest_of_all(places: Sequence[Place]) -> Iterator[tuple[Place, Found]]:
    """Yield the checkpoints of places, complete or not, the highest step first; of one step in the order of the places.

    Each is looked into when its turn comes.

    Raises
    ------
    CheckpointError
        If a place cannot be read. No older checkpoint is taken for that: work would be lost.
    """
    yield from heapq.merge(
        *map(_all_of, places), key=lambda one: -1 if one[1].step is None else one[1].step, reverse=True
    )


def newest_complete(places: Sequence[Place]) -> Iterator[tuple[Place, Found]]:
    """Yield what `newest_of_all` does without what is not complete."""
    return ((place, found) for place, found in newest_of_all(places) if found.state == State.COMPLETE)


def _all_of(place: Place) -> Iterator[tuple[Place, Found]]:
    return ((place, found) for found in newest_first(place))
