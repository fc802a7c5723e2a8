"""Levers: what is printed is what planning with exactly that gives, in money whose parts add up."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.benchmarks.random_jobs import random_jobs
from training_storage.planning import PlanningError, StoragePlan, TrainingJob, plan_storage
from training_storage.planning.planner import plan_of
from training_storage.planning.report import change_text, report_lines
from training_storage.planning.solution import solve

#: Besides random ones, jobs whose given fields were levers with another saving than re-planning gave.
JOBS: list[dict[str, Any]] = [
    {"instances": 64, "checkpoint_interval_minutes": 240.0, "dataset_gib": 5000.0},
    {"instances": 40, "checkpoint_interval_minutes": 60.0, "read_gb_per_s_per_accelerator": 0.02},
    {"instances": 128, "checkpoint_interval_minutes": 10.0, "checkpoint_mode": "sync"},
    {"instances": 64, "tiers": ("s3",)},
    {"instances": 64, "lustre_deployment_type": "SCRATCH_2", "durable_interval_minutes": 720.0},
    {"instances": 32, "instance_type": "p4d.24xlarge", "workload": "unet3d"},
    {"instances": 64, "region": "us-west-2", "checkpoint_mode": "sync"},
    *[{**job, "region": "us-east-1"} for job in random_jobs(60, seed=7)],
]
_MONEY = r"([+−])\$([\d,]+(?:\.\d\d)?)"


def planned(fields: dict[str, Any]) -> StoragePlan:
    try:
        return plan_storage(TrainingJob(**fields))
    except PlanningError:
        pytest.skip("refused")


def signed(words: str) -> list[float]:
    return [(1 if sign == "+" else -1) * float(usd.replace(",", "")) for sign, usd in re.findall(_MONEY, words)]


def ranked(fields: dict[str, Any]) -> float:
    return sum(solve(TrainingJob(**fields)).ranking_parts().values())


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_every_lever_saves_what_planning_with_exactly_its_printed_change_saves(fields: dict[str, Any]) -> None:
    before = ranked(fields) if planned(fields).levers else 0.0
    for lever in planned(fields).levers:
        name, _, text = change_text(lever).partition("=")
        change = getattr(TrainingJob.from_strings({"instances": "1", name: text}), name)
        assert lever.saves_run_usd == pytest.approx(before - ranked({**fields, name: change}), abs=0.02), lever


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_the_parts_of_compared_money_add_up(fields: dict[str, Any]) -> None:
    result = planned(fields)
    for lever in result.levers:
        assert sum(signed(lever.why)) == pytest.approx(-lever.saves_run_usd, abs=4), lever
    for other in result.selection.alternatives:
        found = re.match(r"(Costs|Saves) \$([\d,.]+)(?: more)? over the run[^(]*\(([^)]*)\)", other.why_not)
        if found:
            total = float(found[2].replace(",", "")) * (1 if found[1] == "Costs" else -1)
            assert sum(signed(found[3])) == pytest.approx(total, abs=4), other


def test_several_addresses_are_a_lever_where_reads_stay_on_s3_beside_a_file_system() -> None:
    result = plan_storage(TrainingJob(instances=32, instance_type="p4d.24xlarge", workload="unet3d"))
    assert result.tiers == ("s3", "fsx-lustre")
    lever = next(lever for lever in result.levers if "network_path" in lever.change)
    assert lever.change == {"network_path": "ena-multi-ip"}
    assert lever.saves_run_usd > 14_000


@pytest.mark.parametrize(
    ("fields", "whose"),
    [
        ({"instances": 64, "region": "us-west-2"}, "at the prices of us-east-1"),
        ({"instances": 64, "instance_type": "p5e.48xlarge"}, "at the prices of Capacity Blocks"),
        ({"instances": 64, "instance_type": "p5e.48xlarge", "region": "us-west-2"}, "us-east-1 and Capacity Blocks"),
    ],
    ids=str,
)
def test_every_compared_amount_says_whose_prices_stand_in(fields: dict[str, Any], whose: str) -> None:
    result = plan_storage(TrainingJob(**fields, checkpoint_mode="sync"))
    assert result.levers
    assert all(whose in lever.why for lever in result.levers)
    compared = [other.why_not for other in result.selection.alternatives if " over the run" in other.why_not]
    assert compared
    assert all(whose in words for words in compared)


def test_prices_of_the_region_itself_need_no_such_word() -> None:
    result = plan_storage(TrainingJob(instances=64, checkpoint_mode="sync"))
    words = [lever.why for lever in result.levers] + [other.why_not for other in result.selection.alternatives]
    assert not any("at the prices of" in text for text in words)


def test_a_change_is_printed_as_it_can_be_typed() -> None:
    solution = solve(TrainingJob(instances=256, durable_interval_minutes=1000.0))
    plan = plan_of(solution)
    text = "\n".join(report_lines(plan, solution))
    lever = next(lever for lever in plan.levers if "durable_interval_minutes" in lever.change)
    assert change_text(lever) == "durable_interval_minutes=2000.0"
    assert "durable_interval_minutes=2000.0 saves" in text
