"""Loads the catalog's data files."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

# Beside this file: importlib.resources would load a dozen modules more, and a plan must start fast.
_FOLDER = Path(__file__).parent


#: The first table of a row: ``["us-east-1"]``. Its other tables, ``["us-east-1".instance_types]``, follow it.
_ROW = re.compile(r'^\["([^"\n]+)"\]$', re.MULTILINE)


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return the parsed TOML file `name` of this package. Callers must not change it."""
    return tomllib.loads(_text(name))


@functools.cache
def row_names(name: str) -> tuple[str, ...]:
    """Return the names of the rows of the file `name`, whose tables are all quoted, without parsing it."""
    return tuple(_ROW.findall(_text(name)))


@functools.cache
def load_row(name: str, row: str) -> dict[str, Any]:
    """Return the row `row` of the file `name`, parsed alone: a plan needs one Region and one instance type.

    Raises
    ------
    KeyError
        If the file has no such row.
    """
    text = _text(name)
    for found in _ROW.finditer(text):
        if found.group(1) == row:
            following = _ROW.search(text, found.end())
            tables: dict[str, Any] = tomllib.loads(text[found.start() : following.start() if following else None])
            return dict(tables[row])
    raise KeyError(row)


@functools.cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
