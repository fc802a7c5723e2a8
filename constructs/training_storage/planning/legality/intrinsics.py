"""CloudFormation's intrinsic functions, told from plain values and rendered as text, never evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from training_storage.planning.legality.finding import UNKNOWN, Unknown

NO_VALUE = "AWS::NoValue"
_MAXIMUM_PARTS = 200
_MAXIMUM_DEPTH = 12
_SUB_VARIABLE = re.compile(r"\$\{(?P<literal>!)?(?P<name>[^}]*)\}")


def is_intrinsic(value: object) -> bool:
    """Whether `value` is a function of CloudFormation, one that nobody knows yet included."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    name = next(iter(value))
    return isinstance(name, str) and (name in ("Ref", "Condition") or name.startswith("Fn::"))


def is_absent(value: object) -> bool:
    """Whether `value` is left out: nothing at all, or a reference to AWS::NoValue."""
    return value is None or (isinstance(value, Mapping) and len(value) == 1 and value.get("Ref") == NO_VALUE)


def plain_text(value: object) -> str | Unknown:
    """Return a text whose unknown parts stand in it as ``${…}``, or UNKNOWN where nothing of it is known."""
    if isinstance(value, str):
        return value
    rendered = _render(value, _MAXIMUM_DEPTH)
    return rendered if re.sub(r"\$\{[^}]*\}", "", rendered) else UNKNOWN


def without_unknown(text: str) -> str:
    """Return a rendered text with ``x`` for every part that is known only at deployment, to check its form."""
    return re.sub(r"\$\{[^}]*\}", "x", text)


def symbol(value: object) -> str:
    """Return how a value is called: its text, with ``${…}`` for what is known only at deployment."""
    return _render(value, _MAXIMUM_DEPTH)


def referenced(value: object) -> set[str]:
    """Return the logical ids that a value refers to; a value that is nested too deep is read in part."""
    found: set[str] = set()
    pending: list[tuple[object, int]] = [(value, 0)]
    seen: set[int] = set()
    while pending:
        node, depth = pending.pop()
        if depth > _MAXIMUM_PARTS or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            found |= _names(node)
            pending += [(item, depth + 1) for item in node.values()]
        elif isinstance(node, list):
            pending += [(item, depth + 1) for item in node]
    return found


def _names(node: Mapping[Any, Any]) -> set[str]:
    if len(node) != 1:
        return set()
    name, argument = next(iter(node.items()))
    first = argument[0] if isinstance(argument, list) and argument else argument
    if name not in ("Ref", "Fn::GetAtt", "Fn::Sub") or not isinstance(first, str):
        return set()
    if name == "Fn::Sub":
        return {match["name"].split(".")[0].strip() for match in _SUB_VARIABLE.finditer(first)}
    return {first.split(".")[0]}


def _render(value: object, depth: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and len(value) == 1 and depth > 0:
        name, argument = next(iter(value.items()))
        rendered = _render_function(str(name), argument, depth)
        if rendered is not None:
            return rendered
    return "${" + _brief(value) + "}"


def _render_function(name: str, argument: object, depth: int) -> str | None:
    """Return the text of a reference or of joined text; None for other functions."""
    if name == "Ref":
        return f"${{{argument}}}"
    if name == "Fn::GetAtt":
        parts = argument if isinstance(argument, list) else [argument]
        return "${" + ".".join(str(part) for part in parts[:4]) + "}"
    if name == "Fn::Sub":
        return _substituted(argument, depth)
    if name == "Fn::Join" and isinstance(argument, list) and len(argument) == 2:  # noqa: PLR2004
        separator, parts = argument
        if isinstance(separator, str) and isinstance(parts, list) and len(parts) <= _MAXIMUM_PARTS:
            return separator.join(_render(part, depth - 1) for part in parts)
    return None


def _substituted(argument: object, depth: int) -> str:
    template, variables = argument, {}
    if isinstance(argument, list) and len(argument) == 2:  # noqa: PLR2004
        template, variables = argument
    if not isinstance(template, str):
        return "${" + _brief(argument) + "}"

    def value_of(match: re.Match[str]) -> str:
        name = match["name"].strip()
        if match["literal"]:
            return "$" + "{" + name + "}"
        if isinstance(variables, Mapping) and name in variables:
            return _render(variables[name], depth - 1)
        return "${" + name + "}"

    return _SUB_VARIABLE.sub(value_of, template)


def _brief(value: object) -> str:
    """Return a short and steady name of any value; braces would end the ``${…}`` around it."""
    if isinstance(value, Mapping) and len(value) == 1:
        name, argument = next(iter(value.items()))
        inner = argument if isinstance(argument, (str, int)) else canonical(argument)
        return f"{name} {inner}".replace("{", "(").replace("}", ")")
    return canonical(value).replace("{", "(").replace("}", ")")


def canonical(value: object, *, most: int = _MAXIMUM_PARTS) -> str:
    """Return JSON of a value; one of more than `most` parts (anchors may multiply them) by its identity only."""
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        count += 1
        if count > most:
            return f"value {id(value)}"
        if isinstance(node, Mapping):
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"value {id(value)}"
