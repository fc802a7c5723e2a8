"""The layout keeps `constructs/` from shadowing the PyPI package of that name; imports point down only."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "constructs" / "training_storage"
SKIPPED = {".venv", "node_modules", "cdk.out", ".git", "build"}


def python_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if not SKIPPED & set(path.relative_to(ROOT).parts)]


def imported_modules(path: Path) -> set[str]:
    """Return every module that a file imports, those for type checking included."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def test_no_folder_named_constructs_is_a_package() -> None:
    shadowing = [path for path in python_files(ROOT) if path.name == "__init__.py" and path.parent.name == "constructs"]
    assert shadowing == []


def test_the_pypi_package_constructs_is_the_one_that_imports() -> None:
    import constructs  # noqa: PLC0415

    assert ROOT not in Path(str(constructs.__file__)).parents or ".venv" in str(constructs.__file__)
    assert hasattr(constructs, "Construct")


def test_planning_loads_neither_cdk_nor_jsii_nor_boto3() -> None:
    script = (
        "import sys, training_storage.planning, training_storage.cli;"
        "print([m for m in ('aws_cdk', 'jsii', 'constructs', 'boto3', 'botocore') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_planning_imports_only_the_standard_library_and_itself() -> None:
    foreign = {
        f"{path.relative_to(LIBRARY)}: {module}"
        for path in python_files(LIBRARY / "planning")
        for module in imported_modules(path)
        if module.split(".")[0] not in sys.stdlib_module_names
        and not module.startswith("training_storage.planning")
        and module != "__future__"
    }
    assert foreign == set()


@pytest.mark.parametrize("path", python_files(LIBRARY), ids=lambda path: str(path.relative_to(LIBRARY)))
def test_the_library_never_imports_the_app_its_stacks_or_the_tests(path: Path) -> None:
    assert not {module for module in imported_modules(path) if module.split(".")[0] in {"app", "stacks", "tests"}}


@pytest.mark.parametrize("path", [ROOT / "app.py", *python_files(ROOT / "stacks")], ids=lambda path: path.name)
def test_the_app_uses_public_names_of_the_library_only(path: Path) -> None:
    inner = {
        module
        for module in imported_modules(path)
        if module.startswith("training_storage.")
        and not module.startswith("training_storage.planning.")
        and module.count(".") > 1
    }
    assert inner == set()


def test_every_public_name_resolves() -> None:
    import training_storage  # noqa: PLC0415

    for name in training_storage.__all__:
        assert getattr(training_storage, name) is not None


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import training_storage  # noqa: PLC0415

    with pytest.raises(AttributeError, match="has no attribute 'Datalake'"):
        _ = training_storage.Datalake


def test_the_wheel_holds_the_library_only_and_its_data_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setuptools = project["tool"]["setuptools"]
    assert setuptools["package-dir"] == {"": "constructs"}
    assert setuptools["packages"]["find"]["where"] == ["constructs"]
    assert "py.typed" in setuptools["package-data"]["training_storage"]
    assert (LIBRARY / "py.typed").exists()


def test_no_file_that_pins_packages_names_a_registry() -> None:
    for name in ("requirements.txt", "requirements-dev.txt", "package.json", "package-lock.json", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "resolved" not in text, name
        assert "index-url" not in text, name
        assert "registry." not in text, name
