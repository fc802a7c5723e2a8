"""The sizing model: units, published tables, formulas, and the choice of the least total cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning import (
    LustrePlan,
    NoTierError,
    StoragePlan,
    TrainingJob,
    bill,
    catalog,
    configuration,
    cost,
    plan_storage,
)
from training_storage.planning import lustre as grid
from training_storage.planning.demand import (
    Required,
    assess,
    effective_training_time_ratio,
    mean_time_between_failures_s,
    request_bytes,
    young_interval_s,
)
from training_storage.planning.outcome import Delivery, outcome
from training_storage.planning.resolution import resolve
from training_storage.planning.selection import choose_tiers
from training_storage.planning.solution import solve
from training_storage.planning.units import GB, GIB, MIB, SECONDS_PER_HOUR, bytes_per_s

if TYPE_CHECKING:
    from pathlib import Path


def plan(**fields: Any) -> StoragePlan:
    return plan_storage(TrainingJob(**fields))


def lustre(**fields: Any) -> LustrePlan:
    system = plan(**fields).fsx_lustre
    assert system is not None
    return system


# Units


def test_network_rates_are_bits_and_sizes_binary() -> None:
    assert bytes_per_s(100) == 12.5e9
    assert (GB, GIB, MIB) == (10**9, 1_073_741_824, 1_048_576)


def test_mlperf_prints_gib_as_gb() -> None:
    model = catalog.workloads.models()["llama3-405b"]
    assert model.checkpoint_bytes == 5288 * GIB
    assert model.checkpoint_bytes / 1e12 == pytest.approx(5.678, abs=0.001)


@pytest.mark.parametrize(
    ("capacity", "mb_per_s"), [(1200, 234), (2400, 468), (4800, 937), (9600, 1875), (19200, 3750), (38400, 7500)]
)
def test_fsx_user_guide_throughput_at_200_per_tib(capacity: int, mb_per_s: int) -> None:
    tier = catalog.lustre.deployment_types()["PERSISTENT_1"].throughputs[200]
    assert math.floor(tier.read_mb_per_s(capacity)) == mb_per_s


@pytest.mark.parametrize(("per_unit", "usd"), [(125, 1.188), (250, 0.860), (500, 0.696), (1000, 0.614)])
def test_price_of_a_mb_per_s_month_falls_with_the_tier(per_unit: int, usd: float) -> None:
    price = catalog.prices.catalog_prices().lustre_storage(
        region="us-east-1", deployment_type="PERSISTENT_2", per_unit=per_unit
    )
    assert price is not None
    assert price * 1024 / per_unit == pytest.approx(usd, abs=0.0005)


# Published sizings


@pytest.mark.parametrize(
    ("capacity", "per_unit", "gb_per_s", "source"),
    [
        (1.1 * 1024 * 1024, 1000, 1126, "HPC blog, SC23: over a terabyte per second"),
        (20 * 4800, 1000, 93.75, "AI blog 2026-06-01: 20 servers"),
        (50_400, 250, 12.30, "HyperPod planning guide: 50 TB"),
        (1200, 250, 0.293, "NeMo on EKS"),
    ],
)
def test_aws_published_sizings_come_out_of_the_same_arithmetic(
    capacity: float, per_unit: int, gb_per_s: float, source: str
) -> None:
    tier = catalog.lustre.deployment_types()["PERSISTENT_2"].throughputs[per_unit]
    assert tier.read_mb_per_s(round(capacity)) / 1000 == pytest.approx(gb_per_s, rel=0.001)


@pytest.mark.parametrize("instance_type", ["p4de.24xlarge", "p5.48xlarge"])
def test_the_nemo_example_fits_the_least_file_system(instance_type: str) -> None:
    # Two nodes; a checkpoint small enough for the published 1,200 GiB at 250.
    system = lustre(
        instances=2,
        instance_type=instance_type,
        interface="posix",
        checkpoint_size_gib=70.0,
        read_gb_per_s_per_accelerator=0.001,
    )
    assert (system.storage_capacity_gib, system.deployment_type) == (1200, "PERSISTENT_2")
    assert system.per_unit_storage_throughput >= 250


# Workloads


@pytest.mark.parametrize(
    ("workload", "accelerator", "gb_per_s"),
    [
        ("unet3d", "A100", 1.61),
        ("unet3d", "H100", 3.18),
        ("unet3d", "B200", 6.33),
        ("resnet50", "A100", 0.105),
        ("resnet50", "H100", 0.205),
        ("cosmoflow", "A100", 0.513),
        ("cosmoflow", "H100", 0.808),
    ],
)
def test_mlperf_storage_workloads_read_samples_of_a_step_over_its_time(
    workload: str, accelerator: str, gb_per_s: float
) -> None:
    row = catalog.workloads.workloads()[workload]
    step = row.step_time(accelerator)
    assert step is not None
    assert row.sample_bytes * row.samples_per_step / step.seconds / GB == pytest.approx(gb_per_s, rel=0.005)


def test_read_demand_is_at_full_use_of_all_accelerators() -> None:
    assert plan(instances=2, workload="unet3d").demand.read_gb_per_s == pytest.approx(2 * 8 * 3.177, rel=0.001)


def test_a_given_rate_beats_the_workload() -> None:
    demand = plan(instances=2, workload="unet3d", read_gb_per_s_per_accelerator=0.5).demand
    assert demand.read_gb_per_s == 8.0


def test_an_accelerator_near_the_measured_one_is_said_to_be_near() -> None:
    assert any(
        "not measured on H200" in text
        for text in plan(instances=1, workload="unet3d", instance_type="p5en.48xlarge").warnings
    )
    assert not any("not measured" in text for text in plan(instances=1, workload="unet3d").warnings)


@pytest.mark.parametrize(
    ("model", "ranks", "slowest_gib", "gb_per_s"),
    [("llama3-8b", 8, 13.1, 1.88), ("llama3-70b", 64, 14.2, 16.3), ("llama3-405b", 512, 11.8, 94.6)],
)
def test_mlperf_storage_v2_checkpoints_of_named_models(
    model: str, ranks: int, slowest_gib: float, gb_per_s: float
) -> None:
    demand = plan(instances=64, model=model, checkpoint_mode="sync").demand
    assert catalog.workloads.models()[model].ranks == ranks
    assert demand.slowest_rank_gib == pytest.approx(slowest_gib, abs=0.05)
    assert demand.checkpoint_write_gb_per_s == pytest.approx(gb_per_s, rel=0.002)


def test_slowest_rank_is_unknown_where_the_model_is_not_the_published_one() -> None:
    assert plan(instances=64).demand.slowest_rank_gib is None
    assert plan(instances=64, model="llama3-8b", bytes_per_parameter=12.0).demand.slowest_rank_gib is None


def test_the_slowest_rank_sets_a_synchronous_stall() -> None:
    # 1,000 GB/s would write 8B in 0.1 s; its largest rank of 13.1 GiB goes through one eighth of a node's 12.5 GB/s.
    job = resolve(TrainingJob(instances=1, model="llama3-8b", checkpoint_mode="sync"), environment_region=None)
    result = outcome(
        needs=assess(job),
        delivery=Delivery(
            read_bytes_per_s=1e12,
            write_bytes_per_s=1e12,
            restore_bytes_per_s=1e12,
            write_beside_reads_bytes_per_s=1e12,
            rank_bytes_per_s=12.5e9 / 8,
        ),
        run_s=720 * 3600,
    )
    assert result is not None
    assert result.stall_s == pytest.approx(13.125 * GIB / (12.5e9 / 8))


# Checkpoint size


@pytest.mark.parametrize(("instances", "parameters"), [(1, 8e9), (8, 64e9), (50, 400e9), (51, 405e9), (1000, 405e9)])
def test_parameters_are_a_billion_per_accelerator_up_to_405_billion(instances: int, parameters: float) -> None:
    result = plan(instances=instances)
    assert result.job.model_parameters == parameters
    assert result.demand.checkpoint_size_gib == pytest.approx(parameters * 14 / GIB, rel=1e-5)


def test_the_size_beats_the_parameters_and_they_beat_the_model() -> None:
    def size(**fields: Any) -> float:
        return plan(instances=8, **fields).demand.checkpoint_size_gib

    everything: dict[str, Any] = {"model": "llama3-8b", "model_parameters": 10**9, "checkpoint_size_gib": 5.0}
    assert size(**everything) == 5.0
    del everything["checkpoint_size_gib"]
    assert size(**everything) == pytest.approx(14e9 / GIB, rel=1e-5)
    del everything["model_parameters"]
    assert size(**everything) == 105.0
    assert size(model="llama3-8b", bytes_per_parameter=12.0) == pytest.approx(96e9 / GIB, rel=1e-5)


def test_lora_saves_one_percent_of_the_parameters() -> None:
    full, adapter = plan(instances=8).demand, plan(instances=8, fine_tuning="lora").demand
    assert adapter.checkpoint_size_gib == pytest.approx(full.checkpoint_size_gib / 100, rel=1e-5)


def test_state_beyond_the_accelerators_memory_is_a_warning() -> None:
    assert any("larger than the 1,280 GiB" in text for text in plan(instances=2, model="llama3-405b").warnings)
    assert not any("accelerator memory" in text for text in plan(instances=9, model="llama3-405b").warnings)


# Failures and intervals


@pytest.mark.parametrize(("accelerators", "hours"), [(16_384, 1.8), (131_072, 0.23)])
def test_meta_arxiv_2410_21680_mean_time_between_failures(accelerators: int, hours: float) -> None:
    seconds = mean_time_between_failures_s(instances=accelerators // 8, failures_per_1000_node_days=6.5)
    assert seconds / SECONDS_PER_HOUR == pytest.approx(hours, abs=0.006)


def test_a_given_mean_time_between_failures_beats_the_rate() -> None:
    result = plan(instances=64, mtbf_hours=10.0)
    assert (result.demand.mtbf_hours, result.job.failures_per_1000_node_days) == (10.0, None)


def test_aws_example_of_a_failure_of_256_p5(tmp_path: Path) -> None:
    """AWS: 256 p5 at $55 an hour, 10 minutes lost and 10 minutes of recovery are $4,693."""
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'as_of = 2026-11-30\nhours_per_month = 730\nranking_region = "us-east-1"\n'
        '[regions.us-east-1.instances]\n"p5.48xlarge" = { per_hour = 55.0 }\n',
        encoding="utf-8",
    )
    # A checkpoint every 20 minutes loses 10 on average; recovery is the restart of 300 s and the restore.
    job = TrainingJob(instances=256, checkpoint_interval_minutes=20.0, prices=str(prices))
    solution = solve(job)
    run, result = solution.money().run_usd, solution.found.result
    lost, idle = (run.lost_work or 0) / result.failures, (run.idle_accelerators or 0) / result.failures
    assert lost == pytest.approx(256 * 55 * (600 + 300) / 3600, rel=1e-4)
    stalls = result.checkpoints * result.stall_s / result.failures
    recovery_s = 300 + (idle * 3600 / (256 * 55) - stalls)
    assert recovery_s == pytest.approx(300 + result.restore_s, rel=1e-3)
    assert lost + 256 * 55 * 300 / 3600 == pytest.approx(4693, abs=1)


def test_young_interval_is_the_root_of_twice_the_product() -> None:
    assert young_interval_s(mean_time_between_failures_s=7200, stall_s=9) == 360


def test_effective_training_time_ratio() -> None:
    ratio = effective_training_time_ratio(
        restart_s=300, restore_s=100, interval_s=600, stall_s=6, mean_time_between_failures_s=7000
    )
    assert ratio == pytest.approx(0.9 / 1.01)
    hopeless = effective_training_time_ratio(
        restart_s=300, restore_s=100, interval_s=600, stall_s=6, mean_time_between_failures_s=100
    )
    assert hopeless == 0


def test_a_job_that_makes_no_progress_is_warned() -> None:
    assert any("makes no progress" in text for text in plan(instances=100_000).warnings)


def test_an_asynchronous_stall_is_the_copy_to_the_hosts() -> None:
    # 8e9 parameters x 14 B over 8 accelerators at 20 GB/s.
    assert plan(instances=1).demand.checkpoint_stall_seconds == pytest.approx(0.7)


def test_a_chosen_interval_is_youngs_but_never_under_five_minutes() -> None:
    calm = plan(instances=1)
    assert calm.demand.checkpoint_interval_minutes == pytest.approx(
        math.sqrt(2 * calm.demand.mtbf_hours * 3600 * 0.7) / 60, rel=1e-4
    )
    assert plan(instances=512).demand.checkpoint_interval_minutes == 5


def test_a_chosen_interval_is_never_shorter_than_writing_beside_the_reads_takes() -> None:
    result = plan(instances=200, region="ca-west-1", checkpoint_size_gib=10_000.0)
    assert result.fsx_lustre is not None
    rate = result.fsx_lustre.baseline_mb_per_s * 1e6 - result.demand.read_gb_per_s * 1e9
    seconds = result.demand.checkpoint_size_gib * GIB / rate
    assert seconds > 300
    assert result.demand.checkpoint_interval_minutes == pytest.approx(seconds / 60, rel=1e-4)


def test_reads_that_keep_a_lower_use_leave_room_for_checkpoints() -> None:
    # resnet50 must keep 90 % of its use: 94.3 of 98.4 GB/s, although full use would want 104.8.
    result = plan(instances=64, workload="resnet50")
    seconds = result.demand.checkpoint_size_gib * GIB / (98.4375e9 - 0.9 * result.demand.read_gb_per_s * 1e9)
    assert result.demand.checkpoint_interval_minutes == pytest.approx(seconds / 60, rel=1e-3)


# Requests


def test_requests_move_a_part_or_a_whole_small_object() -> None:
    assert request_bytes(object_bytes=None, part_bytes=8 * MIB) == 8 * MIB
    assert request_bytes(object_bytes=MIB / 10, part_bytes=8 * MIB) == MIB / 10
    assert request_bytes(object_bytes=20 * MIB, part_bytes=8 * MIB) == 20 * MIB / 3


def test_prefixes_are_the_least_that_meet_the_gets() -> None:
    demand = plan(instances=64, workload="unet3d").demand
    # 146.6 MB are 18 parts of 8 MiB.
    files = demand.read_gb_per_s * 1e9 / 146_600_628
    assert demand.get_per_s == pytest.approx(files * 18, rel=1e-4)
    assert demand.prefixes == math.ceil(demand.get_per_s / 5500)


def test_prefixes_are_the_least_that_meet_the_puts() -> None:
    demand = plan(instances=64, checkpoint_interval_minutes=2.0).demand
    assert demand.put_per_s == pytest.approx(demand.checkpoint_size_gib * GIB / 120 / (8 * MIB), rel=0.01)
    assert demand.prefixes == math.ceil(demand.put_per_s / 3500)


def test_metadata_iops_follow_the_files_and_not_below_what_the_capacity_brings() -> None:
    # 64 x 8 x 0.01 GB/s in files of 0.1 MiB: 48,828 files/s.
    system = lustre(instances=64, read_gb_per_s_per_accelerator=0.01, mean_file_size_mib=0.1)
    assert system.metadata_iops == 60_000
    assert system.metadata_mode == "USER_PROVISIONED"
    assert (lustre(instances=64).metadata_iops, lustre(instances=64).metadata_mode) == (12_000, "AUTOMATIC")


def test_extra_metadata_iops_cost_money() -> None:
    few, many = (
        plan(instances=64, read_gb_per_s_per_accelerator=0.01, mean_file_size_mib=size) for size in (10.0, 0.1)
    )
    assert few.fsx_lustre is not None
    assert many.fsx_lustre is not None
    assert few.fsx_lustre.storage_capacity_gib == many.fsx_lustre.storage_capacity_gib
    before, after = few.cost.per_month_usd["fsx-lustre"], many.cost.per_month_usd["fsx-lustre"]
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx((60_000 - 12_000) * 0.055)


def test_parts_grow_where_an_object_would_have_more_than_10000() -> None:
    # One accelerator writes 200 GiB as one object: parts of 20.48 MiB.
    demand = plan(instances=1, instance_type="p5.4xlarge", checkpoint_size_gib=200.0, interface="object").demand
    assert demand.put_per_s == pytest.approx(10_000 / (demand.checkpoint_interval_minutes * 60), rel=1e-3)


@pytest.mark.parametrize(("together", "total"), [(True, 30), (False, 20)])
def test_writing_adds_to_reading_only_beside_it_and_restoring_never(together: bool, total: float) -> None:
    assert Required(read=10, write=20, restore=5, together=together).total == total
    assert Required(read=10, write=20, restore=99, together=together).total == 99


def test_asynchronous_writing_to_s3_shares_the_nodes_network_with_the_reads() -> None:
    # 16 p4d have 200 GB/s over one address each; unet3d at 90 % use reads 186 of them.
    result = plan(
        instances=16,
        instance_type="p4d.24xlarge",
        interface="object",
        workload="unet3d",
        checkpoint_size_gib=10_000.0,
        mtbf_hours=1.0,
    )
    left = 16 * 12.5e9 - 0.9 * result.demand.read_gb_per_s * 1e9
    assert result.tiers == ("s3",)
    assert result.demand.checkpoint_interval_minutes == pytest.approx(10_000 * GIB / left / 60, rel=1e-3)


def test_small_files_slow_reads_from_s3_but_not_restores() -> None:
    situation = resolve(TrainingJob(instances=4, interface="object", mean_file_size_mib=0.1), environment_region=None)
    needs = assess(situation)
    found = configuration.configure(situation, needs, choose_tiers(situation, needs))
    # One prefix gives 5,500 GET/s of parts just under 8 MiB, of which 32 shards of a checkpoint consist.
    assert found.result.restore_s == pytest.approx(needs.checkpoint_bytes / (5500 * 8 * MIB), rel=0.01)


# Capacity


def test_capacity_holds_the_kept_checkpoints_and_the_one_being_written_at_85_percent() -> None:
    demand = plan(instances=64).demand
    assert demand.hot_capacity_gib == pytest.approx(3 * demand.checkpoint_size_gib / 0.85, rel=1e-5)


def test_hot_data_is_the_whole_data_set_but_never_more_than_fits_the_quota() -> None:
    assert plan(instances=64, dataset_gib=10_000.0).job.hot_dataset_gib == 10_000
    huge = plan(instances=64, dataset_gib=1_000_000.0)
    assert huge.fsx_lustre is not None
    assert huge.fsx_lustre.storage_capacity_gib == 100_800
    assert huge.job.hot_dataset_gib == pytest.approx(0.85 * 100_800 - 3 * huge.demand.checkpoint_size_gib, rel=1e-4)


def test_capacity_bound_jobs_get_a_low_tier_and_throughput_bound_ones_the_highest() -> None:
    # A small checkpoint beside much data, on few nodes: only capacity counts.
    assert lustre(instances=17, dataset_gib=80_000.0, checkpoint_size_gib=10.0).per_unit_storage_throughput == 125
    assert lustre(instances=256).per_unit_storage_throughput == 1000


# The choice


def test_no_other_size_or_tier_of_the_grid_costs_less() -> None:
    situation = resolve(TrainingJob(instances=256), environment_region=None)
    needs = assess(situation)
    chosen = configuration.configure(situation, needs, choose_tiers(situation, needs))
    request = grid.request(
        situation,
        required=needs.required(reads=True, checkpoints=True, targets=True),
        capacity_bytes=3 * needs.checkpoint_bytes,
        path="ena",
    )
    totals = {}
    for tier in request.throughputs:
        for gib in grid.sizes_gib(request, tier, limit_gib=100_800):
            system = grid.file_system(request, tier, gib)
            rate = system.read_bytes_per_s
            result = outcome(
                needs=needs,
                delivery=Delivery(
                    read_bytes_per_s=rate,
                    write_bytes_per_s=rate,
                    restore_bytes_per_s=rate,
                    write_beside_reads_bytes_per_s=rate - needs.read_bytes_per_s,
                    rank_bytes_per_s=12.5e9 / 8,
                ),
                run_s=720 * 3600,
            )
            assert result is not None
            layout = bill.Layout(
                choice=chosen.choice, file_system=system, metadata_iops=None, hot_bytes=0.0, express_bytes=0.0
            )
            totals[tier.per_unit, gib] = cost.ranking_usd(
                situation=situation, needs=needs, layout=layout, result=result, known={}
            ).total
    assert len(totals) > 40
    assert min(totals, key=totals.__getitem__) == (1000, 43_200)
    assert chosen.total_usd == pytest.approx(min(totals.values()))


def test_a_synchronous_choice_is_the_closed_form_rounded_to_the_grid() -> None:
    # W* = (G sqrt(2S/mu) / (2p))^(2/3); with a budget that does not bind.
    fields: dict[str, Any] = {"instances": 64, "checkpoint_mode": "sync", "checkpoint_stall_budget_seconds": 3600.0}
    result = plan(**fields)
    system = result.fsx_lustre
    assert system is not None
    gpu_usd = 64 * 55.04 * 720
    usd_per_byte_per_s = 0.600 * 1024 / 1000 / 1e6 * 720 / 730
    ratio = math.sqrt(2 * result.demand.checkpoint_size_gib * GIB / (result.demand.mtbf_hours * 3600))
    best = (gpu_usd * ratio / (2 * usd_per_byte_per_s)) ** (2 / 3)
    assert system.per_unit_storage_throughput == 1000
    assert abs(best / 1e6 * 1.024 - system.storage_capacity_gib) <= 2400


def test_dearer_accelerators_never_get_a_smaller_file_system_of_the_same_tier() -> None:
    # p4d and p5 have 8 accelerators each and the same demand; p5 costs two and a half times as much.
    cheap, dear = lustre(instances=256, instance_type="p4d.24xlarge"), lustre(instances=256)
    assert cheap.baseline_mb_per_s < dear.baseline_mb_per_s


@pytest.mark.parametrize(("path", "interfaces"), [("efa", 8), ("efa-gds", 8)])
def test_efa_sizes_come_from_the_efa_grid(path: str, interfaces: int) -> None:
    system = lustre(instances=64, network_path=path)
    steps = {125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800}
    assert system.efa_enabled
    assert system.efa_interfaces_per_client == interfaces
    assert system.storage_capacity_gib % steps[system.per_unit_storage_throughput] == 0


@pytest.mark.parametrize(("instances", "interfaces"), [(128, 8), (129, 7), (256, 4), (1024, 1)])
def test_clients_share_the_1024_efa_connections(instances: int, interfaces: int) -> None:
    assert lustre(instances=instances, network_path="efa").efa_interfaces_per_client == interfaces


def test_a_client_is_bound_by_the_interfaces_that_it_gets() -> None:
    # 512 clients get 2 interfaces of 100 Gbps each.
    with pytest.raises(NoTierError, match=r"30 GB/s to fsx-lustre and moves at most 25 GB/s over efa"):
        plan(instances=512, network_path="efa", read_gb_per_s_per_accelerator=30 / 8)


def test_a_given_interval_does_not_widen_what_a_node_can_move() -> None:
    result = plan(instances=1, interface="posix", workload="unet3d", checkpoint_interval_minutes=90.0)
    assert result.job.network_path == "efa"


def test_b300_uses_16_interfaces() -> None:
    system = lustre(instances=20, instance_type="p6-b300.48xlarge", network_path="efa")
    assert system.efa_interfaces_per_client == 16


def test_a_client_is_bound_per_server_without_efa() -> None:
    # 1.25 GB/s on one node need two servers (5 Gbps each): 4,800 GiB, although 2,400 at 1000 would deliver it.
    system = lustre(instances=1, interface="posix", read_gb_per_s_per_accelerator=0.15, checkpoint_size_gib=1.0)
    assert system.storage_capacity_gib >= 4800


def test_scratch_writes_at_half_its_reads() -> None:
    tier = catalog.lustre.deployment_types()["SCRATCH_2"].throughputs[200]
    assert (tier.read_mb_per_s(1024), tier.write_mb_per_s(1024)) == (200, 100)
    result = plan(instances=17, lustre_deployment_type="SCRATCH_2")
    system = result.fsx_lustre
    assert system is not None
    assert any("SCRATCH_2 does not replicate" in text for text in result.warnings)
    assert (system.deployment_type, system.per_unit_storage_throughput, system.metadata_iops) == (
        "SCRATCH_2",
        200,
        None,
    )


def test_persistent_1_is_chosen_only_where_nothing_else_persists() -> None:
    assert lustre(instances=64, region="sa-east-1").deployment_type == "PERSISTENT_1"
    assert lustre(instances=64, region="il-central-1").deployment_type == "PERSISTENT_2"


def test_a_region_with_few_tiers_gets_one_of_them() -> None:
    assert lustre(instances=64, region="ca-west-1").per_unit_storage_throughput in (125, 250)


def test_china_has_an_older_lustre() -> None:
    assert lustre(instances=64, region="cn-north-1").file_system_type_version == "2.12"
    assert lustre(instances=64).file_system_type_version == "2.15"


@settings(max_examples=50, deadline=None)
@given(
    instances=st.integers(17, 3000),
    rate=st.floats(0, 0.05),
    size=st.floats(0.1, 20_000),
    dataset=st.floats(0, 80_000),
    efa=st.booleans(),
)
def test_every_file_system_is_legal_and_meets_the_demand(
    instances: int, rate: float, size: float, dataset: float, efa: bool
) -> None:
    result = plan(
        instances=instances,
        read_gb_per_s_per_accelerator=rate,
        checkpoint_size_gib=size,
        dataset_gib=dataset,
        network_path="efa" if efa and instances <= 1024 else None,
    )
    system = result.fsx_lustre
    assert system is not None
    kind = catalog.lustre.deployment_types()[system.deployment_type]
    assert kind.is_legal(
        capacity_gib=system.storage_capacity_gib,
        per_unit=system.per_unit_storage_throughput,
        efa=system.efa_enabled,
    )
    assert system.storage_capacity_gib >= result.demand.hot_capacity_gib * 0.99999
    if {place.data: place.hot for place in result.placement}["datasets"] == "fsx-lustre":
        assert system.baseline_mb_per_s >= result.demand.read_gb_per_s * 999.99


# What the defaults give

#: instances: GiB and tier of Lustre, USD per month of the hot tier (s3 up to 16), its share of the GPU bill in percent.
DEFAULTS_TABLE = {
    8: (None, None, 1202.41, 0.37),
    16: (None, None, 3305.53, 0.51),
    17: (7200, 1000, 4320.00, 0.63),
    64: (21_600, 1000, 12_960.00, 0.50),
    256: (43_200, 1000, 25_920.00, 0.25),
    512: (86_400, 1000, 51_840.00, 0.25),
    1000: (100_800, 1000, 60_480.00, 0.15),
}


@pytest.mark.parametrize("instances", DEFAULTS_TABLE)
def test_what_the_defaults_give(instances: int) -> None:
    capacity, per_unit, usd, percent = DEFAULTS_TABLE[instances]
    result = plan(instances=instances)
    system, months = result.fsx_lustre, result.cost.per_month_usd
    shape = (None, None) if system is None else (system.storage_capacity_gib, system.per_unit_storage_throughput)
    assert shape == (capacity, per_unit)
    month, cluster = months[result.tiers[-1]], months["cluster"]
    assert month == pytest.approx(usd)
    assert month is not None
    assert cluster is not None
    assert month / cluster * 100 == pytest.approx(percent, abs=0.005)


@pytest.mark.parametrize("instances", [1, 2, 4, 8, 16, 17, 32, 50, 64, 128, 200, 256])
def test_no_default_plan_needs_half_the_quota_or_a_tenth_of_the_gpu_bill(instances: int) -> None:
    result = plan(instances=instances)
    months = result.cost.per_month_usd
    storage = sum(value or 0 for tier, value in months.items() if tier != "cluster")
    assert storage <= 0.1 * (months["cluster"] or 0)
    assert all(quota.needed <= quota.limit / 2 for quota in result.quotas if "storage" in quota.name)


# A path that does not carry the demand


def test_mlperf_unet3d_on_h100_is_refused_where_the_path_does_not_carry_it() -> None:
    # 8 x 3.18 GB/s at full use, of which 90 % must be met, over 100 Gbps.
    words = r"22\.9 GB/s \(25\.4 at full accelerator use\) to s3 and moves at most 12\.5 GB/s over ena"
    with pytest.raises(NoTierError, match=words):
        plan(instances=8, workload="unet3d", tiers=("s3",), network_path="ena")


@pytest.mark.parametrize("instances", [1, 8, 16, 17, 64, 128])
@pytest.mark.parametrize("interface", ["posix", "object"])
def test_mlperf_unet3d_on_h100_moves_to_a_path_that_carries_it(instances: int, interface: str) -> None:
    result = plan(instances=instances, workload="unet3d", interface=interface)
    assert "demand" in result.selection.rules
    per_node = 0.9 * result.demand.read_gb_per_s / instances
    assert per_node == pytest.approx(22.9, abs=0.05)
    if {place.data: place.hot for place in result.placement}["datasets"] == "fsx-lustre":
        assert result.job.network_path in ("efa", "efa-gds")
        assert result.fsx_lustre is not None
        assert result.fsx_lustre.baseline_mb_per_s >= 1000 * instances * per_node * 0.9999
    else:
        assert result.job.network_path == "ena-multi-ip"
