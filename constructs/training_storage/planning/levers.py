"""What would save most: the job planned again with one field changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_storage.planning import lustre
from training_storage.planning.alternatives import PACKED_SHARD_MIB, at_whose_prices, money_difference
from training_storage.planning.errors import PlanningError
from training_storage.planning.plan import Lever
from training_storage.planning.selection import LUSTRE, S3
from training_storage.planning.solution import Solution, solve
from training_storage.planning.units import GIB, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Savings below this share of the run's total are not worth a change.
_LEAST_SHARE = 0.001
_LEAST_USD = 1.0
_WIDER_PATHS = ("ena-multi-ip", *lustre.EFA_PATHS)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _Change:
    """One field with another value, and what it means besides money. None stands for what the plan would choose."""

    field: str
    value: object
    means: str


def levers(solution: Solution) -> tuple[Lever, ...]:
    """Return the changes that save at least a thousandth of the run's total, the most first."""
    before = solution.ranking_parts()
    worth = max(_LEAST_USD, _LEAST_SHARE * sum(before.values()))
    found = []
    for change in _changes(solution):
        try:
            value = _chosen(solution, change.field) if change.value is None else change.value
            # Planned with what is printed: with the field left out the plan may differ.
            other = _with(solution, change.field, value)
        except PlanningError:
            continue
        after = other.ranking_parts()
        saves = sum(before.values()) - sum(after.values())
        if saves < worth:
            continue
        whose = at_whose_prices(solution, other.lines())
        words = f"{_system_words(solution, other)}{money_difference(before, after)}{whose}. {change.means}"
        printed = ",".join(value) if isinstance(value, tuple) else value
        found.append(Lever(change={change.field: printed}, saves_run_usd=round(saves, 2), why=words))
    return tuple(sorted(found, key=lambda lever: -lever.saves_run_usd))


def _with(solution: Solution, field: str, value: object) -> Solution:
    changed: dict[str, Any] = {field: value}
    return solve(replace(solution.job, **changed), environment_region=solution.environment_region)


def _changes(solution: Solution) -> Iterator[_Change]:
    situation, given, hot = solution.situation, solution.situation.given, solution.found.choice.checkpoint_tier != S3
    if solution.needs.synchronous:
        yield _Change(field="checkpoint_mode", value="async", means="Training no longer waits for writes.")
        yield _doubled(solution, "checkpoint_stall_budget_seconds", "Each save may stall training twice as long.")
    yield _doubled(solution, "restore_budget_seconds", "A restore may take twice as long.")
    if hot and situation.number("checkpoints_kept") > 1:
        yield _Change(
            field="checkpoints_kept",
            value=int(situation.number("checkpoints_kept")) - 1,
            means="One complete checkpoint less on the hot tier.",
        )
    if situation.number("durable_checkpoints_kept") > 0:
        yield _Change(
            field="durable_checkpoints_kept",
            value=int(situation.number("durable_checkpoints_kept")) // 2,
            means="Fewer checkpoints in the lake.",
        )
    if hot:
        yield _doubled(solution, "durable_interval_minutes", "Half as many checkpoints are archived.")
    if "checkpoint_interval_minutes" in given:
        yield _Change(
            field="checkpoint_interval_minutes", value=None, means="The interval with the least waiting and lost work."
        )
    yield from _data_changes(solution)
    yield from _path_changes(solution)
    for field, means in (
        ("tiers", "The tiers that the rules choose."),
        ("lustre_deployment_type", "The newest deployment type of the Region."),
    ):
        if field in given:
            yield _Change(field=field, value=None, means=means)


def _data_changes(solution: Solution) -> Iterator[_Change]:
    hot_gib, size = solution.found.layout.hot_bytes / GIB, solution.situation.job.mean_file_size_mib
    if hot_gib > 0:
        yield _Change(
            field="hot_dataset_gib",
            value=float(f"{hot_gib / 2:.6g}"),
            means="The rest is read from the lake on first use and released; those waits are not counted.",
        )
    if size is not None and size < PACKED_SHARD_MIB:
        yield _Change(
            field="mean_file_size_mib", value=PACKED_SHARD_MIB, means="Pack the files into shards of 2 GiB first."
        )


def _path_changes(solution: Solution) -> Iterator[_Change]:
    situation = solution.situation
    for path in _WIDER_PATHS:
        # Several addresses serve the object tiers in use, also beside a file system that takes checkpoints only.
        serves = LUSTRE in solution.found.choice.tiers if path in lustre.EFA_PATHS else bool(solution.found.stores)
        if path == solution.found.path or not serves:
            continue
        if path in lustre.EFA_PATHS and not lustre.efa_possible(situation, path):
            continue
        means = (
            f"{lustre.efa_interfaces(situation)} EFA interfaces per node fit the connections of a file system."
            if path in lustre.EFA_PATHS
            else "The nodes use several addresses."
        )
        yield _Change(field="network_path", value=path, means=means)


def _doubled(solution: Solution, field: str, means: str) -> _Change:
    return _Change(field=field, value=2 * solution.situation.number(field), means=means)


def _chosen(solution: Solution, field: str) -> object:
    """Return what the plan chooses for a field that is left to it."""
    other = _with(solution, field, None)
    if field == "checkpoint_interval_minutes":
        minutes = other.found.result.interval_s / SECONDS_PER_MINUTE
        # Up: a shorter interval might ask for more than the plan delivers.
        step = 10.0 ** (math.floor(math.log10(minutes)) - 3)
        return float(f"{math.ceil(minutes / step * (1 - 1e-12)) * step:.4g}")
    if field == "tiers":
        return other.found.choice.tiers
    return lustre.deployment_type(other.situation).name


def _system_words(before: Solution, after: Solution) -> str:
    old, new = before.found.layout.file_system, after.found.layout.file_system
    if old is None or new is None or (old.capacity_gib, old.tier) == (new.capacity_gib, new.tier):
        return ""
    return (
        f"{new.capacity_gib:,} GiB at {new.tier.per_unit} instead of {old.capacity_gib:,} GiB at {old.tier.per_unit}; "
    )
