"""What a field may hold: strict reading from text, checking, and writing back.

``-c`` values and command-line options are text, and Python reads text generously: ``int(' 2_56 ')`` is 256, and
fullwidth digits count as digits. Here only plain ASCII notation passes, and every refusal is one line with an example.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from training_storage.planning.errors import InvalidJobError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
#: More digits than any limit here has; longer numbers are refused before they are converted.
_DIGITS_MAXIMUM = 400


class Kind(Protocol):
    """What a field accepts; `allowed_words` says it to people."""

    @property
    def allowed_words(self) -> str: ...  # noqa: D102

    def parse(self, name: str, text: str) -> object:
        """Return the value that `text` stands for, or raise InvalidJobError."""

    def check(self, name: str, value: object) -> None:
        """Raise InvalidJobError unless `value` is allowed for the field `name`."""

    def format(self, value: object) -> str:
        """Return the text that `parse` reads as `value`."""


def _plain_number(value: float) -> str:
    if isinstance(value, float):
        from decimal import Decimal  # noqa: PLC0415 - loaded for output only: a plan must start fast

        return format(Decimal(repr(value)), "f")
    return str(value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Whole:
    """A whole number from `minimum` to `maximum`."""

    minimum: int
    maximum: int
    example: int

    @property
    def allowed_words(self) -> str:
        """The bounds and an example."""
        return f"a whole number from {self.minimum} to {self.maximum}, for example {self.example}"

    def parse(self, name: str, text: str) -> int:
        """Read plain digits."""
        if len(text) > _DIGITS_MAXIMUM or not _WHOLE.fullmatch(text):
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {text[:60]!r}.")
        value = int(text)
        self.check(name, value)
        return value

    def check(self, name: str, value: object) -> None:
        """Accept an int (no bool) within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {value!r}.")

    def format(self, value: object) -> str:
        """Write plain digits."""
        return str(value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Number:
    """A number from `minimum` to `maximum`, in `unit`."""

    minimum: float = 0.0
    maximum: float
    unit: str = ""
    example: float

    @property
    def allowed_words(self) -> str:
        """The bounds, the unit and an example."""
        unit = f" ({self.unit})" if self.unit else ""
        least, most, example = map(_plain_number, (self.minimum, self.maximum, self.example))
        return f"a number from {least} to {most}{unit}, for example {example}"

    def parse(self, name: str, text: str) -> float:
        """Read digits with an optional decimal point; no exponent, sign of plus, blank or underscore."""
        if len(text) > _DIGITS_MAXIMUM or not _PLAIN.fullmatch(text):
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {text[:60]!r}.")
        value = float(text)
        self.check(name, value)
        return value

    def check(self, name: str, value: object) -> None:
        """Accept an int or float (no bool) that is finite and within the bounds."""
        fits = (
            not isinstance(value, bool)
            and isinstance(value, (int, float))
            and math.isfinite(value)
            and self.minimum <= value <= self.maximum
        )
        if not fits:
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {value!r}.")

    def format(self, value: object) -> str:
        """Write without an exponent, so that `parse` reads the same value."""
        if not isinstance(value, (int, float)):
            raise TypeError(f"a number was expected, got: {value!r}")
        return _plain_number(value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Choice:
    """One of `allowed`, in that spelling."""

    allowed: tuple[str, ...]
    hints: Mapping[str, str] | None = None

    @property
    def allowed_words(self) -> str:
        """All the words."""
        return f"one of {', '.join(self.allowed)}"

    def parse(self, name: str, text: str) -> str:
        """Read one of the allowed words."""
        self.check(name, text)
        return text

    def check(self, name: str, value: object) -> None:
        """Accept one of the allowed words; the error lists them all."""
        if isinstance(value, str) and value in self.allowed:
            return
        hint = (self.hints or {}).get(value, "") if isinstance(value, str) else ""
        meant = did_you_mean(value, self.allowed) if isinstance(value, str) else ""
        raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {value!r}.{' ' + hint if hint else meant}")

    def format(self, value: object) -> str:
        """Write the word."""
        return str(value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Flag:
    """True or false, written out: any other text might mean either."""

    @property
    def allowed_words(self) -> str:
        """Both words."""
        return "true or false"

    def parse(self, name: str, text: str) -> bool:
        """Read one of the two words."""
        if text not in {"true", "false"}:
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {text!r}.")
        return text == "true"

    def check(self, name: str, value: object) -> None:
        """Accept a bool."""
        if not isinstance(value, bool):
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {value!r}.")

    def format(self, value: object) -> str:
        """Write the word."""
        return str(value).lower()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Text:
    """Text that matches `pattern` as a whole."""

    pattern: str
    allowed: str
    example: str

    @property
    def allowed_words(self) -> str:
        """The rule and an example."""
        return f"{self.allowed}, for example {self.example}"

    def parse(self, name: str, text: str) -> str:
        """Read the text as it stands."""
        self.check(name, text)
        return text

    def check(self, name: str, value: object) -> None:
        """Accept text that matches the pattern."""
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise InvalidJobError(f"{name} must be {self.allowed_words}, got: {value!r}.")

    def format(self, value: object) -> str:
        """Write the text."""
        return str(value)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Words:
    """A comma-separated list of different words, each of which `word` accepts."""

    word: Choice | Text

    @property
    def allowed_words(self) -> str:
        """What each word may be."""
        return f"between commas: {self.word.allowed_words}"

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        """Read words between commas; no blanks, no empty word."""
        value = tuple(text.split(","))
        self.check(name, value)
        return value

    def check(self, name: str, value: object) -> None:
        """Accept a non-empty tuple of different allowed words."""
        if not isinstance(value, tuple):
            raise InvalidJobError(f"{name} must be a tuple of words, got: {value!r}.")
        if not value:
            raise InvalidJobError(f"{name} must name at least one value, got: none. Leave it out instead.")
        for word in value:
            self.word.check(name, word)
        if len(set(value)) != len(value):
            raise InvalidJobError(f"{name} must name each value once, got: {','.join(value)!r}.")

    def format(self, value: object) -> str:
        """Write the words between commas."""
        if not isinstance(value, tuple):
            raise TypeError(f"a tuple was expected, got: {value!r}")
        return ",".join(value)
