"""Finds the least total on a grid of sizes without weighing every one, and without missing it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.planning.cost import RankingUsd


def least_total(count: int, weigh: Callable[[int], RankingUsd], *, below: float = math.inf) -> tuple[int, float] | None:
    """Return the index with the least total and that total, or None if no total is under `below`.

    Parameters
    ----------
    count
        Number of sizes, ascending.
    weigh
        Money of the size at an index. Its part `rising` never falls with the index and `falling` never rises, so that
        no size of a stretch costs less than the first one's `rising` and the last one's `falling`: stretches that
        cannot win are left out, and what is found is the least of all.
    below
        A total that is already in hand.
    """
    if count == 0:
        return None
    first, last = weigh(0), weigh(count - 1)
    best, best_index = below, None
    for index, usd in ((0, first), (count - 1, last)):
        if usd.total < best:
            best, best_index = usd.total, index
    stretches = [(0, first, count - 1, last)]
    while stretches:
        low, at_low, high, at_high = stretches.pop()
        if high - low <= 1 or at_low.rising + at_high.falling >= best:
            continue
        middle = (low + high) // 2
        usd = weigh(middle)
        if usd.total < best:
            best, best_index = usd.total, middle
        halves = [(low, at_low, middle, usd), (middle, usd, high, at_high)]
        # The half that may hold the less is looked at first: what it finds may spare the other.
        halves.sort(key=lambda half: -(half[1].rising + half[3].falling))
        stretches += halves
    return None if best_index is None else (best_index, best)
