"""preload.sbatch with a stand-in for lfs that knows which files have their data in the lake only."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.node_kit.conftest import KIT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = KIT / "samples" / "preload.sbatch"
#: A file is released as long as it has a note beside the tree; restoring takes the note away.
LFS = """#!/usr/bin/env bash
set -euo pipefail
verb="$1"; shift
for file in "$@"; do
  note="$NOTES/$(basename "$file")"
  case "$verb" in
    hsm_state) if [[ -e "$note" ]]; then echo "$file: (0x0000000d) released exists archived, archive_id:1"
               else echo "$file: (0x00000009) exists archived, archive_id:1"; fi ;;
    hsm_restore) echo "$file" >> "$NOTES.asked"; [[ -e "$NOTES.stuck" ]] || rm -f "$note" ;;
  esac
done
"""


class Tree:
    def __init__(self, folder: Path) -> None:
        self.files, self.notes = folder / "fsx", folder / "notes"
        self.files.mkdir()
        self.notes.mkdir()
        commands = folder / "bin"
        commands.mkdir()
        (commands / "lfs").write_text(LFS, encoding="utf-8")
        (commands / "lfs").chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "NOTES": str(self.notes),
            "PRELOAD_PAUSE_SECONDS": "0",
        }

    def add(self, name: str, *, released: bool) -> None:
        (self.files / name).write_text("data", encoding="utf-8")
        if released:
            (self.notes / name).touch()

    def asked(self) -> list[str]:
        path = self.notes.with_name("notes.asked")
        return [line.rsplit("/", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/usr/bin/env", "bash", str(SCRIPT), *arguments],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_it_restores_what_is_in_the_lake_only_in_batches_and_says_how_far_it_is(tree: Tree) -> None:
    names = [f"shard {number}.tar" for number in range(7)]
    for name in names:
        tree.add(name, released=True)
    tree.add("here.tar", released=False)
    found = tree.run(str(tree.files), PRELOAD_BATCH="3")
    assert found.returncode == 0, found.stderr
    assert sorted(tree.asked()) == names
    assert [line.split(" ", 1)[1] for line in found.stdout.splitlines()[1:4]] == [
        "3 of 7 files",
        "6 of 7 files",
        "7 of 7 files",
    ]


def test_a_second_run_finds_nothing_to_do(tree: Tree) -> None:
    tree.add("a.tar", released=True)
    assert tree.run(str(tree.files)).returncode == 0
    again = tree.run(str(tree.files))
    assert again.stdout == "All data is on the file system already.\n"
    assert tree.asked() == ["a.tar"]


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ([], {}, "name what to preload"),
        (["/no/such/folder"], {}, "there is no /no/such/folder; is its metadata imported yet"),
        (["/"], {"PRELOAD_PARALLEL": "many"}, "PRELOAD_PARALLEL must be a whole number from 1, got: many"),
        (["/"], {"PRELOAD_BATCH": "0"}, "PRELOAD_BATCH must be a whole number from 1, got: 0"),
    ],
)
def test_bad_input_is_one_line(tree: Tree, arguments: list[str], variables: dict[str, str], words: str) -> None:
    found = tree.run(*arguments, **variables)
    assert found.returncode == 1
    assert found.stderr.startswith("preload.sbatch: ")
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_more_than_fits_is_refused_before_anything_is_asked_for(tree: Tree) -> None:
    tree.add("huge.tar", released=True)
    os.truncate(tree.files / "huge.tar", 2**43)
    found = tree.run(str(tree.files))
    assert found.returncode == 1
    assert f"{2**43} bytes are to come" in found.stderr
    assert tree.asked() == []


def test_files_that_never_come_end_it(tree: Tree) -> None:
    tree.add("a.tar", released=True)
    tree.notes.with_name("notes.stuck").touch()
    found = tree.run(str(tree.files), PRELOAD_LOOKS="3")
    assert found.returncode == 1
    assert found.stderr.startswith("preload.sbatch: 1 files do not come")
