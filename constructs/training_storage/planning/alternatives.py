"""What else would serve the job: other tiers and throughputs, the other checkpoint mode; costed, never chosen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from training_storage.planning import configuration, cost, lustre, s3_files
from training_storage.planning.errors import PlanningError
from training_storage.planning.plan import Alternative
from training_storage.planning.selection import EXPRESS, LUSTRE, S3, S3_FILES
from training_storage.planning.solution import Solution, solve
from training_storage.planning.text import usd
from training_storage.planning.units import SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from training_storage.planning.bill import Line
    from training_storage.planning.configuration import Configuration
    from training_storage.planning.job import TrainingJob
    from training_storage.planning.plan import Cost
    from training_storage.planning.selection import Offer

#: Parts that move less are not worth a word.
_LEAST_USD = 0.5
#: Size of a packed shard. Source: the shard advice "2 to 4 GB each".
PACKED_SHARD_MIB = 2048.0
#: Names of the run's parts for people.
PART_WORDS = {
    "storage": "storage",
    "lake_growth": "the lake's growth",
    "requests_and_transfer": "requests and transfer",
    "idle_accelerators": "waiting accelerators",
    "lost_work": "repeated work",
}


def alternatives(solution: Solution) -> tuple[Alternative, ...]:
    """Return the alternatives: tiers next to the chosen ones, throughput tiers, the other mode, what rules name."""
    return (
        *_other_tiers(solution),
        *_other_throughputs(solution),
        _other_mode(solution),
        *(_offered(solution, offer) for offer in solution.found.choice.offers if not _is_tiers_only(offer)),
    )


def money_difference(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return the parts of the run that move, the most first; together they are the difference of the totals.

    For example ``waiting accelerators +$1,000, storage −$20.50``.
    """
    changes = {part: after[part] - before[part] for part in before}
    moved = sorted((part for part, usd in changes.items() if abs(usd) >= _LEAST_USD), key=lambda p: -abs(changes[p]))
    return ", ".join(
        f"{PART_WORDS[part]} {'+' if changes[part] > 0 else '−'}{usd(abs(changes[part]))}" for part in moved
    )


def at_whose_prices(solution: Solution, *others: Iterable[Line]) -> str:
    """Return whose prices stand in for those that the Region lacks, to be said behind compared money; else nothing."""
    lines = itertools.chain(solution.lines(), *others)
    names = cost.stand_ins(solution.situation, lines)
    return f" at the prices of {' and '.join(names)}" if names else ""


def sizes(found: Configuration) -> dict[str, object]:
    """Return what a configuration consists of, in plain values."""
    values: dict[str, object] = {"network_path": found.path}
    system = found.layout.file_system
    if system is not None:
        values |= {
            "deployment_type": system.deployment_type.name,
            "storage_capacity_gib": system.capacity_gib,
            "per_unit_storage_throughput": system.tier.per_unit,
            "efa_enabled": system.efa,
        }
    values["checkpoint_interval_minutes"] = float(f"{found.result.interval_s / SECONDS_PER_MINUTE:.4g}")
    return values


def _is_tiers_only(offer: Offer) -> bool:
    """Whether the offer is one of the tier sets that are compared anyway; its words are used there."""
    return not offer.packed_shards and S3_FILES not in offer.tiers


def _other_tiers(solution: Solution) -> Iterator[Alternative]:
    chosen = solution.found.choice.tiers
    words = {offer.tiers: offer.why_not for offer in solution.found.choice.offers if _is_tiers_only(offer)}
    for tiers in ((S3,), (S3, LUSTRE), (S3, EXPRESS)):
        if tiers == chosen:
            continue
        why = words.get(tiers) or _interface_words(solution, tiers) or _rule_words(solution)
        yield _replanned(solution, tiers=tiers, job=replace(solution.job, tiers=tiers), why=why)


def _interface_words(solution: Solution, tiers: tuple[str, ...]) -> str | None:
    job = solution.situation.job
    if LUSTRE not in tiers and "posix" in (job.interface, job.checkpoint_interface):
        return "POSIX code would read through Mountpoint, and save to local NVMe and upload."
    if tiers == (S3, LUSTRE) and "posix" not in (job.interface, job.checkpoint_interface):
        return "Object code would read mounted paths."
    return None


def _rule_words(solution: Solution) -> str:
    rules = [rule for rule in solution.found.choice.rules if rule not in ("lake", "demand")]
    return f"Tiers follow the rule {', '.join(rules)}, not the price."


def _other_throughputs(solution: Solution) -> Iterator[Alternative]:
    found = solution.found
    if found.request is None or found.layout.file_system is None:
        return
    limit = configuration.quota_gib(solution.situation)
    for tier in found.request.throughputs:
        if tier.per_unit == found.layout.file_system.tier.per_unit:
            continue
        best = configuration.best_of_tier(solution.situation, solution.needs, found.attempt, tier.per_unit)
        if best is None:
            least = lustre.least_gib(found.request, tier) or 0
            yield Alternative(
                tiers=found.choice.tiers,
                configuration={"per_unit_storage_throughput": tier.per_unit},
                per_month_usd=None,
                run_usd=None,
                why_not=f"Needs {least:,} GiB, more than the quota of {limit:,} GiB."
                if least > limit
                else f"Up to the quota of {limit:,} GiB, reads leave it no time for checkpoints.",
            )
            continue
        system = best.layout.file_system
        more = system is not None and system.capacity_gib > max(limit, found.layout.file_system.capacity_gib)
        why = "Needs a larger quota than the plan." if more else ""
        yield _costed(solution, replace(solution, found=best), tiers=found.choice.tiers, why=why)


def _other_mode(solution: Solution) -> Alternative:
    mode = "async" if solution.needs.synchronous else "sync"
    return _replanned(
        solution,
        tiers=solution.found.choice.tiers,
        job=replace(solution.job, checkpoint_mode=mode),
        why="Training would wait for every write."
        if mode == "sync"
        else "Wants memory on the hosts for a copy, and a framework that writes in the background.",
        extra={"checkpoint_mode": mode},
    )


def _offered(solution: Solution, offer: Offer) -> Alternative:
    if offer.packed_shards:
        job = replace(solution.job, tiers=offer.tiers, mean_file_size_mib=PACKED_SHARD_MIB)
        extra: dict[str, object] = {"packed_shards": True, "mean_file_size_mib": PACKED_SHARD_MIB}
        return _replanned(solution, tiers=offer.tiers, job=job, why=offer.why_not, extra=extra)
    lines = s3_files.lines(solution)
    if lines is None:
        return Alternative(
            tiers=offer.tiers,
            configuration={},
            per_month_usd=None,
            run_usd=None,
            why_not=f"{offer.why_not} No checkpoint would ever be complete.",
        )
    money = cost.money(situation=solution.situation, lines=lines)
    return Alternative(
        tiers=offer.tiers,
        configuration={},
        per_month_usd=_month(money),
        run_usd=money.run_usd.total,
        why_not=_why_not(solution, lines, offer.why_not),
    )


def _replanned(
    solution: Solution,
    *,
    tiers: tuple[str, ...],
    job: TrainingJob,
    why: str,
    extra: dict[str, object] | None = None,
) -> Alternative:
    """Return the alternative that planning `job` gives, or why it gives none."""
    try:
        other = solve(job, environment_region=solution.environment_region)
    except PlanningError as error:
        return Alternative(
            tiers=tiers, configuration=extra or {}, per_month_usd=None, run_usd=None, why_not=f"Not possible: {error}"
        )
    return _costed(solution, other, tiers=tiers, why=why, extra=extra)


def _costed(
    solution: Solution,
    other: Solution,
    *,
    tiers: tuple[str, ...],
    why: str,
    extra: dict[str, object] | None = None,
) -> Alternative:
    money = other.money()
    return Alternative(
        tiers=tiers,
        configuration={**sizes(other.found), **(extra or {})},
        per_month_usd=_month(money),
        run_usd=money.run_usd.total,
        why_not=_why_not(solution, other.lines(), why),
    )


def _month(money: Cost) -> float | None:
    """Return the storage of a month without the cluster."""
    total = 0.0
    for tier, value in money.per_month_usd.items():
        if tier != "cluster":
            if value is None:
                return None
            total += value
    return cost.rounded(total)


def _why_not(solution: Solution, lines: list[Line], why: str) -> str:
    before, after = solution.ranking_parts(), cost.ranking_parts(solution.situation, lines)
    whose = at_whose_prices(solution, lines)
    change = sum(after.values()) - sum(before.values())
    if abs(change) < 1:
        words = f"Costs the same over the run{whose}."
    else:
        verb = "Costs" if change > 0 else "Saves"
        more = " more" if change > 0 else ""
        words = f"{verb} {usd(abs(change))}{more} over the run{whose} ({money_difference(before, after)})."
    return f"{words} {why}".strip()
