"""Plain text for terminals: columns, wrapped lines, numbers as people write them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Widest line of a report.
WIDTH = 100
_INDENT = "  "


def rows(pairs: Iterable[tuple[str, str]], *, width: int = WIDTH) -> Iterator[str]:
    """Yield a line for each pair, the first column as wide as its widest word, the second wrapped."""
    pairs = list(pairs)
    column = max((len(name) for name, _ in pairs), default=0) + 2
    for name, text in pairs:
        lines = textwrap.wrap(text, width - len(_INDENT) - column, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines or [""]):
            yield f"{_INDENT}{'' if number else name:<{column}}{line}".rstrip()


def wrapped(text: str, *, first: str = _INDENT, width: int = WIDTH) -> list[str]:
    """Return `text` in lines; `first` begins the first one, blanks of that width the others."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def usd(value: float | None) -> str:
    """Return money in whole dollars, in cents below 100, and words where no price is known."""
    if value is None:
        return "no known price"
    return f"${value:,.2f}" if abs(value) < 100 else f"${value:,.0f}"  # noqa: PLR2004 - below, cents matter


def percent(share: float) -> str:
    """Return a share in percent with two digits."""
    return f"{share * 100:.2f} %"


def amount(value: float) -> str:
    """Return a number with what digits it needs to be calculated with again."""
    if value == int(value) and abs(value) < 1e15:  # noqa: PLR2004 - above, digits mean nothing
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 1000 else f"{value:.6g}"  # noqa: PLR2004
