"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from training_storage.cli import _parse, main
from training_storage.planning import DeploymentOptions

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
#: What needs neither an account nor a node of the job.
ALONE = ("plan",)
COMMANDS = re.findall(r"^training-storage (.*?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_readme_has_examples() -> None:
    assert len(PYTHON) == 2
    assert len(COMMANDS) == 11


@pytest.mark.parametrize("code", PYTHON, ids=["compose", "alone"])
def test_every_python_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 -- our own README


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_line_is_one_that_the_command_takes(command: str) -> None:
    arguments = _parse(shlex.split(command))
    assert callable(arguments.run)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(ALONE)])
def test_every_command_line_that_needs_no_account_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0


def test_every_deployment_option_is_in_the_readme() -> None:
    for name in DeploymentOptions.field_names():
        assert f"`{name}`" in README, name


def test_every_link_leads_somewhere() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", README) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
