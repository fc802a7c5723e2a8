"""Figures and tables of the prose are the planner's; a change of the catalog names the page and the line."""

from __future__ import annotations

import inspect
import json
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from training_storage import StorageAlarms
from training_storage.cli import main as command
from training_storage.planning import StoragePlan, TrainingJob, plan_storage
from training_storage.planning.catalog import lustre
from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHOOSING = ("choosing-the-tier.md", "choosing-the-tier.zh.md")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table, and where it stands."""

    place: str
    cells: tuple[str, ...]


def rows(page: str) -> Iterator[Row]:
    for number, line in enumerate((DOCS / page).read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("|") and not line.startswith("|---"):
            cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
            yield Row(place=f"docs/{page}:{number}", cells=cells)


def places(found: list[Row]) -> list[str]:
    return [row.place for row in found]


CHOICES = [row for page in CHOOSING for row in rows(page) if row.cells[0].startswith("`--")]


@pytest.mark.parametrize("row", CHOICES, ids=places(CHOICES))
def test_each_job_of_the_page_gets_the_tiers_that_it_says(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["plan", *shlex.split(row.cells[0].strip("`")), "--json"]) == 0
    printed = capsys.readouterr().out
    found = re.search(r'"selection": \{\s*"tiers": \[([^\]]*)\]', printed)
    assert found, row.place
    assert re.findall(r'"([^"]+)"', found[1]) == row.cells[1].split(", "), row.place


def test_both_languages_have_the_same_jobs_rules_and_order() -> None:
    english, chinese = (
        [
            (row.cells[0], row.cells[1] if row.cells[0].startswith("`--") else "")
            for row in rows(page)
            if row.cells[0].startswith("`")
        ]
        for page in CHOOSING
    )
    assert english == chinese
    assert len(english) > 20


ARITHMETIC = [row for row in rows("sizing.md") if len(row.cells) == 3 and row.cells[1].startswith("`")]
_KNOWN = {"sqrt": math.sqrt, "ceil": math.ceil, "max": max}


def figure(cell: str) -> tuple[float, int]:
    """Return the number at the beginning of `cell` and how many decimals it has."""
    found = re.match(r"[\d,]+(?:\.(\d+))?", cell)
    assert found, cell
    return float(found[0].replace(",", "")), len(found[1] or "")


@pytest.mark.parametrize("row", ARITHMETIC, ids=places(ARITHMETIC))
def test_each_line_of_arithmetic_gives_what_stands_beside_it(row: Row) -> None:
    arithmetic = row.cells[1].strip("`")
    assert re.fullmatch(r"[\d\s.e+*/(),\-]*(?:(?:sqrt|ceil|max)[\d\s.e+*/(),\-]*)*", arithmetic), row.place
    result = eval(arithmetic, {"__builtins__": {}}, _KNOWN)  # noqa: S307 -- digits and three functions, as checked
    printed, decimals = figure(row.cells[2])
    assert abs(result - printed) <= 0.5001 * 10**-decimals, f"{row.place}: {arithmetic} = {result}"


def test_the_page_on_sizing_has_the_arithmetic_in_tables_that_are_found() -> None:
    assert len(ARITHMETIC) == 29


def planned() -> StoragePlan:
    return plan_storage(TrainingJob(instances=256))


#: What the planner says of the same, by the beginning of the row.
PLANNED: dict[str, Callable[[StoragePlan], float | None]] = {
    "the same in GiB": lambda plan: plan.demand.checkpoint_size_gib,
    "reads R": lambda plan: plan.demand.read_gb_per_s,
    "time between failures": lambda plan: plan.demand.mtbf_hours,
    "Young's interval": lambda plan: plan.demand.young_interval_minutes,
    "restore: S ÷ budget": lambda plan: plan.demand.restore_gb_per_s,
    "capacity": lambda plan: plan.demand.hot_capacity_gib,
    "twice that size": lambda plan: plan.fsx_lustre.baseline_mb_per_s if plan.fsx_lustre else None,
    "stall C": lambda plan: plan.demand.checkpoint_stall_seconds,
    "interval τ": lambda plan: 60 * plan.demand.checkpoint_interval_minutes,
    "the file system, at": lambda plan: plan.cost.run_usd.storage,
    "the lake: ten": lambda plan: plan.cost.run_usd.lake_growth,
    "requests": lambda plan: plan.cost.run_usd.requests_and_transfer,
    "total": lambda plan: plan.cost.run_usd.total,
}


@pytest.mark.parametrize("beginning", PLANNED)
def test_each_result_of_the_arithmetic_is_the_planners(beginning: str) -> None:
    (row,) = [row for row in ARITHMETIC if row.cells[0].startswith(beginning)]
    printed, decimals = figure(row.cells[2])
    value = PLANNED[beginning](planned())
    assert value is not None
    assert abs(value - printed) <= 0.5001 * 10**-decimals, f"{row.place}: the planner has {value}"


def test_the_sizes_beside_the_chosen_one_cost_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["plan", "--instances", "256", "--explain"]) == 0
    explained = re.sub(r"\s+", " ", capsys.readouterr().out)
    found = [row for row in rows("sizing.md") if len(row.cells) == 2 and re.match(r"\d", row.cells[0])]
    assert len(found) == 3
    for row in found:
        words = f"{row.cells[0]} GiB at 1000: ${row.cells[1].removesuffix(' USD')}"
        assert words in explained, f"{row.place}: {words}"


COSTS = [row for row in rows("costs.md") if row.cells[0].startswith("`--")]


@pytest.mark.parametrize("row", COSTS, ids=places(COSTS))
def test_each_plan_of_the_page_on_costs_costs_what_it_says(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["plan", *shlex.split(row.cells[0].strip("`")), "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    hour, run = cost["per_hour_usd"], cost["run_usd"]
    printed = [
        *(f"${hour[name]:,.2f}" for name in ("running", "nodes_at_zero", "parked")),
        *(f"${run[name]:,.0f}" for name in ("storage", "idle_accelerators", "lost_work")),
    ]
    assert list(row.cells[1:]) == printed, row.place


def test_the_page_on_operations_has_every_quota_of_the_catalog_with_its_default() -> None:
    found = {row.cells[1]: row for row in rows("operations.md") if row.cells[1].startswith("L-")}
    known = {row["code"]: row for row in load("quotas.toml").values() if isinstance(row, dict) and "code" in row}
    assert found.keys() == known.keys()
    for code, row in found.items():
        assert row.cells[2] == f"{known[code]['limit']:,}", row.place


def test_each_least_file_system_with_efa_that_the_page_of_questions_names_is_the_catalogs() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8").replace("\n", " ")
    found = re.findall(r"([\d,]+) GiB at (\d+)[,.]", text)
    assert found == [("38,400", "125"), ("4,800", "1000")]
    tiers = lustre.deployment_types()["PERSISTENT_2"].throughputs
    assert [f"{tiers[int(throughput)].efa_increment_gib:,}" for _, throughput in found] == ["38,400", "4,800"]


ALARMS = [row for row in rows("alarms.md") if len(row.cells) == 4 and row.cells[2].startswith("`")]


def test_the_defaults_of_the_page_on_alarms_are_the_constructs() -> None:
    defaults = {name: one.default for name, one in inspect.signature(StorageAlarms.__init__).parameters.items()}
    assert len(ALARMS) == 5
    for row in ALARMS:
        assert row.cells[3] == str(defaults[row.cells[2].strip("`")]), row.place
