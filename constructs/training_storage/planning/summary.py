"""A plan in a few lines, as the app prints it at synth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning.text import SUMMARY_WIDTH, percent, usd, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.plan import Cost, StoragePlan

_WARNINGS_SHOWN = 3


def summary_lines(plan: StoragePlan) -> tuple[str, ...]:
    """Return where and what, tiers, sizes, demand, money and warnings; at most 110 columns."""
    return (*_lines(plan), *_warnings(plan))


def _lines(plan: StoragePlan) -> Iterator[str]:
    job, demand, money = plan.job, plan.demand, plan.cost
    hour, run = money.per_hour_usd, money.run_usd
    months = [value for tier, value in money.per_month_usd.items() if tier != "cluster"]
    month = None if None in months else sum(value or 0.0 for value in months)
    cluster = money.per_month_usd["cluster"]
    share = f", {percent(month / cluster)} of the cluster's" if month is not None and cluster else ""
    where = f"{plan.region} ({plan.zone_id or 'no zone yet'})"
    yield f"Training storage for {job.instances} x {job.instance_type} in {where}"
    yield f"  tiers    {', '.join(plan.tiers)} (rules: {', '.join(plan.selection.rules)})"
    if plan.fsx_lustre is not None:
        system = plan.fsx_lustre
        efa = f", EFA x {system.efa_interfaces_per_client}" if system.efa_enabled else ""
        yield (
            f"  lustre   {system.deployment_type}, {system.storage_capacity_gib:,} GiB at "
            f"{system.per_unit_storage_throughput} MB/s per TiB = {system.baseline_mb_per_s:,.0f} MB/s{efa}"
        )
    if plan.s3_express is not None:
        yield f"  express  a directory bucket in {plan.s3_express.zone_id or 'a zone to be given'}"
    yield (
        f"  demand   reads {demand.read_gb_per_s:.3g} GB/s; {demand.checkpoint_size_gib:,.0f} GiB every "
        f"{demand.checkpoint_interval_minutes:.3g} min; a failure every {demand.mtbf_hours:.3g} h"
    )
    yield f"  storage  {usd(month)} a month{share} (prices of {money.prices_as_of}, {money.currency})"
    if money.lake is not None:
        yield from wrapped(_lake_words(money), first="  lake     ", width=SUMMARY_WIDTH)
    at_zero = f"{usd(hour.nodes_at_zero)} with nodes at zero"
    yield f"  an hour  {usd(hour.running)} running, {at_zero}, {usd(hour.parked)} parked"
    yield (
        f"  the run  {usd(run.total)} in {job.run_hours:g} h, of which accelerators that wait or repeat work "
        f"{usd(_sum(run.idle_accelerators, run.lost_work))}"
    )
    yield f"  assumed  {len(plan.assumed)} values; training-storage plan lists them"


def _lake_words(money: Cost) -> str:
    """Return the checkpoints that the run brings into the lake, in words; empty where the plan does not say."""
    lake, run = money.lake, money.run_usd
    if lake is None:
        return ""
    bill = _sum(run.storage, run.lake_growth, run.requests_and_transfer)
    share = f", {percent(lake.run_usd / bill)} of the storage bill" if lake.run_usd is not None and bill else ""
    return (
        f"{lake.checkpoints:,.0f} checkpoints ({lake.written_gib:,.0f} GiB) reach it, {lake.held_gib:,.0f} GiB at a "
        f"time: {usd(lake.run_usd)}{share}"
    )


def _warnings(plan: StoragePlan) -> Iterator[str]:
    for warning in plan.warnings[:_WARNINGS_SHOWN]:
        yield from wrapped(warning, first="  warning  ", width=SUMMARY_WIDTH)
    more = len(plan.warnings) - _WARNINGS_SHOWN
    if more > 0:
        yield f"  warning  and {more} more: training-storage plan shows all"


def _sum(*values: float | None) -> float | None:
    return None if None in values else sum(value or 0.0 for value in values)
