"""Sets plans beside the brute force: the ratio of their totals, and whether they meet the demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.benchmarks import brute_force
from training_storage.planning import NoTierError, StoragePlan, TrainingJob, plan_storage
from training_storage.planning.demand import assess
from training_storage.planning.resolution import resolve
from training_storage.planning.selection import choose_tiers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One job: the plan's total over the least of the brute force, None where both refuse the job.

    `printed_ratio` is the money that the plan prints over what the brute force makes of the same configuration.
    """

    job: dict[str, Any]
    ratio: float | None
    printed_ratio: float | None
    meets: bool


def agreements(jobs: Iterable[dict[str, Any]]) -> Iterator[Agreement]:
    """Yield the agreement of each job; a job that only one side refuses has an infinite ratio."""
    for fields in jobs:
        job = TrainingJob(**fields)
        # Which tiers is the rules' business, not the grid's: both sides start from them.
        situation = resolve(job, environment_region=None)
        tiers = choose_tiers(situation, assess(situation)).tiers
        least = brute_force.least(fields, tiers)
        try:
            plan = plan_storage(job, alternatives=False)
        except NoTierError:
            plan = None
        if plan is None or least is None:
            same = plan is None and least is None
            yield Agreement(job=fields, ratio=None if same else float("inf"), printed_ratio=None, meets=same)
            continue
        yield _agreement(fields, plan, tiers, least[1])


def _agreement(fields: dict[str, Any], plan: StoragePlan, tiers: tuple[str, ...], least_usd: float) -> Agreement:
    need, candidate = brute_force.demand(fields), configuration(plan)
    usd = brute_force.total(need, candidate, tiers)
    printed = plan.cost.run_usd.total
    return Agreement(
        job=fields,
        ratio=float("inf") if usd is None else usd / least_usd,
        printed_ratio=None if usd is None or printed is None else printed / usd,
        meets=brute_force.meets(need, candidate, targets=False),
    )


def configuration(plan: StoragePlan) -> brute_force.Candidate:
    """Return what the plan deploys in the brute force's terms."""
    hot = {place.data: place.hot or "s3" for place in plan.placement}
    system = plan.fsx_lustre
    return brute_force.Candidate(
        hot["datasets"],
        hot["checkpoints"],
        plan.job.network_path or "",
        None if system is None else system.deployment_type,
        None if system is None else system.per_unit_storage_throughput,
        None if system is None else system.storage_capacity_gib,
    )
