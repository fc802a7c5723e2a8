"""What the examples cost, computed from the catalog's prices and the planner: the tables of their READMEs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.examples.example_apps import module
from training_storage.planning import tariff
from training_storage.planning.catalog.prices import catalog_prices

if TYPE_CHECKING:
    from training_storage import StoragePlan
    from training_storage.planning.catalog.prices import PricePath

REGION = "us-east-1"
#: What the rows without a plan are about; a TiB or so, to multiply by hand.
GIB = 1000
#: Parts of an upload, as the archive copies.
PART_MIB = 8


def table(example: str) -> str:
    """The table of costs that the README of an example must show."""
    prices = catalog_prices()
    rows = "\n".join(f"| {what} | {usd} |" for what, usd in _ROWS[example]())
    return f"| prices of {prices.as_of}, {REGION} | USD |\n|---|---|\n{rows}\n"


def _price(path: PricePath) -> float:
    found = catalog_prices().item(region=REGION, path=path)
    assert found is not None, path
    return found


def _hour(month: float) -> float:
    return month / catalog_prices().hours_per_month


def _usd(amount: float | None) -> str:
    assert amount is not None
    return f"{amount:,.2f}"


def _lake() -> list[tuple[str, str]]:
    puts = 1000 * _price(tariff.S3_PUT)
    return [
        (f"{GIB:,} GiB in the lake, a month, before they are tiered", _usd(GIB * _price(tariff.S3_STORAGE))),
        ("writing a million objects: pack small files", _usd(puts)),
    ]


def _lustre() -> list[tuple[str, str]]:
    app = module("lustre_two_links")
    capacity, throughput = app.STORAGE_CAPACITY_GIB, app.PER_UNIT_STORAGE_THROUGHPUT
    month = capacity * _price(tariff.lustre_storage("PERSISTENT_2", throughput))
    system = f"the file system, {capacity:,} GiB at {throughput} MB/s per TiB"
    return [(f"{system}, a month", _usd(month)), (f"{system}, an hour, used or not", _usd(_hour(month)))]


def _express() -> list[tuple[str, str]]:
    parts = math.ceil(GIB * 1024 / PART_MIB) / 1000
    writing = GIB * _price(tariff.EXPRESS_UPLOAD) + parts * _price(tariff.EXPRESS_PUT)
    reading = GIB * _price(tariff.EXPRESS_RETRIEVAL) + parts * _price(tariff.EXPRESS_GET)
    archiving = reading + parts * _price(tariff.S3_PUT)
    return [
        (f"{GIB:,} GiB in the directory bucket, a month", _usd(GIB * _price(tariff.EXPRESS_STORAGE))),
        (f"writing a checkpoint of {GIB:,} GiB, in parts of {PART_MIB} MiB", _usd(writing)),
        ("reading it again", _usd(reading)),
        ("archiving it: reading, and writing it to the lake", _usd(archiving)),
        ("keeping it in the lake, a month", _usd(GIB * _price(tariff.S3_STORAGE))),
    ]


def _pcs() -> list[tuple[str, str]]:
    plan = module("pcs").plan(region=REGION)
    hour, run = plan.cost.per_hour_usd, plan.cost.run_usd
    return [
        (f"an hour, {_nodes(plan)} running", _usd(hour.running)),
        ("an hour, nodes at zero: what the storage costs", _usd(hour.nodes_at_zero)),
        ("an hour, parked: what the lake costs", _usd(hour.parked)),
        (f"storage in a run of {plan.job.run_hours:g} hours", _usd(run.storage)),
    ]


def _three() -> list[tuple[str, str]]:
    rows = []
    for plan in module("three_jobs").plans(region=REGION):
        hour = plan.cost.per_hour_usd
        rows.append((f"{plan.job.name}: an hour, {_nodes(plan)} running", _usd(hour.running)))
        rows.append((f"{plan.job.name}: an hour, nodes at zero", _usd(hour.nodes_at_zero)))
    return rows


def _nodes(plan: StoragePlan) -> str:
    return f"{plan.job.instances} × {plan.job.instance_type}"


_ROWS = {
    "data_lake": _lake,
    "lustre_two_links": _lustre,
    "express_beside_batch": _express,
    "pcs": _pcs,
    "three_jobs": _three,
}
