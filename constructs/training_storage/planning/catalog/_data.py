"""Loads the catalog's data files."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

# Beside this file: importlib.resources would load a dozen modules more, and a plan must start fast.
_FOLDER = Path(__file__).parent


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return the parsed TOML file `name` of this package. Callers must not change it."""
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))
