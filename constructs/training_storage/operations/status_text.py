"""The status for people, in 100 columns: first whether all is well, what it costs and what would be lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from training_storage.operations.status_cost import NOT_INCLUDED, cost_of
from training_storage.operations.status_health import problems, used_share
from training_storage.operations.status_loss import lake_loss, losses
from training_storage.operations.status_model import LOST, UNKNOWN
from training_storage.planning.text import WIDTH, rows, usd, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from training_storage.operations.lustre_state import Task
    from training_storage.operations.status_cost import JobCost
    from training_storage.operations.status_loss import Loss
    from training_storage.operations.status_model import (
        ClusterStatus,
        DirectoryBucketStatus,
        JobStatus,
        StandingFileSystem,
        Status,
    )

#: Tasks shown of a file system: those that run, and so many that ended.
_ENDED_TASKS = 3

Pair = tuple[str, str]


def status_lines(status: Status) -> tuple[str, ...]:
    """Return the status in lines of at most 100 columns."""
    lines = [f"Training storage in {status.region}, {status.at:%Y-%m-%d %H:%M} UTC", *_rows(_head(status))]
    for job in status.jobs:
        lines += ["", f"Job {job.name}", *_rows(_job(job, status))]
        found = list(_if_destroyed(job, status.region))
        if found:
            lines += ["", f"What becomes of job {job.name} if everything is destroyed now", *_rows(found)]
    lines += ["", "Lake", *_rows(_lake(status))]
    parts = _unknown(status)
    if parts:
        lines += ["", "Not known", *_rows(parts)]
    if status.jobs:
        lines += ["", *wrapped(f"Costs are list prices of the catalog; without {NOT_INCLUDED}.")]
    return tuple(lines)


def _rows(pairs: Iterable[Pair]) -> Iterator[str]:
    for line in rows(pairs):
        # Words longer than a line, such as long names, are cut rather than let the terminal break them anywhere.
        while len(line) > WIDTH:
            yield line[:WIDTH]
            line = " " * 4 + line[WIDTH:]  # noqa: PLW2901 - the rest of the same line
        yield line


def _head(status: Status) -> Iterator[Pair]:
    found = problems(status)
    if not found:
        words = "yes" if status.jobs else "nothing of a job stands here"
        yield "healthy", f"{words}, as far as it could be read (see Not known)" if _unknown(status) else words
    for number, problem in enumerate(found):
        yield ("attention" if number == 0 else ""), problem
    costs = [cost_of(job, region=status.region, now=status.at) for job in status.jobs]
    if costs:
        least = "" if all(cost.is_whole for cost in costs) else "at least "
        hour, so_far = sum(cost.per_hour_usd for cost in costs), sum(cost.so_far_usd for cost in costs)
        yield "costs", f"{least}{usd(hour)} an hour now, {least}{usd(so_far)} so far (what stands now)"
    every = [loss for job in status.jobs for loss in losses(job, region=status.region)]
    if every:
        yield "destroyed now", _loss_words(every)


def _loss_words(every: list[Loss]) -> str:
    parts = [
        f"{words} {', '.join(_place(loss) for loss in every if loss.verdict == verdict)}"
        for verdict, words in ((LOST, "lost:"), (UNKNOWN, "unknown:"))
        if any(loss.verdict == verdict for loss in every)
    ]
    return "; ".join(parts) if parts else "nothing"


def _place(loss: Loss) -> str:
    """Return where, without the id of the file system: in short the directory is enough."""
    return re.sub(r"^fs-[0-9a-f]+,? ", "", loss.what)


def _job(job: JobStatus, status: Status) -> Iterator[Pair]:
    stack = job.stack
    if stack is not None:
        yield "stack", f"{stack.name} {stack.state}, made {stack.created:%Y-%m-%d %H:%M}"
    elif any(entry.part == "stacks" for entry in job.unknown):
        yield "stack", f"unknown, because {job.why_unknown('stacks')}"
    else:
        yield "stack", "none: it is gone"
    if job.file_systems is None:
        yield "file system", f"unknown, because {job.why_unknown('file_systems')}"
    for standing in job.file_systems or ():
        yield from _file_system(standing, job)
    for bucket in job.directory_buckets or ():
        yield "s3 express", _bucket(bucket)
    if job.cluster is not None:
        yield from _cluster(job.cluster, job)
    if job.home is not None:
        kept = {True: "stays when the stack goes", False: "goes with the stack", None: "unknown whether it stays"}
        yield "/home", f"{job.home.id}, {kept[job.home.is_kept]}"
    yield from _archived(job)
    yield from _cost(cost_of(job, region=status.region, now=status.at))


def _if_destroyed(job: JobStatus, region: str) -> Iterator[Pair]:
    for loss in losses(job, region=region):
        yield loss.verdict.upper(), _words(loss)


def _words(loss: Loss) -> str:
    words = f"unknown, because {loss.because}. {loss.words}" if loss.because else f"{loss.words}."
    command = f" Bring it into safety: {loss.command}" if loss.command else ""
    return f"{loss.what}: {words.strip()}{command}"


def _file_system(standing: StandingFileSystem, job: JobStatus) -> Iterator[Pair]:
    system = standing.system
    throughput = f" at {system.per_unit_throughput} MB/s per TiB" if system.per_unit_throughput else ""
    share = used_share(standing)
    if share is not None:
        used = f"{share:.0%} used"
    elif standing.metrics is None:
        used = f"used: unknown, because {job.why_unknown('metrics')}"
    else:
        used = "used: unknown, because CloudWatch has no value of the last 20 minutes"
    yield (
        "file system",
        f"{system.id} {system.lifecycle}, {system.deployment_type}, {system.capacity_gib:,} GiB{throughput}, {used}",
    )
    if standing.links is None:
        yield "links", f"unknown, because {job.why_unknown('links')}"
    elif not standing.links:
        yield "links", "none"
    for number, link in enumerate(standing.links or ()):
        ways = [
            *([f"imports {'+'.join(link.import_events)}"] if link.import_events else []),
            *([f"exports {'+'.join(link.export_events)}"] if link.export_events else []),
        ]
        message = f": {link.failure}" if link.failure else ""
        how = ", ".join(ways) or "nothing by itself"
        yield (
            ("links" if number == 0 else ""),
            f"{link.directory} {link.lifecycle}{message}, {how}, {link.data_repository_path}",
        )
    if standing.links and standing.metrics is not None:
        yield "queues", _queues(standing)
    yield from _tasks(standing, job)


def _queues(standing: StandingFileSystem) -> str:
    metrics, parts = standing.metrics, []
    for way, reading in (
        ("import", metrics.import_age_seconds if metrics else None),
        ("export", metrics.export_age_seconds if metrics else None),
    ):
        age = "unknown, because CloudWatch has no value" if reading is None else f"oldest change {reading.value:,.0f} s"
        parts.append(f"{way}: {age}")
    return "; ".join(parts)


def _tasks(standing: StandingFileSystem, job: JobStatus) -> Iterator[Pair]:
    if standing.tasks is None:
        yield "tasks", f"unknown, because {job.why_unknown('tasks')}"
        return
    running = [task for task in standing.tasks if task.is_running]
    ended = [task for task in standing.tasks if not task.is_running][:_ENDED_TASKS]
    for number, task in enumerate([*running, *ended]):
        yield ("tasks" if number == 0 else ""), _task(task)


def _task(task: Task) -> str:
    kind = task.kind.split("_", 1)[0].lower()
    where = ", ".join("/" + path.removeprefix("s3://").strip("/") for path in task.paths) or "everything"
    failure = f": {task.failure}" if task.failure else ""
    at = task.ended or task.started or task.created
    return f"{kind} of {where}: {task.lifecycle}{failure}, {task.progress()}, {at:%Y-%m-%d %H:%M}, {task.id}"


def _bucket(bucket: DirectoryBucketStatus) -> str:
    if bucket.unknown is not None:
        return f"{bucket.name}; what it holds is unknown, because {bucket.unknown}"
    if bucket.is_empty:
        return f"{bucket.name}, empty"
    count = len(bucket.checkpoints.folders) if bucket.checkpoints else 0
    return f"{bucket.name}, holds objects, {count:,} checkpoint{'s' if count != 1 else ''} among them"


def _cluster(cluster: ClusterStatus, job: JobStatus) -> Iterator[Pair]:
    state = cluster.state or ("" if cluster.engine == "ec2" else f"state unknown, because {job.why_unknown('cluster')}")
    name = {"pcs": "AWS PCS (Slurm)", "ec2": "Auto Scaling"}[cluster.engine]
    yield "cluster", " ".join(filter(None, [f"{name} {cluster.id}", state]))
    if cluster.node_groups is None:
        yield "", f"node groups: unknown, because {job.why_unknown('node_groups')}"
    for group in cluster.node_groups or ():
        yield "", f"{group.name}: {group.state}" if group.name != cluster.id else group.state
    if cluster.nodes is None:
        yield "", f"nodes that run: unknown, because {job.why_unknown('nodes')}"
    else:
        counts: dict[str, int] = {}
        for node in cluster.nodes:
            counts[node.instance_type] = counts.get(node.instance_type, 0) + 1
        shown = ", ".join(f"{count:,} x {name}" for name, count in sorted(counts.items()))
        yield "", f"nodes that run: {shown or 'none'}"


def _archived(job: JobStatus) -> Iterator[Pair]:
    found = job.lake_checkpoints
    if found is None:
        yield "archived", f"unknown, because {job.why_unknown('lake_checkpoints')}"
    elif not found.folders:
        yield "archived", f"no checkpoint in {found.place}"
    else:
        newest = found.newest
        at = f" of {newest.finished:%Y-%m-%d %H:%M}" if newest is not None and newest.finished else ""
        words = (
            f"newest complete: {newest.name}{at}"
            if newest
            else f"none of {', '.join(found.unmarked)} is marked complete"
        )
        yield "archived", f"{len(found.folders):,} in {found.place}, {words}"


def _cost(cost: JobCost) -> Iterator[Pair]:
    for number, line in enumerate(cost.lines):
        note = f" ({line.note})" if line.note else ""
        yield (
            ("costs" if number == 0 else ""),
            f"{line.what}: {usd(line.per_hour_usd)} an hour, {usd(line.so_far_usd)} so far{note}",
        )
    if not cost.lines and not cost.unknown:
        yield "costs", "nothing that has a price by the hour stands"
    if cost.unknown:
        yield ("" if cost.lines else "costs"), f"unknown: {'; '.join(cost.unknown)}"


def _lake(status: Status) -> Iterator[Pair]:
    if status.lake is not None:
        yield "stack", f"{status.lake.name} {status.lake.state}, made {status.lake.created:%Y-%m-%d %H:%M}"
        name = status.lake.outputs.get("BucketName")
        if name:
            yield "bucket", name
    loss = lake_loss(status)
    words = _words(loss).removeprefix(f"{loss.what}: ")
    yield "if destroyed", words if loss.because else f"{loss.verdict.upper()}: {words}"


def _unknown(status: Status) -> list[Pair]:
    """Return each part that could not be read once, with the reason."""
    found = {(entry.part, entry.because): None for entry in status.unknown}
    for job in status.jobs:
        found.update({(entry.part, entry.because): None for entry in job.unknown})
        for bucket in job.directory_buckets or ():
            if bucket.unknown is not None:
                found[("directory_buckets", bucket.unknown)] = None
    return [(part.replace("_", " "), because) for part, because in found]


def is_whole(status: Status) -> bool:
    """Whether every part could be read."""
    return not _unknown(status)
