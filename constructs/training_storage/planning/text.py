"""Plain text for terminals: columns, wrapped lines, numbers as people write them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Widest and narrowest line of a report: beyond, eyes lose the line; below, columns do not fit.
WIDTH, NARROWEST = 100, 72
#: Columns of what the app says at synth, beside lines of CDK that are as long.
SUMMARY_WIDTH = 110
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


#: Words that not every reader knows, each with what stands behind it where it comes up first.
_TERMS = {
    r"prefix(es)?": "beginnings of object names, which S3 serves at 5,500 GET/s and 3,500 PUT/s each",
    r"metadata IOPS": "files opened and closed per second",
    r"the lake's growth": "archived checkpoints, and replaced ones for a day",
}


@dataclass
class Page:
    """Text of `width` columns, between 72 and 100, that says what a term means where it comes up first."""

    width: int = WIDTH
    _unknown: dict[str, str] = field(default_factory=lambda: dict(_TERMS))

    def __post_init__(self) -> None:
        self.width = max(NARROWEST, min(WIDTH, self.width))

    def rows(self, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Yield `pairs` in two columns."""
        return rows([(name, self.defined(text)) for name, text in pairs], width=self.width)

    def wrapped(self, text: str, *, first: str = _INDENT) -> list[str]:
        """Return `text` in lines."""
        return wrapped(self.defined(text), first=first, width=self.width)

    def table(self, lines: Iterable[tuple[str, str, str]]) -> Iterator[str]:
        """Yield `lines` as names, figures on the right of their column, and notes, wrapped."""
        lines = list(lines)
        figures = max((len(figure) for _, figure, _ in lines), default=0)
        names = max((len(name) for name, _, _ in lines), default=0)
        for name, figure, note in lines:
            # A name stays short: what it means goes to the note.
            meaning = self.defined(name)[len(name) :].strip(" ()")
            words = "; ".join(text for text in (note, meaning) if text)
            right = textwrap.wrap(words, self.width - len(_INDENT) * 3 - names - figures) or [""]
            for number, words in enumerate(right):
                left, middle = ("", "") if number else (name, figure)
                yield f"{_INDENT}{left:<{names}}{_INDENT}{middle:>{figures}}{_INDENT}{words}".rstrip()

    def defined(self, text: str) -> str:
        """Return `text` with the meaning of each term that was not on the page before."""
        for term, meaning in list(self._unknown.items()):
            found = re.search(rf"\b{term}(?!\w)", text)
            if found:
                del self._unknown[term]
                text = f"{text[: found.end()]} ({meaning}){text[found.end() :]}"
        return text
