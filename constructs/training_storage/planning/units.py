"""Units. GB and MB are decimal, GiB and MiB binary; network rates are bits."""

from __future__ import annotations

from typing import Final

MB: Final = 10**6
GB: Final = 10**9
MIB: Final = 2**20
GIB: Final = 2**30
GIB_PER_TIB: Final = 1024
SECONDS_PER_MINUTE: Final = 60
SECONDS_PER_HOUR: Final = 3600
SECONDS_PER_DAY: Final = 86_400
_BITS_PER_BYTE: Final = 8


def bytes_per_s(gbps: float) -> float:
    """Return bytes per second of a network rate in Gbps: 100 Gbps are 12.5 GB/s."""
    return gbps * GB / _BITS_PER_BYTE
