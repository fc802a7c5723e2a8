"""Every rule and every example of the selection model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning import InvalidJobError, NoTierError, Selection, TrainingJob, plan_storage, select_tiers
from training_storage.planning.selection import RULES

S3 = ("s3",)
LUSTRE = ("s3", "fsx-lustre")
EXPRESS = ("s3", "s3-express")
ALL = ("s3", "fsx-lustre", "s3-express")


def select(**fields: Any) -> Selection:
    return select_tiers(TrainingJob(**fields))


def warnings(**fields: Any) -> str:
    return "\n".join(plan_storage(TrainingJob(**fields)).warnings)


@pytest.mark.parametrize(
    ("fields", "tiers", "rules"),
    [
        ({"instances": 1}, S3, ("small-cluster",)),
        ({"instances": 16}, S3, ("small-cluster",)),
        ({"instances": 17}, LUSTRE, ("multi-node",)),
        ({"instances": 8, "interface": "posix"}, LUSTRE, ("small-cluster-posix",)),
        ({"instances": 8, "checkpoint_interval_minutes": 10.0}, LUSTRE, ("small-cluster-checkpoints",)),
        ({"instances": 8, "interface": "object", "checkpoint_interval_minutes": 10.0}, S3, ("small-cluster",)),
        ({"instances": 4, "interface": "object", "mean_file_size_mib": 0.1}, S3, ("small-cluster-shards",)),
        ({"instances": 256}, LUSTRE, ("multi-node",)),
        ({"instances": 500, "interface": "object"}, LUSTRE, ("multi-node",)),
        ({"instances": 600, "interface": "object"}, EXPRESS, ("large-object",)),
        ({"instances": 600, "interface": "posix"}, LUSTRE, ("large-posix",)),
        ({"instances": 1000, "interface": "object"}, EXPRESS, ("huge-object",)),
        ({"instances": 2048, "interface": "posix"}, LUSTRE, ("huge-posix",)),
        ({"instances": 1200, "interface": "object", "checkpoint_interface": "posix"}, ALL, ("mixed",)),
    ],
    ids=str,
)
def test_every_example_of_the_guide_gets_its_tiers_and_its_rule(
    fields: dict[str, Any], tiers: tuple[str, ...], rules: tuple[str, ...]
) -> None:
    selection = select(**fields)
    assert selection.tiers == tiers
    assert selection.rules == ("lake", *rules)


@pytest.mark.parametrize(
    ("instances", "unsaid", "objects"),
    [
        (1, "small-cluster", "small-cluster"),
        (16, "small-cluster", "small-cluster"),
        (17, "multi-node", "multi-node"),
        (123, "multi-node", "multi-node"),
        (124, "multi-node", "multi-node"),
        (500, "multi-node", "multi-node"),
        (501, "large-posix", "large-object"),
        (999, "large-posix", "large-object"),
        (1000, "huge-posix", "huge-object"),
        (2000, "huge-posix", "huge-object"),
        (2001, "huge-posix", "huge-object"),
    ],
)
def test_boundaries_belong_to_the_side_that_the_guide_names(instances: int, unsaid: str, objects: str) -> None:
    assert select(instances=instances).rules == ("lake", unsaid)
    assert select(instances=instances, interface="object").rules == ("lake", objects)


@pytest.mark.parametrize(
    "fields", [{}, {"interface": "object", "checkpoint_interface": "posix"}], ids=["posix", "mixed"]
)
def test_only_over_2000_instances_a_file_system_is_beyond_the_range_of_the_source(fields: dict[str, Any]) -> None:
    assert "beyond the range" not in warnings(instances=2000, **fields)
    assert "beyond the range" in warnings(instances=2001, **fields)


def test_objects_over_2000_instances_are_within_the_range() -> None:
    assert "beyond the range" not in warnings(instances=2001, interface="object")


@pytest.mark.parametrize(("instances", "minutes"), [(123, 60.02), (124, 59.78)])
def test_young_interval_for_the_stall_budget_crosses_an_hour_between_123_and_124(
    instances: int, minutes: float
) -> None:
    plan = plan_storage(TrainingJob(instances=instances))
    assert plan.demand.young_interval_minutes == pytest.approx(minutes, abs=0.01)


@pytest.mark.parametrize(("interval", "rule"), [(60.0, "small-cluster-checkpoints"), (60.01, "small-cluster")])
def test_checkpoints_are_frequent_up_to_an_hour(interval: float, rule: str) -> None:
    assert select(instances=8, checkpoint_interval_minutes=interval).rules == ("lake", rule)


def test_frequency_follows_from_failures_and_the_stall_budget_where_no_interval_is_given() -> None:
    # Young: sqrt(2 * 36,000 s * 60 s) = 34.6 min.
    assert select(instances=8, mtbf_hours=10.0).rules == ("lake", "small-cluster-checkpoints")
    assert select(instances=8, mtbf_hours=10.0, checkpoint_stall_budget_seconds=600.0).rules == (
        "lake",
        "small-cluster",
    )


@pytest.mark.parametrize(("size", "rule"), [(0.999, "small-cluster-small-files"), (1.0, "small-cluster")])
def test_files_are_small_below_1_mib(size: float, rule: str) -> None:
    assert select(instances=4, mean_file_size_mib=size).rules == ("lake", rule)


def test_all_rules_of_a_small_cluster_that_apply_are_listed_in_order() -> None:
    selection = select(instances=4, interface="posix", checkpoint_interval_minutes=5.0, mean_file_size_mib=0.1)
    assert selection.rules == (
        "lake",
        "small-cluster-posix",
        "small-cluster-checkpoints",
        "small-cluster-small-files",
    )
    assert len(selection.reasons) == len(selection.rules)


def test_checkpoints_given_as_posix_need_a_file_system() -> None:
    assert select(instances=8, interface="object", checkpoint_interface="posix").tiers == LUSTRE


def test_checkpoints_given_as_objects_alone_do_not_make_a_job_object_only() -> None:
    selection = select(instances=8, checkpoint_interface="object", checkpoint_interval_minutes=10.0)
    assert selection.tiers == LUSTRE


def test_an_assumed_posix_side_makes_a_job_mixed() -> None:
    selection = select(instances=501, checkpoint_interface="object")
    assert (selection.tiers, selection.rules) == (ALL, ("lake", "mixed"))


def test_the_object_side_of_a_mixed_job_lives_on_express() -> None:
    def hot(**fields: Any) -> dict[str, str | None]:
        return {place.data: place.hot for place in plan_storage(TrainingJob(instances=1200, **fields)).placement}

    reading = hot(interface="object", checkpoint_interface="posix")
    assert (reading["datasets"], reading["checkpoints"]) == ("s3-express", "fsx-lustre")
    saving = hot(interface="posix", checkpoint_interface="object")
    assert (saving["datasets"], saving["checkpoints"]) == ("fsx-lustre", "s3-express")


def test_small_files_on_objects_come_with_the_advice_to_pack_shards() -> None:
    assert "Pack the small files" in warnings(instances=4, interface="object", mean_file_size_mib=0.1)


def test_alternatives_that_a_rule_names_are_costed() -> None:
    files = select(instances=8, interface="posix").alternatives[-1]
    assert (files.tiers, "cannot deploy s3-files" in files.why_not) == (("s3", "s3-files"), True)
    packed = select(instances=4, mean_file_size_mib=0.1).alternatives[-1]
    assert packed.tiers == S3
    assert packed.configuration["packed_shards"] is True
    for alternative in (files, packed):
        assert alternative.per_month_usd is not None
        assert alternative.run_usd is not None


def test_express_is_named_from_1000_accelerators_on() -> None:
    # 8 accelerators each: 124 x 8 = 992, 125 x 8 = 1000.
    def why(instances: int, interface: str | None) -> str:
        found = select(instances=instances, interface=interface).alternatives
        return next(a.why_not for a in found if a.tiers == EXPRESS)

    assert "The rule counts instances; by its 1000 accelerators" in why(125, "object")
    assert "The rule counts instances" not in why(124, "object")
    assert "The rule counts instances" not in why(125, None)


def test_multi_node_tells_object_code_what_to_do() -> None:
    assert "tiers=s3,s3-express keeps the API" in select(instances=100, interface="object").reasons[-1]
    assert "keeps the API" not in select(instances=100).reasons[-1]


def test_large_object_says_where_frequent_checkpoints_go() -> None:
    assert "go to S3 Express, then to the lake" in select(instances=600, interface="object").reasons[-1]
    rare = select(instances=600, interface="object", checkpoint_interval_minutes=90.0)
    assert "go to S3 Express" not in rare.reasons[-1]


# Override


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [(("s3",), S3), (("fsx-lustre",), LUSTRE), (("s3-express", "s3"), EXPRESS), (("s3-express", "fsx-lustre"), ALL)],
)
def test_given_tiers_are_taken_exactly_and_the_lake_is_always_in(
    tiers: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    selection = select(instances=64, interface="object", tiers=tiers)
    assert (selection.tiers, selection.rules) == (expected, ("lake", "override"))


def test_posix_on_s3_alone_says_how_it_works() -> None:
    assert "Mountpoint (read-only)" in warnings(instances=64, interface="posix", tiers=("s3",))


def test_a_given_tier_that_the_region_lacks_is_bad_input() -> None:
    with pytest.raises(InvalidJobError, match="eu-central-1, which has no s3-express"):
        select(instances=64, region="eu-central-1", tiers=("s3-express",))
    with pytest.raises(InvalidJobError, match="ap-southeast-6, which has no fsx-lustre"):
        select(instances=64, region="ap-southeast-6", tiers=("fsx-lustre",))
    with pytest.raises(InvalidJobError, match="use1-az1, which has no s3-express"):
        select(instances=64, region="us-east-1", zone_id="use1-az1", tiers=("s3-express",))


# Region


def test_without_express_in_the_region_lustre_takes_its_place_with_a_warning() -> None:
    plan = plan_storage(TrainingJob(instances=600, interface="object", region="eu-central-1"))
    assert plan.tiers == LUSTRE
    assert plan.selection.rules == ("lake", "large-object", "region")
    assert any("fsx-lustre takes its place" in warning for warning in plan.warnings)


def test_without_express_in_the_given_zone_lustre_takes_its_place() -> None:
    job = TrainingJob(instances=600, interface="object", region="us-east-1", zone_id="use1-az1")
    assert plan_storage(job).selection.rules == ("lake", "large-object", "region")


def test_without_express_and_lustre_only_s3_is_left() -> None:
    selection = select(instances=600, interface="object", region="ap-southeast-6")
    assert (selection.tiers, selection.rules) == (S3, ("lake", "large-object", "region"))


def test_a_region_without_lustre_refuses_where_a_rule_wants_it() -> None:
    with pytest.raises(NoTierError, match="multi-node wants fsx-lustre"):
        select(instances=100, region="ap-southeast-6")


def test_the_zone_offers_the_type_and_express() -> None:
    assert plan_storage(TrainingJob(instances=256)).zone_id == "use1-az1"
    assert plan_storage(TrainingJob(instances=600, interface="object")).zone_id == "use1-az4"
    nowhere = plan_storage(TrainingJob(instances=256, region="us-gov-west-1"))
    assert nowhere.zone_id is None
    assert any("give zone_id" in warning for warning in nowhere.warnings)


def test_a_type_that_the_catalog_does_not_list_in_the_region_is_a_warning() -> None:
    assert "does not list p5.48xlarge in eu-central-2" in warnings(instances=64, region="eu-central-2")


# Demand, in its order


def test_a_node_that_needs_more_than_ena_gets_efa() -> None:
    # unet3d on 8 H100: 8 x 3.18 x 0.9 = 22.9 GB/s on one node.
    plan = plan_storage(TrainingJob(instances=1, interface="posix", workload="unet3d"))
    assert plan.selection.rules[-1] == "demand"
    assert plan.job.network_path == "efa"
    assert plan.fsx_lustre is not None
    assert (plan.fsx_lustre.efa_enabled, plan.fsx_lustre.efa_interfaces_per_client) == (True, 8)
    assert plan.fsx_lustre.baseline_mb_per_s >= 22_875


def test_demand_within_reach_is_met_by_a_bigger_file_system_without_the_rule() -> None:
    plan = plan_storage(TrainingJob(instances=64, workload="resnet50"))
    assert plan.selection.rules == ("lake", "multi-node")
    assert plan.fsx_lustre is not None
    assert plan.fsx_lustre.baseline_mb_per_s >= 104_832 * 0.9


def test_reads_beyond_the_quota_stay_on_s3_over_several_addresses() -> None:
    plan = plan_storage(TrainingJob(instances=64, workload="unet3d"))
    hot = {place.data: place.hot for place in plan.placement}
    assert plan.selection.rules == ("lake", "multi-node", "demand")
    assert (hot["datasets"], hot["checkpoints"]) == (None, "fsx-lustre")
    assert plan.job.network_path == "ena-multi-ip"
    assert plan.fsx_lustre is not None
    assert "/datasets/" not in [link.file_system_path for link in plan.fsx_lustre.data_repository_associations]


def test_checkpoints_beyond_the_quota_are_a_warning_with_its_code() -> None:
    # 5.67 TB every 30 s are 189 GB/s: 1000 MB/s per TiB on 193,536 GiB.
    plan = plan_storage(TrainingJob(instances=64, checkpoint_interval_minutes=0.5))
    assert plan.fsx_lustre is not None
    assert (plan.fsx_lustre.storage_capacity_gib, plan.fsx_lustre.per_unit_storage_throughput) == (194_400, 1000)
    assert any("L-8F1B9C74" in warning and "ask for an increase" in warning for warning in plan.warnings)
    assert plan.selection.rules[-1] == "demand"


def test_data_that_must_be_hot_is_not_moved_away() -> None:
    plan = plan_storage(TrainingJob(instances=64, hot_dataset_gib=200_000.0))
    assert plan.fsx_lustre is not None
    assert plan.fsx_lustre.storage_capacity_gib >= 200_000 / 0.85


def test_what_no_tier_can_deliver_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        NoTierError,
        match=r"22.9 GB/s \(25.4 at full accelerator use\) to fsx-lustre and moves at most 12.5 GB/s over ena",
    ) as refusal:
        select(instances=64, workload="unet3d", network_path="ena")
    assert "\n" not in str(refusal.value)


def test_assumed_budgets_never_refuse_or_exceed_the_quota() -> None:
    # 125 and 250 MB/s per TiB only: no size within the quota restores 56.7 TB in 300 s.
    plan = plan_storage(TrainingJob(instances=64, checkpoint_size_gib=25_000.0, region="ca-west-1"))
    assert plan.fsx_lustre is not None
    assert plan.fsx_lustre.storage_capacity_gib <= 100_800
    assert any("longer than the assumed target of 300 s" in warning for warning in plan.warnings)


def test_a_given_budget_is_a_limit() -> None:
    plan = plan_storage(
        TrainingJob(instances=64, checkpoint_size_gib=25_000.0, restore_budget_seconds=300.0, region="ca-west-1")
    )
    assert plan.fsx_lustre is not None
    assert plan.fsx_lustre.storage_capacity_gib > 100_800


def test_express_warns_above_its_default_rate_and_is_out_above_the_raised_one() -> None:
    fields: dict[str, Any] = {"interface": "object", "instance_type": "p5.48xlarge", "mean_file_size_mib": 1.0}
    # 1 MiB per GET: 501 x 8 x 0.1 GB/s = 382,000 GET/s, 501 x 8 x 1 GB/s = 3.8 million.
    raised = plan_storage(TrainingJob(instances=501, read_gb_per_s_per_accelerator=0.1, **fields))
    assert raised.tiers == EXPRESS
    assert any("ask AWS for up to 2,000,000" in warning for warning in raised.warnings)
    out = plan_storage(TrainingJob(instances=501, read_gb_per_s_per_accelerator=1.0, **fields))
    assert {place.data: place.hot for place in out.placement}["datasets"] is None
    assert out.selection.rules[-1] == "demand"


def test_too_many_small_files_for_the_metadata_servers_are_not_opened_on_lustre() -> None:
    # 64 x 8 x 0.05 GB/s in files of 0.1 MiB are 244,000 files/s, more than 192,000.
    plan = plan_storage(TrainingJob(instances=64, read_gb_per_s_per_accelerator=0.05, mean_file_size_mib=0.1))
    assert {place.data: place.hot for place in plan.placement}["datasets"] is None


# Properties

INTERFACES = st.sampled_from([None, "posix", "object"])


@settings(max_examples=60, deadline=None)
@given(
    smaller=st.integers(1, 3000),
    larger=st.integers(1, 3000),
    interface=INTERFACES,
    checkpoint_interface=INTERFACES,
    interval=st.sampled_from([None, 5.0, 59.0, 61.0, 600.0]),
)
def test_more_instances_never_remove_a_tier_that_the_same_interface_needed(
    smaller: int, larger: int, interface: str | None, checkpoint_interface: str | None, interval: float | None
) -> None:
    smaller, larger = sorted((smaller, larger))
    fields: dict[str, Any] = {
        "interface": interface,
        "checkpoint_interface": checkpoint_interface,
        "checkpoint_interval_minutes": interval,
    }
    before = set(select(instances=smaller, **fields).tiers)
    after = set(select(instances=larger, **fields).tiers)
    object_only = interface == "object" and checkpoint_interface in (None, "object")
    if object_only and smaller <= 500 < larger:
        assert before - after <= {"fsx-lustre"}
        assert "s3-express" in after
    else:
        assert before <= after


@settings(max_examples=60, deadline=None)
@given(
    instances=st.integers(1, 100_000),
    instance_type=st.sampled_from(["p5.48xlarge", "p4d.24xlarge", "p6-b300.48xlarge", "trn2.3xlarge", "g5.12xlarge"]),
    region=st.sampled_from(["us-east-1", "us-gov-west-1", "cn-north-1", "ap-southeast-6", "il-central-1"]),
    interface=INTERFACES,
    checkpoint_interface=INTERFACES,
    rate=st.floats(0, 1000),
    size=st.none() | st.floats(1e-6, 1e9),
    interval=st.none() | st.floats(0.01, 1e6),
    mode=st.sampled_from([None, "sync"]),
    path=st.sampled_from([None, "ena", "ena-multi-ip", "efa"]),
    kind=st.sampled_from([None, "SCRATCH_2", "PERSISTENT_1"]),
    file_size=st.none() | st.floats(1e-3, 1e5),
    dataset=st.floats(0, 1e9),
)
def test_any_valid_job_gets_a_plan_or_a_refusal_with_a_reason(
    instances: int,
    instance_type: str,
    region: str,
    interface: str | None,
    checkpoint_interface: str | None,
    rate: float,
    size: float | None,
    interval: float | None,
    mode: str | None,
    path: str | None,
    kind: str | None,
    file_size: float | None,
    dataset: float,
) -> None:
    job = TrainingJob(
        instances=instances,
        instance_type=instance_type,
        region=region,
        interface=interface,
        checkpoint_interface=checkpoint_interface,
        read_gb_per_s_per_accelerator=rate,
        checkpoint_size_gib=size,
        checkpoint_interval_minutes=interval,
        checkpoint_mode=mode,
        network_path=path,
        lustre_deployment_type=kind,
        mean_file_size_mib=file_size,
        dataset_gib=dataset,
    )
    try:
        plan = plan_storage(job)
    except (InvalidJobError, NoTierError) as refusal:
        assert len(str(refusal)) > 40  # noqa: PT017 - both outcomes are right
        assert "\n" not in str(refusal)  # noqa: PT017
        return
    assert plan.tiers[0] == "s3"
    assert plan.selection.rules == tuple(rule for rule in RULES if rule in plan.selection.rules)
    assert len(plan.selection.reasons) == len(plan.selection.rules)
    assert type(plan).from_json(plan.to_json()) == plan
