"""A plan that was edited by hand is refused where its parts no longer fit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning import PlanningError, StoragePlan, TrainingJob, plan_storage

MIXED = plan_storage(
    TrainingJob(instances=1200, interface="object", checkpoint_interface="posix", name="alpha")
).to_dict()
LUSTRE = plan_storage(TrainingJob(instances=64)).to_dict()


def edited(plan: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    copied = copy.deepcopy(plan)
    at: Any = copied
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part)] if part.isdigit() else at[part]
    at[int(last) if last.isdigit() else last] = value
    return copied


EDITS: list[tuple[dict[str, Any], str, object, str]] = [
    (LUSTRE, "fsx_lustre.storage_capacity_gib", 0, "capacity"),
    (LUSTRE, "fsx_lustre.storage_capacity_gib", -2400, "capacity"),
    (LUSTRE, "fsx_lustre.storage_capacity_gib", 1300, "capacity"),
    (LUSTRE, "fsx_lustre.per_unit_storage_throughput", 300, "300"),
    (LUSTRE, "fsx_lustre.per_unit_storage_throughput", 250, "baseline_mb_per_s must be"),
    (LUSTRE, "fsx_lustre.efa_enabled", True, "(?i)efa"),
    (LUSTRE, "fsx_lustre.efa_interfaces_per_client", 8, "efa_interfaces_per_client must be 0"),
    (LUSTRE, "fsx_lustre.file_system_type_version", "2.10", "2.10"),
    (LUSTRE, "fsx_lustre", None, "selection.tiers must be s3, .*got: s3, fsx-lustre"),
    (LUSTRE, "selection.tiers", ["s3"], "selection.tiers must be s3, fsx-lustre"),
    (LUSTRE, "selection.tiers", ["s3", "fsx-lustre", "tape"], "tape"),
    (LUSTRE, "fsx_lustre.data_repository_associations.0.file_system_path", "/../etc", "etc"),
    (LUSTRE, "fsx_lustre.data_repository_associations.0.file_system_path", "relative", "relative"),
    (LUSTRE, "job.name", "beta", "must lead to checkpoints/beta/"),
    (LUSTRE, "job.zone_id", "euw1-az1", "zone"),
    (LUSTRE, "job.region", "eu-west-1", "zone"),
    (LUSTRE, "job.region", "mars-1", "region"),
    (LUSTRE, "job.instances", 0, "instances"),
    (LUSTRE, "job.instance_type", "p99.48xlarge", "instance_type"),
    (MIXED, "s3_express", None, "selection.tiers must be s3, fsx-lustre, as .*got: s3, fsx-lustre, s3-express"),
    (MIXED, "s3_express.zone_id", "use1-az6", "s3_express.zone_id must be"),
    (MIXED, "s3.folders.4", "checkpoints/beta/", "must lead to checkpoints/alpha/"),
]


@pytest.mark.parametrize(("plan", "path", "value", "message"), EDITS, ids=lambda value: str(value)[:50])
def test_an_edit_that_no_longer_fits_is_refused_in_one_line(
    plan: dict[str, Any], path: str, value: object, message: str
) -> None:
    with pytest.raises(PlanningError, match=message) as caught:
        StoragePlan.from_dict(edited(plan, path, value))
    assert "\n" not in str(caught.value)


def test_what_was_not_edited_is_accepted() -> None:
    for plan in (MIXED, LUSTRE):
        assert StoragePlan.from_dict(plan).to_dict() == plan


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        TrainingJob,
        instances=st.integers(1, 3000),
        interface=st.sampled_from([None, "posix", "object"]),
        region=st.sampled_from(["us-east-1", "us-west-2", "eu-north-1", "ap-northeast-1"]),
        dataset_gib=st.sampled_from([None, 0, 5000, 200_000]),
    )
)
def test_every_plan_that_the_planner_makes_is_consistent(job: TrainingJob) -> None:
    try:
        plan = plan_storage(job)
    except PlanningError:
        return
    assert StoragePlan.from_json(plan.to_json()) == plan
