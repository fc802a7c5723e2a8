"""Pauses between tries."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 2.0


def pauses() -> Iterator[float]:
    """Yield growing pauses in seconds, without end, scattered so that competitors do not meet again."""
    pause = _FIRST_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 -- scatter, no secret
        pause = min(pause * 2, _LONGEST_SECONDS)
