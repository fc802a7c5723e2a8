"""Odd places and stores: one line that says what is wrong, nothing half done, and nothing of others replaced."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.training import lesser_store as lesser
from tests.training.lesser_store import LesserStore
from tests.training.loader_support import small_files, uploaded, written
from training_storage import cli
from training_storage.training import shard_pack, shard_target_s3, shard_verify, shard_writer
from training_storage.training.endpoint import endpoint_of
from training_storage.training.shard_claim import write_whole
from training_storage.training.shard_digest import HashingWriter
from training_storage.training.shard_errors import ShardError, ShardInputError
from training_storage.training.shard_index import ShardIndex, ShardRecord
from training_storage.training.shard_pack import pack_shards
from training_storage.training.shard_s3 import S3Access
from training_storage.training.shard_target_folder import FolderTarget
from training_storage.training.shard_target_s3 import PrefixTarget
from training_storage.training.shard_verify import read_index, verify_shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws

pytest.importorskip("webdataset", reason="pip install 'training-storage[training]'")
pytestmark = pytest.mark.usefixtures("quick_processes")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(tmp_path / "source", small_files(12))


# Places.


@pytest.mark.parametrize("place", ["", "S3://lake/x/", "s3:/lake/x/", "gs://lake/x/", "file:///x"])
def test_what_only_looks_like_a_store_is_never_taken_for_a_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    calls: tuple[Callable[[], object], ...] = (
        lambda: pack_shards(source=str(source), target=place, shards=1),
        lambda: pack_shards(source=place, target=str(tmp_path / "out"), shards=1),
        lambda: verify_shards(place),
        lambda: read_index(place),
    )
    for call in calls:
        with pytest.raises(ShardInputError, match=f"must be a folder or s3://BUCKET/PREFIX/, .*, got: {place!r}"):
            call()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("index", [b"\xff\xfe\x00", b"[" * 100_000, None], ids=["no-text", "too-deep", "a-folder"])
def test_an_index_of_whatever_kind_is_one_line_that_names_it_and_stays(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], index: bytes | None
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if index is None:
        (place / "index.json").mkdir()
    else:
        (place / "index.json").write_bytes(index)
    for command in (["verify", str(place)], ["pack", str(source), str(place), "--shards", "1"]):
        assert cli.main(["shards", *command]) in (1, 2)
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"{place}/index.json" in error
    assert [path.name for path in place.iterdir()] == ["index.json"]


def test_a_record_of_a_packing_that_is_damaged_is_one_line(source: Path, tmp_path: Path) -> None:
    written(tmp_path / "out", {".packing/run.json": b"{"})
    with pytest.raises(ShardInputError, match=r"got: '\.packing/run\.json' in .*Choose another target, or empty"):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1)


def test_a_shard_that_is_a_link_to_nothing_is_missing(source: Path, tmp_path: Path) -> None:
    pack_shards(source=str(source), target=str(tmp_path / "out"), shards=2)
    shard = tmp_path / "out" / "shard-000001.tar"
    shard.unlink()
    shard.symlink_to(tmp_path / "nowhere")
    assert [found.kind for found in verify_shards(str(tmp_path / "out"))[1]] == ["missing"]


def test_a_file_system_without_locks_is_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    (tmp_path / "out" / ".packing").mkdir(parents=True)
    monkeypatch.setattr("training_storage.training.shard_claim.fcntl.flock", refuse)
    with (
        pytest.raises(ShardInputError, match=r"with locks, got: Function not implemented\. Mount Lustre with"),
        FolderTarget(path=str(tmp_path / "out")).claimed("run"),
    ):
        pass


def test_a_shard_has_its_name_only_after_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, seen = FolderTarget(path=str(tmp_path)), []
    (tmp_path / ".packing").mkdir()
    staged = target.staging("shard-000000.tar")
    staged.write_bytes(b"shard")
    inode = staged.stat().st_ino
    monkeypatch.setattr(
        os, "fsync", lambda file: seen.append((os.fstat(file).st_ino, (tmp_path / "shard-000000.tar").exists()))
    )
    record = ShardRecord(name="shard-000000.tar", samples=1, files=1, bytes=5, sha256="0" * 64)
    target.publish(staged, record, run="run")
    assert seen[0] == (inode, False)
    assert seen[-1] == (tmp_path.stat().st_ino, True)


def test_a_small_file_has_its_name_only_after_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.append([path.suffix for path in tmp_path.iterdir()]))
    write_whole(tmp_path / "index.json", "{}")
    assert names == [[".tmp"]]
    assert (tmp_path / "index.json").read_text(encoding="utf-8") == "{}"


def test_names_of_others_do_not_steer_the_terminal(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1)
    (tmp_path / "out" / "\x1b[2J.tar").touch()
    assert cli.main(["shards", "verify", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().out.startswith(r"\x1b[2J.tar  extra: is not in the index")


# Want of room.


def test_a_full_disk_is_one_line_with_the_folder_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(HashingWriter):
        def _pass_on(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    for error, words in (
        (Full, "cannot be written, got: No space left on device at .*tmp"),
        (None, "does not fit into memory"),
    ):
        task = task_of(source, tmp_path / "out")
        if error is not None:
            monkeypatch.setattr(shard_writer, "HashingWriter", error)
        else:
            monkeypatch.setattr(shard_writer, "_read", lambda _: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(ShardError, match=words):
            shard_writer.pack_shard(task)
        # A tar writer writes its end when it is collected, to a file that is closed by then.
        gc.collect()
        assert list((tmp_path / "out" / ".packing").glob("*.tmp")) == []


def task_of(source: Path, out: Path) -> Any:
    """Return the task of the only shard of a packing, to be done in this process."""
    tasks: list[Any] = []

    def take(_: object, job: Any, *, shards: int, tell: object) -> Any:
        del tell
        tasks.extend(shard_pack._tasks(job, shards))
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_pack._Processes, "pack", take)
        patch.setattr("training_storage.training.shard_work.shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(InterruptedError):
            pack_shards(source=str(source), target=str(out), shards=1, processes=1, work=str(out.parent))
    shard_writer._Process.tar_writer = shard_writer._tar_writer()
    shard_writer._Process.progress = Counters()
    return tasks[0]


class Counters(list[int]):
    """Stands for counters that processes share."""

    def __init__(self) -> None:
        super().__init__([0, 0])

    def get_lock(self) -> Any:
        return threading.Lock()


def test_a_listing_that_finds_no_room_is_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(shard_pack, "build_manifest", full)
    with pytest.raises(ShardError, match=r"listing .* cannot be kept in .*disk is full.*--work"):
        pack_shards(source=str(source), target=str(tmp_path / "out"), shards=1, processes=1)


# Interruptions.


def test_processes_start_with_ctrl_c_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    processes = shard_pack._Processes(1)
    monkeypatch.setattr(
        processes._pool, "submit", lambda *_: held.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    )
    with processes:
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert held == [True]


def test_a_process_that_does_not_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parent:
        sentinel, _write = os.pipe()

    class Stop:
        value = 1

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(shard_writer, "parent_process", Parent)
    monkeypatch.setattr(shard_writer, "_SECONDS_TO_STOP", 1)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit):
        shard_writer._end_in_time(Stop)


# Stores.


def access_of(store: LesserStore) -> S3Access:
    return S3Access(region="us-east-1", endpoint=endpoint_of(url=store.url))


def test_a_conflict_with_another_writer_is_tried_again(
    source: Path, aws_environment: LocalAws, bucket: str, tmp_path: Path
) -> None:
    conflicts: dict[str, int] = {}

    def quirk(request: lesser.Request) -> lesser.Refusal | None:
        if not request.has("if-none-match") or ".probe-" in request.path:
            return None
        conflicts[request.path] = conflicts.get(request.path, 0) + 1
        conflict = lesser.Refusal(status=409, code="ConditionalRequestConflict")
        return conflict if conflicts[request.path] <= 2 else None

    with LesserStore.before(aws_environment.endpoint_url, quirk) as store:
        target = f"s3://{bucket}/out/"
        pack_shards(source=str(source), target=target, shards=1, access=access_of(store), work=str(tmp_path))
        assert verify_shards(target, access=access_of(store))[1] == ()
    assert list(conflicts.values()) == [3, 3]


def test_answers_that_break_off_are_asked_for_again(
    source: Path, aws_environment: LocalAws, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = uploaded(aws_environment, bucket, "raw/", source)
    cuts = lesser.CutsAnswers(f"/{bucket}/", times=1)
    monkeypatch.setattr(shard_verify, "_CHUNK_BYTES", 4096)
    with LesserStore.before(
        aws_environment.endpoint_url, lambda r: None if "list-type" in r.path else cuts(r)
    ) as store:
        target = f"s3://{bucket}/out/"
        pack_shards(source=uri, target=target, shards=1, access=access_of(store), work=str(tmp_path))
        assert verify_shards(target, access=access_of(store))[1] == ()
    # Two files a sample, the index and the shard.
    assert len(cuts.cut) == 2 * 12 + 2
    assert set(cuts.cut.values()) == {2}


@pytest.mark.parametrize("at", ["shard-000000.tar", "index.json", "parts"])
def test_whoever_comes_first_keeps_the_name(
    aws_environment: LocalAws, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Another's object appears between the look and the write: only the condition of the write itself can see it."""
    source = written(tmp_path / "in", {f"{number}.bin": bytes([number]) * 2**20 for number in range(12)})
    monkeypatch.setattr(shard_target_s3, "upload_part_bytes", lambda size: 8 * 2**20 if at == "parts" else size)
    name = "index.json" if at == "index.json" else "shard-000000.tar"
    theirs: dict[str, bytes] = {}

    def quirk(request: lesser.Request) -> None:
        completes = request.method == "POST" and "uploadId" in request.query
        if f"/out/{name}" in request.path and (completes if at == "parts" else request.method == "PUT") and not theirs:
            theirs[name] = b"theirs"
            aws_environment.client("s3").put_object(Bucket=bucket, Key=f"out/{name}", Body=theirs[name])

    with LesserStore.before(aws_environment.endpoint_url, quirk) as store:
        target = PrefixTarget(bucket=bucket, prefix="out/", access=access_of(store), work=str(tmp_path))
        with pytest.raises(ShardInputError, match=f"got: '{name}' in s3://.*Choose another target"):
            publish_all(target, task_of(source, tmp_path / "out"))
    kept = aws_environment.client("s3").get_object(Bucket=bucket, Key=f"out/{name}")["Body"].read()
    assert kept == b"theirs"


def publish_all(target: PrefixTarget, task: Any) -> None:
    """Do in this process what packing one shard does in several."""
    with target.claimed(task.job.run):
        staged = target.staging(task.name)
        record = shard_writer._write(task, staged)
        target.publish(staged, record, run=task.job.run)
        values = {"source": "here", "seed": 0, "run": task.job.run, "hidden": 0, "unnamed": 0}
        target.publish_index(ShardIndex(**values, shards=(record,)))


def test_a_store_that_replaces_what_it_must_not_is_refused_unless_accepted(
    source: Path, aws_environment: LocalAws, bucket: str, tmp_path: Path
) -> None:
    with LesserStore.before(aws_environment.endpoint_url, lesser.ignores("if-none-match")) as store:
        target = f"s3://{bucket}/out/"
        given: dict[str, Any] = {"access": access_of(store), "work": str(tmp_path)}
        with pytest.raises(ShardInputError, match=r"must refuse to replace an object .*--accept-weaker"):
            pack_shards(source=str(source), target=target, shards=1, **given)
        assert "Contents" not in aws_environment.client("s3").list_objects_v2(Bucket=bucket)
        pack_shards(source=str(source), target=target, shards=1, accept_weaker=True, **given)
        assert verify_shards(target, access=access_of(store))[1] == ()


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (lesser.Refusal(status=400, code="ExpiredToken"), "Renew the credentials"),
        (lesser.Refusal(status=403, code="AccessDenied"), "Ask for the right"),
    ],
)
def test_a_refusal_says_what_to_do(aws_environment: LocalAws, bucket: str, refusal: lesser.Refusal, words: str) -> None:
    with (
        LesserStore.before(aws_environment.endpoint_url, lambda _: refusal) as store,
        pytest.raises(ShardError, match=rf"{refusal.code}: .*\. {words}"),
    ):
        read_index(f"s3://{bucket}/out/", access=access_of(store))


def test_a_profile_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-nobody")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    with pytest.raises(ShardInputError, match=r"S3 cannot be used .*of-nobody.*Repair AWS_PROFILE"):
        read_index("s3://lake/datasets/")


def test_a_folder_for_staged_shards_that_another_user_made_is_refused(
    source: Path, aws_environment: LocalAws, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ShardInputError, match=r"must be a folder of this user, got: another's.*--work"):
        pack_shards(source=str(source), target=f"s3://{bucket}/out/", shards=1, work=str(tmp_path))
