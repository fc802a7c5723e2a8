"""Reads JSON of any depth: what is nested too deep is cut out and named, keys that stand twice are named."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

#: Deeper than any template; far from what the interpreter's stack bears.
DEEPEST_LEVEL = 100
#: Stands for what was cut out; rules take it as known only at deployment.
CUT = {"Fn::CutOut": "nested too deep"}

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A parsed document and what of it could not be read as written, one line each."""

    document: Any
    notes: tuple[str, ...]


def parse_json(text: str) -> Parsed:
    """Parse JSON.

    Raises
    ------
    ValueError
        If it is no JSON.
    """
    shallow, cuts = _without_depths(text)
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in made if keys.count(key) > 1)
        return made

    document = json.loads(shallow, object_pairs_hook=unique)
    return Parsed(document=document, notes=(*cut_notes(cuts), *twice_notes(twice)))


def cut_notes(cuts: int) -> tuple[str, ...]:
    """Return the note on parts that were cut out."""
    return (f"{cuts} parts nested deeper than {DEEPEST_LEVEL} levels",) if cuts else ()


def twice_notes(keys: list[str]) -> tuple[str, ...]:
    """Return the notes on keys that stand twice in one mapping."""
    return tuple(f"key {key!r} stands twice in one mapping: only the last is read" for key in dict.fromkeys(keys))


def _without_depths(text: str) -> tuple[str, int]:
    """Return `text` with everything below the deepest level cut out, and how many parts that were."""
    parts: list[str] = []
    depth, kept, cuts, start = 0, 0, 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
            if depth == DEEPEST_LEVEL + 1:
                start = token.start()
        elif mark in "]}":
            if depth == DEEPEST_LEVEL + 1:
                parts += [text[kept:start], json.dumps(CUT)]
                kept = token.end()
                cuts += 1
            depth -= 1
    return "".join((*parts, text[kept:])), cuts
