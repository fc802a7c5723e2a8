"""Lustre file systems, their links and their tasks, as FSx describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

#: What every file system of the library carries (docs/status.md).
JOB_TAG = "training-storage:job"
#: What the gate puts on a file system that it leaves standing: why, and the stack that it came from.
LEFT_STANDING_TAG = "training-storage:left-standing"
STACK_TAG = "training-storage:stack"
#: What CloudFormation itself puts on what it makes.
CLOUDFORMATION_STACK_TAG = "aws:cloudformation:stack-name"

EXPORT = "EXPORT_TO_REPOSITORY"
RELEASE = "RELEASE_DATA_FROM_FILESYSTEM"
RUNNING = ("PENDING", "EXECUTING", "CANCELING")
_LUSTRE = "LUSTRE"


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A Lustre file system.

    Parameters
    ----------
    capacity_gib
        Provisioned capacity; 0 for Intelligent-Tiering, which has none.
    per_unit_throughput
        MB/s per TiB; None where the type has none.
    metadata_iops
        Provisioned metadata IOPS; None where the type takes none.
    metadata_mode
        AUTOMATIC, USER_PROVISIONED or None.
    failure
        Why it is FAILED or MISCONFIGURED; None if FSx says nothing.
    """

    id: str
    lifecycle: str
    created: dt.datetime
    deployment_type: str
    storage_type: str
    version: str
    capacity_gib: int
    per_unit_throughput: int | None
    metadata_iops: int | None
    metadata_mode: str | None
    mount_name: str
    tags: Mapping[str, str]
    failure: str | None

    @property
    def job(self) -> str | None:
        """Name of the job in its tag."""
        return self.tags.get(JOB_TAG)

    @property
    def stack_name(self) -> str | None:
        """Name of the stack that made it; the gate's tag counts where CloudFormation's is gone."""
        return self.tags.get(CLOUDFORMATION_STACK_TAG) or self.tags.get(STACK_TAG)

    @property
    def left_standing(self) -> str | None:
        """Why the gate left it standing; None if it did not."""
        return self.tags.get(LEFT_STANDING_TAG)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A data repository association; `failure` is FSx's message where it is MISCONFIGURED or FAILED."""

    id: str
    file_system_id: str
    file_system_path: str
    data_repository_path: str
    lifecycle: str
    import_events: tuple[str, ...]
    export_events: tuple[str, ...]
    failure: str | None

    @property
    def directory(self) -> str:
        """The path without the slash at its end: ``/checkpoints``; ``/`` for the whole file system."""
        return "/" + self.file_system_path.strip("/")

    @property
    def exports(self) -> bool:
        """Whether new and changed files go to the lake by themselves."""
        return "NEW" in self.export_events and "CHANGED" in self.export_events

    def covers(self, path: str) -> bool:
        """Whether an absolute path of the file system lies in the linked directory."""
        return self.directory in ("/", path) or path.startswith(self.directory + "/")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data repository task; `unused_days` is of release tasks."""

    id: str
    file_system_id: str
    kind: str
    lifecycle: str
    paths: tuple[str, ...]
    unused_days: int | None
    created: dt.datetime
    started: dt.datetime | None
    ended: dt.datetime | None
    total: int | None
    succeeded: int | None
    failed: int | None
    failure: str | None

    @property
    def is_running(self) -> bool:
        """Whether it holds back other tasks of the file system, and the file system's deletion."""
        return self.lifecycle in RUNNING

    def covers(self, directory: str) -> bool:
        """Whether it works on all of `directory`, an absolute path of the file system."""
        wanted = ["/" + path.strip("/") for path in self.paths]
        return not wanted or any(path in ("/", directory) or directory.startswith(path + "/") for path in wanted)

    def progress(self) -> str:
        """Return how far it is, in words."""
        if self.total is None or not (self.total or self.succeeded or self.failed):
            return "no files counted yet" if self.is_running else "no files"
        done = f"{self.succeeded or 0:,} of {self.total:,} files"
        return f"{done}, {self.failed:,} failed" if self.failed else done


def read_file_systems(fsx: Any) -> list[FileSystem]:  # noqa: ANN401 - boto3 clients have no type
    """Return the Region's Lustre file systems that carry the library's tag; raises as ``fsx:DescribeFileSystems``."""
    found = []
    for page in fsx.get_paginator("describe_file_systems").paginate():
        found += [_file_system(record) for record in page["FileSystems"] if record.get("FileSystemType") == _LUSTRE]
    return [system for system in found if system.job is not None or system.left_standing is not None]


def read_links(fsx: Any, file_system_ids: Iterable[str]) -> list[Link]:  # noqa: ANN401
    """Return the links of these file systems; raises as ``fsx:DescribeDataRepositoryAssociations``."""
    records = _filtered(fsx.describe_data_repository_associations, "Associations", file_system_ids)
    links = [_link(record) for record in records]
    return sorted(links, key=lambda link: (link.file_system_id, link.file_system_path))


def read_tasks(fsx: Any, file_system_ids: Iterable[str]) -> list[Task]:  # noqa: ANN401
    """Return the tasks of these file systems, the newest first; raises as ``fsx:DescribeDataRepositoryTasks``."""
    records = _filtered(fsx.describe_data_repository_tasks, "DataRepositoryTasks", file_system_ids)
    return sorted((task_of(record) for record in records), key=lambda task: task.created, reverse=True)


def read_task(fsx: Any, task_id: str) -> Task:  # noqa: ANN401
    """Return one task; raises as ``fsx:DescribeDataRepositoryTasks``."""
    return task_of(fsx.describe_data_repository_tasks(TaskIds=[task_id])["DataRepositoryTasks"][0])


def task_of(record: Mapping[str, Any]) -> Task:
    """Return the task that FSx describes."""
    status = record.get("Status") or {}
    duration = (record.get("ReleaseConfiguration") or {}).get("DurationSinceLastAccess") or {}
    # Without a configuration FSx releases whatever was exported: 0 days.
    unused = int(duration.get("Value", 0)) if record["Type"] == RELEASE else None
    return Task(
        id=record["TaskId"],
        file_system_id=record.get("FileSystemId", ""),
        kind=record["Type"],
        lifecycle=record["Lifecycle"],
        paths=tuple(record.get("Paths") or ()),
        unused_days=unused,
        created=record["CreationTime"],
        started=record.get("StartTime"),
        ended=record.get("EndTime"),
        total=status.get("TotalCount"),
        succeeded=status.get("SucceededCount"),
        failed=status.get("FailedCount"),
        failure=(record.get("FailureDetails") or {}).get("Message"),
    )


#: Values of one filter (FSx API).
_FILTER_VALUES = 20


def _filtered(describe: Any, key: str, file_system_ids: Iterable[str]) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return all records; neither call has a paginator in boto3 for every version."""
    wanted, found = list(file_system_ids), []
    for start in range(0, len(wanted), _FILTER_VALUES):
        filters = [{"Name": "file-system-id", "Values": wanted[start : start + _FILTER_VALUES]}]
        token: dict[str, str] = {}
        while True:
            answer = describe(Filters=filters, **token)
            found += answer[key]
            if not answer.get("NextToken"):
                break
            token = {"NextToken": answer["NextToken"]}
    return found


def _file_system(record: Mapping[str, Any]) -> FileSystem:
    lustre = record.get("LustreConfiguration") or {}
    metadata = lustre.get("MetadataConfiguration") or {}
    return FileSystem(
        id=record["FileSystemId"],
        lifecycle=record.get("Lifecycle", "UNKNOWN"),
        created=record["CreationTime"],
        deployment_type=lustre.get("DeploymentType", ""),
        storage_type=record.get("StorageType", "SSD"),
        version=record.get("FileSystemTypeVersion", ""),
        capacity_gib=int(record.get("StorageCapacity") or 0),
        per_unit_throughput=lustre.get("PerUnitStorageThroughput"),
        metadata_iops=metadata.get("Iops"),
        metadata_mode=metadata.get("Mode"),
        mount_name=lustre.get("MountName", ""),
        tags={tag["Key"]: tag["Value"] for tag in record.get("Tags") or []},
        failure=(record.get("FailureDetails") or {}).get("Message"),
    )


def _link(record: Mapping[str, Any]) -> Link:
    s3 = record.get("S3") or {}

    def events(policy: str) -> tuple[str, ...]:
        return tuple((s3.get(policy) or {}).get("Events") or ())

    return Link(
        id=record["AssociationId"],
        file_system_id=record["FileSystemId"],
        file_system_path=record.get("FileSystemPath") or "/",
        data_repository_path=record.get("DataRepositoryPath", ""),
        lifecycle=record.get("Lifecycle", "UNKNOWN"),
        import_events=events("AutoImportPolicy"),
        export_events=events("AutoExportPolicy"),
        failure=(record.get("FailureDetails") or {}).get("Message"),
    )
