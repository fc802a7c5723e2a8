"""Plans the storage of a job."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from training_storage.planning import alternatives as alternatives_module
from training_storage.planning import catalog, cost, lustre, objects, placement
from training_storage.planning import levers as levers_module
from training_storage.planning.job import TrainingJob
from training_storage.planning.plan import (
    SCHEMA_VERSION,
    DemandSummary,
    ExpressPlan,
    LustrePlan,
    QuotaUse,
    S3Plan,
    Selection,
    StoragePlan,
)
from training_storage.planning.selection import EXPRESS, LUSTRE
from training_storage.planning.solution import Solution, solve
from training_storage.planning.units import GB, GIB, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.configuration import Configuration
    from training_storage.planning.demand import Needs
    from training_storage.planning.resolution import Situation

_SIGNIFICANT_DIGITS = 6
#: From this share of a quota on the plan warns.
_QUOTA_WARNING_SHARE = 0.8


def plan_storage(job: TrainingJob, *, environment_region: str | None = None, alternatives: bool = True) -> StoragePlan:
    """Return the storage plan of `job`.

    Parameters
    ----------
    job
        What the user says.
    environment_region
        Region of the caller's surroundings, used where the job names none. The environment is never read here.
    alternatives
        Whether to plan the alternatives and levers as well. Without them the plan deploys the same storage and is made
        many times faster; both lists are empty then.

    Raises
    ------
    InvalidJobError
        If fields do not fit each other, the Region or the catalog.
    NoTierError
        If no storage tier can serve the job; says the shortfall.
    """
    return plan_of(solve(job, environment_region=environment_region), alternatives=alternatives)


def plan_of(solution: Solution, *, alternatives: bool = True) -> StoragePlan:
    """Return the plan that `solution` comes to."""
    situation, needs, found, money = solution.situation, solution.needs, solution.found, solution.money()
    resolved = _resolved_job(situation, needs, found)
    quotas = _quotas(found)
    file_system = found.layout.file_system
    return StoragePlan(
        schema_version=SCHEMA_VERSION,
        job=resolved,
        assumed=_assumed(situation, resolved),
        selection=Selection(
            tiers=found.choice.tiers,
            rules=found.choice.rules,
            reasons=tuple(found.choice.reasons[rule] for rule in found.choice.rules),
            alternatives=alternatives_module.alternatives(solution) if alternatives else (),
        ),
        demand=_demand(situation, needs, found),
        fsx_lustre=None if file_system is None else _lustre_plan(situation, found, file_system),
        s3_express=ExpressPlan(zone_id=found.choice.zone_id) if EXPRESS in found.choice.tiers else None,
        s3=S3Plan(folders=placement.folders(situation.job)),
        placement=placement.placements(resolved, found.choice),
        levers=levers_module.levers(solution) if alternatives else (),
        cost=money,
        quotas=quotas,
        warnings=(
            *situation.warnings,
            *found.choice.warnings,
            *found.warnings,
            *_job_warnings(situation, needs, found),
            *_quota_warnings(quotas),
            *cost.missing_prices(situation, money, file_system),
        ),
    )


def select_tiers(job: TrainingJob, *, environment_region: str | None = None) -> Selection:
    """Return the tiers of `job` with rules, reasons and alternatives, the rule ``demand`` included.

    That rule needs sizes, so this plans the job; parameters and errors are those of `plan_storage`.
    """
    return plan_storage(job, environment_region=environment_region).selection


def _figure(value: float) -> float:
    """Return `value` with the digits that mean something, so that a plan stays readable."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def _resolved_job(situation: Situation, needs: Needs, found: Configuration) -> TrainingJob:
    job, file_system = situation.job, found.layout.file_system
    return dataclasses.replace(
        job,
        checkpoint_size_gib=_given_or(job.checkpoint_size_gib, needs.checkpoint_bytes / GIB),
        checkpoint_interval_minutes=_given_or(
            job.checkpoint_interval_minutes, found.result.interval_s / SECONDS_PER_MINUTE
        ),
        read_gb_per_s_per_accelerator=_figure(situation.number("read_gb_per_s_per_accelerator"))
        if "read_gb_per_s_per_accelerator" not in situation.given
        else job.read_gb_per_s_per_accelerator,
        hot_dataset_gib=min(_figure(found.layout.hot_bytes / GIB), situation.number("dataset_gib"))
        if job.hot_dataset_gib is None
        else job.hot_dataset_gib,
        mtbf_hours=_given_or(job.mtbf_hours, needs.mtbf_s / SECONDS_PER_HOUR),
        network_path=found.path,
        zone_id=found.choice.zone_id,
        tiers=found.choice.tiers,
        lustre_deployment_type=job.lustre_deployment_type if file_system is None else file_system.deployment_type.name,
    )


def _given_or(given: float | None, value: float) -> float:
    return _figure(value) if given is None else given


#: Fields that the plan derives from others; filling them in assumes nothing.
_DERIVED = frozenset({"tiers", "checkpoint_size_gib", "mtbf_hours", "lustre_deployment_type", "prices", "name"})


def _assumed(situation: Situation, resolved: TrainingJob) -> tuple[str, ...]:
    """Return the fields that were filled in without being given, in the order of the job's fields."""
    derived = set(_DERIVED)
    if situation.job.workload is not None:
        derived.add("read_gb_per_s_per_accelerator")
    if situation.job.model is not None:
        derived.add("model_parameters")
    assumed = resolved.given() - situation.given - derived
    return tuple(name for name in TrainingJob.field_names() if name in assumed)


def _demand(situation: Situation, needs: Needs, found: Configuration) -> DemandSummary:
    result = found.result
    # An asynchronous checkpoint is written over the whole interval, a synchronous one within the stall budget.
    write = needs.write_bytes_per_s if needs.synchronous else needs.checkpoint_bytes / result.interval_s
    puts = write / needs.checkpoint_part_bytes
    stored = lustre.stored_bytes(
        needs,
        hot_bytes=found.layout.hot_bytes,
        checkpoints_kept=int(situation.number("checkpoints_kept")),
        checkpoints=True,
    )
    slowest = needs.slowest_rank_bytes
    return DemandSummary(
        read_gb_per_s=_figure(needs.read_bytes_per_s / GB),
        checkpoint_size_gib=_figure(needs.checkpoint_bytes / GIB),
        checkpoint_write_gb_per_s=_figure(write / GB),
        restore_gb_per_s=_figure(needs.restore_bytes_per_s / GB),
        hot_capacity_gib=_figure(lustre.capacity_gib(stored)) if len(found.choice.tiers) > 1 else 0.0,
        checkpoint_interval_minutes=_figure(result.interval_s / SECONDS_PER_MINUTE),
        young_interval_minutes=_figure(needs.young_s / SECONDS_PER_MINUTE),
        checkpoint_stall_seconds=_figure(result.stall_s),
        slowest_rank_gib=None if slowest is None else _figure(slowest / GIB),
        effective_training_time_ratio=_figure(result.effective_training_time_ratio),
        mtbf_hours=_figure(needs.mtbf_s / SECONDS_PER_HOUR),
        get_per_s=_figure(needs.read_bytes_per_s / needs.read_request_bytes),
        put_per_s=_figure(puts),
        prefixes=objects.prefixes(needs, found.prefixes_required, put_per_s=puts),
        metadata_iops=lustre.required_metadata_iops(needs),
    )


def _lustre_plan(situation: Situation, found: Configuration, file_system: lustre.FileSystem) -> LustrePlan:
    return LustrePlan(
        deployment_type=file_system.deployment_type.name,
        storage_capacity_gib=file_system.capacity_gib,
        per_unit_storage_throughput=file_system.tier.per_unit,
        baseline_mb_per_s=file_system.baseline_mb_per_s,
        metadata_iops=found.layout.metadata_iops,
        efa_enabled=file_system.efa,
        efa_interfaces_per_client=file_system.efa_interfaces,
        file_system_type_version=situation.region.lustre_version,
        data_repository_associations=placement.linked_folders(situation.job, found.choice),
    )


def _quotas(found: Configuration) -> tuple[QuotaUse, ...]:
    uses: list[tuple[str, int]] = []
    file_system = found.layout.file_system
    if file_system is not None:
        kind = file_system.deployment_type
        uses += [(kind.storage_quota, file_system.capacity_gib), (kind.file_systems_quota, 1)]
    if EXPRESS in found.choice.tiers:
        uses.append(("directory-buckets", 1))
    quotas = [(catalog.quotas.quota(key), needed) for key, needed in uses]
    return tuple(
        QuotaUse(name=quota.name, code=quota.code, limit=quota.limit, needed=needed) for quota, needed in quotas
    )


def _quota_warnings(quotas: tuple[QuotaUse, ...]) -> Iterator[str]:
    for use in quotas:
        code = f" ({use.code})" if use.code is not None else ""
        if use.needed > use.limit:
            yield (
                f"The plan needs {use.needed:,} of the quota {use.name}{code}, whose default is {use.limit:,}: "
                "ask for an increase before deploying."
            )
        elif use.needed >= _QUOTA_WARNING_SHARE * use.limit:
            yield (
                f"The plan takes {use.needed / use.limit:.0%} of the default quota {use.name}{code} of {use.limit:,}, "
                "which the account shares."
            )


def _job_warnings(situation: Situation, needs: Needs, found: Configuration) -> Iterator[str]:
    job, instance = situation.job, situation.instance
    memory = situation.accelerators * instance.accelerator_memory_gib
    if needs.checkpoint_bytes / GIB > memory:
        yield (
            f"The training state of {needs.checkpoint_bytes / GIB:,.0f} GiB is larger than the {memory:,.0f} GiB of "
            f"accelerator memory of {job.instances} x {instance.name}."
        )
    if not found.result.makes_progress:
        yield (
            f"With a failure every {needs.mtbf_s / SECONDS_PER_HOUR:.3g} h restarts, restores and repeated work take "
            "all of the run: the job makes no progress."
        )
    if LUSTRE in found.choice.tiers:
        if job.lustre_deployment_type == "SCRATCH_2":
            yield "SCRATCH_2 does not replicate data: a failed server loses what is not in the lake."
        return
    for name, value in (("network_path", job.network_path), ("lustre_deployment_type", job.lustre_deployment_type)):
        if value is not None and (name != "network_path" or value.startswith("efa")):
            yield f"{name}={value} has no effect without fsx-lustre."
