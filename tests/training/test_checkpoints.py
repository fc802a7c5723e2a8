"""Publishing and restoring: what each promises when all goes well, and when something does not."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.checkpoint_support import PART, content, files_of, s3_place, saved
from training_storage.checkpoint_format import DCP_METADATA_NAME, MARKER_NAME, POINTER_NAME, read_marker, read_pointer
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_errors import (
    CheckpointError,
    DamagedError,
    DeadlineError,
    DeniedError,
    DifferentContentError,
    NoCheckpointError,
    SourceChangedError,
)
from training_storage.training.checkpoint_path_place import PathPlace, locked
from training_storage.training.checkpoint_scan import State, newest_first
from training_storage.training.publish import publish
from training_storage.training.publish_source import SourceParts, source_files
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from training_storage.training.checkpoint_place import Place


@pytest.fixture(params=["s3", "path"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "path":
        return PathPlace(tmp_path / "lustre")
    return s3_place(request.getfixturevalue("bucket"))


def pointer(place: Place) -> tuple[str, int]:
    found = place.read(POINTER_NAME)
    assert found is not None
    read = read_pointer(found.data)
    return read.checkpoint, read.step


def replace(place: Place, key: str, data: bytes) -> None:
    place.delete(key)
    assert place.create(key, data)


def test_a_published_checkpoint_comes_back_byte_for_byte(place: Place, tmp_path: Path) -> None:
    sizes = {"model.pt": 3000, "deep/er/optimizer.pt": 2 * PART + 7, "empty": 0, ".hidden": 4}
    folder = saved(tmp_path / "local", 1200, sizes)
    published = publish(folder, place)
    assert (published.step, published.complete, published.latest_moved) == (1200, True, True)
    assert (published.files, published.bytes, published.already_there) == (4, sum(sizes.values()), 0)
    assert pointer(place) == ("step-0000001200", 1200)
    restored = restore(place, tmp_path / "back")
    assert files_of(restored.folder) == files_of(folder)
    assert (restored.name, restored.step, restored.read_bytes) == ("step-0000001200", 1200, sum(sizes.values()))
    assert restored.checked
    assert restored.passed_over == ()


def test_the_marker_names_every_file_with_size_and_checksum(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 7)
    publish(folder, place)
    found = place.read(f"{folder.name}/{MARKER_NAME}")
    assert found is not None
    marker = read_marker(found.data)
    assert {file.path: file.bytes for file in marker.files} == {
        path: len(data) for path, data in files_of(folder).items()
    }
    assert all(file.checksum is not None and file.checksum.algorithm == "sha256" for file in marker.files)


def test_the_same_content_may_be_published_again_and_nothing_is_written(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 5)
    publish(folder, place)
    before = {name: state.modified for name, state in place.files(folder.name).items()}
    again = publish(folder, place)
    assert (again.already_there, again.complete, again.latest_moved) == (3, True, True)
    assert {name: state.modified for name, state in place.files(folder.name).items()} == before


def test_what_was_published_before_a_crash_is_kept_and_the_rest_is_added(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 5)
    assert place.create(f"{folder.name}/model.pt", (folder / "model.pt").read_bytes())
    published = publish(folder, place)
    assert published.already_there == 1
    assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)


@pytest.mark.parametrize("size", [3000, 2999], ids=["same-size", "other-size"])
def test_another_content_under_the_same_name_is_an_error_that_names_it(place: Place, tmp_path: Path, size: int) -> None:
    folder = saved(tmp_path, 5)
    other = content(6, "model.pt", size)
    assert place.create(f"{folder.name}/model.pt", other)
    with pytest.raises(DifferentContentError, match=r"rank 0: .*step-0000000005/model\.pt exists with another content"):
        publish(folder, place)
    assert bytes(place.read_range(f"{folder.name}/model.pt", 0, size)) == other
    assert place.read(f"{folder.name}/{MARKER_NAME}") is None
    assert place.read(POINTER_NAME) is None


def test_another_content_of_a_large_file_is_never_replaced(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 5, {"large.pt": 2 * PART})
    key = f"{folder.name}/large.pt"
    theirs = b"x" * 2 * PART

    class Late:
        """Lists nothing, as if the other one's file appeared after the look."""

        def __getattr__(self, name: str) -> Any:
            return getattr(place, name)

        looks = 0

        def files(self, name: str) -> Any:
            self.looks += 1
            if self.looks == 1:
                found = place.files(name)
                assert place.create(key, theirs)
                return found
            return place.files(name)

    with pytest.raises(DifferentContentError, match=r"large\.pt"):
        publish(folder, Late())
    assert bytes(place.read_range(key, 0, len(theirs))) == theirs


def test_a_finished_checkpoint_is_not_extended_by_another_folder_of_its_name(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path / "a", 5), place)
    other = saved(tmp_path / "b", 5, {"model.pt": 3000, "more.pt": 10})
    with pytest.raises(DifferentContentError, match=r"more\.pt"):
        publish(other, place)


def test_latest_never_goes_back(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path, 200), place)
    older = publish(saved(tmp_path, 100), place)
    assert (older.complete, older.latest_moved) == (True, False)
    assert pointer(place)[1] == 200


def test_restore_takes_the_newest_complete_one_and_says_what_it_passed_over(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path, 100), place)
    place.create("step-0000000200/model.pt", b"half of it")
    restored = restore(place, tmp_path / "back")
    assert restored.step == 100
    assert [(one.name, "no end mark" in one.why) for one in restored.passed_over] == [("step-0000000200", True)]


def test_restore_does_not_trust_the_pointer(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path, 100), place)
    found = place.read(POINTER_NAME)
    assert found is not None
    lie = {"schema_version": 1, "checkpoint": "step-0000000900", "step": 900}
    assert place.swap(POINTER_NAME, json.dumps(lie).encode(), version=found.version)
    place.create("step-0000000900/model.pt", b"half of it")
    assert restore(place, tmp_path / "back").step == 100


@pytest.mark.parametrize("damage", ["flipped", "shorter", "missing"])
def test_a_damaged_checkpoint_is_passed_over_for_the_next_older_one(place: Place, tmp_path: Path, damage: str) -> None:
    publish(saved(tmp_path, 100), place)
    newest = saved(tmp_path, 200)
    publish(newest, place)
    key = f"{newest.name}/optimizer.pt"
    data = bytearray((newest / "optimizer.pt").read_bytes())
    data[1234] ^= 1
    if damage == "missing":
        place.delete(key)
    else:
        replace(place, key, bytes(data if damage == "flipped" else data[:-1]))
    restored = restore(place, tmp_path / "back")
    assert restored.step == 100
    (passed,) = restored.passed_over
    assert passed.name == newest.name
    assert "optimizer.pt" in passed.why
    assert not (tmp_path / "back" / newest.name / MARKER_NAME).exists()
    assert not (tmp_path / "back" / newest.name / "optimizer.pt").exists()


def test_nothing_complete_and_everything_damaged_are_two_errors(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NoCheckpointError, match="no complete checkpoint in"):
        restore(place, tmp_path / "back")
    folder = saved(tmp_path, 100)
    publish(folder, place)
    # Of the same size, and cut: both were complete once, so nobody may start from the beginning unasked.
    for damage in (bytes(3000), bytes(2999)):
        replace(place, f"{folder.name}/model.pt", damage)
        with pytest.raises(DamagedError, match=r"every complete checkpoint .* is damaged.*model\.pt"):
            restore(place, tmp_path / "back")


def test_no_older_checkpoint_is_taken_for_one_of_a_newer_version(place: Place, tmp_path: Path) -> None:
    for step in (100, 200):
        publish(saved(tmp_path, step), place)
    replace(place, f"step-0000000200/{MARKER_NAME}", b'{"schema_version": 2, "anything": []}')
    with pytest.raises(CheckpointError, match=r"step-0000000200 cannot be judged: .* schema_version 2.* newer one"):
        restore(place, tmp_path / "back")
    assert restore(place, tmp_path / "back", name="step-0000000100").step == 100
    assert [found.state for found in newest_first(place)] == [State.NEWER, State.COMPLETE]


def test_a_restore_that_is_cut_short_leaves_no_end_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework's own end mark would make the half of a checkpoint look complete."""
    lustre = PathPlace(tmp_path / "lustre")
    folder = saved(tmp_path, 100, {DCP_METADATA_NAME: 20, "__0_0.distcp": 100, "__1_0.distcp": 100})
    publish(folder, lustre)
    read_range = lustre.read_range

    def cut_short(key: str, start: int, end: int) -> Any:
        if key.endswith("__1_0.distcp"):
            raise CheckpointError("gone")
        return read_range(key, start, end)

    monkeypatch.setattr(lustre, "read_range", cut_short)
    with pytest.raises(CheckpointError, match="gone"):
        restore(lustre, tmp_path / "back")
    assert sorted(files_of(tmp_path / "back" / folder.name)) == ["__0_0.distcp"]


def test_a_file_has_its_name_only_after_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PathPlace(tmp_path)
    writes: tuple[Callable[[], bool], ...] = (
        lambda: place.create("step-1/model.pt", b"weights"),
        lambda: place.swap("step-1/latest.json", b"{}", version=None),
    )
    for write in writes:
        synced: list[tuple[bool, list[str]]] = []

        def note(file: int, synced: list[tuple[bool, list[str]]] = synced) -> None:
            names = sorted(path.name for path in (tmp_path / "step-1").iterdir() if not path.name.startswith("."))
            synced.append((stat.S_ISDIR(os.fstat(file).st_mode), names))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", note)
            before = sorted(path.name for path in tmp_path.glob("step-1/[!.]*"))
            assert write()
        after = sorted(path.name for path in tmp_path.glob("step-1/[!.]*"))
        assert synced == [(False, before), (True, after)]
        assert len(after) == len(before) + 1


def test_a_pipe_in_the_place_of_a_small_file_holds_nobody_up(tmp_path: Path) -> None:
    place = PathPlace(tmp_path / "lustre")
    publish(saved(tmp_path, 10), place)
    publish(saved(tmp_path, 20), place)
    for name in (POINTER_NAME, f"step-0000000020/{MARKER_NAME}"):
        (place.local_folder / name).unlink()
        os.mkfifo(place.local_folder / name)
    restored = restore(place, tmp_path / "back")
    assert (restored.step, [one.name for one in restored.passed_over]) == (10, ["step-0000000020"])


def test_a_swap_of_what_somebody_else_has_changed_is_refused(place: Place) -> None:
    assert place.swap(POINTER_NAME, b"first", version=None)
    first = place.read(POINTER_NAME)
    assert first is not None
    assert place.swap(POINTER_NAME, b"second", version=first.version)
    assert not place.swap(POINTER_NAME, b"stale", version=first.version)
    assert not place.swap(POINTER_NAME, b"new", version=None)
    second = place.read(POINTER_NAME)
    assert second is not None
    assert second.data == b"second"


def test_files_that_are_there_and_true_are_not_read_again_and_others_are(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 100)
    publish(folder, place)
    first = restore(place, tmp_path / "back")
    assert restore(place, tmp_path / "back").read_bytes == 0
    (first.folder / "model.pt").write_bytes(bytes(3000))
    (first.folder / "rng.json").unlink()
    again = restore(place, tmp_path / "back")
    assert again.read_bytes == 3010
    assert files_of(again.folder) == files_of(folder)


def test_a_part_of_a_checkpoint_does_not_look_like_a_whole_one(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 100)
    publish(folder, place)
    part = restore(place, tmp_path / "back", files=["model*"])
    assert list(files_of(part.folder)) == ["model.pt"]
    (found,) = newest_first(PathPlace(tmp_path / "back"))
    assert found.state == State.INCOMPLETE
    with pytest.raises(InvalidJobError, match="files must match"):
        restore(place, tmp_path / "back", files=["nothing*"])


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [("crc64nvme", "ae8b14860a799888"), ("crc32c", "e3069283"), ("crc32", "cbf43926"), (None, None)],
)
def test_markers_of_others_are_checked_with_their_own_checksums(
    place: Place, tmp_path: Path, algorithm: str | None, value: str | None
) -> None:
    """The values are those that the algorithms' definitions give for the digits 1 to 9."""
    checksum = None if algorithm is None else {"algorithm": algorithm, "value": value}
    marker = {
        "schema_version": 1,
        "step": 7,
        "finished_at": "2026-11-30T12:00:00Z",
        "files": [{"path": "model.pt", "bytes": 9, "checksum": checksum}],
    }
    place.create("step-7/model.pt", b"123456789")
    place.create(f"step-7/{MARKER_NAME}", json.dumps(marker).encode())
    restored = restore(place, tmp_path / "back")
    assert (restored.step, restored.checked) == (7, algorithm is not None)
    replace(place, "step-7/model.pt", b"123456780")
    if algorithm is not None:
        with pytest.raises(DamagedError, match=f"another {algorithm}"):
            restore(place, tmp_path / "again")


def test_processes_of_one_node_share_one_download(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 100)
    publish(folder, place)
    found = []
    threads = [threading.Thread(target=lambda: found.append(restore(place, tmp_path / "back"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.read_bytes for one in found) == sum(map(len, files_of(folder).values()))
    assert {one.folder for one in found} == {tmp_path / "back" / folder.name}


def test_the_newest_of_several_places_wins_and_the_first_of_equal_ones(tmp_path: Path) -> None:
    fast, lake = PathPlace(tmp_path / "fast"), PathPlace(tmp_path / "lake")
    for step, target in ((100, fast), (100, lake), (300, lake)):
        publish(saved(tmp_path, step), target)
    assert restore([fast, lake], tmp_path / "a").place == lake.uri
    lake.delete("step-0000000300/model.pt")
    older = restore([lake, fast], tmp_path / "b")
    assert (older.place, older.step) == (lake.uri, 100)
    assert restore([fast, lake], tmp_path / "c").place == fast.uri


def test_lustre_is_checked_in_place_without_a_copy(tmp_path: Path) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    publish(saved(tmp_path, 100), lustre)
    assert restore(lustre).folder == tmp_path / "lustre" / "step-0000000100"


def test_a_folder_is_finished_where_it_is(tmp_path: Path) -> None:
    folder = saved(tmp_path / "lustre", 100)
    published = publish(folder, str(tmp_path / "lustre"))
    assert (published.already_there, published.complete, published.latest_moved) == (3, True, True)
    assert restore(str(tmp_path / "lustre")).checked


def test_odd_objects_among_checkpoints_stop_nobody(bucket: str, tmp_path: Path, aws_environment: Any) -> None:
    """Folder objects of a console, and keys that would leave the folder."""
    place = s3_place(bucket)
    publish(saved(tmp_path, 100), place)
    client = aws_environment.client("s3")
    for key in ("step-0000000100/", "step-0000000200/", "step-0000000300/a\\..\\b", "step-0000000300/.metadata"):
        client.put_object(Bucket=bucket, Key=f"checkpoints/job/{key}", Body=b"")
    restored = restore(place, tmp_path / "back")
    assert restored.step == 100
    assert "must be relative and stay inside" in restored.passed_over[0].why


def test_an_object_store_needs_a_folder_to_restore_into(bucket: str) -> None:
    with pytest.raises(InvalidJobError, match="into must name a local folder"):
        restore(s3_place(bucket))


def test_a_name_without_a_number_takes_its_turn_by_its_marker(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path, 100), place)
    publish(saved(tmp_path, 500, name="the-good-one"), place, step=500)
    assert restore(place, tmp_path / "back").name == "the-good-one"


@pytest.mark.parametrize(
    ("trackers", "name"),
    [
        ({"latest_checkpointed_iteration.txt": "1200"}, "iter_0001200"),
        ({"latest": "global_step1200\n"}, "global_step1200"),
        ({}, "dcp-1200"),
    ],
    ids=["megatron", "deepspeed", "dcp"],
)
def test_folders_that_frameworks_finished_are_restored_with_sizes_only(
    place: Place, tmp_path: Path, trackers: dict[str, str], name: str
) -> None:
    for path, text in ({**trackers, f"{name}/mp_rank_00/model.pt": "weights", f"{name}/.metadata": "m"}).items():
        if trackers and path.endswith(".metadata"):
            continue
        assert place.create(path, text.encode())
    restored = restore(place, tmp_path / "back")
    assert (restored.name, restored.step, restored.checked) == (name, 1200, False)
    assert (restored.folder / "mp_rank_00" / "model.pt").read_text() == "weights"


def test_the_end_mark_of_a_framework_goes_up_after_every_other_file(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 100, {".metadata": 10, "__0_0.distcp": 100, "__1_0.distcp": 90})
    order: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(place, name)

        def create(self, key: str, data: bytes) -> bool:
            order.append(key.partition("/")[2])
            return place.create(key, data)

    publish(folder, Watched())  # type: ignore[arg-type]
    assert order.index(".metadata") == 2
    assert order[3] == MARKER_NAME


class Failing:
    """A place that fails in the middle of one of its writes."""

    def __init__(self, place: Place, *, fails: int) -> None:
        self._place, self._fails, self._writes = place, fails, itertools.count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def create(self, key: str, data: bytes) -> bool:
        self._count(key)
        return self._place.create(key, data)

    def create_from_parts(self, key: str, parts: Any, *, send: Any) -> bool:
        def broken() -> Iterator[bytes]:
            for number, part in enumerate(parts):
                if number == 1:
                    self._count(key)
                yield part

        return self._place.create_from_parts(key, broken(), send=send)  # type: ignore[arg-type]

    def swap(self, key: str, data: bytes, *, version: str | None) -> bool:
        self._count(key)
        return self._place.swap(key, data, version=version)

    def _count(self, key: str) -> None:
        if next(self._writes) == self._fails:
            raise ZeroDivisionError(key)


FILES, END_MARK, MARKER, POINTER = (0, 1, 2), 3, 4, 5


@pytest.mark.parametrize("fails", [*FILES, END_MARK, MARKER, POINTER])
def test_an_exception_in_any_write_leaves_nothing_that_looks_complete_and_is_not(
    place: Place, tmp_path: Path, fails: int
) -> None:
    publish(saved(tmp_path, 100), place)
    folder = saved(tmp_path, 200, {"model.pt": 3000, "large.pt": 2 * PART, ".metadata": 20, "rng.json": 5})
    with pytest.raises(ZeroDivisionError):
        publish(folder, Failing(place, fails=fails))  # type: ignore[arg-type]
    # The framework's end mark and our marker each say the truth: every file is there before them.
    step = 200 if fails in (MARKER, POINTER) else 100
    complete = [found.step for found in newest_first(place) if found.state == State.COMPLETE]
    assert complete == [200, 100][-len(complete) :]
    assert complete[0] == step
    assert pointer(place)[1] == 100
    restored = restore(place, tmp_path / "back")
    assert files_of(restored.folder) == files_of(tmp_path / restored.name)
    # The same folder can be published afterwards.
    assert publish(folder, place).latest_moved
    assert restore(place, tmp_path / "again").step == 200


def test_nothing_of_a_failed_upload_in_parts_stays(bucket: str, tmp_path: Path, aws_environment: Any) -> None:
    place = s3_place(bucket)
    folder = saved(tmp_path, 200, {"large.pt": 3 * PART})

    class Cut(SourceParts):
        def __iter__(self) -> Any:
            for number, part in enumerate(super().__iter__()):
                if number == 2:
                    raise ZeroDivisionError
                yield part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training_storage.training.publish_transfer.SourceParts", Cut)
        with pytest.raises(ZeroDivisionError):
            publish(folder, place)
    assert place.files(folder.name) == {}
    uploads = aws_environment.client("s3").list_multipart_uploads(Bucket=bucket)
    assert uploads.get("Uploads", []) == []


def test_a_file_that_changes_while_it_is_read_is_not_published(place: Place, tmp_path: Path) -> None:
    folder = saved(tmp_path, 100)
    (file,) = source_files(folder, ["model.pt"])
    os.truncate(folder / "model.pt", 2000)
    with pytest.raises(SourceChangedError, match=r"model\.pt changed while it was published"):
        list(SourceParts(file, part_bytes=1000))


def test_a_local_checkpoint_that_is_not_what_its_own_marker_says_is_not_published(place: Place, tmp_path: Path) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    publish(saved(tmp_path, 100), lustre)
    folder = tmp_path / "lustre" / "step-0000000100"
    (folder / "model.pt").write_bytes(bytes(3000))
    with pytest.raises(SourceChangedError, match=r"model\.pt has another checksum"):
        publish(folder, place)
    (folder / "model.pt").unlink()
    with pytest.raises(SourceChangedError, match=r"model\.pt is missing"):
        publish(folder, place)


def test_a_file_that_is_rewritten_at_its_size_while_it_is_read_is_not_published(tmp_path: Path) -> None:
    folder = saved(tmp_path, 100)
    (file,) = source_files(folder, ["model.pt"])
    parts = iter(SourceParts(file, part_bytes=1000))
    next(parts)
    # Kernels count the time of a change in ticks.
    time.sleep(0.02)
    (folder / "model.pt").write_bytes(bytes(3000))
    with pytest.raises(SourceChangedError, match=r"model\.pt changed while it was published"):
        list(parts)


def test_the_end_mark_of_a_framework_is_left_to_rank_0(place: Place, tmp_path: Path) -> None:
    end_mark = ".metadata"
    for rank in (1, 2):
        folder = saved(tmp_path / str(rank), 100, {f"__{rank}_0": 5, end_mark: 9 + rank})
        assert publish(folder, place, rank=rank, ranks=3).files == 1
        assert end_mark not in place.files("step-0000000100")
    publish(saved(tmp_path / "0", 100, {"__0_0": 5, end_mark: 9}), place, rank=0, ranks=3)
    assert place.files("step-0000000100")[end_mark].bytes == 9
    # What another rank has under that name says nothing, afterwards too.
    assert publish(tmp_path / "1" / "step-0000000100", place, rank=1, ranks=3).complete


def test_a_rank_that_comes_when_all_is_complete_without_it_is_told_so(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path / "0", 100, {"rank-0": 5}), place)
    with pytest.raises(DifferentContentError, match=r"rank 2: .*is complete already, and without rank-2; nothing was"):
        publish(saved(tmp_path / "2", 100, {"rank-2": 5}), place, rank=2, ranks=3)


def test_of_two_contents_that_race_for_one_name_one_wins_and_the_other_hears_of_it(place: Place) -> None:
    place.prepare_writing(largest_bytes=1)
    for number in range(10):
        barrier = threading.Barrier(2, timeout=20)
        won: dict[bytes, bool] = {}

        def write(data: bytes, key: str, barrier: threading.Barrier, won: dict[bytes, bool]) -> None:
            barrier.wait()
            won[data] = place.create(key, data)

        contents = (b"one", b"two")
        key = f"step-{number}/model.pt"
        threads = [threading.Thread(target=write, args=(data, key, barrier, won)) for data in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [data for data, written in won.items() if written]
        found = place.read(key)
        assert found is not None
        assert found.data == winner


HOSTILE = ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "a//b", "a/", "a\nb", "a\x00b", "a\udcffb"]


@pytest.mark.parametrize("key", HOSTILE)
def test_no_method_of_a_place_takes_a_name_that_leaves_it(place: Place, tmp_path: Path, key: str) -> None:
    class Whole:
        size = 1

        def __iter__(self) -> Iterator[bytes]:
            yield b"x"

    calls: list[Callable[[], object]] = [
        lambda: place.files(key),
        lambda: place.read(key),
        lambda: place.read_range(key, 0, 1),
        lambda: place.create(key, b"x"),
        lambda: place.create_from_parts(key, Whole(), send=lambda call: call()),
        lambda: place.swap(key, b"x", version=None),
        lambda: place.swap(key, b"x", version="a version"),
        lambda: place.delete(key),
    ]
    before = sorted(tmp_path.rglob("*"))
    for call in calls:
        with pytest.raises(InvalidJobError, match="a name below a place of checkpoints must be relative"):
            call()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("spelling", [".", "", "./", "../run-1", "..", "step-0000000007/.."])
def test_a_folder_is_published_under_its_own_name_however_it_is_spelled(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    folder = saved(tmp_path / "local", 1, {"step-0000000007/model.pt": 10}, name="run-1")
    monkeypatch.chdir(folder / "step-0000000007" if spelling == ".." else folder)
    assert publish(spelling, place).name == "run-1"
    assert place.folders() == ["run-1"]


def test_a_relative_folder_is_published_like_an_absolute_one(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "local", 7, {"a.pt": 10, "deep/b.pt": 20})
    monkeypatch.chdir(tmp_path)
    published = publish("local/step-0000000007", place)
    assert (published.name, published.files) == ("step-0000000007", 2)
    assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)


@pytest.mark.parametrize("name", ["nl\nx-step-16", "we%rd-step-15", "a*b-step-1", "a\\b-step-2"])
def test_a_folder_whose_name_no_store_keeps_is_named(place: Place, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidJobError, match="folder must be named with letters"):
        publish(saved(tmp_path / "local", 1, name=name), place)
    with pytest.raises(InvalidJobError, match="folder must be named with letters"):
        publish("/", place, step=1)


@pytest.mark.parametrize("kind", ["dangling link", "link to a folder", "pipe"])
@pytest.mark.parametrize("where", ["", "deep/er/"])
def test_what_is_no_file_is_refused_and_never_left_out(tmp_path: Path, kind: str, where: str) -> None:
    lake = PathPlace(tmp_path / "lake")
    folder = saved(tmp_path, 5, {"model.pt": 10, "deep/er/more.pt": 10})
    odd = folder / f"{where}odd"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to(tmp_path if kind == "link to a folder" else tmp_path / "gone")
    with pytest.raises(InvalidJobError, match=rf"must hold .*{where}odd"):
        publish(folder, lake)
    assert lake.folders() == []


def test_a_link_to_a_file_is_published_as_the_file(tmp_path: Path) -> None:
    lake = PathPlace(tmp_path / "lake")
    folder = saved(tmp_path, 5)
    (tmp_path / "shared.pt").write_bytes(b"shared")
    (folder / "linked.pt").symlink_to(tmp_path / "shared.pt")
    assert publish(folder, lake).files == 4
    assert (restore(lake, tmp_path / "back").folder / "linked.pt").read_bytes() == b"shared"


def test_files_with_names_like_our_own_are_published_where_they_are_none(place: Place, tmp_path: Path) -> None:
    names = ["deep/_parts/model.pt", ".draft-notes", f"deep/{MARKER_NAME}", "deep/latest.json"]
    folder = saved(tmp_path, 5, dict.fromkeys(names, 10))
    (folder / "_parts").mkdir()
    (folder / "_parts" / "rank-00000-of-00001.json").write_text("{}")
    assert publish(folder, place).files == len(names)
    assert restore(place, tmp_path / "back").files == len(names)
    assert sorted(file.path for found in newest_first(place) for file in found.files) == sorted(names)


def test_a_source_that_cannot_be_read_is_an_error_about_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    for step in (100, 200):
        publish(saved(tmp_path, step), lustre)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    for into in (tmp_path / "back", None):
        with pytest.raises(CheckpointError, match=r"^[^ ]*/lustre/step-0000000200/[^ ]*: Input/output error$"):
            restore(lustre, into)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda place: place.read("a/b"), "a/b"),
        (lambda place: place.read_range("a/b", 0, 1), "a/b"),
        (lambda place: place.create("a/b", b"x"), "a/b"),
        (lambda place: place.swap("a/b", b"x", version=None), "a/b"),
        (lambda place: place.files("a"), "a"),
        (lambda place: place.folders(), ""),
    ],
)
def test_a_file_system_that_fails_is_one_line_with_place_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[PathPlace], object], where: str
) -> None:
    place = PathPlace(tmp_path / "lustre")
    place.create("a/b", b"x")

    def fail(*_: object, **__: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("open", "scandir", "mkdir"):
        monkeypatch.setattr(os, name, fail)
    monkeypatch.setattr("io.open", fail)
    with pytest.raises(DeniedError) as caught:
        call(place)
    assert str(caught.value) == f"{place.uri}{where}: Permission denied"


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be left out of a checkpoint that is called complete, or count as missing."""
    folder = saved(tmp_path / "local", 5, {"model.pt": 10, "deep/more.pt": 10})
    lustre = PathPlace(tmp_path / "lustre")
    publish(folder, lustre)
    scandir = os.scandir

    def fail(path: Any) -> Any:
        if os.fspath(path).endswith("/deep"):
            raise OSError(errno.EIO, "Input/output error", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(CheckpointError, match=r"deep: cannot be listed \(Input/output error\)"):
        publish(folder, PathPlace(tmp_path / "lake"))
    with pytest.raises(CheckpointError, match="step-0000000005: Input/output error"):
        lustre.files("step-0000000005")


def test_deleting_the_pointer_waits_for_its_lock_and_leaves_none(tmp_path: Path) -> None:
    place = PathPlace(tmp_path)
    assert place.swap(POINTER_NAME, b"1", version=None)
    lock, deleted = tmp_path / f".{POINTER_NAME}.lock", threading.Event()

    def delete() -> None:
        place.delete(POINTER_NAME)
        deleted.set()

    with locked(lock):
        thread = threading.Thread(target=delete)
        thread.start()
        assert not deleted.wait(0.2)
        assert place.read(POINTER_NAME) is not None
    thread.join(20)
    assert list(tmp_path.iterdir()) == []


def test_whoever_waited_for_a_lock_that_was_removed_waits_for_the_new_one(tmp_path: Path) -> None:
    lock, entered = tmp_path / "lock", threading.Event()

    def enter() -> None:
        with locked(lock):
            entered.set()

    with contextlib.ExitStack() as second:
        with locked(lock):
            thread = threading.Thread(target=enter)
            thread.start()
            time.sleep(0.2)
            lock.unlink()
            second.enter_context(locked(lock))
        assert not entered.wait(0.3)
    assert entered.wait(20)
    thread.join(20)


def test_ranks_publish_their_own_files_and_rank_0_finishes(place: Place, tmp_path: Path) -> None:
    folders = [
        saved(
            tmp_path / f"node-{rank}", 100, {f"__{rank}_0.distcp": 1000 + rank} | ({".metadata": 9} if not rank else {})
        )
        for rank in range(3)
    ]
    for rank in (2, 1):
        assert not publish(folders[rank], place, rank=rank, ranks=3).complete
    with pytest.raises(NoCheckpointError):
        restore(place, tmp_path / "early")
    assert publish(folders[0], place, rank=0, ranks=3).complete
    restored = restore(place, tmp_path / "back")
    assert restored.files == 4
    assert files_of(restored.folder) == {name: data for folder in folders for name, data in files_of(folder).items()}


def test_rank_0_waits_for_the_others_and_names_who_is_missing(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path / "1", 100, {"b": 5}), place, rank=1, ranks=4)
    with pytest.raises(DeadlineError, match=r"rank 0: .*step-0000000100/ .*no record of rank 2, 3 \(2 of 4 ranks\)"):
        publish(saved(tmp_path / "0", 100, {"a": 5}), place, rank=0, ranks=4, timeout_seconds=2)
    assert place.read(f"step-0000000100/{MARKER_NAME}") is None


def test_a_barrier_of_the_caller_is_passed_after_the_upload(place: Place, tmp_path: Path) -> None:
    barrier = threading.Barrier(2, timeout=20)
    folders = [saved(tmp_path / str(rank), 100, {f"rank-{rank}": 100}) for rank in range(2)]
    done: dict[int, bool] = {}

    def run(rank: int) -> None:
        done[rank] = publish(folders[rank], place, rank=rank, ranks=2, barrier=barrier.wait).complete

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {0: True, 1: False}


def test_ranks_with_two_contents_of_one_file_are_named(place: Place, tmp_path: Path) -> None:
    publish(saved(tmp_path / "1", 100, {"shared": 5}), place, rank=1, ranks=2)
    other = saved(tmp_path / "0", 100, {"own": 5})
    (other / "shared").write_bytes(b"other")
    with pytest.raises(DifferentContentError, match="shared"):
        publish(other, place, rank=0, ranks=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"step": 6}, "step must be the number at the end"),
        (lambda _: {"rank": 2, "ranks": 2}, r"rank must be from 0 to ranks - 1, got: rank 2 of 2"),
        (lambda _: {"files": ["*.bin"]}, r"must hold files that match \*\.bin"),
        (lambda _: {"timeout_seconds": 0}, "timeout_seconds must be above 0"),
        (lambda folder: (folder / "a b\n").write_bytes(b"x") and {}, "must be named with letters"),
    ],
)
def test_bad_arguments_are_named(
    place: Place, tmp_path: Path, change: Callable[[Path], dict[str, Any]], message: str
) -> None:
    folder = saved(tmp_path, 5)
    with pytest.raises(InvalidJobError, match=message):
        publish(folder, place, **change(folder))


def test_a_pointer_that_is_none_is_never_replaced(place: Place, tmp_path: Path) -> None:
    place.prepare_writing(largest_bytes=1)
    assert place.create(POINTER_NAME, b"{")
    with pytest.raises(
        CheckpointError, match=r"latest\.json must be whole JSON.*If a newer version .* else delete the file"
    ):
        publish(saved(tmp_path, 5), place)
    assert restore(place, tmp_path / "back").step == 5


def test_unusual_file_names_are_the_same_keys_for_small_and_large_files(
    bucket: str, tmp_path: Path, aws_environment: Any
) -> None:
    place = s3_place(bucket)
    names = {"a b (1)+=,;@&$!'.pt": 20, "große Datei.pt": PART + 1}
    folder = saved(tmp_path, 5, names)
    publish(folder, place)
    listed = aws_environment.client("s3").list_objects_v2(Bucket=bucket, Prefix="checkpoints/job/step-0000000005/")
    keys = {entry["Key"].rpartition("/")[2] for entry in listed["Contents"]}
    assert keys == {*names, MARKER_NAME}
    assert files_of(restore(place, tmp_path / "back").folder) == files_of(folder)
