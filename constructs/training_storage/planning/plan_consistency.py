"""Whether the parts of a plan fit each other: a plan may have been edited by hand before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import catalog, legality
from training_storage.planning.errors import InvalidPlanError
from training_storage.planning.job import UNNAMED, check_zone_of_region
from training_storage.planning.selection import EXPRESS, LUSTRE, S3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.plan import StoragePlan

_TIERS = (S3, LUSTRE, EXPRESS)
_JOB_FOLDERS = ("checkpoints", "logs", "evaluations")


def check_consistency(plan: StoragePlan) -> None:
    """Refuse a plan whose parts contradict each other, or that AWS would refuse.

    Raises
    ------
    InvalidPlanError
        One line with the first contradiction: where, the value got, what is allowed.
    """
    for message in _contradictions(plan):
        raise InvalidPlanError(f"{message} Plan again instead of editing the file.")


def _contradictions(plan: StoragePlan) -> Iterator[str]:
    yield from _wrong_tiers(plan)
    region = catalog.region(plan.region)
    if plan.zone_id is not None:
        check_zone_of_region(zone_id=plan.zone_id, region=region)
    yield from _wrong_express(plan)
    yield from _wrong_folders(plan)
    if plan.fsx_lustre is not None:
        for finding in legality.check_plan(plan):
            yield f"plan: {finding.message}."
        yield from _wrong_lustre(plan)


def _wrong_tiers(plan: StoragePlan) -> Iterator[str]:
    tiers = plan.selection.tiers
    expected = tuple(
        tier
        for tier, there in zip(_TIERS, (True, plan.fsx_lustre is not None, plan.s3_express is not None), strict=True)
        if there
    )
    if tiers != expected:
        yield (
            f"plan.selection.tiers must be {', '.join(expected)}, as fsx_lustre and s3_express in the plan say, "
            f"got: {', '.join(tiers) or 'none'}."
        )


def _wrong_express(plan: StoragePlan) -> Iterator[str]:
    if plan.s3_express is not None and plan.s3_express.zone_id != plan.zone_id:
        yield f"plan.s3_express.zone_id must be {plan.zone_id}, the job's zone, got: {plan.s3_express.zone_id}."


def _wrong_folders(plan: StoragePlan) -> Iterator[str]:
    name = plan.job.name or UNNAMED
    paths = (
        [link.data_repository_path for link in plan.fsx_lustre.data_repository_associations] if plan.fsx_lustre else []
    )
    for path in (*plan.s3.folders, *paths):
        parts = path.split("://", 1)[-1].strip("/").split("/")
        below = parts[1:] if "://" in path else parts
        if below and below[0] in _JOB_FOLDERS and below[1:2] != [name]:
            yield f"plan: {below[0]}/ must lead to {below[0]}/{name}/, the job's own folder, got: {path}."


def _wrong_lustre(plan: StoragePlan) -> Iterator[str]:
    system = plan.fsx_lustre
    if system is None:
        return
    kind = catalog.lustre.deployment_types()[system.deployment_type]
    tier = kind.throughputs[system.per_unit_storage_throughput]
    baseline = tier.mb_per_s(capacity_gib=system.storage_capacity_gib, baseline=tier.per_unit)
    if abs(system.baseline_mb_per_s - baseline) > 1:
        yield (
            f"plan.fsx_lustre.baseline_mb_per_s must be {baseline:g} for {system.storage_capacity_gib} GiB at "
            f"{system.per_unit_storage_throughput} MB/s per TiB, got: {system.baseline_mb_per_s:g}."
        )
    if system.efa_enabled != (system.efa_interfaces_per_client > 0):
        yield (
            f"plan.fsx_lustre.efa_interfaces_per_client must be {'at least 1' if system.efa_enabled else 0} with "
            f"efa_enabled {str(system.efa_enabled).lower()}, got: {system.efa_interfaces_per_client}."
        )
