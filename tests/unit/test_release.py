"""What `release` asks of AWS and how it takes refusals; answers are stubbed in the shape of the service models."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from training_storage.operations import release
from training_storage.operations.lustre_state import FileSystem, Link
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = dt.datetime(2026, 11, 30, 12, 0, 30, tzinfo=dt.UTC)
ID = "fs-0123456789abcdef0"
GIB = 2**30


def client(service: str) -> Any:
    return boto3.client(service, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")  # noqa: S106


@pytest.fixture
def fsx() -> Iterator[tuple[Any, Stubber]]:
    made = client("fsx")
    with Stubber(made) as stub:
        yield made, stub
        stub.assert_no_pending_responses()


@pytest.fixture
def cloudwatch() -> Iterator[tuple[Any, Stubber]]:
    made = client("cloudwatch")
    with Stubber(made) as stub:
        yield made, stub
        stub.assert_no_pending_responses()


def system(**fields: Any) -> FileSystem:
    values: dict[str, Any] = {
        "id": ID,
        "lifecycle": "AVAILABLE",
        "created": NOW,
        "deployment_type": "PERSISTENT_2",
        "storage_type": "SSD",
        "version": "2.15",
        "capacity_gib": 1200,
        "per_unit_throughput": 1000,
        "metadata_iops": 1500,
        "metadata_mode": "AUTOMATIC",
        "mount_name": "abcdefgh",
        "tags": {"training-storage:job": "default"},
        "failure": None,
        **fields,
    }
    return FileSystem(**values)


def link(path: str = "/datasets/") -> Link:
    return Link(
        id="dra-0123456789abcdef0",
        file_system_id=ID,
        file_system_path=path,
        data_repository_path=f"s3://lake{path}",
        lifecycle="AVAILABLE",
        import_events=(),
        export_events=(),
        failure=None,
    )


def request(**fields: Any) -> release.Request:
    return release.Request(**{"system": system(), "links": (link(),), "paths": (), "unused_days": 7, **fields})


def task(lifecycle: str, *, kind: str = "RELEASE_DATA_FROM_FILESYSTEM", days: int = 7, **fields: Any) -> dict[str, Any]:
    configuration = {"ReleaseConfiguration": {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": days}}}
    return {
        "TaskId": "task-0123456789abcdef0",
        "Lifecycle": lifecycle,
        "Type": kind,
        "CreationTime": NOW,
        "FileSystemId": ID,
        "Status": {"TotalCount": 0, "SucceededCount": 0, "FailedCount": 0},
        **(configuration if kind.startswith("RELEASE") else {}),
        **fields,
    }


EVERY = {"Filters": [{"Name": "file-system-id", "Values": [ID]}]}


def test_the_call_names_one_file_system_its_paths_and_the_days(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": [task("SUCCEEDED")]}, EVERY)
    stub.add_response(
        "create_data_repository_task",
        {"DataRepositoryTask": task("PENDING")},
        {
            "FileSystemId": ID,
            "Type": "RELEASE_DATA_FROM_FILESYSTEM",
            "Paths": ["datasets/2025"],
            "Report": {"Enabled": False},
            "ReleaseConfiguration": {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": 0}},
            "Tags": [{"Key": "training-storage:job", "Value": "default"}],
        },
    )
    started = release.start(made, request(paths=("/datasets/2025",), unused_days=0))
    assert not started.adopted


def test_a_task_that_somebody_starts_in_between_is_adopted(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": []}, EVERY)
    stub.add_client_error("create_data_repository_task", "DataRepositoryTaskExecuting", "An existing task …", 400)
    stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": [task("EXECUTING")]}, EVERY)
    assert release.start(made, request()).adopted


def test_a_task_that_is_being_cancelled_is_not_adopted(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": [task("CANCELING")]}, EVERY)
    with pytest.raises(release.ReleaseError, match="task-0123456789abcdef0 is CANCELING"):
        release.start(made, request())


def test_tasks_of_all_pages_are_seen(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": [], "NextToken": "2"}, EVERY)
    second = {"DataRepositoryTasks": [task("EXECUTING", kind="EXPORT_TO_REPOSITORY")]}
    stub.add_response("describe_data_repository_tasks", second, {**EVERY, "NextToken": "2"})
    with pytest.raises(release.ReleaseError, match="EXPORT_TO_REPOSITORY"):
        release.start(made, request())


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("describe_data_repository_tasks", "fsx:DescribeDataRepositoryTasks"),
        ("create_data_repository_task", "fsx:CreateDataRepositoryTask"),
    ],
)
def test_a_missing_permission_is_named(fsx: tuple[Any, Stubber], operation: str, action: str) -> None:
    made, stub = fsx
    if operation.startswith("create"):
        stub.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": []}, EVERY)
    stub.add_client_error(operation, "AccessDeniedException", "User … is not authorized", 400)
    with pytest.raises(release.ReleaseError, match=f"The caller is not allowed {action}"):
        release.start(made, request())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"storage_type": "INTELLIGENT_TIERING"}, "Intelligent-Tiering storage, which moves data by itself"),
        ({"deployment_type": "SCRATCH_1"}, "is SCRATCH_1"),
        ({"version": "2.10"}, "runs Lustre 2.10"),
        ({"lifecycle": "CREATING"}, "is CREATING and takes no task"),
        ({"lifecycle": "DELETING"}, "is DELETING and takes no task"),
    ],
)
def test_what_cannot_release_is_refused_before_any_call(
    fsx: tuple[Any, Stubber], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidJobError, match=words):
        release.prepare(fsx[0], system=system(**fields))


def test_more_paths_than_a_task_takes_are_refused(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    links = [{"AssociationId": "dra-0123456789abcdef0", "FileSystemId": ID, "FileSystemPath": "/datasets/"}]
    stub.add_response("describe_data_repository_associations", {"Associations": links}, EVERY)
    with pytest.raises(InvalidJobError, match="at most 100 times, got: 101"):
        release.prepare(made, system=system(), paths=[f"/datasets/{number}" for number in range(101)])


def test_a_path_is_taken_as_nodes_see_it_and_as_fsx_sees_it(fsx: tuple[Any, Stubber]) -> None:
    made, stub = fsx
    links = [{"AssociationId": "dra-0123456789abcdef0", "FileSystemId": ID, "FileSystemPath": "/datasets/"}]
    stub.add_response("describe_data_repository_associations", {"Associations": links}, EVERY)
    found = release.prepare(made, system=system(), paths=["/fsx/datasets/a/", "datasets/a", "/datasets/b"])
    assert found.paths == ("/datasets/a", "/datasets/b")
    assert found.to_call()["Paths"] == ["datasets/a", "datasets/b"]


def metrics(*values: tuple[dt.datetime, float]) -> dict[str, Any]:
    result = {"Id": "m0", "Timestamps": [at for at, _ in values], "Values": [value for _, value in values]}
    return {"MetricDataResults": [result]}


def test_free_space_is_the_newest_sum_over_all_disks(cloudwatch: tuple[Any, Stubber]) -> None:
    made, stub = cloudwatch
    minute = dt.timedelta(minutes=1)
    expected = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY, "ScanBy": "TimestampDescending"}
    stub.add_response("get_metric_data", metrics((NOW - 2 * minute, 5.0), (NOW - minute, 300.0 * GIB)), expected)
    found = release.free_bytes(made, system(), now=NOW)
    assert found.free_before_bytes == 300 * GIB


def test_a_value_from_before_the_end_is_not_taken_for_what_was_freed(cloudwatch: tuple[Any, Stubber]) -> None:
    made, stub = cloudwatch
    expected = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY, "ScanBy": "TimestampDescending"}
    stub.add_response("get_metric_data", metrics((NOW.replace(second=0), 900.0 * GIB)), expected)
    before = release.Capacity(total_bytes=1200 * GIB, free_before_bytes=300 * GIB)
    found = release.freed(made, system(), before=before, ended=NOW, poll_seconds=0, wait=dt.timedelta(0))
    assert found.freed_bytes is None
    assert "no value from after the task yet" in (found.unknown or "")


def test_a_value_from_after_the_end_is(cloudwatch: tuple[Any, Stubber]) -> None:
    made, stub = cloudwatch
    expected = {"MetricDataQueries": ANY, "StartTime": ANY, "EndTime": ANY, "ScanBy": "TimestampDescending"}
    stub.add_response("get_metric_data", metrics((NOW.replace(minute=1, second=0), 900.0 * GIB)), expected)
    before = release.Capacity(total_bytes=1200 * GIB, free_before_bytes=300 * GIB)
    found = release.freed(made, system(), before=before, ended=NOW, poll_seconds=0, wait=dt.timedelta(0))
    assert found.freed_bytes == 600 * GIB
    assert found.unknown is None


def test_without_permission_for_metrics_the_release_goes_on(cloudwatch: tuple[Any, Stubber]) -> None:
    made, stub = cloudwatch
    stub.add_client_error("get_metric_data", "AccessDenied", "no", 403)
    found = release.free_bytes(made, system(), now=NOW)
    assert found.unknown == "the caller is not allowed cloudwatch:GetMetricData"
    # Nothing to compare with: no further call.
    assert release.freed(made, system(), before=found, ended=NOW, poll_seconds=0) == found
