"""Every formula of a plan with its numbers, so that it can be done again by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from training_storage.planning import bill, catalog, configuration, defaults, lustre, objects, tariff
from training_storage.planning.selection import EXPRESS, LUSTRE, S3
from training_storage.planning.text import NARROWEST, WIDTH, amount, rows, usd, wrapped
from training_storage.planning.units import GB, GIB, MIB, SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.solution import Solution

Pair = tuple[str, str]


def explain_lines(solution: Solution, *, width: int = WIDTH) -> tuple[str, ...]:
    """Return the formulas with their numbers, in `width` columns (72 to 100)."""
    width = max(NARROWEST, min(WIDTH, width))
    lines = ["How it was calculated"]
    for title, pairs in (
        ("Demand", _demand(solution)),
        ("What the tiers deliver", _delivery(solution)),
        ("What that makes of the run", _outcome(solution)),
        ("Amounts of the run", _amounts(solution)),
        ("Money of the run: amount x price", _money(solution)),
        ("Why this size", _choice(solution)),
    ):
        text = list(rows(pairs, width=width))
        if text:
            lines += ["", f"  {title}", *text]
    units = "GB are 10^9 bytes, GiB 2^30. Prices are those of the Region; see --json for all fields."
    lines += ["", *wrapped(units, width=width)]
    return tuple(lines)


def _demand(solution: Solution) -> Iterator[Pair]:
    situation, needs, job = solution.situation, solution.needs, solution.situation.job
    size, read = needs.checkpoint_bytes, needs.read_bytes_per_s
    yield "S, checkpoint", f"{_size_formula(solution)} = {size / GB:,.3f} GB = {size / GIB:,.3f} GiB"
    yield (
        "R, reads",
        (
            f"accelerators x rate = {situation.accelerators:,} x "
            f"{amount(situation.number('read_gb_per_s_per_accelerator'))} GB/s = {read / GB:,.6g} GB/s; "
            f"AU, the accelerator use to keep, is {needs.accelerator_use:g}"
        ),
    )
    if job.mtbf_hours is None:
        yield (
            "mu, MTBF",
            (
                f"1000 node-days / (N x r) = 24,000 h / ({job.instances:,} x "
                f"{amount(situation.number('failures_per_1000_node_days'))}) = {needs.mtbf_s / SECONDS_PER_HOUR:,.6g} h"
            ),
        )
    else:
        yield "mu, MTBF", f"as given: {job.mtbf_hours:g} h"
    budget = needs.stall_target_s
    yield (
        "Young",
        (
            f"sqrt(2 x mu x stall budget) = sqrt(2 x {needs.mtbf_s:,.0f} s x {budget:g} s) = "
            f"{needs.young_s / SECONDS_PER_MINUTE:,.4g} min; it decides whether checkpoints are frequent"
        ),
    )
    if needs.synchronous:
        yield "W, writes", f"S / stall budget = {size / GB:,.3f} / {budget:g} s = {size / budget / GB:,.6g} GB/s"
        if needs.interval_s is not None:
            yield (
                "",
                (
                    f"and more than S / interval = {size / GB:,.3f} / {needs.interval_s:g} s = "
                    f"{size / needs.interval_s / GB:,.6g} GB/s: a save ends before the next begins"
                ),
            )
    elif needs.interval_s is not None:
        yield (
            "W, writes",
            f"S / interval = {size / GB:,.3f} / {needs.interval_s:g} s = {needs.write_bytes_per_s / GB:,.6g} GB/s",
        )
    else:
        yield "W, writes", "0: asynchronous without a given interval; writing takes what reading leaves"
    yield (
        "restore",
        (
            f"S / restore budget = {size / GB:,.3f} / {needs.restore_target_s:g} s = "
            f"{needs.restore_bytes_per_s / GB:,.6g} GB/s"
        ),
    )
    yield "need", _need_formula(solution)
    gets = read / needs.read_request_bytes
    yield (
        "requests",
        (
            f"GET/s = R / {needs.read_request_bytes / MIB:.6g} MiB = {gets:,.6g}; a part of a checkpoint has "
            f"{needs.checkpoint_part_bytes / MIB:.6g} MiB; prefixes = max(ceil(GET/s / 5,500), ceil(PUT/s / 3,500))"
        ),
    )
    if needs.files_per_s is not None and solution.found.choice.read_tier == LUSTRE:
        yield (
            "metadata",
            (
                f"opens and closes / 2 = files/s = R / file = {needs.files_per_s:,.6g}; next legal value "
                f"{lustre.required_metadata_iops(needs):,}"
            ),
        )


def _size_formula(solution: Solution) -> str:
    job = solution.situation.job
    if job.checkpoint_size_gib is not None:
        return "as given"
    if job.bytes_per_parameter is None and job.model is not None:
        model = catalog.workloads.models()[job.model]
        return f"{job.model}: model + optimizer = {model.model_gib:g} + {model.optimizer_gib:g} GiB"
    lora = f" x {defaults.number('lora_parameter_share'):g} (LoRA)" if job.fine_tuning == "lora" else ""
    return (
        f"parameters x bytes = {solution.situation.number('model_parameters'):,.0f} x "
        f"{solution.situation.number('bytes_per_parameter'):g}{lora}"
    )


def _need_formula(solution: Solution) -> str:
    needs, attempt = solution.needs, solution.found.attempt
    required = needs.required(reads=True, checkpoints=True, targets=attempt.targets)
    read, write, restore = (f"{value / GB:,.6g}" for value in (required.read, required.write, required.restore))
    symbols, figures = ["W", "R x AU"], [write, read]
    if not needs.synchronous:
        symbols, figures = ["W + R x AU"], [f"{write} + {read}"]
    dropped = ""
    if attempt.targets or needs.restore_is_limit:
        symbols, figures = [*symbols, "restore"], [*figures, restore]
    if not attempt.targets:
        dropped = " (assumed budgets were dropped)"
    formula = f"max({', '.join(symbols)}) = max({', '.join(figures)})" if len(symbols) > 1 else f"{symbols[0]}"
    return f"{formula} = {required.total / GB:,.6g} GB/s{dropped}"


def _delivery(solution: Solution) -> Iterator[Pair]:
    situation, needs, found = solution.situation, solution.needs, solution.found
    request, system, kept = found.request, found.layout.file_system, int(situation.number("checkpoints_kept"))
    if request is not None and system is not None:
        hot = found.layout.hot_bytes if found.choice.read_tier == LUSTRE else 0.0
        saved = f"({kept} + 1) x {needs.checkpoint_bytes / GIB:,.3f}" if found.choice.checkpoint_tier == LUSTRE else "0"
        yield (
            "capacity",
            (
                f"(hot data + (kept + 1) x S) / fill = ({hot / GIB:,.3f} + {saved}) / "
                f"{defaults.number('fill_level'):g} = {lustre.capacity_gib(request.capacity_bytes):,.1f} GiB"
            ),
        )
        for bound in (bound for bound in lustre.bounds(request, system.tier)[1:] if bound.gib > 0):
            yield f"  {bound.name}", f"at {system.tier.per_unit} MB/s per TiB: {bound.gib:,.1f} GiB"
        yield (
            "size",
            (
                "up to the grid of max(capacity, need / tier x 1024) = "
                f"{lustre.least_gib(request, system.tier):,} GiB at least; chosen {system.capacity_gib:,} GiB"
            ),
        )
        yield (
            "baseline",
            (
                f"{system.capacity_gib:,} / 1024 x min(network {system.tier.network}, disk {system.tier.disk_read}) = "
                f"{system.baseline_mb_per_s:,.3f} MB/s"
            ),
        )
        client = request.client_bytes_per_s
        yield (
            "clients",
            f"{request.nodes:,} x {client / GB:.6g} GB/s over {request.path} = {client * request.nodes / GB:,.6g} GB/s"
            + ("" if request.efa else "; at most 0.625 GB/s of one client to one server"),
        )
        if request.efa:
            limit = catalog.lustre.client_limits().efa_connections
            yield (
                "EFA",
                (
                    f"min({situation.instance.lustre_efa_interfaces_default} of the type, {limit:,} connections / "
                    f"{request.nodes:,} nodes) = {request.efa_interfaces} interfaces x "
                    f"{situation.instance.gbps_per_efa_interface:g} Gbps"
                ),
            )
    for tier, store in found.stores.items():
        yield (
            tier,
            (
                f"min({situation.job.instances:,} nodes over {found.path} = "
                f"{objects.clients_bytes_per_s(situation, found.path) / GB:,.6g} GB/s, "
                f"{_requests_words(solution, tier)}): reads {store.read_bytes_per_s / GB:,.6g}, writes "
                f"{store.write_bytes_per_s / GB:,.6g}, restores {store.restore_bytes_per_s / GB:,.6g} GB/s"
            ),
        )
    delivery = found.delivery
    yield (
        "D",
        (
            f"reads {delivery.read_bytes_per_s / GB:,.6g}, writes {delivery.write_bytes_per_s / GB:,.6g}, restores "
            f"{delivery.restore_bytes_per_s / GB:,.6g}, writes beside reads "
            f"{delivery.write_beside_reads_bytes_per_s / GB:,.6g} GB/s"
        ),
    )


def _requests_words(solution: Solution, tier: str) -> str:
    if tier == S3:
        limits = catalog.s3.s3_limits()
        attempt, choice = solution.found.attempt, solution.found.choice
        required = solution.needs.required(
            reads=choice.read_tier == S3, checkpoints=choice.checkpoint_tier == S3, targets=attempt.targets
        )
        count = objects.prefixes(solution.needs, required)
        return (
            f"{count} prefix{'es' if count != 1 else ''} x {limits.get_per_s_per_prefix:,} GET/s or "
            f"{limits.put_per_s_per_prefix:,} PUT/s x part"
        )
    express = catalog.s3.express_limits()
    raised = solution.found.stores[tier].raised
    gets, puts = (
        (express.get_per_s_on_request, express.put_per_s_on_request)
        if raised
        else (express.get_per_s, express.put_per_s)
    )
    return f"{gets:,} GET/s or {puts:,} PUT/s x part"


def _outcome(solution: Solution) -> Iterator[Pair]:
    situation, needs, found = solution.situation, solution.needs, solution.found
    result, delivery, size = found.result, found.delivery, needs.checkpoint_bytes / GB
    restart = defaults.number("restart_seconds")
    if needs.synchronous:
        yield "C, stall", f"S / W = {size:,.3f} / {delivery.write_bytes_per_s / GB:,.6g} GB/s = {result.stall_s:,.6g} s"
        if needs.slowest_rank_bytes is not None:
            yield (
                "  slowest rank",
                (
                    f"{needs.slowest_rank_bytes / GB:,.4g} GB / {delivery.rank_bytes_per_s / GB:,.4g} GB/s = "
                    f"{needs.slowest_rank_bytes / delivery.rank_bytes_per_s:,.4g} s; the longer of the two counts"
                ),
            )
    else:
        rate = defaults.number("device_to_host_gb_per_s")
        yield (
            "C, stall",
            (
                f"S / (accelerators x {rate:g} GB/s) = {size:,.3f} / ({situation.accelerators:,} x {rate:g}) = "
                f"{result.stall_s:,.6g} s"
            ),
        )
    yield "tau, interval", _interval_formula(solution)
    yield (
        "restore time",
        f"S / D = {size:,.3f} / {delivery.restore_bytes_per_s / GB:,.6g} = {result.restore_s:,.6g} s",
    )
    yield (
        "counts",
        (
            f"checkpoints = {situation.run_s:,.0f} s / tau = {result.checkpoints:,.6g}; failures = run / mu = "
            f"{result.failures:,.6g}"
        ),
    )
    yield (
        "achieved AU",
        (
            f"min(1, D / R) = min(1, {delivery.read_bytes_per_s / GB:,.6g} / {needs.read_bytes_per_s / GB:,.6g}) = "
            f"{result.achieved_use:.6g}"
        ),
    )
    yield (
        "ETTR",
        (
            f"(1 - (u0 + restore + tau/2) / mu) / (1 + C / tau) = (1 - ({restart:g} + {result.restore_s:,.4g} + "
            f"{result.interval_s / 2:,.6g}) / {needs.mtbf_s:,.0f}) / (1 + {result.stall_s:,.4g} / "
            f"{result.interval_s:,.6g}) = {result.effective_training_time_ratio:.6f}"
        ),
    )
    yield (
        "idle",
        (
            f"checkpoints x C + failures x restore + run x (1 - achieved AU) = {result.checkpoints:,.6g} x "
            f"{result.stall_s:,.6g} + {result.failures:,.6g} x {result.restore_s:,.6g} + {situation.run_s:,.0f} x "
            f"{1 - result.achieved_use:.6g} = {result.idle_node_s:,.6g} s of every node"
        ),
    )
    yield (
        "lost",
        (
            f"failures x (tau/2 + u0) = {result.failures:,.6g} x ({result.interval_s / 2:,.6g} + {restart:g}) = "
            f"{result.lost_node_s:,.6g} s of every node"
        ),
    )


def _interval_formula(solution: Solution) -> str:
    needs, result, delivery = solution.needs, solution.found.result, solution.found.delivery
    if needs.interval_s is not None:
        return f"as given: {needs.interval_s / SECONDS_PER_MINUTE:g} min"
    least = defaults.number("checkpoint_interval_minimum_minutes") * SECONDS_PER_MINUTE
    young = math.sqrt(2 * needs.mtbf_s * result.stall_s)
    terms = [f"sqrt(2 x mu x C) = {young:,.6g}", f"{least:g}"]
    if not needs.synchronous:
        written = needs.checkpoint_bytes / delivery.write_beside_reads_bytes_per_s
        terms.append(f"S / (D - R x AU) = {written:,.6g}")
    return f"max({'; '.join(terms)}) s = {result.interval_s:,.6g} s"


def _amounts(solution: Solution) -> Iterator[Pair]:
    situation, needs, found = solution.situation, solution.needs, solution.found
    layout, result, nodes = found.layout, found.result, situation.job.instances
    hours, month = situation.number("run_hours"), situation.prices.hours_per_month
    yield "months", f"{hours:g} h / {month:g} h = {situation.months:.6g}"
    every = bill.lake_checkpoint_s(situation, layout, result)
    written = bill.lake_checkpoints(situation, layout, result)
    rule = "tau" if layout.choice.checkpoint_tier == S3 else "max(tau, durable interval)"
    yield "lake checkpoints", f"one every {rule} = {every:,.6g} s: {written:,.6g} in the run"
    lake = solution.lake_growth()
    size = needs.checkpoint_bytes / GIB
    yield (
        "reach the lake",
        (
            f"{written:,.6g} x {size:,.3f} GiB = {written * size:,.3f} GiB; the lines lake_growth and PUT below are "
            f"their money, {usd(lake.run_usd)}"
        ),
    )
    newest, kept = defaults.number("newest_durable_checkpoints"), situation.number("durable_checkpoints_kept")
    gib = bill.lake_checkpoint_gib(situation, needs, layout, result)
    yield (
        "lake growth",
        (
            f"(min(written, {newest:g} + {kept:g}) kept + at most {SECONDS_PER_DAY / every:,.6g} replaced in "
            f"{defaults.number('noncurrent_version_days'):g} day) x S = {gib / (needs.checkpoint_bytes / GIB):,.6g} x "
            f"{needs.checkpoint_bytes / GIB:,.3f} = {gib:,.3f} GiB"
        ),
    )
    yield "pruning", "assumed: archive --prune --yes, as the scheduled archive and archive.sbatch do"
    if lake.last_export_gib:
        hot = situation.number("checkpoints_kept")
        price = situation.tariff.price(tariff.S3_STORAGE)
        yield (
            "last export",
            (
                f"up to ({hot:g} kept + 1) x {size:,.3f} GiB = {lake.last_export_gib:,.3f} GiB when the file system "
                f"goes, {usd(None if price is None else price * lake.last_export_gib)} a month until the lake is pruned"
            ),
        )
    parts = math.ceil(needs.checkpoint_bytes / needs.checkpoint_part_bytes)
    yield (
        "parts",
        f"ceil(S / part) = {parts:,}; PUT to s3 = {written:,.6g} x {parts:,} = {written * parts:,.6g}",
    )
    read = situation.run_s * needs.read_bytes_per_s * result.achieved_use
    yield (
        "read",
        (
            f"run x R x achieved AU = {read / GB:,.6g} GB from {layout.choice.read_tier}, in requests of "
            f"{needs.read_request_bytes / MIB:.6g} MiB; restores read {result.failures:,.6g} x {parts:,} parts from "
            f"{layout.choice.checkpoint_tier}"
        ),
    )
    if layout.choice.read_tier != S3:
        loaded = f"{layout.hot_bytes / GIB:,.3f} GiB"
        yield "loaded once", f"{loaded} of the data set go from s3 to {layout.choice.read_tier}"
    extra = bill.extra_metadata_iops(layout)
    if extra:
        included = (layout.metadata_iops or 0) - extra
        yield "extra IOPS", f"{layout.metadata_iops:,} - {included:,} that come with the capacity = {extra:,}"
    if EXPRESS in layout.choice.tiers:
        held = f"{layout.express_bytes / GIB:,.3f} GiB"
        yield "on s3-express", f"{held}: hot data, and (kept + 1) x S where it takes checkpoints"
    yield (
        "node-hours",
        (
            f"{nodes:,} nodes x seconds / 3600: {nodes * result.idle_node_s / SECONDS_PER_HOUR:,.3f} idle, "
            f"{nodes * result.lost_node_s / SECONDS_PER_HOUR:,.3f} lost"
        ),
    )


def _money(solution: Solution) -> Iterator[Pair]:
    total: float | None = 0.0
    for line in solution.lines():
        price = solution.situation.tariff.price(line.price)
        value = None if price is None else price * line.amount
        total = None if total is None or value is None else total + value
        shown = "no known price" if price is None else f"${price:.10g} = ${value:,.2f}"
        yield f"{line.part}", f"{amount(line.amount)} {_unit(line)} x {shown}"
    yield "total", "no known price" if total is None else f"${total:,.2f}"


def _unit(line: bill.Line) -> str:
    """Return what an amount of `line` is."""
    item = line.price[-1] if line.price[0] != "fsx-lustre" or len(line.price) == 2 else line.price[1]  # noqa: PLR2004
    units = {
        "storage_per_gib_month": f"GiB-months of {line.price[0]}",
        "put_per_1000": f"thousand PUT to {line.price[0]}",
        "get_per_1000": f"thousand GET from {line.price[0]}",
        "upload_per_gib": "GiB uploaded to s3-express",
        "retrieval_per_gib": "GiB read from s3-express",
        "metadata_iops_month": "IOPS-months above the included",
        "per_hour": "node-hours",
    }
    return units[item]


def _choice(solution: Solution) -> Iterator[Pair]:
    request, system = solution.found.request, solution.found.layout.file_system
    if request is None or system is None:
        return
    why = (
        "the least of every legal size up to the quota"
        if solution.found.attempt.within_quota
        else "the least size that serves; no legal size up to the quota does"
    )
    yield "chosen", f"{_shape(system)}: {usd(solution.found.total_usd)} in all, {why}"
    for step in (-1, 1):
        near = configuration.neighbour(
            solution.situation, solution.needs, solution.found.attempt, file_system=system, step=step
        )
        if near is not None and near.layout.file_system is not None:
            yield ("smaller" if step < 0 else "larger"), f"{_shape(near.layout.file_system)}: {usd(near.total_usd)}"
    for tier in request.throughputs:
        if tier.per_unit == system.tier.per_unit:
            continue
        best = configuration.best_of_tier(solution.situation, solution.needs, solution.found.attempt, tier.per_unit)
        if best is None or best.layout.file_system is None:
            yield (
                f"best at {tier.per_unit}",
                f"none up to the quota; the least is {lustre.least_gib(request, tier):,} GiB",
            )
        else:
            yield f"best at {tier.per_unit}", f"{_shape(best.layout.file_system)}: {usd(best.total_usd)}"


def _shape(system: lustre.FileSystem) -> str:
    return f"{system.capacity_gib:,} GiB at {system.tier.per_unit}"
