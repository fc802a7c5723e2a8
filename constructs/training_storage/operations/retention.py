"""Which checkpoints are worth keeping. Pure: the same list and rule give the same answer, however often."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

NEWEST: Final = "the newest complete checkpoint"


class RetentionError(ValueError):
    """A rule that cannot be; one line."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint as the rule sees it.

    Parameters
    ----------
    name
        Name of the folder, unique in a list.
    step
        Training step; None where the name has none.
    finished_at
        When it was complete, with a time zone.
    complete
        Whether it is one at all. What is not complete is never chosen.
    """

    name: str
    step: int | None
    finished_at: dt.datetime
    complete: bool


@dataclass(frozen=True, kw_only=True)
class RetentionRule:
    """What to keep besides the newest complete checkpoint, which is always kept; what any part names stays.

    Parameters
    ----------
    keep_last
        The newest N.
    interval_minutes
        The newest of every interval of so many minutes (intervals stand still: they are counted from 1970).
    intervals_kept
        How many intervals back, not counting those that the newest N already serve; None for all.
    every_steps
        Each whose step is a multiple of K.
    names
        Those of these names.
    not_before
        Parts other than `names` pass over what was finished before; None for no limit.

    Raises
    ------
    RetentionError
        For numbers that keep nothing or mean nothing.
    """

    keep_last: int = 0
    interval_minutes: float | None = None
    intervals_kept: int | None = None
    every_steps: int | None = None
    names: frozenset[str] = frozenset()
    not_before: dt.datetime | None = None

    def __post_init__(self) -> None:
        if self.keep_last < 0:
            raise RetentionError(f"keep_last must be 0 or more, got: {self.keep_last}")
        # Below a second, two checkpoints of one interval cannot be told from two of two.
        if self.interval_minutes is not None and not 1 / 60 <= self.interval_minutes <= 1e9:  # noqa: PLR2004 - a thousand years
            raise RetentionError(
                f"interval_minutes must be at least a second and a number of minutes, got: {self.interval_minutes}"
            )
        if self.intervals_kept is not None and self.intervals_kept < 0:
            raise RetentionError(f"intervals_kept must be 0 or more, got: {self.intervals_kept}")
        if self.every_steps is not None and self.every_steps < 1:
            raise RetentionError(f"every_steps must be 1 or more, got: {self.every_steps}")
        if self.not_before is not None and self.not_before.tzinfo is None:
            raise RetentionError(f"not_before must have a time zone, got: {self.not_before.isoformat()}")


def kept(checkpoints: Iterable[Checkpoint], rule: RetentionRule) -> dict[str, str]:
    """Return the names that `rule` keeps, oldest first, each with the reason.

    The newest complete checkpoint is kept under every rule: the last by time and the one of the highest step, which
    are two after training has gone back to an older one.
    """
    complete = sorted((one for one in checkpoints if one.complete), key=_age)
    if not complete:
        return {}
    reasons = {one.name: why for one, why in _reasons(complete, rule)}
    return {one.name: reasons[one.name] for one in complete if one.name in reasons}


def newest_complete(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """Return the complete checkpoint that was finished last; None if there is none."""
    return max((one for one in checkpoints if one.complete), key=_age, default=None)


def protected(checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """Return the names that nothing may delete: the newest complete checkpoint, by time and by step."""
    return frozenset(kept(checkpoints, RetentionRule()))


def _reasons(complete: Sequence[Checkpoint], rule: RetentionRule) -> Iterator[tuple[Checkpoint, str]]:
    """Yield what is kept and why; the last reason of a checkpoint counts."""
    recent = [one for one in complete if rule.not_before is None or one.finished_at >= rule.not_before]
    last = recent[-rule.keep_last :] if rule.keep_last else []
    if rule.interval_minutes is not None:
        for one in _of_intervals(recent, last, rule):
            yield one, f"the newest of its {rule.interval_minutes:g} minutes"
    for one in recent:
        if rule.every_steps is not None and one.step is not None and one.step % rule.every_steps == 0:
            yield one, f"a multiple of {rule.every_steps} steps"
    for one in last:
        yield one, f"one of the newest {rule.keep_last}"
    for one in complete:
        if one.name in rule.names:
            yield one, "named"
    numbered = [one for one in complete if one.step is not None]
    if numbered:
        yield max(numbered, key=lambda one: (one.step, _age(one))), "the highest step"
    yield complete[-1], NEWEST


def _of_intervals(recent: Sequence[Checkpoint], last: Sequence[Checkpoint], rule: RetentionRule) -> list[Checkpoint]:
    # Whole microseconds: fractions of an interval must not move its border with the number of intervals before it.
    length = dt.timedelta(minutes=rule.interval_minutes or 0)
    newest = {(one.finished_at - _EPOCH) // length: one for one in recent}
    rest = [one for one in newest.values() if one not in last]
    return rest if rule.intervals_kept is None else rest[len(rest) - min(rule.intervals_kept, len(rest)) :]


def _age(one: Checkpoint) -> tuple[dt.datetime, int, str]:
    return (one.finished_at, -1 if one.step is None else one.step, one.name)
