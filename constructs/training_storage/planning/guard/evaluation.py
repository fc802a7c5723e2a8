"""Evaluates what of a template's functions is known: parameters, constant conditions, mappings, joined text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from training_storage.planning.legality.intrinsics import NO_VALUE, is_intrinsic

_DEEPEST = 200
_BRANCHES = 3
_MOST_NESTED = 50
_VARIABLE = re.compile(r"\$\{(?P<literal>!)?(?P<name>[^}]*)\}")


class Evaluator:
    """One template with the values of its parameters.

    What is not known stays a function, in one form whichever way it was written: ``!Ref K`` and ``!Sub "${K}"`` are the
    same, ``!GetAtt K.Arn`` and ``[K, Arn]`` too.

    Parameters
    ----------
    template
        The template, parsed.
    parameters
        Values by name; ``AWS::Region`` may be among them.
    """

    def __init__(self, template: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._declared = _mapping(template.get("Parameters"))
        self._conditions = _mapping(template.get("Conditions"))
        self._mappings = _mapping(template.get("Mappings"))
        # Anchors share values: each is evaluated once. The value itself is kept, so that its identity stays its own.
        self._seen: dict[int, tuple[object, object]] = {}
        self._results: dict[str, bool | None] = {}
        #: Names of conditions and mappings that could not be evaluated where they were asked for.
        self.unknown: set[str] = set()

    def value(self, given: object, depth: int = 0) -> object:
        """Return `given` with everything evaluated that is known; None for AWS::NoValue."""
        if not isinstance(given, (Mapping, list)) or depth > _DEEPEST:
            return given
        known = self._seen.get(id(given))
        if known is None:
            known = (given, self._evaluate(given, depth))
            self._seen[id(given)] = known
        return known[1]

    def condition(self, name: object) -> bool | None:
        """Return whether a condition holds, or None where that is known only at deployment."""
        return self._named(name) if isinstance(name, str) else None

    @property
    def pseudo_parameters(self) -> dict[str, Any]:
        """The pseudo parameters that are known, such as ``AWS::Region``."""
        return {name: value for name, value in self._parameters.items() if name.startswith("AWS::")}

    def definition(self, name: str) -> object:
        """Return what a condition or a mapping says, with everything evaluated that is known."""
        return self.value(self._conditions.get(name, self._mappings.get(name)))

    def _evaluate(self, given: Mapping[Any, Any] | list[Any], depth: int) -> object:
        if isinstance(given, list):
            return [item for item in (self.value(item, depth + 1) for item in given) if item is not None]
        if is_intrinsic(given):
            name, argument = next(iter(given.items()))
            return self._function(str(name), argument, depth)
        evaluated = {key: self.value(item, depth + 1) for key, item in given.items()}
        return {key: item for key, item in evaluated.items() if item is not None}

    def _function(self, name: str, argument: Any, depth: int) -> object:  # noqa: ANN401 -- a template holds anything
        if name == "Ref":
            return self._reference(argument)
        if name == "Fn::If" and isinstance(argument, list) and len(argument) == _BRANCHES:
            return self._choice(argument, depth)
        if name == "Fn::Sub":
            return self._substituted(argument, depth)
        evaluated = self.value(argument, depth + 1)
        if name == "Fn::FindInMap":
            return self._found(evaluated)
        made = _LITERAL_FUNCTIONS[name](evaluated) if name in _LITERAL_FUNCTIONS else None
        return {name: evaluated} if made is None else made

    def _reference(self, name: object) -> object:
        if name == NO_VALUE:
            return None
        if not isinstance(name, str) or name not in self._parameters or self._parameters[name] is None:
            return {"Fn::Sub": f"${{{name}}}"}
        value = self._parameters[name]
        kind = str(_mapping(self._declared.get(name)).get("Type", ""))
        if isinstance(value, str) and ("List" in kind):
            return [item.strip() for item in value.split(",")]
        return value

    def _choice(self, argument: list[Any], depth: int) -> object:
        name, then, otherwise = argument
        holds = self.condition(name)
        if holds is None:
            self.unknown.add(str(name))
            branches = [self.value(then, depth + 1), self.value(otherwise, depth + 1)]
            return {"Fn::If": [name, *branches]}
        return self.value(then if holds else otherwise, depth + 1)

    def _found(self, evaluated: object) -> object:
        if not isinstance(evaluated, list) or not evaluated:
            return {"Fn::FindInMap": evaluated}
        name, *keys = evaluated
        node: object = self._mappings.get(name) if isinstance(name, str) else None
        for key in keys[:2]:
            text = plain(key)
            node = node.get(text) if isinstance(node, Mapping) and text is not None else None
        if node is None:
            self.unknown.add(str(name))
            return {"Fn::FindInMap": evaluated}
        return node

    def _substituted(self, argument: object, depth: int) -> object:
        template, variables = argument, {}
        if isinstance(argument, list) and len(argument) == 2:  # noqa: PLR2004 -- text and variables
            template, variables = argument
        if not isinstance(template, str):
            return {"Fn::Sub": argument}

        def value_of(match: re.Match[str]) -> str:
            name = match["name"].strip()
            if match["literal"]:
                return match[0]
            given = variables.get(name) if isinstance(variables, Mapping) else None
            value = self._reference(name) if given is None else self.value(given, depth + 1)
            return _part(value) or "${" + name + "}"

        return _text(_VARIABLE.sub(value_of, template))

    def _named(self, name: str) -> bool | None:
        if name not in self._results:
            # A condition that refers to itself is not known.
            self._results[name] = None
            self._results[name] = self._condition(self._conditions.get(name), 0)
        return self._results[name]

    def _condition(self, given: object, depth: int) -> bool | None:
        if depth > _MOST_NESTED or not isinstance(given, Mapping) or len(given) != 1:
            return None
        name, argument = next(iter(given.items()))
        if name == "Condition":
            return self.condition(argument)
        operands = argument if isinstance(argument, list) else []
        if name == "Fn::Equals" and len(operands) == 2:  # noqa: PLR2004 -- takes two
            one, other = (plain(self.value(operand)) for operand in operands)
            return None if one is None or other is None else one == other
        results = [self._condition(operand, depth + 1) for operand in operands]
        return _combined(str(name), results)


def parameter_values(template: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of the parameters of a template: the given ones, defaults otherwise.

    The default of a parameter in the Parameter Store is the name of the value, not the value.
    """
    values: dict[str, Any] = {}
    for name, declaration in _mapping(template.get("Parameters")).items():
        declared = _mapping(declaration)
        default = declared.get("Default")
        if default is not None:
            stored = str(declared.get("Type", "")).startswith("AWS::SSM::")
            values[str(name)] = {"Fn::Sub": "${resolve:ssm:" + str(default) + "}"} if stored else default
    return {**values, **(given or {})}


def plain(value: object) -> str | None:
    """Return a literal as CloudFormation compares it: 1200 is ``"1200"``, true is ``"true"``; None for the rest."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, int, float)) else None


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _part(value: object) -> str | None:
    """Return a value as a part of text, with ``${…}`` for what is not known; None if it is no text at all."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get("Fn::Sub"), str):
        return str(value["Fn::Sub"])
    return plain(value)


def _text(text: str) -> object:
    """Return text, as a function where some of it is not known."""
    return {"Fn::Sub": text} if "${" in text else text


def _combined(name: str, results: list[bool | None]) -> bool | None:
    """Return what a logical function says of its operands; one that is not known matters only if it decides."""
    if name == "Fn::Not" and len(results) == 1:
        return None if results[0] is None else not results[0]
    if name not in ("Fn::And", "Fn::Or") or not results:
        return None
    decides = name == "Fn::Or"
    if decides in results:
        return decides
    return None if None in results else not decides


def _attribute(evaluated: object) -> object:
    parts = evaluated if isinstance(evaluated, list) else [evaluated]
    return {"Fn::Sub": "${" + ".".join(map(str, parts)) + "}"} if all(isinstance(p, str) for p in parts) else None


def _split(evaluated: object) -> object:
    if isinstance(evaluated, list) and len(evaluated) == 2:  # noqa: PLR2004 -- separator and text
        separator, text = evaluated
        if isinstance(separator, str) and separator and isinstance(text, str):
            return text.split(separator)
    return None


def _joined(evaluated: object) -> object:
    if isinstance(evaluated, list) and len(evaluated) == 2:  # noqa: PLR2004 -- separator and parts
        separator, items = evaluated
        parts = [_part(item) for item in items] if isinstance(items, list) else [None]
        if isinstance(separator, str) and None not in parts:
            return _text(separator.join(str(part) for part in parts))
    return None


def _selected(evaluated: object) -> object:
    if isinstance(evaluated, list) and len(evaluated) == 2:  # noqa: PLR2004 -- index and list
        index, items = evaluated
        text = plain(index)
        if isinstance(items, list) and text is not None and text.isdecimal() and int(text) < len(items):
            return items[int(text)]
    return None


#: Functions that need only their arguments; None where those are not known.
_LITERAL_FUNCTIONS = {"Fn::GetAtt": _attribute, "Fn::Join": _joined, "Fn::Select": _selected, "Fn::Split": _split}
