"""What docstrings and pages say of parameters and defaults is what the code does."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
from constructs import Construct

import training_storage
from tests.docs.blocks import ROOT
from training_storage.planning import DeploymentOptions
from training_storage.planning.catalog.lustre import association_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PUBLIC = {name: getattr(training_storage, name) for name in training_storage.__all__}
CONSTRUCTS = {
    name: thing
    for name, thing in PUBLIC.items()
    if isinstance(thing, type) and issubclass(thing, Construct) and "__init__" in vars(thing)
}
#: Defaults that hold where None is given, said in a docstring and decided inside.
DECIDED_INSIDE: Mapping[tuple[str, str], Callable[[], object]] = {
    ("DataRepositoryAssociation", "imported_file_chunk_size_mib"): lambda: association_limits().chunk_size_mib_default,
}
# What a docstring may call a value, next to the words that make it a default.
_VALUE = r"(?P<value>`{1,2}[^`]+`{1,2}|[0-9][0-9,.]*[0-9]|[0-9]|True|False|None|On|Off|on|off|[A-Z][A-Z_0-9]+)"
_STATED = (
    re.compile(rf"(?<![\w`]){_VALUE} by default"),
    re.compile(rf"[Bb]y default {_VALUE}(?![\w`])"),
    re.compile(rf"\(default:? {_VALUE}\)"),
    re.compile(rf"(?<![\w`]){_VALUE} if none is given"),
)
_SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)
_SWITCH = {"on": True, "off": False, "true": True, "false": False}


def _parameters(docstring: str) -> dict[str, str]:
    """Return what the section `Parameters` says of each name."""
    section = _SECTION.search(inspect.cleandoc(docstring))
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else []:
        if line[:1].strip():
            names = [name.strip() for name in line.split(",")]
            found |= dict.fromkeys(names, "")
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def _documented(thing: type) -> dict[str, str]:
    """Return the parameters of a class, with those of a class that its docstring refers to."""
    docstring = thing.__doc__ or ""
    found = _parameters(docstring)
    for other in re.findall(r"(?:Parameters|Others): see `(\w+)`", docstring):
        found = {**_parameters(CONSTRUCTS[other].__doc__ or ""), **found}
    return {name: text for name, text in found.items() if name.isidentifier()}


def _stated(text: str) -> list[str]:
    return [found["value"].strip("`") for pattern in _STATED for found in pattern.finditer(text)]


def _same(said: str, default: object) -> bool:
    if isinstance(default, bool) or said.lower() in _SWITCH:
        return _SWITCH.get(said.lower()) is default
    if said == "None":
        return default is None or default == ()
    return said.replace(",", "") == str(default)


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_docstring_of_a_construct_names_its_parameters(name: str) -> None:
    signature = inspect.signature(CONSTRUCTS[name].__init__)
    assert set(_documented(CONSTRUCTS[name])) == set(signature.parameters) - {"self"}
    assert all(_documented(CONSTRUCTS[name]).values())


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - set(CONSTRUCTS)))
def test_a_documented_parameter_exists(name: str) -> None:
    thing = PUBLIC[name]
    said = set(_parameters(thing.__doc__ or ""))
    # Exceptions without an `__init__` of their own have no signature.
    assert said <= (set(inspect.signature(thing).parameters) if said else set())


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_default_that_a_docstring_states_is_the_signature_s(name: str) -> None:
    signature = inspect.signature(CONSTRUCTS[name].__init__)
    for parameter, text in _documented(CONSTRUCTS[name]).items():
        default: Any = signature.parameters[parameter].default
        for said in _stated(text):
            # A name of something else, such as "`end_minutes` if none is given", is no value.
            inside = DECIDED_INSIDE.get((name, parameter))
            value = inside() if inside is not None and default is None else default
            if value is None and not said[0].isdigit() and said.lower() not in _SWITCH:
                continue
            assert _same(said, value), f"{name}.{parameter}: the docstring says {said}, the code {value!r}"


def test_defaults_that_are_stated_are_found() -> None:
    text = "How many; 1,024 if none is given. By default `nat`. Off by default: with millions it is slow."
    assert sorted(_stated(text)) == ["1,024", "Off", "nat"]
    assert [_same("1,024", 1024), _same("nat", "nat"), _same("Off", False)] == [True] * 3  # noqa: FBT003
    assert [_same("1,000", 1024), _same("nat", "isolated"), _same("on", False)] == [False] * 3  # noqa: FBT003


def test_the_overview_has_every_deployment_option_with_its_default() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| key | values | default |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    said = {name: row[2] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    options = DeploymentOptions()
    assert set(said) >= set(DeploymentOptions.field_names())
    for name in DeploymentOptions.field_names():
        default = getattr(options, name)
        (literal,) = re.findall(r"^`([^`]+)`$", said[name]) or [None]
        if literal is None:
            assert default in (None, ()), f"{name}: the overview says {said[name]!r}, the code {default!r}"
        else:
            assert literal == str(default).lower(), f"{name}: the overview says {literal!r}, the code {default!r}"
