"""The local FSx can be made to behave as the real one does on its bad days, and as it does between two steps."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

FILES = {"/logs/a": "first", "/checkpoints/b": "weights"}


def _until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        seen = look()
        if wanted(seen):
            return seen
        time.sleep(0.02)
    raise TimeoutError(seen)


class Linked:
    """A file system with two links: /logs exports by itself, /checkpoints does not."""

    def __init__(self, aws: LocalAws, network: Any) -> None:
        self.aws = aws
        self.fsx = aws.client("fsx")
        self.bucket = f"controls-{uuid.uuid4().hex[:8]}"
        aws.client("s3").create_bucket(Bucket=self.bucket)
        self.id: str = self.fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=1200,
            SubnetIds=[network.subnet],
            SecurityGroupIds=[network.open_group],
            LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        )["FileSystem"]["FileSystemId"]
        _until(lambda: self.system()["Lifecycle"], lambda state: state == "AVAILABLE")
        policies: dict[str, Any] = {"/logs": {"AutoExportPolicy": {"Events": ["NEW"]}}, "/checkpoints": {}}
        for path, policy in policies.items():
            self.fsx.create_data_repository_association(
                FileSystemId=self.id, FileSystemPath=path, DataRepositoryPath=f"s3://{self.bucket}{path}/", S3=policy
            )
        _until(self.states, lambda states: set(states.values()) == {"AVAILABLE"})
        aws.fsx_control(files={self.id: FILES})

    def system(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fsx.describe_file_systems(FileSystemIds=[self.id])["FileSystems"][0]
        return found

    def link(self, path: str) -> dict[str, Any]:
        filters = [{"Name": "file-system-id", "Values": [self.id]}]
        found = self.fsx.describe_data_repository_associations(Filters=filters)["Associations"]
        return next(link for link in found if link["FileSystemPath"] == path)

    def states(self) -> dict[str, str]:
        return {path: self.link(path)["Lifecycle"] for path in ("/logs", "/checkpoints")}

    def export(self, *paths: str, **more: Any) -> dict[str, Any]:
        started: dict[str, Any] = self.fsx.create_data_repository_task(
            FileSystemId=self.id, Type="EXPORT_TO_REPOSITORY", Paths=list(paths), Report={"Enabled": False}, **more
        )["DataRepositoryTask"]
        return started

    def task(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.fsx.describe_data_repository_tasks(TaskIds=[task_id])["DataRepositoryTasks"][0]
        return found

    def ended(self, started: dict[str, Any]) -> dict[str, Any]:
        task: dict[str, Any] = _until(
            lambda: self.task(started["TaskId"]), lambda task: task["Lifecycle"] in ("SUCCEEDED", "FAILED")
        )
        return task

    def metric(self, name: str, statistic: str, **dimensions: str) -> list[float]:
        named = {"FileSystemId": self.id, **dimensions}
        now = dt.datetime.now(dt.UTC)
        values: list[float] = self.aws.client("cloudwatch").get_metric_data(
            MetricDataQueries=[
                {
                    "Id": "m",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": "AWS/FSx",
                            "MetricName": name,
                            "Dimensions": [{"Name": key, "Value": value} for key, value in named.items()],
                        },
                        "Period": 1,
                        "Stat": statistic,
                    },
                }
            ],
            StartTime=now - dt.timedelta(minutes=1),
            EndTime=now + dt.timedelta(minutes=1),
        )["MetricDataResults"][0]["Values"]
        return values


@pytest.fixture
def linked(local_aws: LocalAws, network: Any) -> Iterator[Linked]:
    local_aws.fsx_control(transition_seconds=0.05)
    yield Linked(local_aws, network)
    local_aws.fsx_control(
        transition_seconds=0.2,
        task_outcome="SUCCEED",
        task_seconds=None,
        misconfigured={},
        queue_age_seconds=None,
        client_writes={},
        denied=[],
        files={"*": {}},
    )


def test_an_export_task_is_refused_beside_automatic_export_of_its_paths(linked: Linked) -> None:
    for paths in (["logs"], ["logs/deep"], []):
        with pytest.raises(ClientError, match="Automatic export of /logs must be disabled before an export task"):
            linked.export(*paths)
    assert linked.ended(linked.export("checkpoints"))["Lifecycle"] == "SUCCEEDED"


def test_a_link_takes_no_change_while_it_is_changing(linked: Linked) -> None:
    link = linked.link("/logs")["AssociationId"]
    policy: dict[str, Any] = {"AutoExportPolicy": {"Events": []}}
    linked.aws.fsx_control(transition_seconds=0.5)
    answer = linked.fsx.update_data_repository_association(AssociationId=link, S3=policy)
    assert answer["Association"]["Lifecycle"] == "UPDATING"
    with pytest.raises(ClientError, match="in the UPDATING state"):
        linked.fsx.update_data_repository_association(AssociationId=link, S3=policy)
    _until(linked.states, lambda states: states["/logs"] == "AVAILABLE")
    assert linked.link("/logs")["S3"] == {}


def test_an_export_takes_what_is_new_or_changed_since_the_last_one(linked: Linked) -> None:
    assert linked.ended(linked.export("checkpoints"))["Status"]["TotalCount"] == 1
    assert linked.ended(linked.export("checkpoints"))["Status"]["TotalCount"] == 0
    linked.aws.fsx_control(files={linked.id: {"/checkpoints/b": "better weights"}})
    assert linked.ended(linked.export("checkpoints"))["Status"]["TotalCount"] == 1
    body = linked.aws.client("s3").get_object(Bucket=linked.bucket, Key="checkpoints/b")["Body"].read()
    assert body == b"better weights"


def test_the_same_token_starts_one_task(linked: Linked) -> None:
    first = linked.export("checkpoints", ClientRequestToken="once")
    assert linked.export("checkpoints", ClientRequestToken="once")["TaskId"] == first["TaskId"]
    linked.ended(first)


def test_a_task_lasts_as_long_as_the_control_says_now(linked: Linked) -> None:
    linked.aws.fsx_control(task_seconds=3600)
    started = linked.export("checkpoints")
    _until(lambda: linked.task(started["TaskId"])["Lifecycle"], lambda state: state == "EXECUTING")
    time.sleep(0.2)
    assert linked.task(started["TaskId"])["Lifecycle"] == "EXECUTING"
    linked.aws.fsx_control(task_seconds=None)
    assert linked.ended(started)["Lifecycle"] == "SUCCEEDED"


def test_a_misconfigured_link_says_why_and_fails_its_exports_until_it_is_mended(linked: Linked) -> None:
    linked.aws.fsx_control(misconfigured={"/checkpoints": "The bucket policy denies access."})
    link = linked.link("/checkpoints")
    assert (link["Lifecycle"], link["FailureDetails"]["Message"]) == (
        "MISCONFIGURED",
        "The bucket policy denies access.",
    )
    assert linked.link("/logs")["Lifecycle"] == "AVAILABLE"
    assert linked.ended(linked.export("checkpoints"))["Lifecycle"] == "FAILED"
    linked.aws.fsx_control(misconfigured={})
    assert linked.link("/checkpoints")["Lifecycle"] == "AVAILABLE"
    assert linked.ended(linked.export("checkpoints"))["Lifecycle"] == "SUCCEEDED"


def test_a_denied_operation_is_denied_in_aws_s_words(linked: Linked) -> None:
    linked.aws.fsx_control(denied=["DeleteFileSystem"])
    with pytest.raises(ClientError, match="is not authorized to perform: fsx:DeleteFileSystem") as caught:
        linked.fsx.delete_file_system(FileSystemId=linked.id)
    assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
    assert linked.system()["Lifecycle"] == "AVAILABLE"


def test_cloudwatch_shows_what_clients_write(linked: Linked) -> None:
    size = sum(len(body) for body in FILES.values())
    _until(lambda: (linked.system(), linked.metric("DataWriteBytes", "Sum"))[1], lambda sums: sum(sums) == size)
    linked.aws.fsx_control(client_writes={linked.id: 1000})
    _until(lambda: (linked.system(), linked.metric("DataWriteBytes", "Sum"))[1], lambda sums: sum(sums) >= size + 1000)


def test_cloudwatch_shows_how_old_the_oldest_queued_change_is_once_a_test_says_so(linked: Linked) -> None:
    def ages() -> list[float]:
        linked.system()
        return linked.metric("AgeOfOldestQueuedMessage", "Maximum", Publisher="AutoExport")

    # One link exports by itself.
    _until(ages, lambda seen: seen[-1:] == [0])
    linked.aws.fsx_control(queue_age_seconds=42)
    _until(ages, lambda seen: seen[-1:] == [42])


def test_files_may_be_in_every_file_system_also_in_later_ones(
    linked: Linked, local_aws: LocalAws, network: Any
) -> None:
    local_aws.fsx_control(files={"*": {"/checkpoints/everywhere": "x"}})
    later = Linked(local_aws, network)
    assert later.ended(later.export("checkpoints"))["Status"]["TotalCount"] == 2
    local_aws.fsx_control(files={"*": {}})
    assert linked.ended(linked.export("checkpoints"))["Status"]["TotalCount"] == 1
