"""A difference is one short line: where, what it was, what it is."""

from __future__ import annotations

from typing import Any

import pytest

from training_storage.testing.differences import LINES_MAXIMUM, differences

LONG = "echo begin\n" * 20


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"A": {"B": 1}}, {"A": {"B": 1}}, []),
        ({"A": {"B": 4800}}, {"A": {"B": 7200}}, ["~ A.B: 4800 -> 7200"]),
        ({"A": True}, {"A": 1}, ["~ A: true -> 1"]),
        ({}, {"R": {"Fs": {"Type": "AWS::FSx::FileSystem"}}}, ['+ R: {"Fs": {"Type": "AWS::FSx::FileSystem"}}']),
        ({"R": {}}, {"R": {"Fs": {"Type": "AWS::FSx::FileSystem"}}}, ["+ R.Fs: AWS::FSx::FileSystem"]),
        ({"R": {"B": {"Type": "AWS::S3::Bucket"}}}, {"R": {}}, ["- R.B: AWS::S3::Bucket"]),
        ({"L": ["a", "c", "d"]}, {"L": ["a", "b", "c", "d"]}, ['+ L[1]: "b"']),
        ({"L": ["a", "b", "c"]}, {"L": ["b", "c"]}, ['- L[0]: "a"']),
        ({"L": [{"K": 1}, {"K": 2}]}, {"L": [{"K": 1}, {"K": 3}]}, ["~ L[1].K: 2 -> 3"]),
        ({"A": "x" * 200}, {}, ['- A: "' + "x" * 78 + "…"]),
    ],
)
def test_each_change_is_one_line(before: Any, after: Any, lines: list[str]) -> None:
    assert differences(before, after) == lines


def test_of_long_texts_the_part_that_differs_is_shown() -> None:
    (line,) = differences({"UserData": LONG + "mount /fsx\n"}, {"UserData": LONG + "mount /lake\n"})
    assert line.startswith("~ UserData: …")
    assert 'mount /fsx\\n"' in line
    assert 'mount /lake\\n"' in line
    assert len(line) < 250


def test_a_text_that_only_grew_shows_what_it_grew_by() -> None:
    (line,) = differences({"UserData": LONG}, {"UserData": LONG + "mount /fsx\n"})
    assert 'mount /fsx\\n"' in line.partition(" -> ")[2]


def test_many_changes_are_cut_and_counted() -> None:
    lines = differences({}, {f"Key{number:03}": 1 for number in range(LINES_MAXIMUM + 7)})
    assert len(lines) == LINES_MAXIMUM + 1
    assert lines[-1] == "… and 7 more"
