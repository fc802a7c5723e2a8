"""Sizes and times as people write them."""

from __future__ import annotations

import math

from training_storage.planning.units import GB, MB, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

_KB = 1000
_MINUTES_PER_HOUR = SECONDS_PER_HOUR // SECONDS_PER_MINUTE


def decimal_size(size: float) -> str:
    """Return a size in bytes in decimal units: ``3.21 GB``."""
    for unit, least in (("TB", 1000 * GB), ("GB", GB), ("MB", MB), ("kB", _KB)):
        if size >= least:
            return f"{size / least:.3g} {unit}" if size < 1000 * least else f"{size / least:,.0f} {unit}"
    return f"{size:.0f} B"


def duration(seconds: float) -> str:
    """Return a time: ``1 h 20 min``."""
    if seconds < SECONDS_PER_MINUTE:
        return f"{seconds:.2g} s"
    minutes = math.ceil(seconds / SECONDS_PER_MINUTE)
    if minutes < _MINUTES_PER_HOUR:
        return f"{minutes} min"
    hours, rest = divmod(minutes, _MINUTES_PER_HOUR)
    return f"{hours:,} h {rest} min"
