"""The whole plan for people: what, why, how large, for how much, and what else there would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning import configuration, defaults, lustre, objects, tariff
from training_storage.planning.alternatives import PART_WORDS
from training_storage.planning.bill import GROWTH, IDLE
from training_storage.planning.demand import part_words
from training_storage.planning.engines import choose_engine
from training_storage.planning.job import TrainingJob
from training_storage.planning.selection import EXPRESS, LUSTRE, S3
from training_storage.planning.text import WIDTH, Page, amount, percent, usd
from training_storage.planning.units import GB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from training_storage.planning.plan import Lever, StoragePlan
    from training_storage.planning.solution import Solution


def report_lines(plan: StoragePlan, solution: Solution, *, width: int = WIDTH) -> tuple[str, ...]:
    """Return the report of `plan`, which `solution` was made into, in `width` columns (72 to 100)."""
    job, page = plan.job, Page(width=width)
    head = (
        f"Training storage for {job.instances:,} x {job.instance_type} "
        f"({solution.situation.accelerators:,} accelerators) in {plan.region}, {plan.zone_id or 'no zone yet'}"
    )
    reasons = zip(plan.selection.rules, plan.selection.reasons, strict=True)
    # In this order, because a page says what a term means where it comes up first.
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("Tiers and why", page.rows(reasons)),
        ("Sizes, and what set each", page.rows(_sizes(plan, solution))),
        ("Demand", page.rows(_demand(plan, solution))),
        ("Cluster", page.rows([("engine", choose_engine(plan).words())])),
        ("Cost", [*page.wrapped(_cost_head(plan, solution)), *page.table(_cost(plan, solution))]),
        ("Where data lives", page.rows(_placement(plan))),
        ("What would save most", _listed(page, _levers(plan))),
        ("Alternatives, and why not", _listed(page, _alternatives(plan))),
        ("Assumed, because it was not given", [*page.rows(_assumed(plan)), *page.wrapped(_assumed_always())]),
        ("Quotas of the account", page.rows(_quotas(plan))),
        ("Warnings", _listed(page, plan.warnings)),
    )
    lines = page.wrapped(head, first="")
    for title, body in sections:
        text = list(body)
        if text:
            lines += ["", title, *text]
    return tuple(lines)


def _listed(page: Page, texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in page.wrapped(text, first="  - ")]


def _sizes(plan: StoragePlan, solution: Solution) -> Iterator[tuple[str, str]]:
    system, found = plan.fsx_lustre, solution.found
    if system is not None:
        iops = f", {system.metadata_iops:,} metadata IOPS" if system.metadata_iops is not None else ""
        yield (
            "fsx-lustre",
            (
                f"{system.deployment_type}, {system.storage_capacity_gib:,} GiB at "
                f"{system.per_unit_storage_throughput} MB/s per TiB = {system.baseline_mb_per_s:,.0f} MB/s{iops}"
            ),
        )
        yield "", f"Size: {size_words(solution)}"
        efa = f", {system.efa_interfaces_per_client} EFA interfaces a node" if system.efa_enabled else ""
        client = found.request.client_bytes_per_s if found.request is not None else 0.0
        yield "", f"Network: {found.path}{efa}; a node moves at most {client / GB:.3g} GB/s."
    for tier, store in found.stores.items():
        yield (
            tier,
            (
                f"Bounds, not measurements: reads {store.read_bytes_per_s / GB:.3g} GB/s, writes "
                f"{store.write_bytes_per_s / GB:.3g} GB/s; set by {_store_bound(solution, tier)}."
            ),
        )
    if EXPRESS in plan.tiers and EXPRESS not in found.stores:
        yield EXPRESS, "Nothing of this job is read from or written to it."
    if S3 not in found.stores:
        yield S3, f"No size; {plan.demand.prefixes} prefix{'es' if plan.demand.prefixes != 1 else ''}."


def size_words(solution: Solution) -> str:
    """Return which bound set the size of the file system, with what every bound asks for."""
    request, system = solution.found.request, solution.found.layout.file_system
    if request is None or system is None:
        return ""
    bounds = lustre.bounds(request, system.tier)
    least = lustre.least_gib(request, system.tier) or 0
    # What asks for nothing, such as a target that was dropped, sets nothing.
    asked = ", ".join(f"{bound.name} {bound.gib:,.0f}" for bound in bounds if bound.gib > 0)
    following = request.kind.next_gib(capacity_gib=system.capacity_gib, per_unit=system.tier.per_unit, efa=request.efa)
    limit = configuration.quota_gib(solution.situation)
    largest = max(bounds, key=lambda bound: bound.gib).name
    if not solution.found.attempt.within_quota:
        beside = "" if system.capacity_gib == least else "; less leaves checkpoints no time beside the reads"
        reason = f"set by {largest}{beside}; over the quota a plan takes the least size that serves"
    elif system.capacity_gib == least:
        reason = f"set by {largest}; more would cost more than it saves"
    elif system.capacity_gib <= limit < following:
        reason = "set by the quota; up to there more throughput saves more waiting than it costs"
    else:
        reason = "set by the least total cost; less would cost more in waiting accelerators than it saves"
    return f"{reason}. The demand asks for {least:,} GiB ({asked}, before the grid of sizes)."


def _store_bound(solution: Solution, tier: str) -> str:
    store = solution.found.stores[tier]
    clients = objects.clients_bytes_per_s(solution.situation, solution.found.path)
    if store.read_bytes_per_s >= clients:
        return f"the nodes' network ({solution.found.path})"
    if tier == EXPRESS:
        return "the requests of a directory bucket"
    return "the requests of the prefixes that the demand asks for"


def _demand(plan: StoragePlan, solution: Solution) -> Iterator[tuple[str, str]]:
    demand, job, needs = plan.demand, plan.job, solution.needs
    use = f"; {needs.accelerator_use:.0%} of it must be met" if needs.accelerator_use < 1 else ""
    yield "reads", f"{demand.read_gb_per_s:.4g} GB/s with every accelerator busy{use}"
    rank = "" if demand.slowest_rank_gib is None else f"; the slowest rank writes {demand.slowest_rank_gib:.3g} GiB"
    yield "checkpoint", f"{demand.checkpoint_size_gib:,.1f} GiB, {job.checkpoint_mode}{rank}"
    yield (
        "interval",
        (
            f"{demand.checkpoint_interval_minutes:.4g} min, {solution.found.result.checkpoints:,.0f} in the run; "
            f"Young's interval for the stall budget is {demand.young_interval_minutes:.4g} min"
        ),
    )
    yield (
        "writes",
        f"{demand.checkpoint_write_gb_per_s:.4g} GB/s; a save stalls training {demand.checkpoint_stall_seconds:.3g} s",
    )
    yield (
        "restore",
        (
            f"{demand.restore_gb_per_s:.4g} GB/s for {needs.restore_target_s:g} s"
            f"{'' if needs.restore_is_limit else ' (a target)'}; it takes {solution.found.result.restore_s:,.0f} s"
        ),
    )
    yield "failures", f"one every {demand.mtbf_hours:.4g} h, {solution.found.result.failures:.3g} in the run"
    yield "effective", f"{percent(demand.effective_training_time_ratio)} of the time trains"
    if plan.tiers != (S3,):
        yield "hot capacity", f"{demand.hot_capacity_gib:,.0f} GiB at a fill of {defaults.number('fill_level'):.0%}"
    opens = needs.files_per_s is not None and solution.found.choice.read_tier == LUSTRE
    iops = f", {demand.metadata_iops:,} metadata IOPS" if opens else ""
    yield (
        "requests",
        (
            f"{demand.get_per_s:,.0f} GET/s and {demand.put_per_s:,.0f} PUT/s ({part_words(needs)}): "
            f"{demand.prefixes} prefix{'es' if demand.prefixes != 1 else ''}{iops}"
        ),
    )


def _cost_head(plan: StoragePlan, solution: Solution) -> str:
    hours = solution.situation.prices.hours_per_month
    return f"Prices of {plan.cost.prices_as_of}, {plan.cost.currency}. A month has {hours:g} h."


def _share(value: float | None, of: float | None, words: str) -> str:
    """Return `value` as a share of `of`; more than all of it is no share any more."""
    if value is None or not of:
        return ""
    return f"{percent(value / of)} of {words}" if value <= of else f"more than {words}"


def _cost(plan: StoragePlan, solution: Solution) -> Iterator[tuple[str, str, str]]:
    money, job = plan.cost, plan.job
    cluster = money.per_month_usd["cluster"]

    for tier, value in money.per_month_usd.items():
        note = "all nodes running" if tier == "cluster" else _share(value, cluster, "the cluster's")
        yield f"a month, {tier}", usd(value), note
    hour = money.per_hour_usd
    yield "an hour, running", usd(hour.running), "storage and all nodes"
    yield "an hour, nodes at zero", usd(hour.nodes_at_zero), "storage alone"
    yield "an hour, parked", usd(hour.parked), "the stack is gone, the lake remains"
    node_hour = solution.situation.tariff.price(tariff.node_hour(solution.situation.instance.name))
    bill = None if node_hour is None else node_hour * job.instances * solution.situation.number("run_hours")
    values: Mapping[str, float | None] = {part: getattr(money.run_usd, part) for part in PART_WORDS}
    for part, value in {**values, "total": money.run_usd.total}.items():
        share = _share(value, bill, "the run's GPU bill")
        if part == IDLE and share:
            hours = min(solution.found.result.idle_node_s, solution.situation.run_s) / SECONDS_PER_HOUR
            share += f"; {hours:,.1f} h of the run"
        if part == GROWTH and money.lake is not None:
            # The requests that write them stand in the next line, as everywhere else.
            words = f"{money.lake.checkpoints:,.0f} checkpoints, {money.lake.written_gib:,.0f} GiB, reach it"
            share = "; ".join(text for text in (share, words) if text)
        yield f"the run, {PART_WORDS.get(part, part)}", usd(value), share
    if bill is not None:
        yield "the run, GPU bill", usd(bill), f"{job.instances:,} nodes x {job.run_hours:g} h x ${node_hour:g}"


def _placement(plan: StoragePlan) -> Iterator[tuple[str, str]]:
    for place in plan.placement:
        hot = f"hot on {place.hot}, " if place.hot else ""
        yield place.data, f"{hot}durable on {place.durable}; {place.leaves_hot}"


def _levers(plan: StoragePlan) -> Iterator[str]:
    for lever in plan.levers:
        yield f"{change_text(lever)} saves {usd(lever.saves_run_usd)} of the run: {lever.why}"


def change_text(lever: Lever) -> str:
    """Return the change of `lever` as it can be typed after ``-c``."""
    return ", ".join(
        f"{key}={value if isinstance(value, str) else TrainingJob.field_text(key, value)}"
        for key, value in lever.change.items()
    )


def _alternatives(plan: StoragePlan) -> Iterator[str]:
    for other in plan.selection.alternatives:
        money = "" if other.run_usd is None else f" {usd(other.per_month_usd)} a month, {usd(other.run_usd)} the run."
        what = ", ".join([" + ".join(other.tiers), *_what_differs(plan, other.configuration)])
        yield f"{what}:{money} {other.why_not}"


def _what_differs(plan: StoragePlan, configuration: Mapping[str, object]) -> Iterator[str]:
    """Yield what an alternative has besides its tiers, as far as the plan has not the same."""
    capacity, per_unit = configuration.get("storage_capacity_gib"), configuration.get("per_unit_storage_throughput")
    if per_unit is not None:
        yield f"{f'{capacity:,} GiB ' if capacity is not None else ''}at {per_unit} MB/s per TiB"
    same = {
        "network_path": plan.job.network_path,
        "deployment_type": plan.fsx_lustre.deployment_type if plan.fsx_lustre else "PERSISTENT_2",
        "efa_enabled": plan.fsx_lustre.efa_enabled if plan.fsx_lustre else False,
        "checkpoint_interval_minutes": float(f"{plan.demand.checkpoint_interval_minutes:.4g}"),
    }
    for key, value in configuration.items():
        if key not in ("storage_capacity_gib", "per_unit_storage_throughput") and same.get(key) != value:
            yield f"{key}={_plain(value)}"


def _assumed(plan: StoragePlan) -> Iterator[tuple[str, str]]:
    given = plan.job.to_strings()
    for name in plan.assumed:
        yield f"{name}={given[name]}", defaults.FIELDS[name].why if name in defaults.FIELDS else "by rule"


def _assumed_always() -> str:
    return (
        "Give any of them as an option (--checkpoint-mode sync), or as -c checkpoint_mode=sync. Always assumed: "
        + ", ".join(f"{name}={_plain(default.value)}" for name, default in defaults.ASSUMPTIONS.items())
        + "."
    )


def _quotas(plan: StoragePlan) -> Iterator[tuple[str, str]]:
    for quota in plan.quotas:
        share = f"{quota.needed / quota.limit:.0%}"
        yield quota.code or "no code", f"{quota.name}: {quota.needed:,} of {quota.limit:,} ({share})"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return amount(value)
    return str(value)
