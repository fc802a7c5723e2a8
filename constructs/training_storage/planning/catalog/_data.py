"""Loads the catalog's data files."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return the parsed TOML file `name` of this package. Callers must not change it."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return tomllib.loads(text)
