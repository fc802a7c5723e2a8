"""What users may import: the modules, and the names of the library that each file imports."""

from __future__ import annotations

import ast
import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "constructs" / "training_storage"

#: Each of these has `__all__`, and docs/upgrading.md names it.
PUBLIC_MODULES = (
    "training_storage",
    "training_storage.gpu_cluster",
    "training_storage.planning",
    "training_storage.testing",
    "training_storage.testing.local_aws",
    "training_storage.training",
    # On its own, because the package cannot have a function that is called as one of its modules.
    "training_storage.training.loader_settings",
)
#: Modules of frameworks, one each: whatever has no underscore is public.
RECIPES = "training_storage.training.recipes"


@dataclass(frozen=True, kw_only=True)
class Import:
    """A name that a file imports from the library; None for the module itself."""

    module: str
    name: str | None

    def is_public(self) -> bool:
        if self.module.startswith(f"{RECIPES}.") or (self.module == RECIPES and self.name is not None):
            return not (self.name or "").startswith("_")
        if self.module not in PUBLIC_MODULES:
            return False
        return self.name in (None, "__version__", *importlib.import_module(self.module).__all__)


def imports_of_library(source: str) -> Iterator[Import]:
    """Yield what Python code imports from the library, for type checking included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(module=alias.name, name=None) for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            yield from (Import(module=node.module, name=alias.name) for alias in node.names)


def _is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "training_storage"


def file_of(module: str) -> Path:
    """The source of a module of the library."""
    path = LIBRARY.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@dataclass(frozen=True, kw_only=True)
class PublicCallable:
    """A class or function of `training_storage` with parameters that are given by name."""

    name: str
    function: Any
    positional: tuple[str, ...]
    keywords: tuple[str, ...]

    @property
    def typo(self) -> str:
        """Its last parameter without the last letter; no parameter is called so."""
        return self.keywords[-1][:-1]

    def is_construct(self) -> bool:
        return self.positional[:2] == ("scope", "id")


def signature(function: Any) -> inspect.Signature:
    """The parameters of a function, or of a class without `self`."""
    if inspect.isclass(function):
        own = inspect.signature(function.__init__)
        return own.replace(parameters=[one for name, one in own.parameters.items() if name != "self"])
    return inspect.signature(function)


def public_callables() -> list[PublicCallable]:
    """What `training_storage` exports and is called with names of parameters."""
    import training_storage  # noqa: PLC0415 -- collection loads CDK only where these are asked for

    found = []
    for name in training_storage.__all__:
        function = getattr(training_storage, name)
        if not callable(function):
            continue
        parameters = signature(function).parameters.values()
        keywords = tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
        positional = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
        if keywords:
            found.append(PublicCallable(name=name, function=function, positional=positional, keywords=keywords))
    return found
