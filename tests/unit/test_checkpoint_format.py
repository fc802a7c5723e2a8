"""What a finished checkpoint is."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    CheckpointFile,
    CheckpointFormatError,
    Checksum,
    Marker,
    Pointer,
    checkpoint_name,
    incompleteness,
    is_folder_name,
    pointer_moves,
    read_marker,
    read_pointer,
    step_of_name,
    tracked_folder,
)

NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
FILES = {"rank-0.pt": 123, "optimizer/rank-0.pt": 0}


def marker(**changes: Any) -> str:
    document = {
        "schema_version": 1,
        "step": 1200,
        "finished_at": "2026-11-30T12:00:00Z",
        "files": [
            {"path": "rank-0.pt", "bytes": 123, "checksum": {"algorithm": "sha256", "value": "ab" * 32}},
            {"path": "optimizer/rank-0.pt", "bytes": 0, "checksum": None},
        ],
    }
    return json.dumps({**document, **changes})


def why(**changes: Any) -> str | None:
    given_: dict[str, Any] = {"name": "step-0000001200", "files": {**FILES, MARKER_NAME: 9}, "marker": marker()}
    return incompleteness(**{**given_, **changes})


@given(step=st.integers(0, 9_999_999_999))
def test_the_step_of_a_name_is_the_step_that_made_it(step: int) -> None:
    assert step_of_name(checkpoint_name(step)) == step
    assert len(checkpoint_name(step)) == len("step-0000001200")


@pytest.mark.parametrize("step", [-1, True, 1.5, "12", None, 10_000_000_000])
def test_a_name_takes_whole_numbers_of_ten_digits_only(step: Any) -> None:
    with pytest.raises(CheckpointFormatError, match="step must"):
        checkpoint_name(step)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-0000001200", 1200),
        ("iter_0001200", 1200),
        ("global_step1200", 1200),
        ("checkpoint-500/", 500),
        ("final", None),
        ("epoch3-best", None),
        ("step-" + "9" * 5000, None),
        ("step-²", None),
    ],
)
def test_the_step_is_the_number_at_the_end_of_a_name(name: str, step: int | None) -> None:
    assert step_of_name(name) == step


def test_a_marker_is_read_as_it_was_written() -> None:
    written = Marker(
        step=1200,
        finished_at=NOON,
        files=(
            CheckpointFile(path="rank-0.pt", bytes=123, checksum=Checksum(algorithm="crc64nvme", value="0" * 16)),
            CheckpointFile(path="a/b", bytes=0),
        ),
    )
    assert read_marker(written.to_json()) == written
    assert json.loads(written.to_json())["finished_at"] == "2026-11-30T12:00:00Z"


def test_a_pointer_is_read_as_it_was_written() -> None:
    written = Pointer(checkpoint="step-0000001200", step=1200)
    assert read_pointer(written.to_json()) == written


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": 2}, "schema_version 1, got: 2"),
        ({"schema_version": True}, "schema_version 1, got: True"),
        ({"step": "1200"}, "step must be a whole number"),
        ({"step": True}, "step must be a whole number"),
        ({"finished_at": "yesterday"}, "finished_at must be a time"),
        ({"finished_at": "2026-11-30T12:00:00"}, "finished_at must be a time"),
        ({"files": []}, "at least one file"),
        ({"files": {}}, "files must be a list"),
        ({"files": [1]}, "must be objects"),
        ({"files": [{"path": "../x", "bytes": 1}]}, "stay inside the checkpoint"),
        ({"files": [{"path": "/etc/passwd", "bytes": 1}]}, "stay inside the checkpoint"),
        ({"files": [{"path": "a//b", "bytes": 1}]}, "stay inside the checkpoint"),
        ({"files": [{"path": MARKER_NAME, "bytes": 1}]}, "must not be _COMPLETE.json itself"),
        ({"files": [{"path": "a", "bytes": -1}]}, "files[].bytes"),
        ({"files": [{"path": "a", "bytes": 1}, {"path": "a", "bytes": 1}]}, "a twice"),
        ({"files": [{"path": "a", "bytes": 1, "checksum": "abc"}]}, "checksum must be an object"),
        ({"files": [{"path": "a", "bytes": 1, "checksum": {"algorithm": "md5", "value": "0"}}]}, "must be one of"),
        ({"files": [{"path": "a", "bytes": 1, "checksum": {"algorithm": "crc32", "value": "0"}}]}, "8 lowercase"),
    ],
)
def test_a_marker_of_another_form_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointFormatError) as caught:
        read_marker(marker(**changes))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_marker_with_unknown_keys_is_read() -> None:
    assert read_marker(marker(framework="mine")).step == 1200


@given(length=st.integers(0, len(marker()) - 1))
def test_a_marker_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(CheckpointFormatError):
        read_marker(marker()[:length])


@pytest.mark.parametrize("checkpoint", ["a/b", "", "..", None, 3])
def test_a_pointer_names_a_folder_beside_it(checkpoint: object) -> None:
    with pytest.raises(CheckpointFormatError, match="beside the pointer"):
        read_pointer(json.dumps({"schema_version": 1, "checkpoint": checkpoint, "step": 1}))


def test_a_pointer_moves_forwards_only() -> None:
    at_2 = Pointer(checkpoint="b", step=2)
    assert pointer_moves(None, at_2)
    assert pointer_moves(Pointer(checkpoint="a", step=1), at_2)
    assert not pointer_moves(at_2, at_2)
    assert not pointer_moves(Pointer(checkpoint="c", step=3), at_2)


def test_a_marker_and_all_its_files_make_a_checkpoint_complete() -> None:
    assert why() is None
    assert why(files={**FILES, MARKER_NAME: 9, "notes.txt": 1}) is None


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_is_missing_or_of_another_size_makes_it_incomplete(path: str) -> None:
    without = {name: size for name, size in FILES.items() if name != path}
    assert why(files=without) == f"{path} is missing, which {MARKER_NAME} names"
    assert f"{path} has {FILES[path] + 1:,} bytes" in str(why(files={**FILES, path: FILES[path] + 1}))


def test_an_end_mark_of_a_framework_never_makes_up_for_a_broken_marker() -> None:
    assert why(files={DCP_METADATA_NAME: 5, "rank-0.pt": 123}) is not None
    assert "must be whole JSON" in str(why(marker="{", files={**FILES, DCP_METADATA_NAME: 5}))


def test_the_metadata_of_torch_makes_a_checkpoint_complete() -> None:
    assert why(marker=None, files={"__0_0.distcp": 7, DCP_METADATA_NAME: 5}) is None
    assert why(marker=None, files={DCP_METADATA_NAME: 5}) == "it holds no file"
    assert why(marker=None, files={"__0_0.distcp": 7, f"weights/{DCP_METADATA_NAME}": 5}) is not None


@pytest.mark.parametrize(
    ("tracker", "text", "folder"),
    [
        ("latest_checkpointed_iteration.txt", "1200\n", "iter_0001200"),
        ("latest_checkpointed_iteration.txt", "release", "release"),
        ("latest_checkpointed_iteration.txt", "12 00", None),
        ("latest_checkpointed_iteration.txt", "", None),
        ("latest", "global_step1200", "global_step1200"),
        ("latest", "../x", None),
        ("latest", "", None),
    ],
)
def test_a_tracker_names_one_folder(tracker: str, text: str, folder: str | None) -> None:
    assert tracked_folder(tracker, text) == folder
    if folder is not None:
        trackers = {tracker: text}
        assert why(name=folder, marker=None, files={"x": 1}, trackers=trackers) is None
        assert "no end mark" in str(why(name="other", marker=None, files={"x": 1}, trackers=trackers))


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(CheckpointFormatError, match="a tracker is one of"):
        tracked_folder("newest.txt", "1")


def test_the_format_needs_the_standard_library_only() -> None:
    code = (
        "import sys, training_storage.checkpoint_format;"
        "print([m for m in ('aws_cdk', 'jsii', 'boto3', 'torch') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["step-0000001200", "step-7", "iter_0001200", "global_step1200"])
def test_folders_of_frameworks_are_known_by_name(name: str) -> None:
    assert is_folder_name(name)


@pytest.mark.parametrize("name", ["mine", "checkpoint-100", "best-step-1200", "step-", "step-1x", "step-1\n", "iter_"])
def test_other_folders_are_not_taken_for_those_of_frameworks(name: str) -> None:
    assert not is_folder_name(name)
