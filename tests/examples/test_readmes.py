"""Each example's README is one screen that holds: its commands, its costs, its requirements, its place in the index."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tomllib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from tests.docs.programs import check
from tests.examples.costs import table
from tests.examples.example_apps import APPS, EXAMPLES, ROOT, example
from training_storage.cli import main

if TYPE_CHECKING:
    from pathlib import Path

_SCREEN_LINES, _SCREEN_COLUMNS = 60, 160
_DISTRIBUTIONS = {"aws_cdk": "aws-cdk-lib", "constructs": "constructs", "training_storage": "training-storage"}


def readme(name: str) -> str:
    return (EXAMPLES / name / "README.md").read_text(encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """Every command of a README: those of shell blocks, and those named in the text."""
    text = readme(name)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\n", " ")
    lines += re.findall(r"`((?:cdk|aws|training-storage) [^`]+)`", prose)
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.mark.parametrize("name", APPS)
def test_it_is_one_screen(name: str) -> None:
    lines = readme(name).splitlines()
    assert len(lines) <= _SCREEN_LINES
    assert max(map(len, lines)) <= _SCREEN_COLUMNS


@pytest.mark.parametrize("name", APPS)
def test_it_says_how_to_deploy_what_it_costs_what_to_change_and_how_to_delete(name: str) -> None:
    headings = re.findall(r"^## (.*)$", readme(name), re.MULTILINE)
    assert [heading.split(" without")[0] for heading in headings] == [
        "Deploy",
        "Costs",
        "What to change first",
        "Delete",
    ]


@pytest.mark.parametrize("name", APPS)
def test_its_costs_are_those_of_catalog_and_planner(name: str) -> None:
    text, right = readme(name), table(name)
    assert right in text, f"examples/{name}/README.md: under 'Costs' this must stand:\n{right}"
    # And no other money: what nobody computes goes stale.
    assert not re.findall(r"\$\s?\d|\d USD|USD \d", text.replace(right, ""))


@pytest.mark.parametrize("name", APPS)
def test_every_command_is_one_that_its_program_takes(name: str) -> None:
    found = commands(name)
    assert {"pip", "cdk"} <= {program for program, *_ in found}
    for words in found:
        check(words)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPS)
def test_every_stack_that_a_command_names_is_one_of_an_example(name: str) -> None:
    for program, *arguments in commands(name):
        if program == "cdk":
            assert {word for word in arguments[1:] if not word.startswith("-")} <= set(example(name).templates)
        if "--stack-name" in arguments:
            everywhere = {stack for app in APPS for stack in example(app).templates}
            assert arguments[arguments.index("--stack-name") + 1] in everywhere


def test_the_command_that_wrote_the_reviewed_plan_asks_for_the_same_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = [words for words in commands("three_jobs") if words[:2] == ["training-storage", "plan"]]
    monkeypatch.chdir(tmp_path)
    assert main(command[1:]) == 0
    written = json.loads((tmp_path / "pretrain.json").read_text(encoding="utf-8"))
    reviewed = json.loads((EXAMPLES / "three_jobs" / "pretrain.json").read_text(encoding="utf-8"))
    assert written["job"] == reviewed["job"]


@pytest.mark.parametrize("name", APPS)
def test_every_link_leads_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", readme(name))
    assert [target for target in targets if not (EXAMPLES / name / target).exists()] == []


@pytest.mark.parametrize("name", APPS)
def test_every_name_in_code_style_that_looks_like_one_of_the_app_is_in_its_files(name: str) -> None:
    files = "".join((EXAMPLES / name / file).read_text(encoding="utf-8") for file in ("app.py", "cdk.json"))
    told = re.findall(r"`([A-Z][A-Z_]{2,}|[a-z]+_[a-z_]+(?=[`=(]))", readme(name))
    # Parameters of the library that an app may add.
    foreign = {"time_to_live_hours", "alarm_topic"}
    assert [one for one in told if one not in files and one not in foreign] == []


def imported(file: Path) -> set[str]:
    """Top-level packages that a file imports, without the standard library."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("name", APPS)
def test_requirements_cover_the_imports_in_ranges_that_hold_what_is_tested(name: str) -> None:
    lines = (EXAMPLES / name / "requirements.txt").read_text(encoding="utf-8").split("\n")
    required = {one.name: one.specifier for one in map(Requirement, filter(None, lines))}
    assert set(required) == {_DISTRIBUTIONS[package] for package in imported(EXAMPLES / name / "app.py")}
    for distribution, specifier in required.items():
        assert {part.operator for part in specifier} == {">=", "<"}
        assert version(distribution) in specifier


@pytest.mark.parametrize("name", APPS)
def test_they_ask_for_no_older_cdk_than_the_library_does(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {one.name: str(one.specifier) for one in map(Requirement, project["dependencies"])}
    lines = (EXAMPLES / name / "requirements.txt").read_text(encoding="utf-8").split("\n")
    theirs = {one.name: str(one.specifier) for one in map(Requirement, filter(None, lines))}
    shared = theirs.keys() & ours.keys()
    assert {key: theirs[key] for key in shared} == {key: ours[key] for key in shared}


@pytest.mark.parametrize("name", APPS)
def test_it_uses_the_library_by_its_public_names_only(name: str) -> None:
    import training_storage  # noqa: PLC0415

    tree = ast.parse((EXAMPLES / name / "app.py").read_text(encoding="utf-8"))
    modules = {node.module: node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert [module for module in modules if (module or "").startswith("training_storage.")] == []
    names: list[Any] = [alias.name for alias in modules["training_storage"].names]
    assert set(names) <= set(training_storage.__all__)


def test_every_example_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([a-z_./]+)\)", index))
    there = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_"))} - {"README.md"}
    assert {one for one in listed if not one.startswith("..")} == there
    assert all((EXAMPLES / one).exists() for one in listed)
