"""Reads CloudFormation's YAML: short functions become long ones, anchors are shared, nothing is executed.

It works on the parser's events instead of PyYAML's constructors: those recurse, know no ``!Ref``, and let a key that
stands twice pass silently. PyYAML is imported when the first YAML comes along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from training_storage.cli.json_text import CUT, DEEPEST_LEVEL, Parsed, cut_notes, twice_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRUE = frozenset({"true", "yes", "on"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_MERGE = "<<"


class YamlMissingError(ValueError):
    """PyYAML is not installed."""


@dataclass(kw_only=True)
class _Open:
    """A collection whose end has not come yet."""

    value: list[Any] | dict[Any, Any]
    tag: str | None
    anchor: str | None
    key: Any = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


def parse_yaml(text: str) -> Parsed:
    """Parse the first document of a YAML text.

    Raises
    ------
    YamlMissingError
        If PyYAML is not installed.
    ValueError
        If it is no YAML.
    """
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 -- an extra: JSON works without
    except ModuleNotFoundError as error:
        raise YamlMissingError from error
    composer = _Composer(yaml.SafeLoader.yaml_implicit_resolvers)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        composer.read(yaml.parse(text, Loader=loader))
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        at = f" in line {where.line + 1}" if where is not None else ""
        raise ValueError(f"{getattr(error, 'problem', None) or type(error).__name__}{at}") from error
    return Parsed(document=composer.document, notes=tuple(composer.notes()))


class _Composer:
    """Builds a document from events, without recursion."""

    def __init__(self, resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]]) -> None:
        self.document: Any = None
        self._resolvers = resolvers
        self._stack: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._twice: list[str] = []
        self._cuts = 0
        self._cut_depth = 0
        self._unknown_aliases: list[str] = []
        self._documents = 0

    def read(self, events: Iterator[Any]) -> None:
        """Take every event."""
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self._documents += 1
            if self._documents > 1:
                continue
            if kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._open(event, {} if kind == "MappingStartEvent" else [])
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._close()
            elif kind == "ScalarEvent" and not self._cut_depth:
                self._add(self._anchored(event.anchor, _tagged(event.tag, self._scalar(event))))
            elif kind == "AliasEvent" and not self._cut_depth:
                self._alias(event.anchor)

    def notes(self) -> Iterator[str]:
        """Yield what was not read as written."""
        yield from cut_notes(self._cuts)
        yield from twice_notes(self._twice)
        for name in dict.fromkeys(self._unknown_aliases):
            yield f"alias *{name} names no finished anchor"
        if self._documents > 1:
            yield f"{self._documents - 1} further YAML documents"

    def _open(self, event: Any, value: list[Any] | dict[Any, Any]) -> None:  # noqa: ANN401 - PyYAML has no types
        if self._cut_depth or len(self._stack) >= DEEPEST_LEVEL:
            self._cut_depth += 1
            return
        self._stack.append(_Open(value=value, tag=event.tag, anchor=event.anchor))

    def _close(self) -> None:
        if self._cut_depth:
            self._cut_depth -= 1
            if not self._cut_depth:
                self._cuts += 1
                self._add(dict(CUT))
            return
        done = self._stack.pop()
        if isinstance(done.value, dict):
            for other in done.merged:
                for key, value in other.items() if isinstance(other, dict) else ():
                    done.value.setdefault(key, value)
        self._add(self._anchored(done.anchor, _tagged(done.tag, done.value)))

    def _alias(self, name: str) -> None:
        if name not in self._anchors:
            self._unknown_aliases.append(name)
            self._add(dict(CUT))
            return
        self._add(self._anchors[name])

    def _anchored(self, anchor: str | None, value: object) -> object:
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _add(self, value: Any) -> None:  # noqa: ANN401 - whatever YAML holds
        if not self._stack:
            self.document = value
            return
        top = self._stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.has_key:
            # A key may be a collection in YAML; templates have none.
            top.key = value if isinstance(value, (str, int, float, bool, type(None))) else repr(type(value))
            top.has_key = True
        else:
            top.has_key = False
            if top.key == _MERGE:
                top.merged += value if isinstance(value, list) else [value]
                return
            # CloudFormation's keys are text, whatever YAML would make of them.
            key = top.key if isinstance(top.key, str) else str(top.key)
            if key in top.value:
                self._twice.append(key)
            top.value[key] = value

    def _scalar(self, event: Any) -> object:  # noqa: ANN401 - PyYAML has no types
        value: str = event.value
        if not event.implicit[0]:
            return value
        for tag, pattern in [*self._resolvers.get(value[:1], []), *self._resolvers.get(None, [])]:
            if pattern.match(value):
                return _typed(tag.rsplit(":", 1)[-1], value)
        return value


def _typed(kind: str, value: str) -> object:
    if kind == "bool":
        return value.lower() in _TRUE
    if kind == "null":
        return None
    if kind == "int" and _INTEGER.fullmatch(value):
        return int(value)
    if kind == "float":
        try:
            return float(value)
        except ValueError:
            return value
    # Dates, and numbers to other bases, are text to CloudFormation.
    return value


def _tagged(tag: str | None, value: object) -> object:
    """Return a value with a short function as its long form; functions nobody knows are kept as such."""
    if tag is None or not tag.startswith("!") or tag == "!":
        return value
    name = tag[1:]
    if name in ("Ref", "Condition"):
        return {name: value}
    if name == "GetAtt" and isinstance(value, str):
        return {"Fn::GetAtt": value.split(".", 1)}
    return {f"Fn::{name}": value}
