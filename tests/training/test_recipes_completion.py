"""Completing what a framework wrote to a place itself, choosing what to load, and removing what is old."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.checkpoint_support import content, files_of, saved
from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    POINTER_NAME,
    CheckpointFile,
    checkpoint_name,
    read_pointer,
)
from training_storage.training.checkpoint_errors import DamagedError, DeniedError, DifferentContentError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.checkpoint_scan import State, look, newest_first
from training_storage.training.recipes.completion import complete, newest_complete, remove_older

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"__0_0.distcp": 300, "__1_0.distcp": 200, DCP_METADATA_NAME: 20}


def completed(place: PathPlace, step: int, *, name: str | None = None) -> bool:
    folder = saved(place.local_folder, step, FILES, name=name)
    files = [CheckpointFile(path=path, bytes=size) for path, size in FILES.items()]
    return complete(place, folder.name, step=step, files=files, timeout_seconds=5)


def pointed(place: PathPlace) -> str:
    found = place.read(POINTER_NAME)
    assert found is not None
    return read_pointer(found.data).checkpoint


def test_the_pointer_goes_forwards_only(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    assert completed(place, 20)
    assert not completed(place, 10)
    assert pointed(place) == checkpoint_name(20)
    assert look(place, checkpoint_name(10)).state == State.COMPLETE


@pytest.mark.parametrize(
    ("files", "message"),
    [({**FILES, "__2_0.distcp": 5}, "__2_0.distcp is missing"), ({**FILES, "__1_0.distcp": 201}, "has 200 bytes")],
)
def test_nothing_is_completed_whose_files_are_not_there_whole(
    tmp_path: Path, files: dict[str, int], message: str
) -> None:
    place = PathPlace(tmp_path)
    folder = saved(tmp_path, 7, FILES)
    claimed = [CheckpointFile(path=path, bytes=size) for path, size in files.items()]
    with pytest.raises(DamagedError, match=message):
        complete(place, folder.name, step=7, files=claimed, timeout_seconds=5)
    assert place.read(f"{folder.name}/{MARKER_NAME}") is None
    assert place.read(POINTER_NAME) is None


def test_a_folder_is_completed_once(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    completed(place, 7)
    with pytest.raises(DifferentContentError, match="the folder's name was used before"):
        completed(place, 7)


def test_the_newest_of_all_places_comes_first_and_of_one_step_that_of_the_first_place(tmp_path: Path) -> None:
    lustre, lake = PathPlace(tmp_path / "lustre"), PathPlace(tmp_path / "lake")
    for place, steps in ((lustre, (10, 30)), (lake, (20, 30, 40))):
        for step in steps:
            completed(place, step)
    saved(tmp_path / "lake", 50, {"__0_0.distcp": 10})
    order = [(place is lustre, found.step) for place, found in newest_complete([lustre, lake])]
    assert order == [(False, 40), (True, 30), (False, 30), (False, 20), (True, 10)]


def test_old_checkpoints_and_old_ruins_go_the_newest_and_what_is_in_the_making_stay(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    for step in (10, 20, 30, 40):
        completed(place, step)
    for step, name in ((15, None), (25, "run-1-step-0000000025"), (50, None)):
        saved(tmp_path, step, {"__0_0.distcp": 10}, name=name)
    (tmp_path / checkpoint_name(15) / ".draft-of-a-killed-writer").write_bytes(b"half")
    saved(tmp_path, 0, {"notes.txt": 3}, name="notes")
    removed = remove_older(place, kept=2)
    assert removed == ["run-1-step-0000000025", checkpoint_name(20), checkpoint_name(15), checkpoint_name(10)]
    assert set(place.folders()) == {"notes", *map(checkpoint_name, (30, 40, 50))}
    assert files_of(tmp_path / checkpoint_name(40)) == {path: content(40, path, size) for path, size in FILES.items()}


class _Dying(PathPlace):
    """Fails at a deletion, as a killed process does; removes file by file like an object store."""

    left = 0

    @property
    def local_folder(self) -> Any:
        return None

    def delete(self, key: str) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().delete(key)


@pytest.mark.parametrize("deletions", range(6))
def test_a_removal_that_is_killed_leaves_nothing_that_looks_whole(tmp_path: Path, deletions: int) -> None:
    for step in (10, 20):
        completed(PathPlace(tmp_path), step)
    place = _Dying(tmp_path)
    place.left = deletions
    with contextlib.suppress(KeyboardInterrupt):
        remove_older(place, kept=1)
    found = {one.name: one for one in newest_first(place)}
    assert found[checkpoint_name(20)].state == State.COMPLETE
    old = found.get(checkpoint_name(10))
    assert (old is None) == (deletions >= len(FILES) + 1)
    # Before the first deletion it is whole; after it, no end mark says so any more.
    assert old is None or (old.state == State.COMPLETE) == (deletions == 0)


@pytest.mark.parametrize("error", [DeniedError("no permission"), OSError("read-only file system")])
def test_who_cannot_delete_is_warned_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Guarded(PathPlace):
        """Refuses."""

        def delete(self, key: str) -> None:
            del key
            raise error

    place = Guarded(tmp_path)
    for step in (10, 20):
        completed(place, step)
    with caplog.at_level(logging.WARNING):
        assert remove_older(place, kept=1) == []
    assert "older checkpoints stay" in caplog.text
    assert look(place, checkpoint_name(10)).state == State.COMPLETE
