"""The workflow that users call: its inputs are used, its actions are pinned, and its shell does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / ".github" / "workflows" / "snapshot-tests.yml"
TEXT = FILE.read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
# YAML 1.1 reads the key `on` as true.
INPUTS: dict[str, dict[str, Any]] = WORKFLOW[True]["workflow_call"]["inputs"]
JOB: dict[str, Any] = WORKFLOW["jobs"]["test"]
SCRIPTS = {step["name"]: step["run"] for step in JOB["steps"] if "run" in step}


def test_it_can_only_be_called_and_can_only_read() -> None:
    assert list(WORKFLOW[True]) == ["workflow_call"]
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "secrets" not in TEXT
    assert JOB["env"]["CI"] == "true"


def test_every_input_is_described_has_a_default_and_is_used_and_no_other_is() -> None:
    used = set(re.findall(r"inputs\.([a-z-]+)", TEXT))
    assert used == set(INPUTS)
    for declared in INPUTS.values():
        assert declared["description"].endswith(".")
        assert declared["type"] in {"string", "number"}
        assert "default" in declared


def test_actions_are_pinned_by_commit_with_their_release_beside_it() -> None:
    used = re.findall(r"uses: (\S+)(.*)", TEXT)
    named = [(action, comment) for action, comment in used if not action.startswith("OWNER/")]
    assert len(named) == 4
    for action, comment in named:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)


def test_no_expression_is_pasted_into_shell() -> None:
    assert len(SCRIPTS) == 3
    assert not [name for name, script in SCRIPTS.items() if "${{" in script]


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    done = subprocess.run(
        [str(shutil.which("shellcheck")), "--shell", "bash", "--exclude", "SC2016", "-"],
        input=SCRIPTS[name],
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.stdout == ""


def run(name: str, folder: Path, **variables: str) -> list[str]:
    """Run a step with a python that only says what it was given; return its calls."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    python = programs / "python"
    python.write_text('#!/bin/sh\nprintf "[%s]" "$@" >> "$CALLS"; echo >> "$CALLS"\n', encoding="utf-8")
    python.chmod(0o755)
    calls = folder / "calls"
    environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls), **variables}
    subprocess.run(
        [str(shutil.which("bash")), "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPTS[name]],
        env=environment,
        cwd=folder,
        check=True,
    )
    return calls.read_text(encoding="utf-8").splitlines()


def test_the_project_is_installed_as_asked_and_the_extras_beside_it(tmp_path: Path) -> None:
    calls = run(
        "Install", tmp_path, INSTALL_ARGUMENTS="-r requirements.txt -e '.[test, more]'", EXTRAS="testing,local-aws"
    )
    assert calls == [
        "[-m][pip][install][-r][requirements.txt][-e][.[test, more]]",
        "[-m][pip][install][training-storage[testing,local-aws]]",
    ]


def test_arguments_of_pytest_are_split_as_in_a_shell_and_nothing_in_them_runs(tmp_path: Path) -> None:
    given = "tests -k 'storage or lake' $(touch ran)"
    (call,) = run("Test", tmp_path, PYTEST_ARGUMENTS=given, NOTHING_LOST_SINCE="origin/main")
    assert call == "[-m][pytest][tests][-k][storage or lake][$(touch][ran)][--nothing-lost-since][origin/main]"
    assert not (tmp_path / "ran").exists()


def test_without_arguments_pytest_has_none(tmp_path: Path) -> None:
    assert run("Test", tmp_path, PYTEST_ARGUMENTS="", NOTHING_LOST_SINCE="") == ["[-m][pytest]"]


@pytest.mark.parametrize("changed", [True, False])
def test_after_a_failure_there_is_a_patch_of_the_snapshots_alone(tmp_path: Path, *, changed: bool) -> None:
    app, elsewhere = tmp_path / "app", tmp_path / "runner"
    snapshots = app / "tests" / "__snapshots__" / "test_app"
    for folder in (snapshots, elsewhere):
        folder.mkdir(parents=True)
    (snapshots / "old.json").write_text("{}\n", encoding="utf-8")
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "tests"], [*identity, "commit", "--quiet", "-m", "Reviewed"]):
        subprocess.run([str(shutil.which("git")), *arguments], cwd=app, check=True)
    if changed:
        (snapshots / "old.json").write_text('{"A": 1}\n', encoding="utf-8")
        (snapshots / "new.json").write_text("{}\n", encoding="utf-8")
    summary = elsewhere / "summary"
    (call,) = run(
        "Write what the snapshots would become",
        app,
        PYTEST_ARGUMENTS="tests",
        RUNNER_TEMP=str(elsewhere),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert call.startswith("[-m][pytest][tests][--quiet][--snapshot-update][--snapshot-no-cleanup][--last-failed]")
    patch = elsewhere / "template-snapshots.patch"
    assert patch.exists() == summary.exists() == changed
    if changed:
        text = patch.read_text(encoding="utf-8")
        assert '+{"A": 1}' in text
        assert "new.json" in text
        assert "calls" not in text


def test_the_page_calls_it_with_inputs_that_it_has() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (called,) = yaml.safe_load(block)["jobs"].values()
    assert called["uses"].partition("/")[2].startswith(f"training-storage/{FILE.relative_to(ROOT)}@")
    assert set(called["with"]) <= set(INPUTS)
