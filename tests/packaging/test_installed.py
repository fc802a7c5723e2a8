"""The wheel works for somebody else: in an empty environment, in their app, under their type checkers."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from uv import find_uv_bin

import training_storage
from tests.packaging.conftest import FOREIGN_APP
from tests.packaging.public_api import ROOT, public_callables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.packaging.conftest import Consumer

pytestmark = pytest.mark.slow

_TYPOS = "typos.py"
_PYRIGHT = ROOT / "node_modules" / ".bin" / "pyright"
#: CDK's types alone are two million lines, a minute for mypy. Without them the library's own are checked all the same.
_WITHOUT_CDK = """
[mypy]
strict = true
[mypy-aws_cdk.*,constructs.*,jsii.*,boto3.*,botocore.*]
follow_imports = skip
"""


@pytest.fixture(scope="module")
def typos(consumer: Consumer) -> set[tuple[int, str]]:
    """A file beside the app that misspells a parameter of every public name; returns line and misspelt parameter."""
    callables = public_callables()
    head = [
        "from constructs import Construct",
        f"from training_storage import {', '.join(one.name for one in callables)}",
        "def misspelt(scope: Construct) -> None:",
    ]
    lines = [f"    {one.name}({', '.join([*_places(one.positional), f'{one.typo}=None'])})" for one in callables]
    (consumer.folder / _TYPOS).write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
    return {(len(head) + number, one.typo) for number, one in enumerate(callables, start=1)}


@pytest.fixture(scope="module")
def checked_by_pyright(consumer: Consumer, typos: set[tuple[int, str]]) -> Mapping[str, Any]:
    """What pyright says of the app and the typos, in one run: it reads CDK's types each time."""
    assert typos
    files = ("app.py", "folding", "tests", _TYPOS)
    printed = consumer.run(_PYRIGHT, "--outputjson", "--pythonpath", consumer.python, *files, fails=True)
    found: Mapping[str, Any] = json.loads(printed)
    return found


def test_what_is_installed_fits_together_and_comes_from_the_wheel(consumer: Consumer) -> None:
    consumer.run(find_uv_bin(), "pip", "check", "--python", consumer.python)
    script = "import sys, training_storage as t; print(t.__file__, t.__version__, *sys.path, sep='\\n')"
    file, version, *path = consumer.run(consumer.python, "-I", "-c", script).split()
    assert consumer.environment in Path(file).parents
    assert version == training_storage.__version__
    assert [one for one in path if ROOT in (Path(one), *Path(one).parents)] == []


def test_the_command_plans(consumer: Consumer) -> None:
    command = consumer.environment / "bin" / "training-storage"
    assert consumer.run(command, "--version").split() == ["training-storage", training_storage.__version__]
    plan = json.loads(consumer.run(command, "plan", "--instances", "256", "--json"))
    assert plan["selection"]["tiers"] == ["s3", "fsx-lustre"]
    assert plan["fsx_lustre"]["storage_capacity_gib"] > 0


def test_the_foreign_app_synthesizes_and_its_templates_are_legal(
    consumer: Consumer, assembly: Mapping[str, Any]
) -> None:
    templates = sorted(assembly["folder"].rglob("*.template.json"))
    stacks = {path.name.partition(".")[0].removesuffix("Template") for path in templates}
    assert any(name.startswith("ProductionTraining") for name in stacks), stacks
    command = consumer.environment / "bin" / "training-storage"
    consumer.run(command, "check", assembly["folder"] / "assembly-Production")


def test_check_finds_what_aws_would_refuse(consumer: Consumer, assembly: Mapping[str, Any]) -> None:
    (path,) = assembly["folder"].rglob("ProductionTraining*.template.json")
    template = json.loads(path.read_text(encoding="utf-8"))
    (file_system,) = (one for one in template["Resources"].values() if one["Type"] == "AWS::FSx::FileSystem")
    file_system["Properties"]["StorageCapacity"] = 1300
    broken = consumer.folder / "broken.json"
    broken.write_text(json.dumps(template), encoding="utf-8")
    found = consumer.run(consumer.environment / "bin" / "training-storage", "check", broken, fails=True)
    assert "1300" in found.replace(",", "")


def test_the_foreign_app_passes_its_own_tests(consumer: Consumer, request: pytest.FixtureRequest) -> None:
    update = ["--snapshot-update"] if request.config.getoption("update_snapshots") else []
    printed = consumer.run(consumer.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *update)
    if update:
        snapshots = "tests/__snapshots__"
        shutil.copytree(consumer.folder / snapshots, FOREIGN_APP / snapshots, dirs_exist_ok=True)
    # A changed template? `pytest tests/packaging/test_installed.py --snapshot-update` writes it; read the difference.
    assert re.search(r"^2 passed", printed, re.MULTILINE), printed
    assert "skipped" not in printed


def test_pyright_strict_accepts_the_foreign_app(checked_by_pyright: Mapping[str, Any]) -> None:
    found = [one for one in checked_by_pyright["generalDiagnostics"] if Path(one["file"]).name != _TYPOS]
    assert found == []
    assert checked_by_pyright["summary"]["filesAnalyzed"] > 1


def test_mypy_strict_accepts_a_typed_consumer(consumer: Consumer) -> None:
    code = Path(shutil.copy(Path(__file__).with_name("consumer.py"), consumer.folder / "typed_consumer.py"))
    assert "Success" in _mypy(consumer, code, settings=_WITHOUT_CDK)


@pytest.mark.release
def test_mypy_strict_accepts_the_foreign_app_with_all_of_cdks_types(consumer: Consumer) -> None:
    printed = consumer.run(
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        consumer.python,
        "--cache-dir",
        ROOT / ".mypy_cache" / "app",
    )
    assert "Success" in printed


def test_each_typo_in_a_parameter_is_reported_by_mypy(consumer: Consumer, typos: set[tuple[int, str]]) -> None:
    printed = _mypy(consumer, consumer.folder / _TYPOS, settings=_WITHOUT_CDK, fails=True)
    found = re.findall(r'^typos\.py:(\d+): error: Unexpected keyword argument "(\w+)"', printed, re.MULTILINE)
    assert {(int(line), name) for line, name in found} == typos


def test_each_typo_in_a_parameter_is_reported_by_pyright(
    checked_by_pyright: Mapping[str, Any], typos: set[tuple[int, str]]
) -> None:
    found = {
        (one["range"]["start"]["line"] + 1, match[1])
        for one in checked_by_pyright["generalDiagnostics"]
        if Path(one["file"]).name == _TYPOS and (match := re.match(r'No parameter named "(\w+)"', one["message"]))
    }
    assert found == typos


def _places(names: tuple[str, ...]) -> list[str]:
    return [{"scope": "scope", "id": '"Typo"'}.get(name, "None") for name in names]


def _mypy(consumer: Consumer, code: Path, *, settings: str, fails: bool = False) -> str:
    # Beside the app's folder: in it, mypy would take it for the app's own.
    file = consumer.folder.with_name("without-cdk.ini")
    file.write_text(settings, encoding="utf-8")
    return consumer.run(
        sys.executable, "-m", "mypy", "--config-file", file, "--python-executable", consumer.python,
        "--cache-dir", consumer.folder / ".mypy_cache", code.name, fails=fails,
    )  # fmt: skip
