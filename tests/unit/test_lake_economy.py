"""The lake grows by checkpoints worth keeping only: how many bytes reach it, what they cost, and that plans say so."""

from __future__ import annotations

import json

import pytest

from training_storage.planning import StoragePlan, TrainingJob, plan_storage
from training_storage.planning.explain import explain_lines
from training_storage.planning.report import report_lines
from training_storage.planning.solution import solve

GIB = 2**30


def test_bytes_and_money_of_the_lake_for_256_instances_and_30_days_by_hand() -> None:
    plan = plan_storage(TrainingJob(instances=256, run_hours=720))
    lake, run = plan.cost.lake, plan.cost.run_usd
    assert lake is not None
    # 405e9 parameters of 14 bytes, archived every 6 hours of 720.
    checkpoint = 405e9 * 14
    assert lake.checkpoints == 120
    assert lake.written_gib == pytest.approx(120 * checkpoint / GIB, rel=1e-6)
    # The newest two, four more, and four a day whose versions live a day.
    assert lake.held_gib == pytest.approx(10 * checkpoint / GIB, rel=1e-6)
    # $0.023 a GiB-month of 730 hours. A checkpoint of 2,048 ranks: each file has 8 MiB parts, $0.005 for 1,000 of them.
    storage = 10 * checkpoint / GIB * 0.023 * 720 / 730
    requests = 120 * checkpoint / (8 * 2**20) * 0.005 / 1000
    assert lake.run_usd == pytest.approx(storage + requests, rel=0.005)
    assert run.lake_growth == pytest.approx(storage, abs=0.01)

    # When the file system goes: the two that it keeps, and one half written.
    assert lake.last_export_gib == pytest.approx(3 * checkpoint / GIB, rel=1e-6)

    # A small part of the run's storage bill, and none of the GPU bill to speak of.
    bill = (run.storage or 0) + (run.lake_growth or 0) + (run.requests_and_transfer or 0)
    assert (lake.run_usd or 0) < 0.1 * bill
    assert (lake.run_usd or 0) < 0.001 * 256 * 55.04 * 720


def test_exporting_every_checkpoint_would_cost_more_than_the_file_system() -> None:
    # What the default avoids: automatic export would bring all 8,640 of them, of which a day's versions lie there.
    plan = plan_storage(TrainingJob(instances=256))
    every = plan_storage(TrainingJob(instances=256, durable_interval_minutes=5))
    assert plan.cost.lake is not None
    assert every.cost.lake is not None
    assert every.cost.lake.checkpoints == 8640
    assert (every.cost.lake.run_usd or 0) > (every.cost.run_usd.storage or 0) > 10 * (plan.cost.lake.run_usd or 0)


def test_without_a_hot_tier_every_checkpoint_reaches_the_lake() -> None:
    plan = plan_storage(TrainingJob(instances=8))
    lake, minutes = plan.cost.lake, plan.demand.checkpoint_interval_minutes
    assert plan.tiers == ("s3",)
    assert lake is not None
    assert lake.checkpoints == pytest.approx(720 * 60 / minutes, rel=1e-4)
    assert lake.written_gib == pytest.approx(lake.checkpoints * plan.demand.checkpoint_size_gib, rel=1e-4)


def test_money_of_the_lake_is_null_where_its_price_is_not_known() -> None:
    lake = plan_storage(TrainingJob(instances=8, region="eu-north-1")).cost.lake
    assert lake is not None
    assert lake.run_usd is None
    assert lake.written_gib > 0


def test_every_form_of_the_plan_says_what_reaches_the_lake() -> None:
    solution = solve(TrainingJob(instances=256))
    plan = plan_storage(TrainingJob(instances=256))
    (line,) = [line for line in plan.summary_lines() if line.startswith("  lake ")]
    assert "120 checkpoints (633,672 GiB) reach it, 52,806 GiB at a time: $1,605, 5.91 %" in line
    assert "120 checkpoints, 633,672 GiB, reach it" in " ".join(" ".join(report_lines(plan, solution)).split())
    explained = " ".join(" ".join(explain_lines(solution)).split())
    assert "120 x 5,280.599 GiB = 633,671.8" in explained
    assert "pruning assumed: archive --prune --yes" in explained
    assert "up to (2 kept + 1) x 5,280.599 GiB = 15,841.800 GiB when the file system goes, $364 a month" in explained
    assert plan.to_dict()["cost"]["lake"] == {
        "checkpoints": 120.0,
        "written_gib": 633_671.88,
        "held_gib": 52_805.99,
        "run_usd": 1604.63,
        "last_export_gib": 15_841.8,
    }


def test_only_a_file_system_with_checkpoints_has_a_last_export() -> None:
    lake = plan_storage(TrainingJob(instances=8)).cost.lake
    assert lake is not None
    assert lake.last_export_gib == 0
    kept = plan_storage(TrainingJob(instances=256, checkpoints_kept=4)).cost.lake
    assert kept is not None
    assert kept.last_export_gib == pytest.approx(5 * 405e9 * 14 / GIB, rel=1e-6)


def test_a_plan_file_from_before_the_last_export_still_reads() -> None:
    plan = plan_storage(TrainingJob(instances=256))
    old = plan.to_dict()
    del old["cost"]["lake"]["last_export_gib"]
    read = StoragePlan.from_json(json.dumps(old))
    assert read.cost.lake is not None
    assert read.cost.lake.last_export_gib is None


def test_a_plan_file_from_before_the_lakes_bytes_still_reads() -> None:
    plan = plan_storage(TrainingJob(instances=256))
    old = plan.to_dict()
    del old["cost"]["lake"]
    read = StoragePlan.from_json(json.dumps(old))
    assert read.cost.lake is None
    assert read.cost.run_usd == plan.cost.run_usd
    assert not [line for line in read.summary_lines() if line.startswith("  lake ")]
