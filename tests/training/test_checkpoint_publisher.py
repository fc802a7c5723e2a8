"""Publishing in the background: the loop never waits for the network, and hears of every failure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.checkpoint_support import content, files_of, s3_place, saved
from tests.training.train_tiny import lustre_contract
from training_storage.checkpoint_format import step_of_name
from training_storage.planning.errors import InvalidJobError
from training_storage.training import StorageContract
from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.publish import publish
from training_storage.training.publish_background import (
    CheckpointPublisher,
    attempt_of_environment,
    remove_published,
)
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from pathlib import Path


class Slow:
    """A place whose first write waits for `go`."""

    def __init__(self, place: Any) -> None:
        self._place, self.go = place, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def create(self, key: str, data: bytes) -> bool:
        self.go.wait(20)
        return bool(self._place.create(key, data))


class Broken:
    """A place that refuses every write."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def create(self, key: str, _data: bytes) -> bool:
        raise CheckpointError(f"{key}: out of order")


def save(publisher: CheckpointPublisher, step: int) -> None:
    with publisher.saving(step) as folder:
        (folder / "model.pt").write_bytes(content(step, "model.pt", 1000))


def test_what_is_saved_is_published_in_order_and_comes_back(bucket: str, tmp_path: Path) -> None:
    place = s3_place(bucket)
    with CheckpointPublisher(place, local_path=tmp_path / "local", backlog=5) as publisher:
        for step in (10, 20, 30):
            save(publisher, step)
        published = publisher.wait()
    assert [(one.step, one.complete, one.latest_moved) for one in published] == [
        (10, True, True),
        (20, True, True),
        (30, True, True),
    ]
    assert files_of(restore(place, tmp_path / "back").folder) == {"model.pt": content(30, "model.pt", 1000)}


def test_submitting_returns_while_the_upload_still_runs(tmp_path: Path) -> None:
    slow = Slow(PathPlace(tmp_path / "lustre"))
    publisher = CheckpointPublisher(slow, local_path=tmp_path / "local")  # type: ignore[arg-type]
    started = time.monotonic()
    save(publisher, 10)
    assert time.monotonic() - started < 1
    assert slow.files("step-0000000010") == {}
    slow.go.set()
    assert [one.step for one in publisher.close()] == [10]


def test_a_failed_upload_is_raised_by_the_next_call_and_the_local_checkpoint_stays(tmp_path: Path) -> None:
    publisher = CheckpointPublisher(Broken(PathPlace(tmp_path / "lustre")), local_path=tmp_path / "local")  # type: ignore[arg-type]
    save(publisher, 10)
    with pytest.raises(CheckpointError, match=r"rank 0: step-0000000010/model\.pt: out of order"):
        publisher.wait()
    save(publisher, 20)
    while publisher._shared.running or publisher._shared.waiting:
        time.sleep(0.01)
    with pytest.raises(CheckpointError, match="step-0000000020"):
        save(publisher, 30)
    # It is raised once: training may go on.
    save(publisher, 40)
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == [
        "step-0000000010",
        "step-0000000020",
        "step-0000000040",
    ]
    with pytest.raises(CheckpointError, match="step-0000000040"):
        publisher.close()


def test_uploads_slower_than_saves_make_the_loop_wait_and_end_with_a_reason(tmp_path: Path) -> None:
    slow = Slow(PathPlace(tmp_path / "lustre"))
    publisher = CheckpointPublisher(slow, local_path=tmp_path / "local", timeout_seconds=0.4)  # type: ignore[arg-type]
    save(publisher, 10)
    while publisher._shared.waiting:
        time.sleep(0.01)
    save(publisher, 20)
    with pytest.raises(CheckpointError, match=r"rank 0: .*(are slower than saves|was not published in time)"):
        save(publisher, 30)
    slow.go.set()


def test_an_upload_that_hangs_ends_in_bounded_time_and_names_rank_and_key(tmp_path: Path) -> None:
    slow = Slow(PathPlace(tmp_path / "lustre"))
    started = time.monotonic()
    with pytest.raises(
        DeadlineError, match=r"rank 2: .*step-0000000010/model\.pt and 2 more was not published in time"
    ):
        publish(saved(tmp_path, 10), slow, rank=2, ranks=3, timeout_seconds=0.3)  # type: ignore[arg-type]
    assert time.monotonic() - started < 2
    slow.go.set()


def test_the_newest_two_stay_and_older_ones_go_once_they_are_published(tmp_path: Path) -> None:
    with CheckpointPublisher(PathPlace(tmp_path / "lustre"), local_path=tmp_path / "local", backlog=9) as publisher:
        for step in range(10, 60, 10):
            save(publisher, step)
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == ["step-0000000040", "step-0000000050"]


def test_what_is_not_published_whole_is_never_removed(tmp_path: Path) -> None:
    local, lake = tmp_path / "local", PathPlace(tmp_path / "lake")
    for step in (10, 20, 30, 40):
        saved(local, step)
    publish(local / "step-0000000010", lake)
    lake.create("step-0000000020/model.pt", b"half")
    publish(local / "step-0000000040", lake)
    # More local files than the marker names: somebody's work that is nowhere else.
    (local / "step-0000000010" / "more.pt").write_bytes(b"more")
    assert remove_published(local, lake, kept=1) == []
    (local / "step-0000000010" / "more.pt").unlink()
    assert remove_published(local, lake, kept=1) == ["step-0000000010"]
    publish(local / "step-0000000030", lake)
    assert remove_published(local, lake, kept=0) == ["step-0000000030"]
    assert sorted(path.name for path in local.iterdir()) == ["step-0000000020", "step-0000000040"]


@pytest.mark.parametrize("local", ["lustre", "lustre/below", "."], ids=["same", "inside", "around"])
def test_published_checkpoints_are_never_taken_for_local_ones(tmp_path: Path, local: str) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    for step in (10, 20, 30):
        publish(saved(tmp_path / "local", step), lustre)
    with pytest.raises(InvalidJobError, match="local_path must be apart from the place"):
        CheckpointPublisher(lustre, local_path=tmp_path / local)
    with pytest.raises(InvalidJobError, match="local_path must be apart from the place"):
        remove_published(tmp_path / local, lustre)
    assert len(lustre.folders()) == 3


def test_a_save_that_fails_leaves_nothing_and_publishes_nothing(tmp_path: Path) -> None:
    publisher = CheckpointPublisher(PathPlace(tmp_path / "lustre"), local_path=tmp_path / "local")

    def fail_in_the_middle() -> None:
        with publisher.saving(10) as folder:
            (folder / "model.pt").write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert publisher.wait() == ()
    assert list((tmp_path / "local").iterdir()) == []


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    with CheckpointPublisher(PathPlace(tmp_path / "lustre"), local_path=tmp_path / "local") as publisher:
        save(publisher, 10)
        with pytest.raises(InvalidJobError, match="step must be saved once, got: 10 again"), publisher.saving(10):
            pass


def test_a_run_that_starts_again_does_not_meet_its_own_half_written_folders(tmp_path: Path) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    lustre.create("run-77-0-step-0000000010/model.pt", b"half, of the attempt before")
    attempt = attempt_of_environment({"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"})
    with CheckpointPublisher(lustre, local_path=tmp_path / "local", attempt=attempt) as publisher:
        save(publisher, 10)
    restored = restore(lustre, tmp_path / "back")
    assert (restored.name, restored.step) == ("run-77-1-step-0000000010", 10)


def test_two_runs_of_an_example_without_a_launcher_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    contract = StorageContract.from_dict(lustre_contract(tmp_path))
    names = []
    for _ in range(2):
        with CheckpointPublisher.from_contract(contract) as publisher:
            with publisher.saving(1300) as folder:
                (folder / "model.pt").write_bytes(os.urandom(100))
            names.append(publisher.wait()[0].name)
    assert len(set(names)) == 2
    assert all(step_of_name(name) == 1300 for name in names)


@pytest.mark.parametrize("change", ["longer", "shorter", "other bytes", "other bytes, old time"])
def test_a_local_file_that_is_not_what_was_published_stays(tmp_path: Path, change: str) -> None:
    local, lake = tmp_path / "local", PathPlace(tmp_path / "lake")
    for step in (10, 20):
        publish(saved(local, step), lake)
    file = local / "step-0000000010" / "model.pt"
    before = file.stat()
    data = file.read_bytes()
    file.write_bytes({"longer": data + b"x", "shorter": data[:-1]}.get(change, data[::-1]))
    if change == "other bytes, old time":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert remove_published(local, lake, kept=1) == []
    file.write_bytes(data)
    assert remove_published(local, lake, kept=1) == ["step-0000000010"]


@pytest.mark.parametrize("damage", ["gone", "shorter"])
def test_a_local_checkpoint_stays_whose_published_files_do_not(tmp_path: Path, damage: str) -> None:
    local, lake = tmp_path / "local", PathPlace(tmp_path / "lake")
    for step in (10, 20):
        publish(saved(local, step), lake)
    key = "step-0000000010/model.pt"
    lake.delete(key)
    if damage == "shorter":
        assert lake.create(key, b"half")
    assert remove_published(local, lake, kept=1) == []


def test_a_save_that_was_killed_is_cleaned_up_at_the_next_start_and_one_that_runs_is_not(tmp_path: Path) -> None:
    lake, local = PathPlace(tmp_path / "lake"), tmp_path / "local"
    child = os.fork()
    if not child:
        with CheckpointPublisher(lake, local_path=local).saving(10) as folder:
            (folder / "model.pt").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(local.glob(".writing-*"))) == 1
    running = CheckpointPublisher(lake, local_path=local)
    assert list(local.glob(".writing-*")) == []
    with running.saving(20) as folder:
        (folder / "model.pt").write_bytes(b"whole")
        CheckpointPublisher(lake, local_path=local)
        assert folder.is_dir()
    assert [one.step for one in running.close()] == [20]


def test_a_place_that_fails_while_old_ones_are_removed_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable(PathPlace):
        """Cannot be asked about an older checkpoint."""

        def read(self, key: str) -> Any:
            if key == "step-0000000010/_COMPLETE.json" and self.files("step-0000000020"):
                raise CheckpointError("out of order")
            return super().read(key)

    with CheckpointPublisher(Unreadable(tmp_path / "lake"), local_path=tmp_path / "local", kept=1) as publisher:
        for step in (10, 20):
            save(publisher, step)
            assert [one.step for one in publisher.wait()] == [step]
    assert "older local checkpoints stay: out of order" in caplog.text


def test_ranks_publish_one_checkpoint_together_in_the_background(tmp_path: Path) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    publishers = [
        CheckpointPublisher(lustre, local_path=tmp_path / "local", rank=rank, ranks=3, timeout_seconds=20)
        for rank in range(3)
    ]
    for rank, publisher in enumerate(publishers):
        with publisher.saving(10) as folder:
            (folder / f"rank-{rank}.pt").write_bytes(content(10, str(rank), 500))
    assert [publisher.close()[0].complete for publisher in publishers] == [True, False, False]
    assert sorted(files_of(restore(lustre, tmp_path / "back").folder)) == ["rank-0.pt", "rank-1.pt", "rank-2.pt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kept": 0}, "kept must be at least 1"), ({"attempt": "a/b"}, "attempt must be letters")],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        CheckpointPublisher(PathPlace(tmp_path), local_path=tmp_path, **options)


_SILENT = """
import sys, time
from training_storage.training.checkpoint_errors import DeadlineError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.publish import publish

for silent in ("prepare_writing", "read", "files", "create", "swap"):
    made = type("Silent", (PathPlace,), {silent: lambda *_, **__: time.sleep(60)})
    try:
        publish(sys.argv[1], made(f"{sys.argv[2]}/{silent}"), timeout_seconds=0.3)
    except DeadlineError as error:
        print(error)
"""


def test_a_place_that_never_answers_holds_up_neither_the_call_nor_the_end_of_the_process(tmp_path: Path) -> None:
    """SDKs give up after minutes, and Python waits at its end for the threads of its own pools."""
    command = [sys.executable, "-c", _SILENT, str(saved(tmp_path, 10)), str(tmp_path / "silent")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=40)
    words = r"rank 0: .*/step-0000000010/.* was not published in time.*"
    assert [bool(re.fullmatch(words, line)) for line in ended.stdout.splitlines()] == [True] * 5
