"""A progress bar on a terminal; now and then a line elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

#: Seconds between two lines where there is no terminal: a log is read later.
_LINE_SECONDS = 30.0


class Progress:
    """Counts bytes; use as a context manager. `add` may be called from any thread.

    Parameters
    ----------
    total
        Bytes altogether.
    shown
        Whether to show anything.
    """

    def __init__(self, *, total: int, shown: bool = True) -> None:
        self._total = total
        self._done = 0
        self._shown = shown
        self._lock = threading.Lock()
        self._bar = _bar(total) if shown and sys.stderr.isatty() else None
        self._next = time.monotonic() + _LINE_SECONDS

    def add(self, count: int) -> None:
        """Count `count` bytes more."""
        with self._lock:
            self._done += count
            if self._bar is not None:
                self._bar.update(count)
            elif self._shown and time.monotonic() >= self._next:
                self._next = time.monotonic() + _LINE_SECONDS
                sys.stderr.write(f"{self._done / 2**30:,.1f} of {self._total / 2**30:,.1f} GiB\n")
                sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(total: int) -> Any:  # noqa: ANN401 -- tqdm comes without types
    """Return tqdm's bar; None where tqdm is not installed (extra ``operations``)."""
    try:
        from tqdm import tqdm  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError:
        return None
    return tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr)
