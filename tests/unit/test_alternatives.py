"""Alternatives and levers: costed by planning again, never chosen, ranked by money."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning import Alternative, StoragePlan, TrainingJob, plan_storage
from training_storage.planning.cost import RankingUsd
from training_storage.planning.grid_search import least_total

S3, LUSTRE, EXPRESS = ("s3",), ("s3", "fsx-lustre"), ("s3", "s3-express")


def plan(**fields: Any) -> StoragePlan:
    return plan_storage(TrainingJob(**fields))


def by_tiers(result: StoragePlan, tiers: tuple[str, ...]) -> Alternative:
    return next(a for a in result.selection.alternatives if a.tiers == tiers)


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"instances": 8}, {LUSTRE, EXPRESS}),
        ({"instances": 64}, {S3, EXPRESS}),
        ({"instances": 600, "interface": "object"}, {S3, LUSTRE}),
        ({"instances": 1200, "interface": "object", "checkpoint_interface": "posix"}, {S3, LUSTRE, EXPRESS}),
    ],
    ids=str,
)
def test_the_tiers_next_to_the_chosen_ones_are_alternatives(
    fields: dict[str, Any], others: set[tuple[str, ...]]
) -> None:
    result = plan(**fields)
    assert others <= {a.tiers for a in result.selection.alternatives}


def test_an_alternative_costs_what_the_plan_with_its_tiers_costs() -> None:
    result = plan(instances=64)
    for tiers in (S3, EXPRESS):
        alternative, chosen = by_tiers(result, tiers), plan(instances=64, tiers=tiers)
        assert alternative.run_usd == chosen.cost.run_usd.total
        months = [usd or 0 for tier, usd in chosen.cost.per_month_usd.items() if tier != "cluster"]
        assert alternative.per_month_usd == pytest.approx(sum(months), abs=0.01)
        dearer = (alternative.run_usd or 0) - (result.cost.run_usd.total or 0)
        assert f"Costs ${dearer:,.0f} more over the run" in alternative.why_not


def test_a_cheaper_alternative_is_listed_with_its_saving_and_not_chosen() -> None:
    result = plan(instances=8, interface="posix")
    cheaper = by_tiers(result, S3)
    assert result.tiers == LUSTRE
    assert (cheaper.run_usd or 0) < (result.cost.run_usd.total or 0)
    assert cheaper.why_not.startswith("Saves $")
    assert "POSIX code would read through Mountpoint" in cheaper.why_not


def test_every_other_throughput_is_an_alternative_with_its_best_size() -> None:
    result = plan(instances=64)
    found = {
        a.configuration["per_unit_storage_throughput"]: a
        for a in result.selection.alternatives
        if "per_unit_storage_throughput" in a.configuration and "checkpoint_mode" not in a.configuration
    }
    assert set(found) == {125, 250, 500}
    # A restore of 405e9 x 14 B in 300 s: 18.9 GB/s are 154,829 GiB at 125, on the grid 156,000.
    assert found[125].run_usd is None
    assert found[125].why_not == "Needs 156,000 GiB, more than the quota of 100,800 GiB."
    for per_unit in (250, 500):
        assert (found[per_unit].run_usd or 0) > (result.cost.run_usd.total or 0)
        assert int(str(found[per_unit].configuration["storage_capacity_gib"])) % 2400 == 0


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_other_checkpoint_mode_is_an_alternative(mode: str) -> None:
    other = {"async": "sync", "sync": "async"}[mode]
    result = plan(instances=64, checkpoint_mode=mode)
    alternative = next(a for a in result.selection.alternatives if a.configuration.get("checkpoint_mode") == other)
    assert alternative.run_usd == plan(instances=64, checkpoint_mode=other).cost.run_usd.total


def test_what_cannot_serve_says_the_shortfall() -> None:
    result = plan(instances=8, workload="unet3d", network_path="ena-multi-ip", hot_dataset_gib=10.0)
    refused = by_tiers(result, LUSTRE)
    assert (refused.per_month_usd, refused.run_usd) == (None, None)
    assert refused.why_not.startswith("Not possible: No tier of s3, fsx-lustre serves the job")
    nowhere = by_tiers(plan(instances=64, region="eu-south-2"), EXPRESS)
    assert "which has no s3-express" in nowhere.why_not


def test_s3_files_by_hand() -> None:
    # 1 node, 100 h, 100 GiB every hour, a failure every 10 h: 100 writes, 3 copies at 0.30, restores at 3 GiB/s.
    result = plan(
        instances=1,
        interface="posix",
        run_hours=100.0,
        mtbf_hours=10.0,
        checkpoint_size_gib=100.0,
        checkpoint_interval_minutes=60.0,
        durable_checkpoints_kept=0,
    )
    files = by_tiers(result, ("s3", "s3-files"))
    lake = 2 + 24  # newest two, and a day of replaced ones
    month = 3 * 100 * 0.30 + lake * 100 * 0.023
    assert files.per_month_usd == pytest.approx(month, abs=0.01)
    waiting = 10 * 100 / 3 + 100 * 100 * 2**30 / (8 * 20e9)
    lost = 10 * (1800 + 300)
    parts = 8 * -(-100 * 2**30 // 8 // (8 * 2**20))
    requests = 100 * parts * 0.005 / 1000 + (10 * parts + 0.008e9 * 360_000 / (8 * 2**20)) * 0.0004 / 1000
    run = month * 100 / 730 + 100 * 100 * 0.06 + requests + 55.04 / 3600 * (waiting + lost)
    assert files.run_usd == pytest.approx(run, rel=1e-4)


def test_levers_save_what_planning_with_the_change_saves_and_come_by_money() -> None:
    fields: dict[str, Any] = {"instances": 64, "checkpoint_mode": "sync", "checkpoint_stall_budget_seconds": 60.0}
    result = plan(**fields)
    savings = [lever.saves_run_usd for lever in result.levers]
    assert savings == sorted(savings, reverse=True)
    assert result.levers[0].change == {"checkpoint_mode": "async"}
    for lever in result.levers:
        changed = plan(**{**fields, **lever.change})
        saved = (result.cost.run_usd.total or 0) - (changed.cost.run_usd.total or 0)
        assert lever.saves_run_usd == pytest.approx(saved, abs=0.05)


def test_a_longer_stall_shrinks_the_file_system() -> None:
    result = plan(instances=64, checkpoint_mode="sync")
    lever = next(lever for lever in result.levers if "checkpoint_stall_budget_seconds" in lever.change)
    before = result.fsx_lustre
    after = plan(instances=64, checkpoint_mode="sync", checkpoint_stall_budget_seconds=120.0).fsx_lustre
    assert before is not None
    assert after is not None
    assert lever.change == {"checkpoint_stall_budget_seconds": 120.0}
    words = f"{after.storage_capacity_gib:,} GiB at 1000 instead of {before.storage_capacity_gib:,} GiB at 1000"
    assert words in lever.why
    assert after.storage_capacity_gib < 0.7 * before.storage_capacity_gib


def test_a_wider_path_is_a_lever_where_accelerators_wait_for_reads() -> None:
    # unet3d on A100 wants 12.9 GB/s of a node and gets 12.5 over one address.
    result = plan(instances=16, instance_type="p4d.24xlarge", workload="unet3d")
    assert result.levers[0].change == {"network_path": "ena-multi-ip"}
    assert "waiting accelerators" in result.levers[0].why


def test_a_given_field_that_costs_money_is_a_lever_with_the_plans_own_value() -> None:
    def changes(**fields: Any) -> dict[str, object]:
        return {key: value for lever in plan(instances=64, **fields).levers for key, value in lever.change.items()}

    assert changes(tiers=S3)["tiers"] == "s3,fsx-lustre"
    assert float(str(changes(checkpoint_interval_minutes=240.0)["checkpoint_interval_minutes"])) < 240


def test_no_lever_saves_next_to_nothing() -> None:
    result = plan(instances=256)
    assert all(lever.saves_run_usd >= 0.001 * (result.cost.run_usd.total or 0) for lever in result.levers)


def test_without_alternatives_the_plan_is_the_same_and_both_lists_are_empty() -> None:
    job = TrainingJob(instances=64)
    full, lean = plan_storage(job), plan_storage(job, alternatives=False)
    assert (lean.levers, lean.selection.alternatives) == ((), ())
    assert replace(full, levers=(), selection=lean.selection) == lean


def test_no_known_price_means_no_money_but_still_a_comparison() -> None:
    result = plan(instances=64, region="us-west-2")
    alternative = by_tiers(result, S3)
    assert alternative.run_usd is None
    assert re.match(r"Costs \$[\d,]+ more over the run", alternative.why_not)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=60),
    below=st.floats(0, 4000) | st.just(float("inf")),
)
def test_the_search_finds_the_least_total_of_every_grid(steps: list[tuple[float, float]], below: float) -> None:
    rising, falling, grid = 0.0, 100.0 * len(steps), []
    for up, down in steps:
        rising, falling = rising + up, falling - down
        grid.append(RankingUsd(rising, falling))
    found = least_total(len(grid), grid.__getitem__, below=below)
    least = min(usd.total for usd in grid)
    if least < below:
        assert found is not None
        assert grid[found[0]].total == found[1] == pytest.approx(least, abs=1e-6)
    else:
        assert found is None
