"""Errors of the planning layer, each one line in the user's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PlanningError(ValueError):
    """Base of everything that planning refuses."""


class InvalidJobError(PlanningError):
    """The input is wrong: what, the value got, what is allowed, the way out (exit code 2)."""


class InvalidPlanError(PlanningError):
    """A plan file is not a plan of this version (exit code 2)."""


class NoTierError(PlanningError):
    """The input is fine, but no storage tier can serve the job; says the shortfall (exit code 3)."""


def did_you_mean(value: str, candidates: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the candidate nearest to `value`, or an empty string."""
    import difflib  # noqa: PLC0415 - loaded for mistakes only: a plan must start fast

    near = difflib.get_close_matches(value.lower(), list(candidates), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
