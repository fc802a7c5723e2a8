"""Reads what stands: stacks, file systems, links, tasks, buckets, clusters and checkpoints. Changes nothing.

A part that may not be read, or that the Region lacks, leaves the others as they are: it is None, and says why.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

from training_storage.operations import cluster_state, job_places, lustre_state, stack_inventory, status_checkpoints
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, no_credentials, why
from training_storage.operations.file_system_metrics import FileSystemMetrics, read_metrics
from training_storage.operations.status_model import (
    ClusterStatus,
    DirectoryBucketStatus,
    Home,
    JobStatus,
    StandingFileSystem,
    Status,
    Unknown,
)
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.job import UNNAMED

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from training_storage.operations.lustre_state import FileSystem, Link, Task
    from training_storage.operations.stack_inventory import Stack
    from training_storage.operations.status_checkpoints import Checkpoints

_T = TypeVar("_T")
_DIRECTORY_BUCKET = "AWS::S3Express::DirectoryBucket"
_HOME = "AWS::EFS::FileSystem"
_LUSTRE = "AWS::FSx::FileSystem"
_NO_SUCH_FILE_SYSTEM = "FileSystemNotFound"


def read_status(client: Callable[[str], Any], *, region: str, job: str | None, now: dt.datetime) -> Status:
    """Return what stands in `region`.

    Parameters
    ----------
    client
        From a service's name to its client.
    job
        Only this job; None for all. `default` is the one without a name.

    Raises
    ------
    InvalidJobError
        If nothing of `job` stands, or the credentials are not accepted.
    """
    reader = _Reader(client)
    every = reader.ask("stacks", "cloudformation:DescribeStacks", lambda: _stacks(client))
    systems = reader.ask("file_systems", "fsx:DescribeFileSystems", lambda: _systems(client))
    contracts = reader.ask("contracts", "ssm:GetParametersByPath", lambda: job_places.read_contracts(client("ssm")))
    places = {} if every is None else job_places.read_places(client, every, contracts or {}, ask=reader.ask)
    names = _jobs(every, systems, places)
    if job is not None:
        if job not in names and not reader.unknown:
            raise InvalidJobError(
                f"--job must name a job of which something stands in {region}, got: {job!r}; there are: "
                f"{', '.join(names) or 'none'}. Is --region right?"
            )
        names = [job]
    lake = next((stack for stack in every or () if stack.name == stack_inventory.LAKE_STACK), None)
    if lake is not None:
        lake = reader.with_kept(reader.with_resources(lake))
    of_jobs = {name: [system for system in systems or () if _job_of(system, every) == name] for name in names}
    details = reader.details([system.id for found in of_jobs.values() for system in found], now=now)
    jobs = tuple(
        _job_status(
            _Reader(client, inherited=reader.unknown),
            name=name,
            stacks=every,
            place=places.get(name),
            contract=(contracts or {}).get(name),
            systems=None if systems is None else of_jobs[name],
            details=details,
            lake=lake,
        )
        for name in names
    )
    return Status(region=region, at=now, lake=lake, jobs=jobs, unknown=tuple(reader.unknown))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Details:
    """Links, tasks and metrics of all file systems, each read at once; None where it could not be."""

    links: list[Link] | None
    tasks: list[Task] | None
    metrics: dict[str, FileSystemMetrics] | None


class _Reader:
    """Asks AWS and remembers what it could not find out; `inherited` is what was not found out before."""

    def __init__(self, client: Callable[[str], Any], *, inherited: Iterable[Unknown] = ()) -> None:
        self.client = client
        self.unknown: list[Unknown] = list(inherited)

    def ask(self, part: str, action: str, call: Callable[[], _T]) -> _T | None:
        """Return what `call` returns; None, with the reason noted, where AWS refuses or cannot be reached."""
        try:
            return call()
        except AWS_ERRORS as error:
            if no_credentials(error):
                raise InvalidJobError(
                    f"AWS credentials must be given and valid, got: {code_of(error) or 'none'}. Sign in, or set "
                    "AWS_PROFILE."
                ) from None
            self.unknown.append(Unknown(part=part, because=why(error, action=action)))
            return None

    def with_kept(self, stack: Stack) -> Stack:
        """Return the stack with which resources stay when it goes."""
        cloudformation = self.client("cloudformation")
        kept = self.ask("kept", "cloudformation:GetTemplate", lambda: stack_inventory.read_kept(cloudformation, stack))
        return dataclasses.replace(stack, kept=kept)

    def with_resources(self, stack: Stack) -> Stack:
        """Return the stack with what it holds."""
        cloudformation = self.client("cloudformation")
        resources = self.ask(
            "resources",
            "cloudformation:ListStackResources",
            lambda: stack_inventory.read_resources(cloudformation, stack),
        )
        return dataclasses.replace(stack, resources=resources)

    def details(self, file_system_ids: Sequence[str], *, now: dt.datetime) -> _Details:
        """Return links, tasks and metrics of all file systems at once."""
        if not file_system_ids:
            return _Details(links=[], tasks=[], metrics={})
        fsx, cloudwatch = self.client("fsx"), self.client("cloudwatch")
        return _Details(
            links=self.ask(
                "links",
                "fsx:DescribeDataRepositoryAssociations",
                lambda: lustre_state.read_links(fsx, file_system_ids),
            ),
            tasks=self.ask(
                "tasks", "fsx:DescribeDataRepositoryTasks", lambda: lustre_state.read_tasks(fsx, file_system_ids)
            ),
            metrics=self.ask(
                "metrics", "cloudwatch:GetMetricData", lambda: read_metrics(cloudwatch, file_system_ids, now=now)
            ),
        )


def _stacks(client: Callable[[str], Any]) -> list[Stack]:
    return stack_inventory.read_stacks(client("cloudformation"))


def _systems(client: Callable[[str], Any]) -> list[FileSystem]:
    return lustre_state.read_file_systems(client("fsx"))


def _jobs(stacks: Sequence[Stack] | None, systems: Sequence[FileSystem] | None, places: Mapping[str, str]) -> list[str]:
    """Return the names of all jobs of which a stack or a file system stands."""
    # What a stack holds says more than its name, which somebody else's app may have by chance.
    held = set(places.values())
    names = {stack.job for stack in stacks or () if stack.job is not None and stack.id not in held}
    return sorted({*names, *places, *(_job_of(system, stacks) for system in systems or ())})


def _job_of(system: FileSystem, stacks: Sequence[Stack] | None) -> str:
    if system.job is not None:
        return system.job
    stack = next((stack for stack in stacks or () if stack.name == system.stack_name), None)
    return (stack.job if stack else None) or UNNAMED


def _job_status(
    reader: _Reader,
    *,
    name: str,
    stacks: Sequence[Stack] | None,
    place: str | None,
    contract: str | None,
    systems: Sequence[FileSystem] | None,
    details: _Details,
    lake: Stack | None,
) -> JobStatus:
    # A stack of another app, which composes the constructs itself, is found by what it holds.
    own_names = {system.stack_name for system in systems or ()}
    by_place = (one for one in stacks or () if one.id == place)
    by_name = (one for one in stacks or () if one.job == name)
    by_file_system = (one for one in stacks or () if one.name in own_names)
    stack = next(itertools.chain(by_place, by_name, by_file_system), None)
    if stack is not None:
        stack = reader.with_kept(reader.with_resources(stack))
    standing = (
        None
        if systems is None
        else tuple(_standing(system, stack=stack, stacks=stacks, details=details) for system in systems)
    )
    cluster = None
    if stack is not None and stack.resources is not None:
        cluster = _cluster(reader, stack)
    return JobStatus(
        name=name,
        stack=stack,
        file_systems=standing,
        directory_buckets=_directory_buckets(reader, stack, job=name),
        cluster=cluster,
        home=_home(stack),
        lake_checkpoints=_lake_checkpoints(
            reader, _checkpoints_place(stack, standing, contract=contract, lake=lake, job=name)
        ),
        unknown=tuple(reader.unknown),
    )


def _standing(
    system: FileSystem, *, stack: Stack | None, stacks: Sequence[Stack] | None, details: _Details
) -> StandingFileSystem:
    in_stack: bool | None
    if stacks is None:
        in_stack = None
    elif system.stack_name is None or all(one.name != system.stack_name for one in stacks):
        in_stack = False
    elif stack is None or stack.name != system.stack_name or stack.resources is None:
        in_stack = None
    else:
        # While a stack is being made its list may lag behind FSx: what CloudFormation still works on is not left.
        listed = any(resource.physical_id == system.id for resource in stack.of_kind(_LUSTRE))
        in_stack = True if listed else (None if stack.state.endswith("_IN_PROGRESS") else False)
    return StandingFileSystem(
        system=system,
        in_stack=in_stack,
        links=_of(system, details.links),
        tasks=_of(system, details.tasks),
        metrics=None if details.metrics is None else details.metrics.get(system.id),
    )


def _of(system: FileSystem, records: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if records is None else tuple(one for one in records if one.file_system_id == system.id)


def _directory_buckets(reader: _Reader, stack: Stack | None, *, job: str) -> tuple[DirectoryBucketStatus, ...] | None:
    if stack is None:
        return ()
    if stack.resources is None:
        return None
    return tuple(_directory_bucket(reader, row.physical_id, job=job) for row in stack.of_kind(_DIRECTORY_BUCKET))


def _directory_bucket(reader: _Reader, name: str, *, job: str) -> DirectoryBucketStatus:
    s3 = reader.client("s3")
    try:
        empty = status_checkpoints.is_empty(s3, name)
        found = None if empty else status_checkpoints.read_checkpoints(s3, bucket=name, prefix=f"checkpoints/{job}/")
    except AWS_ERRORS as error:
        because = why(error, action="s3express:CreateSession")
        return DirectoryBucketStatus(name=name, is_empty=None, checkpoints=None, unknown=because)
    return DirectoryBucketStatus(name=name, is_empty=empty, checkpoints=found, unknown=None)


def _cluster(reader: _Reader, stack: Stack) -> ClusterStatus | None:
    return cluster_state.read_pcs(reader.client, stack, ask=reader.ask) or cluster_state.read_auto_scaling(
        reader.client, stack, ask=reader.ask
    )


def _home(stack: Stack | None) -> Home | None:
    if stack is None:
        return None
    made = stack.of_kind(_HOME)
    if made:
        return Home(id=made[0].physical_id, is_kept=None if stack.kept is None else made[0].logical_id in stack.kept)
    # One that an earlier cluster left is not the stack's, so it stays.
    adopted = stack.outputs.get("HomeFileSystemId")
    return Home(id=adopted, is_kept=True) if adopted else None


def _checkpoints_place(
    stack: Stack | None,
    standing: Sequence[StandingFileSystem] | None,
    *,
    contract: str | None,
    lake: Stack | None,
    job: str,
) -> str | None:
    """Return where the job's checkpoints lie in the lake: as its stack says, a link, its contract, or the lake here."""
    if stack is not None and "CheckpointsUri" in stack.outputs:
        return stack.outputs["CheckpointsUri"]
    for one in standing or ():
        for link in one.links or ():
            if "/checkpoints/" in f"{link.data_repository_path}/":
                return link.data_repository_path
    told = job_places.checkpoints_of(contract)
    if told is not None:
        return told
    bucket = None if lake is None else lake.outputs.get("BucketName")
    return None if bucket is None else f"s3://{bucket}/checkpoints/{job}/"


def _lake_checkpoints(reader: _Reader, place: str | None) -> Checkpoints | None:
    if place is None:
        because = "neither a stack nor a link of the job, nor a lake here, says where its checkpoints go"
        reader.unknown.append(Unknown(part="lake_checkpoints", because=because))
        return None
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return reader.ask(
        "lake_checkpoints",
        "s3:ListBucket",
        lambda: status_checkpoints.read_checkpoints(
            reader.client("s3"), bucket=bucket, prefix=prefix.rstrip("/") + "/"
        ),
    )
