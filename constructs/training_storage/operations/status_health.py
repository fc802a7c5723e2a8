"""What needs somebody's attention, each with the command or the page that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.operations.lustre_state import RELEASE
from training_storage.planning import defaults
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.operations.stack_inventory import Stack
    from training_storage.operations.status_model import JobStatus, StandingFileSystem, Status

#: States that pass by themselves.
_PASSING = ("CREATING", "UPDATING", "DELETING")
_GOOD = ("AVAILABLE", "ACTIVE")
_STACK_TROUBLE = ("FAILED", "ROLLBACK_COMPLETE")
#: A stack that could not be updated stands as it was before.
_HARMLESS = ("UPDATE_ROLLBACK_COMPLETE",)


def problems(status: Status) -> tuple[str, ...]:
    """Return what is wrong, in sentences; empty if all is well as far as it could be read."""
    found = [] if status.lake is None else list(_stack(status.lake))
    for job in status.jobs:
        found += _job(job, region=status.region)
    return tuple(found)


def finish_command(job: str, *, region: str) -> str:
    """Return the command that exports, verifies and then deletes what stands of a job."""
    return f"training-storage park --job {job} --region {region}"


def used_share(standing: StandingFileSystem) -> float | None:
    """Return the used share of the capacity; None where it is not known."""
    reading = None if standing.metrics is None else standing.metrics.free_bytes
    if reading is None or not standing.system.capacity_gib:
        return None
    return min(1.0, max(0.0, 1 - reading.value / (standing.system.capacity_gib * GIB)))


def _job(job: JobStatus, *, region: str) -> Iterator[str]:
    if job.stack is not None:
        yield from _stack(job.stack)
    for standing in job.file_systems or ():
        yield from _file_system(standing, job=job.name, region=region)
    cluster = job.cluster
    if cluster is None:
        return
    if cluster.state is not None and cluster.state not in (*_PASSING, *_GOOD):
        yield f"The cluster {cluster.id} is {cluster.state}{_because(cluster.error)}."
    for group in cluster.node_groups or ():
        if group.state.endswith("_FAILED"):
            yield f"The node group {group.name} is {group.state}."


def _stack(stack: Stack) -> Iterator[str]:
    if stack.state.endswith(_STACK_TROUBLE) and stack.state not in _HARMLESS:
        reason = f": {' '.join(stack.reason.split())}" if stack.reason else ""
        yield f"The stack {stack.name} is {stack.state}{reason}"


def _file_system(standing: StandingFileSystem, *, job: str, region: str) -> Iterator[str]:
    system = standing.system
    if standing.is_left:
        why = f" ({system.left_standing})" if system.left_standing else ""
        gone = f"its stack {system.stack_name} is gone or no longer has it"
        where = gone if standing.in_stack is False else "a deletion left it"
        command = finish_command(job, region=region)
        yield f"{system.id} stands and costs money although {where}{why}. Finish it: {command}"
    if system.lifecycle not in (*_PASSING, *_GOOD):
        yield f"{system.id} is {system.lifecycle}{_because(system.failure)}."
    for link in standing.links or ():
        if link.lifecycle not in (*_PASSING, *_GOOD):
            yield f"The link {link.directory} of {system.id} is {link.lifecycle}{_because(link.failure)}."
    seen: set[str] = set()
    for task in standing.tasks or ():
        # Of each kind only the newest says how things are now.
        if task.kind not in seen and task.lifecycle == "FAILED":
            yield f"The task {task.id} ({task.kind}) of {system.id} failed{_because(task.failure)}."
        seen.add(task.kind)
    share = used_share(standing)
    if share is not None and share > defaults.number("fill_level"):
        running = any(task.is_running and task.kind == RELEASE for task in standing.tasks or ())
        way_out = "a release is under way" if running else f"training-storage release --job {job} --region {region}"
        yield f"{system.id} is {share:.0%} full: {way_out}"


def _because(reason: str | None) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
