"""What a rule says: a finding with value got, values allowed, way out and source, in one short line."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeGuard, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MESSAGE_MAXIMUM_CHARACTERS: Final = 200
_SHOWN_CHARACTERS: Final = 48
_ELLIPSIS: Final = "…"


class Unknown(enum.Enum):
    """A value that is known only at deployment: a token, an intrinsic function."""

    UNKNOWN = "known only at deployment"


UNKNOWN: Final = Unknown.UNKNOWN

#: Text that is given, left out (None) or unknown.
Text = str | Unknown | None
#: A number as given; text where somebody wrote text that is no number.
Number = int | float | str | Unknown | None
#: A switch; text where somebody wrote text that is neither true nor false.
Flag = bool | str | Unknown | None

Subject = TypeVar("Subject")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What one rule found, before the rule signs it.

    Parameters
    ----------
    what
        The field, in snake_case.
    allowed
        What follows "must": ``be one of 1, 2``.
    got
        The value; shown as Python writes it.
    remedy
        The way out.
    location
        Path of the property in CloudFormation, for example ``LustreConfiguration.EfaEnabled``.
    """

    what: str
    allowed: str
    got: object
    remedy: str
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that the service would refuse, or that would lose data.

    Parameters
    ----------
    rule
        Id of the rule, for example ``lustre-capacity``.
    what, got, allowed, remedy
        The field, the value as shown, what follows "must", the way out.
    source
        Where the rule comes from.
    location
        Path of the property in CloudFormation; empty if it is none.
    """

    rule: str
    what: str
    got: str
    allowed: str
    remedy: str
    source: str
    location: str = ""

    @property
    def message(self) -> str:
        """One line of at most 200 characters: what, allowed, got, way out."""
        text = self._text(self.got)
        over = len(text) - MESSAGE_MAXIMUM_CHARACTERS
        return text if over <= 0 else self._text(shorten(self.got, max(len(self.got) - over, 1)))

    def _text(self, got: str) -> str:
        return f"{self.what} must {self.allowed}, got: {got}; {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Subject]):
    """A named check of a `Subject`: its id, what it promises in one line, and its source."""

    id: str
    promise: str
    source: str
    check: Callable[[Subject], Iterable[Problem]]

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """Yield what is wrong with `subject`."""
        for problem in self.check(subject):
            yield Finding(
                rule=self.id,
                what=problem.what,
                got=shown(problem.got),
                allowed=problem.allowed,
                remedy=problem.remedy,
                source=self.source,
                location=problem.location,
            )


def rule(rule_id: str, *, source: str) -> Callable[[Callable[[Subject], Iterable[Problem]]], Rule[Subject]]:
    """Make a `Rule` of a function, whose docstring is "Require that " and the promise."""

    def register(check: Callable[[Subject], Iterable[Problem]]) -> Rule[Subject]:
        promise = (check.__doc__ or "").splitlines()[0].removeprefix("Require that ").rstrip(".")
        return Rule(id=rule_id, promise=promise[:1].upper() + promise[1:], source=source, check=check)

    return register


def located(finding: Finding, location: str) -> Finding:
    """Return `finding` for the property at `location`."""
    return replace(finding, location=location)


def shown(value: object) -> str:
    """Return `value` as a message shows it: as Python writes it, shortened."""
    return shorten(value.text if isinstance(value, Words) else repr(value), _SHOWN_CHARACTERS)


@dataclass(frozen=True)
class Words:
    """A value that is shown without quotes."""

    text: str


def shorten(text: str, length: int) -> str:
    """Return `text` with at most `length` characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + _ELLIPSIS


def listed(values: Iterable[object]) -> str:
    """Return values for a message: ``125, 250, 500``."""
    return ", ".join(str(value) for value in values)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number; ``True`` and 2400.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool)
