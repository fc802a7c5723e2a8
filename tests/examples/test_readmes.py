"""Each example's README is one screen that holds: its commands, its costs, its requirements, its place in the index."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore import xform_name
from packaging.requirements import Requirement

from tests.examples.costs import table
from tests.examples.example_apps import APPS, EXAMPLES, ROOT, example
from training_storage.cli import _parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SCREEN_LINES, _SCREEN_COLUMNS = 60, 160
_DISTRIBUTIONS = {"aws_cdk": "aws-cdk-lib", "constructs": "constructs", "training_storage": "training-storage"}
#: Verbs of the CDK CLI in the READMEs, and their options.
_CDK = {"bootstrap": set(), "deploy": {"--all"}, "destroy": set(), "synth": {"--quiet"}}


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


def parse_ours(_name: str, arguments: list[str]) -> None:
    assert callable(_parse(arguments).run)


def parse_cdk(name: str, arguments: list[str]) -> None:
    verb, *rest = arguments
    options = {word for word in rest if word.startswith("-")}
    stacks = {word for word in rest if not word.startswith("-")}
    assert options <= _CDK[verb]
    assert stacks <= set(example(name).templates)
    assert stacks or options or verb == "bootstrap"


def parse_aws(name: str, arguments: list[str]) -> None:
    """Hold a command of the AWS CLI to the service's model: operation, parameters, and names of stacks."""
    service, operation, *rest = arguments
    model = botocore.session.get_session().get_service_model(service)
    (found,) = [one for one in model.operation_names if xform_name(one, "-") == operation]
    members = model.operation_model(found).input_shape.members
    known = {xform_name(member, "-"): shape for member, shape in members.items()}
    given = [word.removeprefix("--") for word in rest if word.startswith("--")]
    for option in given:
        switched_off = option.removeprefix("no-")
        assert option in known or option == "query" or known[switched_off].type_name == "boolean", option
    if "stack-name" in given:
        stacks = {stack for app in APPS for stack in example(app).templates}
        assert rest[rest.index("--stack-name") + 1] in stacks, name


def parse_pip(_name: str, arguments: list[str]) -> None:
    assert arguments == ["install", "-r", "requirements.txt"]


PARSERS: dict[str, Callable[[str, list[str]], None]] = {
    "training-storage": parse_ours,
    "cdk": parse_cdk,
    "aws": parse_aws,
    "pip": parse_pip,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", APPS)
def test_every_command_is_one_that_its_program_takes(name: str) -> None:
    found = commands(name)
    assert {"pip", "cdk"} <= {program for program, *_ in found}
    for program, *arguments in found:
        PARSERS[program](name, arguments)


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
