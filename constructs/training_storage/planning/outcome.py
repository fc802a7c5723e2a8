"""What a configuration makes of a run: intervals, stalls, restores, and how well the accelerators are used."""

from __future__ import annotations

import math
from typing import NamedTuple

from training_storage.planning import defaults
from training_storage.planning.demand import Needs, effective_training_time_ratio, young_interval_s
from training_storage.planning.units import SECONDS_PER_MINUTE


class Delivery(NamedTuple):
    """What the chosen tiers deliver, in bytes per second.

    Parameters
    ----------
    read_bytes_per_s
        Of the tier that the data set is read from.
    write_bytes_per_s, restore_bytes_per_s
        Of the tier that checkpoints are written to and restored from.
    write_beside_reads_bytes_per_s
        What reading at the accelerator use that must be kept leaves for asynchronous writing.
    rank_bytes_per_s
        The most that one rank writes: its share of the client's bound.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    restore_bytes_per_s: float
    write_beside_reads_bytes_per_s: float
    rank_bytes_per_s: float


class Outcome(NamedTuple):
    """Times in seconds and counts over the run."""

    interval_s: float
    stall_s: float
    restore_s: float
    mtbf_s: float
    achieved_use: float
    failures: float
    checkpoints: float
    idle_node_s: float
    lost_node_s: float

    @property
    def effective_training_time_ratio(self) -> float:
        """Share of the run that trains."""
        return effective_training_time_ratio(
            restart_s=defaults.number("restart_seconds"),
            restore_s=self.restore_s,
            interval_s=self.interval_s,
            stall_s=self.stall_s,
            mean_time_between_failures_s=self.mtbf_s,
        )

    @property
    def makes_progress(self) -> bool:
        """Whether any time is left for training."""
        return self.effective_training_time_ratio > 0


def outcome(*, needs: Needs, delivery: Delivery, run_s: float) -> Outcome | None:
    """Return what the run comes to, or None if a checkpoint would never be complete.

    That is where reading leaves an asynchronous one no rate, and where a save takes as long as the given interval.
    """
    restart_s = defaults.number("restart_seconds")
    stall_s = _stall_s(needs, delivery)
    interval_s = _interval_s(needs, delivery, stall_s)
    if interval_s is None or (needs.interval_s is not None and stall_s >= interval_s):
        return None
    restore_s = needs.checkpoint_bytes / delivery.restore_bytes_per_s
    achieved = 1.0 if needs.read_bytes_per_s == 0 else min(1.0, delivery.read_bytes_per_s / needs.read_bytes_per_s)
    failures = run_s / needs.mtbf_s
    checkpoints = run_s / interval_s
    return Outcome(
        interval_s=interval_s,
        stall_s=stall_s,
        restore_s=restore_s,
        mtbf_s=needs.mtbf_s,
        achieved_use=achieved,
        failures=failures,
        checkpoints=checkpoints,
        idle_node_s=checkpoints * stall_s + failures * restore_s + run_s * (1 - achieved),
        lost_node_s=failures * (interval_s / 2 + restart_s),
    )


def _stall_s(needs: Needs, delivery: Delivery) -> float:
    """Return how long the accelerators wait for one save."""
    least_s = needs.least_stall_s(delivery.rank_bytes_per_s)
    return max(needs.checkpoint_bytes / delivery.write_bytes_per_s, least_s) if needs.synchronous else least_s


def _interval_s(needs: Needs, delivery: Delivery, stall_s: float) -> float | None:
    if needs.interval_s is not None:
        return needs.interval_s
    shortest = defaults.number("checkpoint_interval_minimum_minutes") * SECONDS_PER_MINUTE
    best = max(young_interval_s(mean_time_between_failures_s=needs.mtbf_s, stall_s=stall_s), shortest)
    if needs.synchronous:
        return best
    if delivery.write_beside_reads_bytes_per_s <= 0:
        return None
    written = needs.checkpoint_bytes / delivery.write_beside_reads_bytes_per_s
    return max(best, written) if math.isfinite(written) else None
