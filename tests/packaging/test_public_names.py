"""Public names: complete, typed, quick to load, and all that our own app, examples and pages use."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

import training_storage
from tests.docs.blocks import blocks, pages
from tests.packaging.public_api import (
    LIBRARY,
    PUBLIC_MODULES,
    RECIPES,
    ROOT,
    Import,
    file_of,
    imports_of_library,
    public_callables,
    signature,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packaging.public_api import PublicCallable

USERS = sorted(
    [ROOT / "app.py", *(path for place in ("stacks", "tools", "examples") for path in (ROOT / place).rglob("*.py"))]
)
CALLABLES = public_callables()


@pytest.mark.parametrize("path", USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_app_and_examples_use_public_names_only(path: Path) -> None:
    inner = [one for one in imports_of_library(path.read_text(encoding="utf-8")) if not one.is_public()]
    assert inner == []


def test_pages_show_public_names_only() -> None:
    inner = {
        f"{page}: {one.module}.{one.name}"
        for page in pages()
        for block in blocks(page)
        if block.language == "python"
        for one in imports_of_library(block.text)
        if not one.is_public()
    }
    assert inner == set()


def test_a_private_name_is_seen() -> None:
    # The positive control of the two tests above.
    code = (
        "import training_storage.cli\nfrom training_storage.planning import defaults\nfrom training_storage import Park"
    )
    assert [one.is_public() for one in imports_of_library(code)] == [False, False, True]
    assert Import(module=f"{RECIPES}.torch_dcp", name="DcpCheckpoints").is_public()
    assert not Import(module=f"{RECIPES}.torch_dcp", name="_inner").is_public()


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_is_there_listed_once_and_known_to_type_checkers(module: str) -> None:
    loaded = importlib.import_module(module)
    names = loaded.__all__
    assert sorted(set(names)) == sorted(names)
    assert [name for name in names if getattr(loaded, name, None) is None] == []
    bound = {
        name
        for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8")))
        for name in (
            [alias.asname or alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [node.name]
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
            else [node.target.id]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            else []
        )
    }
    assert set(names) <= bound, "an import under TYPE_CHECKING is missing"


@pytest.mark.parametrize("module", ["training_storage", "training_storage.testing", "training_storage.training"])
def test_the_lists_of_a_lazy_module_agree_on_what_comes_from_where(module: str) -> None:
    loaded = importlib.import_module(module)
    typed = {
        alias.name: str(node.module).removeprefix(f"{module}.")
        for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{module}.")
        for alias in node.names
    }
    assert typed == loaded._MODULE_OF_NAME
    assert sorted(typed) == sorted(loaded.__all__)
    assert set(typed) <= set(dir(loaded))


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_no_public_name_is_hidden_by_a_module_of_the_same_name(module: str) -> None:
    # Importing training_storage.training.restore binds `restore` of the package to the module, whatever it was before.
    beside = {path.stem for path in file_of(module).parent.iterdir()} if file_of(module).stem == "__init__" else set()
    modules_on_purpose = {"catalog"}
    assert set(importlib.import_module(module).__all__) & beside <= modules_on_purpose


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert training_storage.__version__ == project["version"]


def test_importing_the_library_loads_neither_cdk_nor_boto3_nor_metadata() -> None:
    script = (
        "import sys, training_storage;"
        "print([m for m in ('aws_cdk', 'jsii', 'constructs', 'boto3', 'importlib.metadata') if m in sys.modules])"
    )
    # -S: the editable installation loads much by itself.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(LIBRARY.parent)},
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize("one", CALLABLES, ids=lambda one: one.name)
def test_parameters_are_given_by_name_and_typed(one: PublicCallable) -> None:
    parameters = list(signature(one.function).parameters.values())
    assert [p.name for p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)] == []
    assert [p.name for p in parameters if p.annotation is inspect.Parameter.empty] == []


def test_constructs_take_nothing_by_place_but_scope_and_id() -> None:
    by_place = {one.name: one.positional for one in CALLABLES if one.is_construct()}
    assert {"DataLake", "LustreFileSystem", "TrainingStorage"} <= set(by_place)
    assert set(by_place.values()) == {("scope", "id")}


@pytest.mark.parametrize("one", CALLABLES, ids=lambda one: one.name)
def test_a_typo_in_a_parameter_is_a_type_error(one: PublicCallable) -> None:
    from aws_cdk import App, Stack  # noqa: PLC0415 -- for this test only

    stack = Stack(App(), "Stack")
    places = {"scope": stack, "id": "Typo"}
    positional = [places.get(name) for name in one.positional]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{one.typo}'"):
        one.function(*positional, **{one.typo: None})
    assert stack.node.children == [], "nothing may be left behind in the tree"


def test_the_policy_names_every_public_module() -> None:
    text = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    assert [module for module in (*PUBLIC_MODULES, f"{RECIPES}.*") if f"`{module}`" not in text] == []
