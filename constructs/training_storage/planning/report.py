"""A plan in words: short lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import defaults

if TYPE_CHECKING:
    from training_storage.planning.plan import StoragePlan


def summary_lines(plan: StoragePlan) -> tuple[str, ...]:
    """Return tiers and why, sizes, money and warnings."""
    job, demand, money = plan.job, plan.demand, plan.cost
    zone = plan.zone_id or "no zone yet"
    lines = [
        f"Training storage for {job.instances} x {job.instance_type} in {plan.region} ({zone})",
        f"Tiers: {', '.join(plan.tiers)}",
    ]
    lines += [f"  {rule}: {reason}" for rule, reason in zip(plan.selection.rules, plan.selection.reasons, strict=True)]
    lines.append(
        f"Demand: reads {demand.read_gb_per_s:g} GB/s; checkpoint {demand.checkpoint_size_gib:,.0f} GiB every "
        f"{demand.checkpoint_interval_minutes:.3g} min; restore {demand.restore_gb_per_s:.3g} GB/s; a failure every "
        f"{demand.mtbf_hours:.3g} h; effective training time {demand.effective_training_time_ratio:.1%}"
    )
    if plan.fsx_lustre is not None:
        system = plan.fsx_lustre
        efa = f", EFA with {system.efa_interfaces_per_client} interfaces per client" if system.efa_enabled else ""
        iops = f", {system.metadata_iops:,} metadata IOPS" if system.metadata_iops is not None else ""
        lines.append(
            f"fsx-lustre: {system.deployment_type}, {system.storage_capacity_gib:,} GiB at "
            f"{system.per_unit_storage_throughput} MB/s per TiB = {system.baseline_mb_per_s:,.0f} MB/s{iops}{efa}"
        )
    if plan.s3_express is not None:
        lines.append(f"s3-express: a directory bucket in {plan.s3_express.zone_id or 'a zone to be given'}")
    lines.append(f"s3: {', '.join(plan.s3.folders)}")
    months = ", ".join(f"{tier} {_usd(value)}" for tier, value in money.per_month_usd.items())
    hour, run = money.per_hour_usd, money.run_usd
    lines.append(f"Per month: {months} (prices of {money.prices_as_of})")
    lines.append(
        f"Per hour: {_usd(hour.running)} running, {_usd(hour.nodes_at_zero)} with no nodes, {_usd(hour.parked)} parked"
    )
    lines.append(
        f"Run of {job.run_hours:g} h: storage {_usd(run.storage)}, lake growth {_usd(run.lake_growth)}, requests and "
        f"transfer {_usd(run.requests_and_transfer)}, waiting accelerators {_usd(run.idle_accelerators)}, repeated "
        f"work {_usd(run.lost_work)}, total {_usd(run.total)}"
    )
    lines += [f"Warning: {warning}" for warning in plan.warnings]
    return tuple(lines)


def report_lines(plan: StoragePlan) -> tuple[str, ...]:
    """Return the summary with what was assumed, and where each kind of data lives."""
    given = plan.job.to_strings()
    assumptions = defaults.ASSUMPTIONS.items()
    return (
        *summary_lines(plan),
        "Assumed, because it was not given: "
        + (", ".join(f"{name}={given[name]}" for name in plan.assumed) or "nothing"),
        "Assumed always: " + ", ".join(f"{name}={default.value:g}" for name, default in assumptions),
        "Where data lives:",
        *(
            f"  {place.data}: {f'{place.hot} and ' if place.hot else ''}{place.durable}; {place.leaves_hot}"
            for place in plan.placement
        ),
        *(
            f"Alternative: {', '.join(alternative.tiers)}: {alternative.why_not}"
            for alternative in plan.selection.alternatives
        ),
    )


def _usd(value: float | None) -> str:
    return "no known price" if value is None else f"${value:,.2f}"
