"""What docs/planning.md says of defaults and results is what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_storage.planning import TrainingJob, defaults, plan_storage

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    lines = DOCUMENT[DOCUMENT.index(head) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def written(values: dict[str, defaults.Default]) -> list[list[str]]:
    def cell(value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.10f}".rstrip("0").rstrip(".")

    return [[f"`{name}`", cell(default.value), default.why] for name, default in values.items()]


def test_the_documented_defaults_are_the_codes() -> None:
    assert table("| field | default | why |") == written(defaults.FIELDS)


def test_the_documented_assumptions_are_the_codes() -> None:
    assert table("| assumption | value | why |") == written(defaults.ASSUMPTIONS)


def test_defaults_are_values_of_the_jobs_fields() -> None:
    assert set(defaults.FIELDS) <= set(TrainingJob.field_names())
    resolved = plan_storage(TrainingJob(instances=8)).job
    for name, default in defaults.FIELDS.items():
        assert getattr(resolved, name) == default.value


ROWS = table("| instances | tiers | GiB |")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_documented_results_are_the_planners(row: list[str]) -> None:
    plan = plan_storage(TrainingJob(instances=int(row[0])))
    system, months = plan.fsx_lustre, plan.cost.per_month_usd
    month, cluster = months[plan.tiers[-1]], months["cluster"]
    assert month is not None
    assert cluster is not None
    shape = ["–", "–", "–"]
    if system is not None:
        quota = plan.quotas[0]
        shape = [
            f"{system.storage_capacity_gib:,}",
            str(system.per_unit_storage_throughput),
            f"{quota.needed / quota.limit:.0%}".replace("%", " %"),
        ]
    share = f"{month / cluster:.2%}".replace("%", " %")
    assert row == [row[0], ", ".join(plan.tiers), *shape, f"{month:,.0f}", share]


def test_the_documented_results_cover_the_sizes_that_matter() -> None:
    assert [row[0] for row in ROWS] == ["8", "16", "17", "64", "256", "512", "1000"]
