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
from training_storage.training.checkpoint_attempt import Attempt
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


def test_a_marker_whose_answer_was_lost_counts_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tries again, and hears that the name is taken: by itself."""
    place = PathPlace(tmp_path)
    create = place.create
    monkeypatch.setattr(place, "create", lambda key, data: create(key, data) and create(key, data))
    assert completed(place, 20)
    assert pointed(place) == checkpoint_name(20)


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
    (place.local_folder / checkpoint_name(7) / "more.distcp").write_bytes(b"more")
    files = [CheckpointFile(path=path, bytes=size) for path, size in {**FILES, "more.distcp": 4}.items()]
    with pytest.raises(DifferentContentError, match="the folder's name was used before"):
        complete(place, checkpoint_name(7), step=7, files=files, timeout_seconds=5)


def test_the_newest_of_all_places_comes_first_and_of_one_step_that_of_the_first_place(tmp_path: Path) -> None:
    lustre, lake = PathPlace(tmp_path / "lustre"), PathPlace(tmp_path / "lake")
    for place, steps in ((lustre, (10, 30)), (lake, (20, 30, 40))):
        for step in steps:
            completed(place, step)
    saved(tmp_path / "lake", 50, {"__0_0.distcp": 10})
    order = [(place is lustre, found.step) for place, found in newest_complete([lustre, lake])]
    assert order == [(False, 40), (True, 30), (False, 30), (False, 20), (True, 10)]


def removed_after(place: PathPlace, saved_name: str, *, kept: int, trusted: set[str], attempt: Attempt) -> list[str]:
    return remove_older(place, saved=saved_name, kept=kept, owns=attempt.owns, trusted={saved_name, *trusted})


def owned(step: int, attempt: int = 1, run: str = "run-7") -> str:
    return f"{run}-{attempt}-{checkpoint_name(step)}"


OWN = Attempt(run="run-7", counts=(1,))


def test_old_checkpoints_and_old_ruins_of_a_run_go_the_newest_and_what_is_newer_stay(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    for step, attempt in ((10, 0), (20, 0), (30, 1), (40, 1)):
        completed(place, step, name=owned(step, attempt))
    for name in (owned(15, 0), owned(25, 1), owned(50, 0), owned(25, 2)):
        saved(tmp_path, 0, {"__0_0.distcp": 10}, name=name)
    (tmp_path / owned(15, 0) / ".draft-of-a-killed-writer").write_bytes(b"half")
    saved(tmp_path, 0, {"notes.txt": 3}, name="notes")
    removed = removed_after(place, owned(40), kept=2, trusted={owned(30)}, attempt=OWN)
    assert removed == [owned(25, 1), owned(20, 0), owned(15, 0), owned(10, 0)]
    assert set(place.folders()) == {"notes", owned(30), owned(40), owned(50, 0), owned(25, 2)}
    assert files_of(tmp_path / owned(40)) == {path: content(40, path, size) for path, size in FILES.items()}


def test_what_was_just_saved_stays_though_damaged_ones_have_higher_steps(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    for step in (1000, 2000, 3000):
        completed(place, step, name=owned(step, 0))
    # Loaded: 1000, because 2000 and 3000 were found damaged. Their sizes are true.
    trusted = {owned(1000, 0)}
    for step, removed in ((1010, []), (1020, [owned(1000, 0)]), (1030, [owned(1010)])):
        completed(place, step, name=owned(step))
        assert removed_after(place, owned(step), kept=2, trusted=trusted, attempt=OWN) == removed
        trusted.add(owned(step))
    assert {owned(1020), owned(1030), owned(2000, 0), owned(3000, 0)} == set(place.folders())


def test_nothing_newer_than_what_was_saved_is_removed(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    for step, attempt in ((10, 1), (20, 1), (30, 0), (40, 1)):
        completed(place, step, name=owned(step, attempt))
    assert removed_after(place, owned(20), kept=1, trusted=set(), attempt=OWN) == [owned(10)]
    assert set(place.folders()) == {owned(20), owned(30, 0), owned(40)}


def test_what_nobody_has_read_does_not_count_as_kept(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    for step, attempt in ((10, 1), (20, 0), (30, 0), (40, 1)):
        completed(place, step, name=owned(step, attempt))
    assert removed_after(place, owned(40), kept=2, trusted={owned(10)}, attempt=OWN) == []
    assert removed_after(place, owned(40), kept=2, trusted={owned(30, 0), owned(10)}, attempt=OWN) == [
        owned(20, 0),
        owned(10),
    ]


def test_another_run_at_the_same_place_loses_nothing_and_takes_nothing(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    theirs = [owned(step, 0, "run-70") for step in (1000, 2000)]
    for name, step in zip(theirs, (1000, 2000), strict=True):
        completed(place, step, name=name)
    in_flight = owned(5, 0, "run-70")
    saved(tmp_path, 0, {"__0_0.distcp": 10}, name=in_flight)
    for step in (10, 20, 3000):
        completed(place, step, name=owned(step))
        removed_after(place, owned(step), kept=1, trusted=set(), attempt=OWN)
    assert set(place.folders()) == {*theirs, in_flight, owned(3000)}


def test_a_save_that_somebody_removes_at_once_is_an_error(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    completed(place, 10, name=owned(10))
    for path in (MARKER_NAME, *FILES):
        place.delete(f"{owned(10)}/{path}")
    with pytest.raises(DamagedError, match="was removed or changed as soon as it was saved"):
        removed_after(place, owned(10), kept=2, trusted=set(), attempt=OWN)


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
        remove_older(place, saved=checkpoint_name(20), kept=1, owns=lambda _: True, trusted=())
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
        assert remove_older(place, saved=checkpoint_name(20), kept=1, owns=lambda _: True, trusted=()) == []
    assert "older checkpoints stay" in caplog.text
    assert look(place, checkpoint_name(10)).state == State.COMPLETE
