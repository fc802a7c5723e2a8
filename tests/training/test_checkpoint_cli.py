"""``training-storage checkpoint``: what it prints, and what its exit codes mean to a script."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.training.checkpoint_support import content, files_of, s3_place, saved
from training_storage.cli import main
from training_storage.training.checkpoint_path_place import PathPlace

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws


def test_published_listed_and_restored_from_a_bucket(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "local", 1200)
    place = f"s3://{bucket}/checkpoints/job/"
    assert main(["checkpoint", "publish", str(folder), "--to", place]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{place}step-0000001200/  complete; latest.json names it\n3 files, 8.01 kB in ")
    s3_place(bucket).create("step-0000001300/model.pt", b"half")
    assert main(["checkpoint", "list", place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{place}  latest.json: step-0000001200"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["step-0000001300", "1,300", "incomplete"],
        ["step-0000001200", "1,200", "complete"],
    ]
    assert main(["checkpoint", "restore", "--from", place, "--into", str(tmp_path / "back")]) == 0
    output = capsys.readouterr()
    assert output.out == f"{tmp_path}/back/step-0000001200\n"
    assert "passed over" in output.err
    assert "no end mark" in output.err
    assert "sizes and checksums are true" in output.err
    assert files_of(tmp_path / "back" / "step-0000001200") == files_of(folder)


def test_a_script_can_tell_nothing_there_from_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    into = ["--into", str(tmp_path / "back")]
    assert main(["checkpoint", "restore", "--from", lustre.uri, *into]) == 3
    assert "no complete checkpoint in" in capsys.readouterr().err
    folder = saved(tmp_path / "local", 10)
    assert main(["checkpoint", "publish", str(folder), "--to", lustre.uri]) == 0
    for damage in (bytes(3000), bytes(2999)):
        (tmp_path / "lustre" / folder.name / "model.pt").write_bytes(damage)
        assert main(["checkpoint", "restore", "--from", lustre.uri, *into]) == 1
        assert "is damaged" in capsys.readouterr().err
    assert main(["checkpoint", "restore", "--from", lustre.uri, "--name", "step-0000000011", *into]) == 1
    assert "no checkpoint 'step-0000000011' in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "latest.json must be whole JSON"),
        ('{"schema_version": 2}', "latest.json must have schema_version 1, got: 2"),
        (
            '{"schema_version": 1, "checkpoint": "step-0000000900", "step": 900}',
            "latest.json names step-0000000900, which is not there",
        ),
    ],
)
def test_list_shows_the_checkpoints_whatever_the_pointer_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    place = tmp_path / "lustre"
    assert main(["checkpoint", "publish", str(saved(tmp_path / "local", 10)), "--to", str(place)]) == 0
    (place / "latest.json").write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert main(["checkpoint", "list", str(place)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{place}/  {words}")
    assert lines[2].split()[:3] == ["step-0000000010", "10", "complete"]
    assert main(["checkpoint", "list", str(place), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["places"][0]["latest_why"].startswith(words)


def test_what_a_marker_says_does_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "lustre"
    for step in (10, 20):
        assert main(["checkpoint", "publish", str(saved(tmp_path / "local", step)), "--to", str(place)]) == 0
    marker = place / "step-0000000020" / "_COMPLETE.json"
    marker.write_text(marker.read_text(encoding="utf-8").replace("model.pt", "\\u001b[2J\\nmodel.pt"), encoding="utf-8")
    capsys.readouterr()
    assert main(["checkpoint", "restore", "--from", str(place), "--into", str(tmp_path / "back")]) == 0
    assert main(["checkpoint", "list", str(place)]) == 1
    output = capsys.readouterr()
    shown = r"\x1b[2J\nmodel.pt is missing"
    assert [text.count(shown) for text in output] == [1, 1]
    assert "\x1b" not in output.out + output.err


@pytest.mark.parametrize("place", ["", "S3://lake/x", "s3:/lake/x", "gs://lake/x", "file:///x"])
def test_what_only_looks_like_a_store_is_never_taken_for_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    folder = saved(tmp_path / "local", 10)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for command in (
        ["publish", str(folder), "--to", place],
        ["restore", "--from", place, "--into", "x"],
        ["list", place],
    ):
        assert main(["checkpoint", *command]) == 2
        assert f"must be s3://BUCKET/PREFIX/, in small letters, or a path, got: {place!r}." in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_list_finds_damage_in_sizes_always_and_in_bytes_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lustre = PathPlace(tmp_path / "lustre")
    for step in (10, 20):
        main(["checkpoint", "publish", str(saved(tmp_path / "local", step)), "--to", lustre.uri])
    (tmp_path / "lustre" / "step-0000000010" / "model.pt").write_bytes(bytes(3000))
    capsys.readouterr()
    assert main(["checkpoint", "list", lustre.uri, "--json"]) == 0
    assert main(["checkpoint", "list", lustre.uri, "--verify"]) == 1
    text = capsys.readouterr().out
    assert "complete (verified)" in text
    assert "model.pt has another sha256" in text
    (tmp_path / "lustre" / "step-0000000020" / "rng.json").unlink()
    assert main(["checkpoint", "list", lustre.uri, "--json"]) == 1
    (place,) = json.loads(capsys.readouterr().out)["places"]
    assert place["latest"] == "step-0000000020"
    assert [(row["step"], row["state"], row["checksums"]) for row in place["checkpoints"]] == [
        (20, "damaged", True),
        (10, "complete", True),
    ]
    assert all(row["age_seconds"] < 60 for row in place["checkpoints"])


def test_results_are_json_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path / "local", 10)
    target = str(tmp_path / "lustre")
    assert main(["checkpoint", "publish", str(folder), "--to", target, "--json"]) == 0
    published = json.loads(capsys.readouterr().out)
    assert (published["schema_version"], published["name"], published["complete"]) == (1, folder.name, True)
    assert main(["checkpoint", "restore", "--from", target, "--in-place", "--json"]) == 0
    restored = json.loads(capsys.readouterr().out)
    assert restored["folder"] == f"{target}/{folder.name}"
    assert restored["passed_over"] == []


def test_ranks_publish_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = ["--to", str(tmp_path / "lustre"), "--ranks", "2"]
    assert main(["checkpoint", "publish", str(saved(tmp_path / "1", 10, {"b": 1})), *target, "--rank", "1"]) == 0
    assert "rank 0 completes the checkpoint" in capsys.readouterr().out
    assert main(["checkpoint", "publish", str(saved(tmp_path / "0", 10, {"a": 1})), *target]) == 0
    assert "complete; latest.json names it" in capsys.readouterr().out


def test_another_content_is_refused_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "lustre")
    assert main(["checkpoint", "publish", str(saved(tmp_path / "a", 10)), "--to", target]) == 0
    other = saved(tmp_path / "b", 10)
    (other / "model.pt").write_bytes(content(11, "model.pt", 3000))
    assert main(["checkpoint", "publish", str(other), "--to", target]) == 1
    assert "model.pt exists with another content; nothing was replaced" in capsys.readouterr().err


ROOT = Path(__file__).resolve().parents[2]
STORE = ("--endpoint-url", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["publish", "/no/folder-1", "--to", "/tmp/x"], "must be a folder, got: '/no/folder-1'"),  # noqa: S108
        (["publish", "/no/folder-1"], r"no storage contract at '/no/contract'.* Or give --to PLACE\."),
        (["publish", "/no/folder-1", "--to", "s3://", *STORE], "must be s3://BUCKET/PREFIX/"),
        (["publish", "/no/folder-1", "--rank", "x", "--to", "/x"], "--rank must be a whole number from 0 .*, got: 'x'"),
        (
            ["publish", "/no/folder-1", "--step", "9" * 5000, "--to", "/x"],
            "--step must be a .* at most 18 digits",
        ),
        (["publish", "/no/folder-1", "--timeout-minutes", "0", "--to", "/x"], "--timeout-minutes must .* from 1 "),
        (
            ["restore", "--from", "/x", "--into", "/y", "--concurrency", "0"],
            "--concurrency must .* from 1 ",
        ),
        (
            ["publish", "/x-1", "--to", "s3://bucket-a/x", "--part-size-mib", "1", *STORE],
            "part_size_mib must be from 5 to 5120",
        ),
        (["restore", "--from", "/x", "--in-place", "--into", "/y"], "--in-place copies nothing"),
        (["restore", "--from", "/x"], r"no storage contract at '/no/contract'.* Or give --into FOLDER\."),
        (["list", "--newest"], "'--newest' is not an option of training-storage checkpoint"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    aws_environment: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.setenv("TRAINING_STORAGE_CONTRACT", "/no/contract")
    assert main(["checkpoint", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert error.count("\n") == 1


def test_paths_need_no_package_and_buckets_name_the_one_they_need(tmp_path: Path, aws_environment: LocalAws) -> None:
    folder = saved(tmp_path / "local", 10)
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "from training_storage.cli import main\n"
        "codes = [main(['checkpoint', 'publish', sys.argv[1], '--to', place]) for place in sys.argv[2:]]\n"
        "print(codes, [m for m in ('torch', 'boto3', 'aws_cdk') if m in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(tmp_path / "lustre"), "s3://some-bucket/x/"],
        env=aws_environment.environment() | {"PYTHONPATH": str(ROOT / "constructs")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.endswith("[0, 1] []\n")
    assert run.stderr == "training-storage: S3 needs obstore: pip install 'training-storage[training]'\n"


def test_a_folder_is_published_from_within_and_nothing_is_written_beside_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "local", 10)
    monkeypatch.chdir(folder)
    assert main(["checkpoint", "publish", ".", "--to", str(tmp_path / "lustre")]) == 0
    assert "step-0000000010/  complete" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"local", "lustre"}
    assert main(["checkpoint", "publish", "/", "--step", "1", "--to", str(tmp_path / "lustre")]) == 2
    assert "folder must be named with letters" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["publish", "restore", "list"])
def test_what_the_system_refuses_is_said_of_the_file_and_is_no_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    folder, lustre = saved(tmp_path / "local", 10), str(tmp_path / "lustre")
    assert main(["checkpoint", "publish", str(folder), "--to", lustre]) == 0
    capsys.readouterr()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/a/file")

    monkeypatch.setattr(PathPlace, "folders", fail)
    monkeypatch.setattr(PathPlace, "read", fail)
    words = {
        "publish": ["publish", str(folder), "--to", lustre],
        "restore": ["restore", "--from", lustre, "--into", str(tmp_path / "back")],
        "list": ["list", lustre],
    }[verb]
    assert main(["checkpoint", *words]) == 1
    assert capsys.readouterr().err == "training-storage: /a/file: Input/output error\n"


def test_an_answer_that_cannot_be_written_is_still_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "local", 10)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("training_storage.cli.checkpoint.say", fail)
    monkeypatch.setattr("training_storage.cli._drop_output", lambda: None)
    assert main(["checkpoint", "publish", str(folder), "--to", str(tmp_path / "lustre")]) == 2
    assert "the answer cannot be written (No space left on device)" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["publish", "restore", "list"])
def test_a_bucket_that_does_not_exist_is_one_line_without_xml(
    aws_environment: LocalAws, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    store = ["--endpoint-url", aws_environment.endpoint_url]
    words = {
        "publish": ["publish", str(saved(tmp_path / "local", 10)), "--to", "s3://no-such-bucket/x/"],
        "restore": ["restore", "--from", "s3://no-such-bucket/x/", "--into", str(tmp_path / "back")],
        "list": ["list", "s3://no-such-bucket/x/"],
    }[verb]
    assert main(["checkpoint", *words, *store]) == 1
    error = capsys.readouterr().err
    assert error == "training-storage: bucket no-such-bucket does not exist\n"
