"""Says in lines what differs between two templates: where, what it was, what it is."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["LINES_MAXIMUM", "differences"]

LINES_MAXIMUM: Final = 60
_SHOWN_CHARACTERS: Final = 80
_CONTEXT_CHARACTERS: Final = 24


def differences(before: Any, after: Any) -> list[str]:  # noqa: ANN401 -- JSON
    """Return one line for each value that was changed (~), added (+) or removed (-), at most `LINES_MAXIMUM`.

    Parameters
    ----------
    before, after
        Two JSON documents.
    """
    lines = list(_compare("", before, after))
    more = len(lines) - LINES_MAXIMUM
    return [*lines[:LINES_MAXIMUM], f"… and {more} more"] if more > 0 else lines


def _compare(path: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 -- JSON
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            here = f"{path}.{key}" if path else str(key)
            if key not in after:
                yield f"- {here}: {_brief(before[key])}"
            elif key not in before:
                yield f"+ {here}: {_brief(after[key])}"
            else:
                yield from _compare(here, before[key], after[key])
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(path, before, after)
    elif type(before) is not type(after) or before != after:
        was, now = _pair(before, after)
        yield f"~ {path}: {was} -> {now}"


def _compare_lists(path: str, before: list[Any], after: list[Any]) -> Iterator[str]:
    """Compare lists so that an item in their middle does not make all that follow look changed."""
    matcher = difflib.SequenceMatcher(
        a=[_canonical(item) for item in before], b=[_canonical(item) for item in after], autojunk=False
    )
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        paired = min(a_end - a, b_end - b)
        for offset in range(paired):
            yield from _compare(f"{path}[{b + offset}]", before[a + offset], after[b + offset])
        for index in range(a + paired, a_end):
            yield f"- {path}[{index}]: {_brief(before[index])}"
        for index in range(b + paired, b_end):
            yield f"+ {path}[{index}]: {_brief(after[index])}"


def _canonical(value: Any) -> str:  # noqa: ANN401 -- JSON
    return json.dumps(value, sort_keys=True)


def _brief(value: Any) -> str:  # noqa: ANN401 -- JSON
    """Return a value in one short line; a resource by its type."""
    if isinstance(value, Mapping) and isinstance(value.get("Type"), str):
        return str(value["Type"])
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _pair(before: Any, after: Any) -> tuple[str, str]:  # noqa: ANN401 -- JSON
    """Return both values in short; of long texts the part where they begin to differ."""
    if not (isinstance(before, str) and isinstance(after, str)) or max(len(before), len(after)) <= _SHOWN_CHARACTERS:
        return _brief(before), _brief(after)
    same = next(
        (index for index, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    start = max(0, same - _CONTEXT_CHARACTERS)
    return _excerpt(before, start), _excerpt(after, start)


def _excerpt(text: str, start: int) -> str:
    end = start + _SHOWN_CHARACTERS
    shown = json.dumps(text[start:end], ensure_ascii=False)
    return ("…" if start else "") + shown + ("…" if end < len(text) else "")
