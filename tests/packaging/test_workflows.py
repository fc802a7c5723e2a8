"""Workflows: well formed, pinned, with no more rights than they need; a release publishes what it tested."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.packaging.conftest import DISTRIBUTIONS, clean_environment
from tests.packaging.public_api import ROOT
from tools.check_release import main, refusal

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = sorted(
    [*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "examples").glob("*/.github/workflows/*.yml")]
)
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-15\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-12-01\n"
)


def workflow(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job.get("steps", [])]


def uses(path: Path) -> list[tuple[str, str]]:
    """The actions that a workflow uses, with the comment behind each."""
    return re.findall(r"^ *(?:- )?uses: (\S+)(.*)", path.read_text(encoding="utf-8"), re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    jobs: dict[str, Any] = workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    return jobs


def test_workflows_are_as_the_schema_of_github_says() -> None:
    assert len(WORKFLOWS) > 2
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    ended = subprocess.run(
        [*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_actions_are_pinned_to_a_full_commit_id_and_say_their_version(path: Path) -> None:
    used = uses(path)
    assert used
    loose = [f"{name}{rest}" for name, rest in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", name)]
    assert loose == []
    assert [name for name, rest in used if not re.fullmatch(r" # v\d+\.\d+\.\d+", rest)] == []


def test_one_action_has_one_commit_id() -> None:
    used = {name for path in WORKFLOWS for name, _ in uses(path)}
    assert len({name.partition("@")[0] for name in used}) == len(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_no_workflow_has_secrets_more_rights_than_reading_or_a_checkout_that_keeps_its_token(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    assert workflow(path)["permissions"] in ({}, {"contents": "read"})
    for job in workflow(path)["jobs"].values():
        assert set(job.get("permissions", {}).items()) <= {("contents", "read"), ("id-token", "write")}
        # A workflow that others call lets them say how long it may take.
        assert str(job["timeout-minutes"]).startswith("${{ inputs.") or job["timeout-minutes"] <= 15
    checkouts = [step for step in steps(path) if str(step.get("uses")).startswith("actions/checkout@")]
    assert [step for step in checkouts if step.get("with", {}).get("persist-credentials") is not False] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_scripts_take_nothing_from_outside_into_their_text_and_pass_shellcheck(path: Path, tmp_path: Path) -> None:
    shellcheck = str(shutil.which("shellcheck"))
    for number, step in enumerate(step for step in steps(path) if "run" in step):
        assert "${{" not in step["run"], "an expression in a script is code of whoever fills it; use env"
        script = tmp_path / f"{number}.sh"
        script.write_text(step["run"], encoding="utf-8")
        # Below a warning it asks about variables that the workflow sets, and about Markdown in quotes.
        command = [shellcheck, "--shell=bash", "--severity=warning", str(script)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_make_targets_and_files_that_scripts_name_are_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    scripts = "\n".join(step["run"] for step in steps(path) if "run" in step)
    assert set(re.findall(r"\bmake ([a-z-]+)", scripts)) <= targets
    for file in re.findall(r"\b(?:tests|tools)/[\w./]+", scripts):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("name", ["test.yml", "release.yml"])
def test_each_python_that_the_metadata_name_is_tested(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = {one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)}
    jobs = workflow(ROOT / ".github" / "workflows" / name)["jobs"]
    assert set(jobs["test"]["strategy"]["matrix"]["python-version"]) == promised


def test_only_publishing_may_ask_for_a_token_and_it_sees_no_source(release: dict[str, Any]) -> None:
    assert [name for name, job in release.items() if "id-token" in job["permissions"]] == ["publish"]
    publish = release["publish"]
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert [str(step["uses"]).partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert publish["steps"][-1]["with"] == {"attestations": True}


def test_what_is_published_was_built_once_and_tested_without_its_source(release: dict[str, Any]) -> None:
    assert (release["test"]["needs"], release["publish"]["needs"]) == ("build", "test")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert text.count("uv build") == 1
    scripts = [str(step.get("run", "")) for step in release["test"]["steps"]]
    removed = next(number for number, script in enumerate(scripts) if "rm -r constructs" in script)
    tested = next(number for number, script in enumerate(scripts) if "test_installed.py" in script)
    assert removed < tested
    assert release["test"]["steps"][tested]["env"] == {DISTRIBUTIONS: "dist"}


@pytest.mark.parametrize(
    ("tag", "version", "words"),
    [
        ("v0.2.0", "0.2.0", None),
        ("v0.2.1", "0.2.0", "the tag must be v0.2.0"),
        ("0.2.0", "0.2.0", "the tag must be v0.2.0"),
        ("v0.3.0", "0.3.0", "must have a section"),
        ("v0.1.0", "0.1.0", "must list what changed"),
        ("v0.2", "0.2", "version must be X.Y.Z"),
    ],
)
def test_a_tag_must_be_the_version_and_the_changelog_must_tell_of_it(tag: str, version: str, words: str | None) -> None:
    why = refusal(tag=tag, version=version, changelog=CHANGELOG)
    assert (why is None) if words is None else (why is not None and words in why and "\n" not in why)


def test_a_tag_that_is_no_release_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["v99.0.0"]) == 2
    assert "the tag must be v" in capsys.readouterr().err
    assert main([]) == 2
