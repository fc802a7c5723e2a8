"""300 random jobs against a brute force that shares nothing with the planner but the job."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.benchmarks import brute_force, published
from tests.benchmarks.agreement import Agreement, agreements
from tests.benchmarks.random_jobs import random_jobs
from training_storage.planning import TrainingJob, plan_storage


@pytest.fixture(scope="module")
def compared() -> list[Agreement]:
    return list(agreements(random_jobs()))


def test_every_total_is_within_one_percent_of_the_least_of_all_configurations(compared: list[Agreement]) -> None:
    assert len(compared) == 300
    for agreement in compared:
        assert agreement.ratio is None or 1 - 1e-9 <= agreement.ratio <= 1.01, agreement.job


def test_no_plan_has_less_than_budgets_reads_and_capacity_make(compared: list[Agreement]) -> None:
    assert [agreement.job for agreement in compared if not agreement.meets] == []


def test_the_printed_money_is_what_the_guide_alone_makes_of_it(compared: list[Agreement]) -> None:
    printed = [a for a in compared if a.printed_ratio is not None]
    assert len(printed) > 200
    for agreement in printed:
        assert agreement.printed_ratio == pytest.approx(1, abs=2e-4), agreement.job


def test_the_jobs_reach_every_part_of_the_model() -> None:
    plans = []
    for fields in random_jobs():
        try:
            plans.append(plan_storage(TrainingJob(**fields), alternatives=False))
        except ValueError:
            continue
    tiers = {plan.tiers for plan in plans}
    assert {("s3",), ("s3", "fsx-lustre"), ("s3", "s3-express"), ("s3", "fsx-lustre", "s3-express")} <= tiers
    systems = [plan.fsx_lustre for plan in plans if plan.fsx_lustre is not None]
    assert {system.per_unit_storage_throughput for system in systems} == {125, 200, 250, 500, 1000}
    assert sum(system.efa_enabled for system in systems) > 5
    assert {plan.job.network_path for plan in plans} == {"ena", "ena-multi-ip", "efa", "efa-gds"}
    assert sum("demand" in plan.selection.rules for plan in plans) > 20
    assert sum(quota.needed > quota.limit for plan in plans for quota in plan.quotas) > 5
    assert {plan.job.checkpoint_mode for plan in plans} == {"sync", "async"}


def test_the_brute_force_shares_nothing_with_the_planner() -> None:
    tree = ast.parse(Path(brute_force.__file__).read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported == {"__future__", "dataclasses", "itertools", "math", "typing"}


def test_published_choices_that_serve_the_job_cost_no_less_than_the_plan() -> None:
    rows = published.comparisons()
    assert sum(row.advised_meets for row in rows) >= 2
    for row in rows:
        if row.advised_meets:
            assert row.advised_usd is not None
            assert row.plan_usd <= row.advised_usd * 1.0001, row.case.source


def test_the_fixed_file_system_of_public_templates_serves_no_default_job() -> None:
    rows = [row for row in published.comparisons() if row.case.source.startswith("Public templates")]
    assert len(rows) == 5
    assert not any(row.advised_meets for row in rows)
