"""The report, the explanation and the short form: complete, narrow, and with numbers that add up."""

from __future__ import annotations

import re
from typing import Any

import pytest

from training_storage.planning import TrainingJob, catalog
from training_storage.planning.explain import explain_lines
from training_storage.planning.planner import plan_of
from training_storage.planning.report import report_lines
from training_storage.planning.solution import solve

JOBS: list[dict[str, Any]] = [
    {"instances": 1},
    {"instances": 256},
    {"instances": 1000},
    {"instances": 64, "workload": "unet3d"},
    {"instances": 64, "checkpoint_mode": "sync", "model": "llama3-70b"},
    {"instances": 600, "interface": "object", "checkpoint_interval_minutes": 30.0},
    {"instances": 1200, "interface": "object", "checkpoint_interface": "posix"},
    {"instances": 4, "mean_file_size_mib": 0.1, "mtbf_hours": 5.0},
    {"instances": 64, "region": "us-west-2", "fine_tuning": "lora"},
    {"instances": 200, "network_path": "efa", "lustre_deployment_type": "PERSISTENT_2"},
    {"instances": 64, "read_gb_per_s_per_accelerator": 0.01, "mean_file_size_mib": 0.1},
    {"instances": 1, "instance_type": "trn1.2xlarge", "tiers": ("s3", "fsx-lustre", "s3-express")},
]


def report(**fields: Any) -> list[str]:
    solution = solve(TrainingJob(**fields))
    return list(report_lines(plan_of(solution), solution))


def explanation(**fields: Any) -> str:
    return "\n".join(explain_lines(solve(TrainingJob(**fields))))


def joined(lines: list[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(lines))


@pytest.mark.parametrize("fields", JOBS, ids=str)
@pytest.mark.parametrize(("width", "columns"), [(100, 100), (80, 80), (72, 72), (20, 72), (300, 100)])
def test_no_line_is_wider_than_a_terminal(fields: dict[str, Any], width: int, columns: int) -> None:
    solution = solve(TrainingJob(**fields))
    plan = plan_of(solution)
    for line in (*report_lines(plan, solution, width=width), *explain_lines(solution, width=width)):
        assert len(line) <= columns, line
        assert line == line.rstrip()
    assert all(len(line) <= 110 for line in plan.summary_lines())


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_a_term_is_explained_where_it_comes_up_first_and_only_there(fields: dict[str, Any]) -> None:
    text = joined(report(**fields))
    for term, meaning in (
        (r"prefix(es)?", "beginnings of object names"),
        (r"metadata IOPS", "files opened and closed per second"),
        (r"the lake's growth", "archived checkpoints, and replaced ones for a day"),
    ):
        first = re.search(rf"\b{term}(?!\w)", text)
        assert text.count(meaning) == (1 if first else 0), term
    assert re.search(r"prefix(es)? \(beginnings", text)


@pytest.mark.parametrize("fields", [{"instances": 8}, {"instances": 4, "workload": "resnet50"}], ids=str)
def test_a_plan_on_s3_alone_says_nothing_of_a_file_system_that_it_lacks(fields: dict[str, Any]) -> None:
    text = joined(report(**fields, interface="object")).split("What would save most")[0]
    assert "hot capacity" not in text
    assert "metadata IOPS" not in text
    assert "next legal value" not in explanation(**fields, interface="object")


@pytest.mark.parametrize("instances", [8, 20_000, 100_000])
def test_no_share_of_the_run_is_above_all_of_it(instances: int) -> None:
    text = joined(report(instances=instances))
    shares = [float(found) for found in re.findall(r"([\d.]+) % of the run's GPU bill", text)]
    assert shares
    assert max(shares) <= 100
    hours = re.search(r"; ([\d,.]+) h of the run", text)
    assert hours is not None
    assert float(hours[1].replace(",", "")) <= 720


@pytest.mark.parametrize("fields", JOBS, ids=str)
def test_everything_that_a_plan_says_is_in_its_report(fields: dict[str, Any]) -> None:
    solution = solve(TrainingJob(**fields))
    plan = plan_of(solution)
    text = joined(list(report_lines(plan, solution)))
    for words in (*plan.selection.reasons, *plan.warnings, *(place.leaves_hot for place in plan.placement)):
        assert joined([words]) in text
    for other in (*plan.selection.alternatives,):
        assert joined([other.why_not]) in text
    for lever in plan.levers:
        assert joined([lever.why]) in text
    values = plan.job.to_strings()
    for name in plan.assumed:
        assert f"{name}={values[name]}" in text
    for quota in plan.quotas:
        assert quota.name in text
    assert f"Prices of {plan.cost.prices_as_of}, USD" in text


def test_sections_come_in_the_order_of_the_questions_that_people_ask() -> None:
    titles = [line for line in report(instances=64, checkpoint_mode="sync")[1:] if line and not line.startswith(" ")]
    assert titles == [
        "Tiers and why",
        "Sizes, and what set each",
        "Demand",
        "Cluster",
        "Cost",
        "Where data lives",
        "What would save most",
        "Alternatives, and why not",
        "Assumed, because it was not given",
        "Quotas of the account",
        "Warnings",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instances": 17}, "set by restore"),
        ({"instances": 17, "dataset_gib": 80_000.0, "checkpoint_size_gib": 10.0}, "set by capacity"),
        ({"instances": 256}, "set by the least total cost"),
        ({"instances": 1000}, "set by the quota"),
        (
            {"instances": 64, "read_gb_per_s_per_accelerator": 0.05, "checkpoint_size_gib": 1.0},
            "set by reads and checkpoints",
        ),
        (
            {"instances": 1, "interface": "posix", "read_gb_per_s_per_accelerator": 0.1, "checkpoint_size_gib": 1.0},
            "set by servers per client",
        ),
    ],
    ids=str,
)
def test_the_bound_that_set_the_size_is_named(fields: dict[str, Any], words: str) -> None:
    assert words in joined(report(**fields))


def test_shares_of_the_gpu_bill_are_of_the_run() -> None:
    text = joined(report(instances=256))
    # 256 x 720 h x $55.04 = $10,144,973; $30,940.85 of them wait.
    assert "the run, GPU bill $10,144,973 256 nodes x 720 h x $55.04" in text
    assert "the run, waiting accelerators $30,941 0.30 % of the run's GPU bill" in text
    assert "a month, fsx-lustre $25,920 0.25 % of the cluster's" in text


@pytest.mark.parametrize("fields", [job for job in JOBS if job.get("region") is None], ids=str)
def test_amounts_times_prices_of_the_explanation_give_the_total(fields: dict[str, Any]) -> None:
    text = explanation(**fields)
    lines = re.findall(r"^  \w+ +([\d,.e+-]+) (?:.*?) x \$([\d.e-]+) = \$([\d,.]+)$", text, re.MULTILINE)
    assert len(lines) >= 6
    total = 0.0
    for amount, price, product in lines:
        number = float(amount.replace(",", ""))
        assert number * float(price) == pytest.approx(float(product.replace(",", "")), rel=1e-4, abs=0.01)
        total += number * float(price)
    found = solve(TrainingJob(**fields)).money().run_usd.total
    assert found == pytest.approx(total, rel=1e-5, abs=0.05)
    assert f"total                  ${found:,.2f}" in text


def test_every_formula_stands_there_with_its_numbers() -> None:
    text = joined(explanation(instances=256).splitlines())
    for words in (
        "parameters x bytes = 405,000,000,000 x 14 = 5,670.000 GB = 5,280.599 GiB",
        "accelerators x rate = 2,048 x 0.001 GB/s = 2.048 GB/s",
        "1000 node-days / (N x r) = 24,000 h / (256 x 6.5) = 14.4231 h",
        "sqrt(2 x mu x stall budget) = sqrt(2 x 51,923 s x 60 s) = 41.6 min",
        "S / restore budget = 5,670.000 / 300 s = 18.9 GB/s",
        "max(W + R x AU, restore) = max(0 + 2.048, 18.9) = 18.9 GB/s",
        "(hot data + (kept + 1) x S) / fill = (0.000 + (2 + 1) x 5,280.599) / 0.85 = 18,637.4 GiB",
        "43,200 / 1024 x min(network 2600, disk 1000) = 42,187.500 MB/s",
        "S / (accelerators x 20 GB/s) = 5,670.000 / (2,048 x 20) = 0.138428 s",
        "max(sqrt(2 x mu x C) = 119.897; 300; S / (D - R x AU) = 141.257) s = 300 s",
        "S / D = 5,670.000 / 42.1875 = 134.4 s",
        "(1 - (300 + 134.4 + 150) / 51,923) / (1 + 0.1384 / 300) = 0.988289",
        "8,640 x 0.138428 + 49.92 x 134.4 + 2,592,000 x 0 = 7,905.26 s of every node",
        "49.92 x (150 + 300) = 22,464 s of every node",
        "smaller 40,800 GiB at 1000: $146,158 larger 45,600 GiB at 1000: $146,072",
        "best at 500 81,600 GiB at 500: $149,377",
    ):
        assert words in text


def test_the_explanation_of_a_synchronous_named_model_shows_its_slowest_rank() -> None:
    text = joined(explanation(instances=64, checkpoint_mode="sync", model="llama3-70b").splitlines())
    assert "llama3-70b: model + optimizer = 130 + 781 GiB = 978.179 GB" in text
    assert re.search(r"slowest rank 15\.28 GB / 1\.562 GB/s = 9\.782 s; the longer of the two counts", text)


def test_the_summary_is_short_and_names_what_matters() -> None:
    lines = plan_of(solve(TrainingJob(instances=256))).summary_lines()
    assert len(lines) <= 9
    text = "\n".join(lines)
    for words in (
        "256 x p5.48xlarge in us-east-1 (use1-az1)",
        "s3, fsx-lustre (rules: lake, multi-node)",
        "43,200 GiB at 1000 MB/s per TiB = 42,188 MB/s",
        "5,281 GiB every 5 min",
        "$27,135 a month, 0.26 % of the cluster's (prices of 2026-11-30, USD)",
        "$14,127 running, $37.17 with nodes at zero, $1.66 parked",
        "$146,034 in 720 h",
        "21 values",
    ):
        assert words in text


def test_the_summary_shows_warnings_but_not_without_end() -> None:
    plan = plan_of(solve(TrainingJob(instances=2048, region="us-west-2", lustre_deployment_type="SCRATCH_2")))
    assert len(plan.warnings) > 3
    lines = plan.summary_lines()
    assert lines[-1] == f"  warning  and {len(plan.warnings) - 3} more: training-storage plan shows all"
    text = joined(list(lines))
    assert all(joined([warning]) in text for warning in plan.warnings[:3])


def test_the_catalogs_own_figures_are_what_the_words_quote() -> None:
    # The explanation writes these limits out.
    limits = catalog.s3.s3_limits()
    assert (limits.get_per_s_per_prefix, limits.put_per_s_per_prefix) == (5500, 3500)
    assert catalog.lustre.client_limits().ena_gbps_per_server / 8 == 0.625
