"""Every legal configuration of a job, weighed one by one.

Written from the sizing guide and the published figures alone; it shares no code and no data with the planner, so that
an error there does not hide here. Times are seconds, rates bytes per second, sizes bytes unless a name says otherwise.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

GB, GIB, MIB = 1e9, 2.0**30, 2.0**20
QUOTA_GIB = 100_800
RESTART, FILL, SHORTEST_INTERVAL = 300.0, 0.85, 300.0
DEVICE_TO_HOST = 20 * GB
PART = 8 * MIB
ENA, PER_SERVER, EFA_MOST, GDS_MOST = 12.5 * GB, 0.625 * GB, 87.5 * GB, 150 * GB
CONNECTIONS = 1024
S3_GET, S3_PUT = 5500, 3500
EXPRESS_RATES = ((200_000, 100_000), (2_000_000, 200_000))
HOURS_PER_MONTH = 730
METADATA = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))


class Type(NamedTuple):
    """Accelerators, USD an hour, one address, several addresses, all cards, EFA interfaces for Lustre, their rate."""

    accelerators: int
    usd: float
    one_address: float
    several: float
    network: float
    interfaces: int
    interface: float


TYPES = {
    "p5.48xlarge": Type(8, 55.04, 12.5 * GB, 100 * GB, 400 * GB, 8, 12.5 * GB),
    "p5en.48xlarge": Type(8, 63.296, 12.5 * GB, 100 * GB, 400 * GB, 8, 25 * GB),
    # No price on demand: the Capacity Block's.
    "p5e.48xlarge": Type(8, 47.76, 12.5 * GB, 100 * GB, 400 * GB, 8, 12.5 * GB),
    "p4d.24xlarge": Type(8, 21.957642, 12.5 * GB, 50 * GB, 50 * GB, 0, 0.0),
    "p5.4xlarge": Type(1, 6.88, 12.5 * GB, 12.5 * GB, 12.5 * GB, 1, 12.5 * GB),
}
#: Network, disk read and disk write in MB/s per TiB, EFA step in GiB, USD per GiB-month.
GRID = {
    "PERSISTENT_2": {
        125: (320, 125, 125, 38_400, 0.145),
        250: (640, 250, 250, 19_200, 0.210),
        500: (1300, 500, 500, 9_600, 0.340),
        1000: (2600, 1000, 1000, 4_800, 0.600),
    },
    "SCRATCH_2": {200: (200, 200, 100, 0, 0.140)},
}
#: Bytes of a sample, samples a step, samples a file, seconds a step, accelerator use to keep.
WORKLOADS = {
    ("unet3d", "H100"): (146_600_628, 7, 1, 0.323, 0.90),
    ("unet3d", "A100"): (146_600_628, 7, 1, 0.636, 0.90),
    ("resnet50", "H100"): (114_660.07, 400, 1251, 0.224, 0.90),
    ("resnet50", "A100"): (114_660.07, 400, 1251, 0.435, 0.90),
    ("cosmoflow", "H100"): (2_828_486, 1, 1, 0.00350, 0.70),
    ("cosmoflow", "A100"): (2_828_486, 1, 1, 0.00551, 0.70),
}
#: Parameters, GiB of model and optimizer, and of the largest rank.
MODELS = {
    "llama3-8b": (8e9, 15 + 90, (15 + 90) / 8),
    "llama3-70b": (70e9, 130 + 781, (130 + 781) / 64),
    "llama3-405b": (405e9, 755 + 4533, 4533 / 512 + 755 / (8 * 32)),
}


@dataclass(frozen=True)
class Demand:
    """What the job asks for."""

    node: Type
    nodes: int
    read: float
    use: float
    size: float
    mtbf: float
    sync: bool
    interval: float | None
    stall_budget: float
    restore_budget: float
    slowest_rank: float
    get_bytes: float
    part_bytes: float
    files: float | None
    kept: int
    durable_interval: float
    durable_kept: int
    dataset: float
    hot_given: float | None
    run: float
    stall_is_limit: bool
    restore_is_limit: bool


class Candidate(NamedTuple):
    """One configuration: where data is read, where it is saved, over which path, and the file system if any.

    A tuple, because five million are made.
    """

    reads: str
    saves: str
    path: str
    kind: str | None = None
    per_unit: int | None = None
    gib: int | None = None


@dataclass(frozen=True)
class Step:
    """One step of the order: budgets that are only targets count or not, the quota holds or not."""

    reads: str
    saves: str
    path: str
    targets: bool
    quota: bool


def demand(job: dict[str, Any]) -> Demand:
    """Return the demand by the guide's formulas and defaults."""
    node, nodes = TYPES[job.get("instance_type", "p5.48xlarge")], job["instances"]
    accelerators = node.accelerators * nodes
    rate, use, file = job.get("read_gb_per_s_per_accelerator"), 1.0, None
    if "workload" in job:
        name = "A100" if job.get("instance_type") == "p4d.24xlarge" else "H100"
        sample, batch, per_file, step, use = WORKLOADS[job["workload"], name]
        file = sample * per_file
        rate = sample * batch / step / GB if rate is None else rate
    if "mean_file_size_mib" in job:
        file = job["mean_file_size_mib"] * MIB
    read = accelerators * (0.001 if rate is None else rate) * GB
    size, rank = _checkpoint(job, accelerators)
    sync = job.get("checkpoint_mode", "async") == "sync"
    minutes = job.get("checkpoint_interval_minutes")
    hours = job.get("mtbf_hours")
    return Demand(
        node=node,
        nodes=nodes,
        read=read,
        use=use,
        size=size,
        mtbf=hours * 3600 if hours is not None else 86_400_000 / (nodes * job.get("failures_per_1000_node_days", 6.5)),
        sync=sync,
        interval=None if minutes is None else minutes * 60,
        stall_budget=job.get("checkpoint_stall_budget_seconds", 60.0),
        restore_budget=job.get("restore_budget_seconds", 300.0),
        slowest_rank=rank,
        get_bytes=_request(file),
        part_bytes=_request(size / accelerators),
        files=None if file is None else read / file,
        kept=job.get("checkpoints_kept", 2),
        durable_interval=job.get("durable_interval_minutes", 360.0) * 60,
        durable_kept=job.get("durable_checkpoints_kept", 4),
        dataset=job.get("dataset_gib", job.get("hot_dataset_gib", 0.0)) * GIB,
        hot_given=None if "hot_dataset_gib" not in job else job["hot_dataset_gib"] * GIB,
        run=job.get("run_hours", 720.0) * 3600,
        stall_is_limit="checkpoint_stall_budget_seconds" in job,
        restore_is_limit="restore_budget_seconds" in job,
    )


def least(job: dict[str, Any], tiers: tuple[str, ...]) -> tuple[Candidate, float] | None:
    """Return the configuration with the least total of the first step that has any, and its total in USD."""
    need = demand(job)
    for step in _steps(job, need, tiers):
        found = [
            (candidate, usd)
            for candidate in _candidates(job, need, step)
            if meets(need, candidate, targets=step.targets) and (usd := total(need, candidate, tiers)) is not None
        ]
        if found:
            # Beyond the quota only the least size that meets the demand counts, whatever its throughput.
            smallest = min(candidate.gib or 0 for candidate, _ in found)
            legal = [pair for pair in found if step.quota or pair[0].gib == smallest]
            return min(legal, key=lambda pair: pair[1])
    return None


def meets(need: Demand, candidate: Candidate, *, targets: bool) -> bool:
    """Whether `candidate` has the capacity and the rates that reads, given budgets and, if asked, targets make."""
    if _stall_breaks_a_limit(need, candidate):
        return False
    write, restore = _budgets(need, targets=targets)
    for tier in {candidate.reads, candidate.saves}:
        reads = need.read * need.use if tier == candidate.reads else 0.0
        writes, restores = (write, restore) if tier == candidate.saves else (0.0, 0.0)
        busy = max(reads, writes) if need.sync else reads + writes
        if tier == "fsx-lustre":
            fits = _lustre_meets(need, candidate, reads=reads, writes=writes, restores=restores)
        else:
            rates = _object_rates(need, candidate.path, tier, reads=reads, writes=writes, restores=restores)
            fits = reads <= rates[0] and writes <= rates[1] and restores <= rates[2]
            fits = fits and max(busy, restores) <= _ip(need, candidate.path)
        if not fits:
            return False
    return True


def _stall_breaks_a_limit(need: Demand, candidate: Candidate) -> bool:
    """Whether the stall that no size shortens is longer than a given budget, or as long as a given interval."""
    stall = need.slowest_rank / _rank(need, candidate) if need.sync else _to_host(need)
    return (need.stall_is_limit and stall > need.stall_budget) or (need.interval is not None and stall >= need.interval)


def _to_host(need: Demand) -> float:
    return need.size / (need.nodes * need.node.accelerators * DEVICE_TO_HOST)


def total(need: Demand, candidate: Candidate, tiers: tuple[str, ...]) -> float | None:
    """Return the run's total in USD: storage, growth, requests, waiting and repeated work; None if never complete."""
    read, write, restore, beside, rank = _delivered(need, candidate)
    stall = max(need.size / write, need.slowest_rank / rank) if need.sync else _to_host(need)
    interval = need.interval
    if interval is not None and stall >= interval:
        return None
    if interval is None:
        interval = max(math.sqrt(2 * need.mtbf * stall), SHORTEST_INTERVAL)
        if not need.sync:
            if beside <= 0:
                return None
            interval = max(interval, need.size / beside)
    saves, failures = need.run / interval, need.run / need.mtbf
    achieved = 1.0 if need.read == 0 else min(1.0, read / need.read)
    waiting = saves * stall + failures * need.size / restore + need.run * (1 - achieved)
    repeated = failures * (interval / 2 + RESTART)
    accelerators = need.nodes * need.node.usd / 3600 * (waiting + repeated)
    return (
        accelerators
        + _storage(need, candidate, tiers, interval)
        + _requests(need, candidate, tiers, interval, achieved)
    )


def _checkpoint(job: dict[str, Any], accelerators: int) -> tuple[float, float]:
    if "checkpoint_size_gib" in job:
        return job["checkpoint_size_gib"] * GIB, 0.0
    share = 0.01 if job.get("fine_tuning") == "lora" else 1.0
    parameters = job.get("model_parameters")
    if parameters is None and "model" in job:
        parameters, size, rank = MODELS[job["model"]]
        if share == 1.0:
            return size * GIB, rank * GIB
    if parameters is None:
        parameters = min(1e9 * accelerators, 405e9)
    return parameters * 14 * share, 0.0


def _request(file: float | None) -> float:
    if file is None:
        return PART
    return file / math.ceil(file / max(PART, file / 10_000))


def _steps(job: dict[str, Any], need: Demand, tiers: tuple[str, ...]) -> list[Step]:
    """Return the order: wider paths, reads on S3, over quota; in each, targets are dropped before a wider step."""
    lustre, express = "fsx-lustre" in tiers, "s3-express" in tiers
    reads = saves = "fsx-lustre" if lustre else "s3-express" if express else "s3"
    if lustre and express:
        reads = "s3-express" if job["interface"] == "object" else "fsx-lustre"
        checkpoint = job.get("checkpoint_interface", job["interface"])
        saves = "s3-express" if checkpoint == "object" and reads == "fsx-lustre" else "fsx-lustre"
    efa = need.node.interfaces and need.nodes <= CONNECTIONS and job.get("lustre_deployment_type") != "SCRATCH_2"
    fabric = ["efa", "efa-gds"] if efa else []
    paths = ["ena", *(["ena-multi-ip"] if express else []), *fabric] if lustre else ["ena", "ena-multi-ip"]
    given = job.get("network_path")
    paths, plain = ([given], [given]) if given else (paths, ["ena", "ena-multi-ip"])
    moved = reads == saves != "s3" and need.hot_given is None
    steps = [Step(reads, saves, path, targets, quota=True) for path in paths for targets in (True, False)]
    if moved:
        steps += [Step("s3", saves, path, targets, quota=True) for path in plain for targets in (True, False)]
    if lustre:
        steps += [Step(reads, saves, path, targets=False, quota=False) for path in paths]
        if moved:
            steps += [Step("s3", saves, path, targets=False, quota=False) for path in plain]
    return steps


def _candidates(job: dict[str, Any], need: Demand, step: Step) -> list[Candidate]:
    """Return every legal file system of the step, up to the quota or the least size that meets the demand."""
    if "fsx-lustre" not in (step.reads, step.saves):
        return [Candidate(step.reads, step.saves, step.path)]
    kind = job.get("lustre_deployment_type", "PERSISTENT_2")
    found = []
    for per_unit, row in GRID[kind].items():
        grid = (
            itertools.count(row[3], row[3])
            if _is_efa(step.path)
            else itertools.chain((1200,), itertools.count(2400, 2400))
        )
        met = 0
        for gib in grid:
            candidate = Candidate(step.reads, step.saves, step.path, kind, per_unit, gib)
            if gib > (QUOTA_GIB if step.quota else 10**8):
                break
            if not step.quota and meets(need, candidate, targets=step.targets):
                met += 1
            if step.quota or met:
                found.append(candidate)
            # The least may leave checkpoints no time beside the reads; then the next one is the least that serves.
            if not step.quota and met > 1:
                break
    return found


def _is_efa(path: str) -> bool:
    return path in ("efa", "efa-gds")


def _ip(need: Demand, path: str) -> float:
    return need.nodes * (need.node.several if path == "ena-multi-ip" else need.node.one_address)


def _budgets(need: Demand, *, targets: bool) -> tuple[float, float]:
    # A save must end before the next begins, in both modes.
    between = 0.0 if need.interval is None else need.size / need.interval
    for_stall = need.size / need.stall_budget if need.sync and (targets or need.stall_is_limit) else 0.0
    return (
        max(between, for_stall),
        need.size / need.restore_budget if targets or need.restore_is_limit else 0.0,
    )


def _client(need: Demand, candidate: Candidate) -> float:
    """Return what one node moves to the file system."""
    node = need.node
    if _is_efa(candidate.path):
        interfaces = min(node.interfaces, CONNECTIONS // need.nodes)
        most = GDS_MOST if candidate.path == "efa-gds" else EFA_MOST
        return min(most, node.network, interfaces * node.interface)
    servers = math.ceil((candidate.gib or 0) / 2400)
    return min(ENA, node.network, servers * PER_SERVER)


def _row(candidate: Candidate) -> tuple[int, int, int, int, float]:
    return GRID[candidate.kind or ""][candidate.per_unit or 0]


def _lustre_rates(need: Demand, candidate: Candidate) -> tuple[float, float]:
    network, read, write, _, _ = _row(candidate)
    tib, clients = (candidate.gib or 0) / 1024, need.nodes * _client(need, candidate)
    return min(clients, tib * min(network, read) * 1e6), min(clients, tib * min(network, write) * 1e6)


def _hot(need: Demand, reads: str, saves: str) -> float:
    """Return the bytes of the data set on the tier that it is read from."""
    if reads == "s3":
        return 0.0
    if need.hot_given is not None:
        return need.hot_given
    if reads != "fsx-lustre":
        return need.dataset
    checkpoints = (need.kept + 1) * need.size if saves == "fsx-lustre" else 0.0
    return max(0.0, min(need.dataset, QUOTA_GIB * FILL * GIB - checkpoints))


def _stored(need: Demand, candidate: Candidate, tier: str) -> float:
    hot = _hot(need, candidate.reads, candidate.saves) if candidate.reads == tier else 0.0
    return hot + ((need.kept + 1) * need.size if candidate.saves == tier else 0.0)


def _lustre_meets(need: Demand, candidate: Candidate, *, reads: float, writes: float, restores: float) -> bool:
    read, write = _lustre_rates(need, candidate)
    # Reads and writes share the servers' time.
    busy = max(reads / read, writes / write) if need.sync else reads / read + writes / write
    exact = 1 + 1e-9
    enough = busy <= exact and restores / read <= exact
    if need.files is not None and candidate.reads == "fsx-lustre" and candidate.kind == "PERSISTENT_2":
        enough = enough and need.files * need.use <= METADATA[-1]
    return enough and _stored(need, candidate, "fsx-lustre") / FILL / GIB <= (candidate.gib or 0) * exact


def _object_rates(
    need: Demand, path: str, tier: str, *, reads: float, writes: float, restores: float
) -> tuple[float, float, float]:
    """Return what an object tier delivers of reads, writes and restores."""
    clients = _ip(need, path)
    if tier == "s3":
        gets = max(need.read / need.get_bytes if reads else 0.0, restores / need.part_bytes)
        prefixes = max(1, math.ceil(gets / S3_GET), math.ceil(writes / need.part_bytes / S3_PUT))
        choices = [(prefixes * S3_GET, prefixes * S3_PUT)]
    else:
        choices = list(EXPRESS_RATES)
    rates = (0.0, 0.0, 0.0)
    for get, put in choices:
        rates = (
            min(clients, get * need.get_bytes),
            min(clients, put * need.part_bytes),
            min(clients, get * need.part_bytes),
        )
        busy = max(reads, writes) if need.sync else reads + writes
        if reads <= rates[0] and writes <= rates[1] and restores <= rates[2] and max(busy, restores) <= clients:
            break
    return rates


def _delivered(need: Demand, candidate: Candidate) -> tuple[float, float, float, float, float]:
    """Return rates of reads, writes, restores, writes beside reads, and of one rank."""
    used = need.read * need.use
    write_budget, restore_budget = _budgets(need, targets=_targets(need, candidate))

    def store(tier: str) -> tuple[float, float, float]:
        return _object_rates(
            need,
            candidate.path,
            tier,
            reads=used if candidate.reads == tier else 0.0,
            writes=write_budget if candidate.saves == tier else 0.0,
            restores=restore_budget if candidate.saves == tier else 0.0,
        )

    on_lustre = candidate.reads == "fsx-lustre"
    read = _lustre_rates(need, candidate)[0] if on_lustre else store(candidate.reads)[0]
    if candidate.saves == "fsx-lustre":
        restore, write = _lustre_rates(need, candidate)
        beside = write * (1 - used / read) if on_lustre else write
    else:
        _, write, restore = store(candidate.saves)
        beside = write if on_lustre else min(write, _ip(need, candidate.path) - used)
    return read, write, restore, beside, _rank(need, candidate)


def _rank(need: Demand, candidate: Candidate) -> float:
    """Return what one rank writes: its share of its node's network, without the bound per server."""
    node = _ip(need, candidate.path) / need.nodes
    if candidate.saves == "fsx-lustre":
        node = _client(need, candidate) if _is_efa(candidate.path) else min(ENA, need.node.network)
    return node / need.node.accelerators


def _targets(need: Demand, candidate: Candidate) -> bool:
    """Whether targets were kept: then S3 has the prefixes for them as well."""
    return meets(need, candidate, targets=True)


def _lake(need: Demand, candidate: Candidate, interval: float) -> tuple[float, float]:
    """Return the checkpoints that reach the lake in the run, and those that lie there."""
    every = interval if candidate.saves == "s3" else max(interval, need.durable_interval)
    written = need.run / every
    kept = min(written, need.durable_kept + 2)
    return written, kept + min(written - kept, 86_400 / every)


def _extra_iops(need: Demand, candidate: Candidate) -> int:
    if candidate.kind != "PERSISTENT_2" or candidate.reads != "fsx-lustre" or need.files is None:
        return 0
    gib = candidate.gib or 0
    included = min(gib // 24_000 * 12_000, 192_000) if gib >= 48_000 else 12_000 if gib >= 12_000 else 6000
    included = 1500 if gib < 2400 else 3000 if gib < 4800 else included
    wanted: int = next((step for step in METADATA if step >= need.files), METADATA[-1])
    return max(0, wanted - included)


def _storage(need: Demand, candidate: Candidate, tiers: tuple[str, ...], interval: float) -> float:
    share = need.run / 3600 / HOURS_PER_MONTH
    usd = (need.dataset + _lake(need, candidate, interval)[1] * need.size) / GIB * 0.023
    if candidate.kind is not None:
        usd += (candidate.gib or 0) * _row(candidate)[4] + _extra_iops(need, candidate) * 0.055
    if "s3-express" in tiers:
        usd += _stored(need, candidate, "s3-express") / GIB * 0.11
    return usd * share


def _requests(need: Demand, candidate: Candidate, tiers: tuple[str, ...], interval: float, achieved: float) -> float:
    parts = math.ceil(need.size / need.part_bytes)
    archived, failures, saves = _lake(need, candidate, interval)[0], need.run / need.mtbf, need.run / interval
    read = need.run * need.read * achieved
    hot = _hot(need, candidate.reads, candidate.saves)
    puts = archived * parts
    gets = (read if candidate.reads == "s3" else hot) / need.get_bytes
    if candidate.saves == "s3":
        gets += failures * parts
    usd = puts * 0.005e-3 + gets * 0.0004e-3
    if "s3-express" not in tiers:
        return usd
    up = down = put = get = 0.0
    if candidate.saves == "s3-express":
        put, get = saves * parts, (failures + archived) * parts
        up, down = saves * need.size, (failures + archived) * need.size
    if candidate.reads == "s3-express":
        put, get = put + hot / need.get_bytes, get + read / need.get_bytes
        up, down = up + hot, down + read
    return usd + put * 0.00113e-3 + get * 0.00003e-3 + up / GIB * 0.0032 + down / GIB * 0.0006
