"""What a job asks of storage, whatever the tiers: rates in bytes per second, sizes in bytes, times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog, defaults
from training_storage.planning.units import (
    GB,
    GIB,
    MIB,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

if TYPE_CHECKING:
    from training_storage.planning.resolution import Situation


def mean_time_between_failures_s(*, instances: int, failures_per_1000_node_days: float) -> float:
    """Return the mean time between failures of the whole job in seconds: 1 / (N x r)."""
    return SECONDS_PER_DAY * 1000 / (instances * failures_per_1000_node_days)


def young_interval_s(*, mean_time_between_failures_s: float, stall_s: float) -> float:
    """Return Young's interval in seconds for a stall of `stall_s` per checkpoint."""
    return math.sqrt(2 * mean_time_between_failures_s * stall_s)


def effective_training_time_ratio(
    *, restart_s: float, restore_s: float, interval_s: float, stall_s: float, mean_time_between_failures_s: float
) -> float:
    """Return the share of the run that trains, at least 0."""
    lost_share = (restart_s + restore_s + interval_s / 2) / mean_time_between_failures_s
    return max(0.0, (1 - lost_share) / (1 + stall_s / interval_s))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Needs:
    """The demand of a job before any tier is chosen.

    Parameters
    ----------
    read_bytes_per_s
        Read demand of the whole cluster at full accelerator use.
    accelerator_use
        Share of it that must be met (1 without a workload).
    checkpoint_bytes
        Size of one checkpoint.
    write_bytes_per_s, least_write_bytes_per_s
        Rate that writing checkpoints needs: by the stall budget if synchronous, and by a given interval in both modes,
        because a save must end before the next begins; and the part of it that no assumed budget makes.
    restore_bytes_per_s
        Rate that the restore budget needs.
    synchronous
        Whether training waits until a checkpoint is written.
    stall_is_limit, restore_is_limit
        Whether the user gave the budget; assumed budgets are targets.
    mtbf_s, young_s
        Mean time between failures, and Young's interval for the stall budget.
    restore_target_s, stall_target_s
        The budgets for a restore and for the stall of a save.
    interval_s
        The given interval, or None to choose it with the size.
    device_stall_s
        Time to copy an asynchronous checkpoint from the accelerators to the hosts.
    slowest_rank_bytes
        Largest share of one rank, if known.
    read_request_bytes, checkpoint_part_bytes
        Bytes that one GET of the data and one part of a checkpoint move.
    files_per_s
        Files opened per second at full use, or None where the file size is not known.
    """

    read_bytes_per_s: float
    accelerator_use: float
    checkpoint_bytes: float
    write_bytes_per_s: float
    restore_bytes_per_s: float
    least_write_bytes_per_s: float
    stall_is_limit: bool
    restore_is_limit: bool
    synchronous: bool
    mtbf_s: float
    young_s: float
    restore_target_s: float
    stall_target_s: float
    interval_s: float | None
    device_stall_s: float
    slowest_rank_bytes: float | None
    read_request_bytes: float
    checkpoint_part_bytes: float
    files_per_s: float | None

    def required(self, *, reads: bool, checkpoints: bool, targets: bool) -> Required:
        """Return the rates that a tier must deliver.

        Parameters
        ----------
        reads, checkpoints
            What the tier serves.
        targets
            Whether assumed budgets count as well.
        """
        write = (self.write_bytes_per_s if targets else self.least_write_bytes_per_s) if checkpoints else 0.0
        restore = self.restore_bytes_per_s if checkpoints and (targets or self.restore_is_limit) else 0.0
        read = self.read_bytes_per_s * self.accelerator_use if reads else 0.0
        return Required(read=read, write=write, restore=restore, together=not self.synchronous)

    @property
    def has_targets(self) -> bool:
        """Whether a step without the assumed budgets would ask for less."""
        return not self.restore_is_limit or self.least_write_bytes_per_s < self.write_bytes_per_s

    def least_stall_s(self, rank_bytes_per_s: float) -> float:
        """Return the stall that no larger tier shortens, in seconds: the slowest rank's, or the copy to the hosts.

        Parameters
        ----------
        rank_bytes_per_s
            The most that one rank writes.
        """
        return (self.slowest_rank_bytes or 0.0) / rank_bytes_per_s if self.synchronous else self.device_stall_s

    def full_use_words(self, required: Required, nodes: int) -> str:
        """Return the rate of one of `nodes` at full accelerator use, where reads are the bound and may be slower."""
        if self.accelerator_use == 1 or required.total > required.read:
            return ""
        return f" ({self.read_bytes_per_s / nodes / GB:.3g} at full accelerator use)"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Required:
    """Rates in bytes per second; `together` says whether reading and writing happen at the same time."""

    read: float
    write: float
    restore: float
    together: bool

    @property
    def total(self) -> float:
        """Rate that one tier must deliver at its busiest."""
        return max(self.busy, self.restore)

    @property
    def busy(self) -> float:
        """Rate while the job trains and saves."""
        return self.read + self.write if self.together else max(self.read, self.write)


def part_words(needs: Needs) -> str:
    """Return how much one request moves, in words."""
    return (
        f"{needs.read_request_bytes / MIB:.3g} MiB a GET of data, {needs.checkpoint_part_bytes / MIB:.3g} MiB a part "
        "of a checkpoint"
    )


def request_bytes(*, object_bytes: float | None, part_bytes: float) -> float:
    """Return the mean bytes that one request moves: objects smaller than a part are one request each."""
    if object_bytes is None:
        return part_bytes
    return object_bytes / math.ceil(object_bytes / part_bytes)


def assess(situation: Situation) -> Needs:
    """Return what the job of `situation` asks of storage."""
    job = situation.job
    workload = catalog.workloads.workloads()[job.workload] if job.workload is not None else None
    read = situation.accelerators * situation.number("read_gb_per_s_per_accelerator") * GB
    size = _checkpoint_bytes(situation)
    synchronous = job.checkpoint_mode == "sync"
    interval = job.checkpoint_interval_minutes
    interval_s = None if interval is None else interval * SECONDS_PER_MINUTE
    stall_budget = situation.number("checkpoint_stall_budget_seconds")
    within_s = 0.0 if interval_s is None else size / interval_s
    budget_given = "checkpoint_stall_budget_seconds" in situation.given
    for_stall = size / stall_budget if synchronous else 0.0
    mtbf_s = (
        job.mtbf_hours * SECONDS_PER_HOUR
        if job.mtbf_hours is not None
        else mean_time_between_failures_s(
            instances=job.instances, failures_per_1000_node_days=situation.number("failures_per_1000_node_days")
        )
    )
    file_bytes = (
        job.mean_file_size_mib * MIB
        if job.mean_file_size_mib is not None
        else (workload.file_bytes if workload is not None else None)
    )
    shard = size / situation.accelerators
    return Needs(
        read_bytes_per_s=read,
        accelerator_use=1.0 if workload is None else workload.accelerator_use,
        checkpoint_bytes=size,
        write_bytes_per_s=max(for_stall, within_s),
        least_write_bytes_per_s=max(for_stall if budget_given else 0.0, within_s),
        restore_bytes_per_s=size / situation.number("restore_budget_seconds"),
        stall_is_limit=budget_given,
        restore_is_limit="restore_budget_seconds" in situation.given,
        synchronous=synchronous,
        mtbf_s=mtbf_s,
        young_s=young_interval_s(mean_time_between_failures_s=mtbf_s, stall_s=stall_budget),
        restore_target_s=situation.number("restore_budget_seconds"),
        stall_target_s=stall_budget,
        interval_s=interval_s,
        device_stall_s=size / (situation.accelerators * defaults.number("device_to_host_gb_per_s") * GB),
        slowest_rank_bytes=_slowest_rank_bytes(situation),
        read_request_bytes=request_bytes(object_bytes=file_bytes, part_bytes=_part_bytes(file_bytes)),
        checkpoint_part_bytes=request_bytes(object_bytes=shard, part_bytes=_part_bytes(shard)),
        files_per_s=None if file_bytes is None else read / file_bytes,
    )


def _part_bytes(object_bytes: float | None) -> float:
    """Return the part size: the usual one, or more where an object would have too many parts."""
    usual = defaults.number("part_size_mib") * MIB
    if object_bytes is None:
        return usual
    return max(usual, object_bytes / catalog.s3.s3_limits().parts_maximum)


def _checkpoint_bytes(situation: Situation) -> float:
    job = situation.job
    if job.checkpoint_size_gib is not None:
        return job.checkpoint_size_gib * GIB
    if job.bytes_per_parameter is None and job.model is not None:
        return catalog.workloads.models()[job.model].checkpoint_bytes
    share = defaults.number("lora_parameter_share") if job.fine_tuning == "lora" else 1.0
    return situation.number("model_parameters") * situation.number("bytes_per_parameter") * share


def _slowest_rank_bytes(situation: Situation) -> float | None:
    """Return the largest share of a rank where a named model is saved as published."""
    job = situation.job
    if job.model is None or job.bytes_per_parameter is not None or job.checkpoint_size_gib is not None:
        return None
    return catalog.workloads.models()[job.model].slowest_rank_gib * GIB
