"""The command archive: where it reads and writes, what it refuses, what it says of money and progress."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage import cli
from training_storage.checkpoint_format import CheckpointFormatError
from training_storage.operations import progress
from training_storage.operations.archive_cost import archive_cost
from training_storage.operations.archive_manifest import ArchivedFile, ArchiveManifest, read_manifest
from training_storage.operations.archive_settings import LustrePlace, S3Place, place_of, read_contract, settings_of
from training_storage.operations.checkpoint_listing import list_path
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
ROOT = Path(__file__).resolve().parents[2]
SBATCH = ROOT / "constructs/training_storage/node_kit/samples/archive.sbatch"
CHECKPOINTS = {
    "path": "/fsx/checkpoints/",
    "uri": None,
    "durable_uri": "s3://lake/checkpoints/llama/",
    "durable_interval_minutes": 360.0,
    "durable_kept": 4,
}
CONTRACT: dict[str, Any] = {
    "schema_version": 1,
    "job": {"name": "llama"},
    "region": "us-east-1",
    "endpoint": {"url": None, "addressing_style": "auto", "checksums": "when_supported"},
    "lustre": {"file_system_id": "fs-1", "mount_path": "/fsx"},
    "checkpoints": CHECKPOINTS,
}
PLACES = ("--source", "s3://b--x-s3/c", "--lake", "s3://b/c/")
GIB = 2**30


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "TRAINING_STORAGE_", "CDK_DEFAULT_")):
            monkeypatch.delenv(name)


def failure(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(["archive", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "--contract FILE or --job NAME must say which job is meant"),
        (["--contract", "a", "--job", "b"], "--contract and --job name a contract each, got: both"),
        (["--contract", "/nowhere.json"], "on a node it is /etc/training-storage/storage.json"),
        (["--yes"], "--yes belongs to --prune"),
        (["--source", "s3://b", "--lake", "s3://b/c/"], "--source must be a prefix of a bucket"),
        (["--source", "s3://b--x-s3/c", "--lake", "lake/c/"], "--lake must be a prefix of a bucket"),
        (["--source", "/fsx/checkpoints", "--lake", "s3://b/c/"], "--file-system must name the file system"),
        (["--source", "/data/c", "--file-system", "fs-1", "--lake", "s3://b/c/"], "must be below the mount /fsx"),
        ([*PLACES, "--interval-minutes", "0"], "--interval-minutes must be a whole number from 1"),
        ([*PLACES, "--part-size-mib", "4"], "--part-size-mib must be 5 to 5120"),
        ([*PLACES, "--newer-than", "1w"], "must be an age such as 90m, 12h or 7d, got: '1w'"),
        ([*PLACES, "--keep-last", "-1"], "--keep-last must be a whole number from 0, got: '-1'"),
        (["--dry"], "did you mean"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_2(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    assert words.lower() in failure(capsys, *argv).lower()


def test_settings_are_those_of_the_contract() -> None:
    lustre = settings_of(CONTRACT)
    assert lustre.source == LustrePlace(file_system_id="fs-1", mount_path="/fsx", path="/fsx/checkpoints/")
    assert isinstance(lustre.source, LustrePlace)
    assert lustre.source.relative == "checkpoints"
    assert lustre.lake == S3Place(bucket="lake", prefix="checkpoints/llama/")
    express = settings_of(
        {
            **CONTRACT,
            "lustre": None,
            "checkpoints": {**CHECKPOINTS, "path": None, "uri": "s3://b--x-s3/checkpoints/llama"},
        }
    )
    assert express.source == S3Place(bucket="b--x-s3", prefix="checkpoints/llama/")
    assert (express.durable_interval_minutes, express.durable_kept, express.job) == (360.0, 4, "llama")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": true}', "null"])
def test_what_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(InvalidJobError, match="must hold a storage contract"):
        read_contract(text, source="'x'")


@pytest.mark.parametrize("gone", ["job", "lustre", "checkpoints"])
def test_a_contract_that_lacks_something_is_refused_in_words(gone: str) -> None:
    with pytest.raises(InvalidJobError, match="the storage contract lacks what an archive needs"):
        settings_of({name: value for name, value in CONTRACT.items() if name != gone})


@pytest.mark.parametrize("uri", ["", "s3://", "s3://b", "s3://b/", "b/c", "https://b/c", "s3://b/c//d"])
def test_a_place_is_a_prefix_and_never_a_whole_bucket(uri: str) -> None:
    with pytest.raises(InvalidJobError, match="x must be a prefix of a bucket"):
        place_of(uri, what="x")


def manifest() -> ArchiveManifest:
    files = ArchivedFile(path="a", bytes=1, algorithm="CRC32", checksum="AAAAAA==", compared="size", source_etag=None)
    return ArchiveManifest(
        job="llama", checkpoint="step-1", step=1, source="s3://b/c/", end_mark="_COMPLETE.json", finished_at=NOON,
        archived_at=NOON, files=(files,),
    )  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read_manifest(manifest().to_json()) == manifest()
    assert json.loads(manifest().to_json())["bytes"] == 1


@given(length=st.integers(0, len(manifest().to_json()) - 3))
def test_a_manifest_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(CheckpointFormatError):
        read_manifest(manifest().to_json()[:length])


def test_a_manifest_of_another_version_is_refused() -> None:
    with pytest.raises(CheckpointFormatError, match="schema_version 1, got: 2"):
        read_manifest(manifest().to_json().replace('"schema_version": 1', '"schema_version": 2'))


def test_money_counts_parts_reading_and_a_month_of_storage() -> None:
    cost = archive_cost([1 * GIB, 10], checkpoints=1, region="us-east-1", express=True, part_mib=256)
    # Four parts and two requests for the upload, one copy, three records.
    assert cost.put_requests == 4 + 2 + 1 + 3
    assert cost.get_requests == 4 + 1 + 2 * 2
    gib = (GIB + 10) / GIB
    assert cost.once_usd == pytest.approx(10 * 0.005e-3 + 9 * 0.00003e-3 + gib * 0.0006)
    assert cost.per_month_usd == pytest.approx(gib * 0.023)


def test_money_of_a_region_without_prices_is_unknown() -> None:
    cost = archive_cost([GIB], checkpoints=1, region="eu-north-1", express=True, part_mib=256)
    assert (cost.once_usd, cost.per_month_usd) == (None, None)


def test_lustre_asks_nothing_for_reading() -> None:
    cost = archive_cost([GIB], checkpoints=1, region="us-east-1", express=False, part_mib=256)
    assert (cost.put_requests, cost.get_requests) == (4, 0)


def test_without_a_terminal_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Iterator[float] = iter([0.0, 10.0, 31.0, 31.0, 40.0])
    monkeypatch.setattr("training_storage.operations.progress.time.monotonic", lambda: next(clock))
    with progress.Progress(total=4 * GIB) as shown:
        shown.add(GIB)
        shown.add(GIB)
        shown.add(GIB)
    assert capsys.readouterr().err == "2.0 of 4.0 GiB\n"


def test_a_terminal_without_the_library_gets_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with progress.Progress(total=GIB) as shown:
        shown.add(GIB)
    assert capsys.readouterr().err == "1.0 of 1.0 GiB\n"


def test_a_terminal_with_the_library_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.Progress(total=GIB) as shown:
        shown.add(GIB)
    assert "100%" in capsys.readouterr().err


def test_links_and_hidden_folders_are_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1/.metadata").write_text("m")
    (tmp_path / "step-1/data").write_text("12345")
    (tmp_path / "step-1/link").symlink_to(tmp_path / "step-1/data")
    (tmp_path / "step-2").symlink_to(tmp_path / "step-1")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    listing = list_path(tmp_path)
    assert list(listing.checkpoints) == ["step-1"]
    assert set(listing.checkpoints["step-1"].files) == {".metadata", "data"}
    assert listing.checkpoints["step-1"].incomplete is None


def run_sbatch(folder: Path, *argv: str, environment: str = "", command: str | None = "exit 0") -> Any:
    (folder / "storage.env").write_text(environment)
    if command is not None:
        (folder / "training-storage").write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{command}\n')
        (folder / "training-storage").chmod(0o755)
    return subprocess.run(
        ["/bin/bash", str(SBATCH), *argv],
        env={"PATH": f"{folder}:/usr/bin:/bin", "TRAINING_STORAGE_ENVIRONMENT": str(folder / "storage.env")},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_sample_job_archives_and_prunes_and_ends_as_the_command_does(tmp_path: Path) -> None:
    assert run_sbatch(tmp_path, command="exit 1").returncode == 1
    assert (tmp_path / "calls").read_text() == "archive --prune --yes\n"


def test_the_sample_job_says_when_the_command_is_missing(tmp_path: Path) -> None:
    ended = run_sbatch(tmp_path, command=None)
    assert ended.returncode == 1
    assert "the command training-storage is not on the PATH" in ended.stderr


def test_the_sample_job_repeats_each_interval_and_survives_a_failure(tmp_path: Path) -> None:
    # The third call ends the loop that would go on for ever.
    command = f'[ "$(wc -l < {tmp_path}/calls)" -lt 3 ] || kill -TERM "$PPID"; exit 1'
    environment = "TRAINING_STORAGE_CHECKPOINTS_DURABLE_INTERVAL_MINUTES=0.005\n"
    ended = run_sbatch(tmp_path, "every", environment=environment, command=command)
    assert ended.returncode == -15
    assert (tmp_path / "calls").read_text() == "archive --if-due --prune --yes\n" * 3
    assert ended.stderr.count("this run failed") == 2
