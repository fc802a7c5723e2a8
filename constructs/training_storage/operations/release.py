"""Frees the space of exported files on a Lustre file system; names and the lake's copies stay.

A release task takes the data of files that are in the lake already off the file system's disks. The files stay listed,
and the first read of one brings its data back. It deletes nothing.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.operations.file_system_metrics import read_metrics
from training_storage.operations.lustre_state import (
    JOB_TAG,
    RELEASE,
    FileSystem,
    Link,
    Task,
    read_file_systems,
    read_links,
    read_task,
    read_tasks,
    task_of,
)
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.catalog.lustre import association_limits
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Files that were read or changed within so many days stay: a week holds what a running job comes back to.
DEFAULT_UNUSED_DAYS = 7
#: Where nodes mount the file system; people copy paths from there.
_MOUNT = "/fsx"
_WILDCARDS = "*?["
_METRIC_WAIT = dt.timedelta(minutes=5)


class ReleaseError(Exception):
    """The release did not happen, or not to its end; one line with the way out."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be released.

    Parameters
    ----------
    system
        The file system.
    links
        Its links.
    paths
        Absolute paths on the file system; empty for all.
    unused_days
        Only files that nobody has read or changed for so many days.
    """

    system: FileSystem
    links: tuple[Link, ...]
    paths: tuple[str, ...]
    unused_days: int

    def to_call(self) -> dict[str, Any]:
        """Return the request of CreateDataRepositoryTask."""
        call: dict[str, Any] = {
            "FileSystemId": self.system.id,
            "Type": RELEASE,
            "Report": {"Enabled": False},
            "ReleaseConfiguration": {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": self.unused_days}},
        }
        if self.paths:
            # FSx takes them relative to the mount point.
            call["Paths"] = [path.strip("/") for path in self.paths]
        if self.system.job is not None:
            call["Tags"] = [{"Key": JOB_TAG, "Value": self.system.job}]
        return call

    def is_of(self, task: Task) -> bool:
        """Whether a task does what this asks for."""
        paths = sorted("/" + path.strip("/") for path in task.paths)
        return task.kind == RELEASE and task.unused_days == self.unused_days and paths == sorted(self.paths)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Free bytes before and after, as CloudWatch knows them; `unknown` says why one of them is None."""

    total_bytes: int
    free_before_bytes: int | None = None
    free_after_bytes: int | None = None
    unknown: str | None = None

    @property
    def freed_bytes(self) -> int | None:
        """How much more is free; less than was released where others wrote meanwhile."""
        if self.free_before_bytes is None or self.free_after_bytes is None:
            return None
        return self.free_after_bytes - self.free_before_bytes


@dataclass(frozen=True, kw_only=True)
class Started:
    """The task that works on a request; `adopted` if it was under way before."""

    task: Task
    adopted: bool


def find_target(fsx: Any, *, job: str | None, file_system_id: str | None) -> FileSystem:  # noqa: ANN401
    """Return the file system that is meant.

    Raises
    ------
    InvalidJobError
        If there is none, or more than one.
    ReleaseError
        If FSx cannot be asked.
    """
    try:
        systems = read_file_systems(fsx)
    except AWS_ERRORS as error:
        raise ReleaseError(f"{_sentence(why(error, action='fsx:DescribeFileSystems'))}.") from error
    jobs = ", ".join(sorted({system.job for system in systems if system.job})) or "none"
    if file_system_id is not None:
        found = [system for system in systems if system.id == file_system_id]
        if not found:
            there = ", ".join(system.id for system in systems) or "none"
            raise InvalidJobError(
                f"--file-system must name a Lustre file system of a training job in this Region, got: "
                f"{file_system_id!r}; there are: {there}."
            )
        return found[0]
    found = [system for system in systems if job is None or system.job == job]
    if not found:
        raise InvalidJobError(
            f"--job must name a job with a file system in this Region, got: {job or 'none'}; jobs there: {jobs}. "
            "Is --region right?"
        )
    if len(found) > 1:
        names = ", ".join(f"{system.id} (job {system.job})" for system in found)
        raise InvalidJobError(f"--file-system or --job must say which of the {len(found)} is meant: {names}.")
    return found[0]


def prepare(
    fsx: Any,  # noqa: ANN401
    *,
    system: FileSystem,
    paths: Sequence[str] = (),
    unused_days: int = DEFAULT_UNUSED_DAYS,
) -> Request:
    """Return the checked request.

    Raises
    ------
    InvalidJobError
        For a file system that cannot release, a path outside its links, or days below 0.
    ReleaseError
        If FSx cannot be asked.
    """
    if unused_days < 0:
        raise InvalidJobError(f"--unused-days must be a whole number of days from 0, got: {unused_days}.")
    _require_able(system)
    try:
        links = tuple(read_links(fsx, [system.id]))
    except AWS_ERRORS as error:
        raise ReleaseError(f"{_sentence(why(error, action='fsx:DescribeDataRepositoryAssociations'))}.") from error
    if not links:
        raise InvalidJobError(
            f"{system.id} has no link to the lake: nothing on it has been exported, so nothing can be released. "
            "Delete files on a node instead."
        )
    maximum = association_limits().task_paths_maximum
    if len(paths) > maximum:
        raise InvalidJobError(f"--path may be given at most {maximum} times, got: {len(paths)}. Name a directory.")
    return Request(
        system=system,
        links=links,
        paths=tuple(dict.fromkeys(_checked_path(path, links) for path in paths)),
        unused_days=unused_days,
    )


def start(fsx: Any, request: Request) -> Started:  # noqa: ANN401
    """Start the release, or adopt the task that does it already.

    Raises
    ------
    ReleaseError
        If another task is under way (FSx runs one at a time on a file system), or FSx refuses.
    """
    adopted = _under_way(fsx, request)
    if adopted is not None:
        return Started(task=adopted, adopted=True)
    try:
        record = fsx.create_data_repository_task(**request.to_call())["DataRepositoryTask"]
    except AWS_ERRORS as error:
        if code_of(error) == "DataRepositoryTaskExecuting":
            # Somebody started one in between.
            adopted = _under_way(fsx, request)
            if adopted is not None:
                return Started(task=adopted, adopted=True)
        raise ReleaseError(f"{_sentence(why(error, action='fsx:CreateDataRepositoryTask'))}.") from error
    return Started(task=task_of(record), adopted=False)


def watch(
    fsx: Any,  # noqa: ANN401
    task: Task,
    *,
    say: Callable[[Task], None],
    poll_seconds: float,
) -> Task:
    """Return the task once it has ended; `say` hears of every look.

    Raises
    ------
    ReleaseError
        If FSx cannot be asked any more; the task goes on.
    """
    while task.is_running:
        say(task)
        time.sleep(poll_seconds)
        try:
            task = read_task(fsx, task.id)
        except AWS_ERRORS as error:
            raise ReleaseError(
                f"{_sentence(why(error, action='fsx:DescribeDataRepositoryTasks'))}; {task.id} goes on without being "
                "watched."
            ) from error
    say(task)
    return task


def free_bytes(cloudwatch: Any, system: FileSystem, *, now: dt.datetime) -> Capacity:  # noqa: ANN401
    """Return what is free at the moment, as `free_before_bytes`."""
    total = system.capacity_gib * GIB
    try:
        reading = read_metrics(cloudwatch, [system.id], now=now)[system.id].free_bytes
    except AWS_ERRORS as error:
        return Capacity(total_bytes=total, unknown=why(error, action="cloudwatch:GetMetricData"))
    if reading is None:
        return Capacity(total_bytes=total, unknown="CloudWatch has no value of the last 20 minutes")
    return Capacity(total_bytes=total, free_before_bytes=round(reading.value))


def freed(
    cloudwatch: Any,  # noqa: ANN401
    system: FileSystem,
    *,
    before: Capacity,
    ended: dt.datetime,
    poll_seconds: float,
    wait: dt.timedelta = _METRIC_WAIT,
) -> Capacity:
    """Return `before` with what is free after `ended`; metrics come some minutes late, so this waits for one."""
    if before.free_before_bytes is None:
        return before
    deadline = time.monotonic() + wait.total_seconds()
    unknown = "CloudWatch has no value from after the task yet; training-storage status shows it in a few minutes"
    while True:
        try:
            reading = read_metrics(cloudwatch, [system.id], now=dt.datetime.now(tz=dt.UTC))[system.id].free_bytes
        except AWS_ERRORS as error:
            unknown = why(error, action="cloudwatch:GetMetricData")
            break
        # A value is stamped with the start of its minute.
        if reading is not None and reading.at >= ended.replace(second=0, microsecond=0) + dt.timedelta(minutes=1):
            return Capacity(
                total_bytes=before.total_bytes,
                free_before_bytes=before.free_before_bytes,
                free_after_bytes=round(reading.value),
            )
        if time.monotonic() >= deadline:
            break
        time.sleep(poll_seconds)
    return Capacity(total_bytes=before.total_bytes, free_before_bytes=before.free_before_bytes, unknown=unknown)


def _require_able(system: FileSystem) -> None:
    """Refuse what can have no link, or no release (FSx API, ReleaseConfiguration and DataRepositoryAssociation)."""
    versions = lustre_limits().link_versions
    if system.storage_type == "INTELLIGENT_TIERING":
        raise InvalidJobError(
            f"{system.id} has Intelligent-Tiering storage, which moves data by itself and has no links: there is "
            "nothing to release."
        )
    if system.deployment_type == "SCRATCH_1":
        raise InvalidJobError(f"{system.id} is SCRATCH_1, which has no links: nothing on it can be released.")
    if system.version not in versions:
        raise InvalidJobError(
            f"{system.id} runs Lustre {system.version}, which cannot release; {' and '.join(versions)} can. "
            "FSx upgrades it in place with no client mounted: aws fsx update-file-system --file-system-type-version."
        )
    if system.lifecycle not in ("AVAILABLE", "UPDATING"):
        raise InvalidJobError(
            f"{system.id} is {system.lifecycle} and takes no task; wait until it is AVAILABLE (training-storage "
            "status)."
        )


def _checked_path(path: str, links: Sequence[Link]) -> str:
    if any(mark in path for mark in _WILDCARDS):
        raise InvalidJobError(f"--path must name a file or a directory without wildcards, got: {path!r}.")
    # A path below ".." is read by nobody as it was meant.
    if ".." in path.split("/"):
        raise InvalidJobError(f"--path must not hold '..', got: {path!r}.")
    absolute = "/" + path.strip("/")
    candidates = [absolute]
    if absolute.startswith(_MOUNT + "/"):
        candidates.append(absolute.removeprefix(_MOUNT))
    for candidate in candidates:
        if any(link.covers(candidate) for link in links):
            return candidate
    directories = ", ".join(link.directory for link in links)
    raise InvalidJobError(
        f"--path must lie in a linked directory ({directories}), got: {path!r}; elsewhere nothing is exported, so "
        "nothing can be released."
    )


def _under_way(fsx: Any, request: Request) -> Task | None:  # noqa: ANN401
    """Return the running task that does what `request` asks for; None if no task runs."""
    try:
        running = [task for task in read_tasks(fsx, [request.system.id]) if task.is_running]
    except AWS_ERRORS as error:
        raise ReleaseError(f"{_sentence(why(error, action='fsx:DescribeDataRepositoryTasks'))}.") from error
    for task in running:
        if request.is_of(task) and task.lifecycle != "CANCELING":
            return task
    if running:
        other = running[0]
        what = f"another release ({_scope(other)})" if other.kind == RELEASE else other.kind
        raise ReleaseError(
            f"{request.system.id} runs one task at a time, and {other.id} is {other.lifecycle}: {what}, "
            f"{other.progress()}. Run this again when it has ended (training-storage status shows it)."
        )
    return None


def _scope(task: Task) -> str:
    where = ", ".join("/" + path.strip("/") for path in task.paths) or "everything"
    return f"{where}, unused for {task.unused_days} days"


def _sentence(text: str) -> str:
    # The name of an action stays as it is.
    return "T" + text[1:] if text.startswith("the ") else text
