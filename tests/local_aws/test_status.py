"""`training-storage status` against the local AWS, while stacks come, go and leave things behind."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.checkpoint_format import CheckpointFile, Marker
from training_storage.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.local_aws.conftest import Network, Stacks
    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

LAKE = "status-lake"
NAME = "TrainingStorage-demo"


@pytest.fixture(autouse=True)
def surroundings(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    # What passes by itself passes quickly; tasks that a test needs under way are made to hang.
    local_aws.fsx_control(transition_seconds=0.02)
    yield
    fsx = local_aws.client("fsx")
    for task in fsx.describe_data_repository_tasks()["DataRepositoryTasks"]:
        if task["Lifecycle"] in ("PENDING", "EXECUTING"):
            fsx.cancel_data_repository_task(TaskId=task["TaskId"])
    local_aws.fsx_control(task_outcome="SUCCEED", misconfigured={})
    cloudformation = local_aws.client("cloudformation")
    for stack in cloudformation.describe_stacks()["Stacks"]:
        if stack["StackName"].startswith("TrainingStorage"):
            cloudformation.delete_stack(StackName=stack["StackName"])
    settled(lambda: not names(local_aws))
    for system in fsx.describe_file_systems()["FileSystems"]:
        settled(lambda: not running(fsx))
        fsx.delete_file_system(FileSystemId=system["FileSystemId"])
    settled(lambda: not fsx.describe_file_systems()["FileSystems"])
    local_aws.fsx_control(transition_seconds=0.2)


def names(local_aws: LocalAws) -> list[str]:
    stacks = local_aws.client("cloudformation").describe_stacks()["Stacks"]
    return [stack["StackName"] for stack in stacks if stack["StackName"].startswith("TrainingStorage")]


def running(fsx: Any) -> list[str]:
    tasks = fsx.describe_data_repository_tasks()["DataRepositoryTasks"]
    return [task["TaskId"] for task in tasks if task["Lifecycle"] in ("PENDING", "EXECUTING", "CANCELING")]


def settled(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def file_system(network: Network) -> dict[str, Any]:
    return {
        "Type": "AWS::FSx::FileSystem",
        "DeletionPolicy": "RetainExceptOnCreate",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": "2.15",
            "StorageCapacity": 1200,
            "SubnetIds": [network.subnet],
            "SecurityGroupIds": [network.open_group],
            "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 1000},
            "Tags": [{"Key": "training-storage:job", "Value": "demo"}],
        },
    }


def link(folder: str, prefix: str, **s3: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::FSx::DataRepositoryAssociation",
        "DeletionPolicy": "RetainExceptOnCreate",
        "Properties": {
            "FileSystemId": {"Ref": "FileSystem"},
            "FileSystemPath": f"/{folder}",
            "DataRepositoryPath": f"s3://{LAKE}/{prefix}",
            **({"S3": s3} if s3 else {}),
        },
    }


OUTPUTS = {"CheckpointsUri": {"Value": f"s3://{LAKE}/checkpoints/demo/"}}


def empty(local_aws: LocalAws, bucket: str) -> None:
    s3 = local_aws.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=row["Key"])


@pytest.fixture
def lake(local_aws: LocalAws) -> None:
    """An empty lake."""
    local_aws.client("s3").create_bucket(Bucket=LAKE)
    empty(local_aws, LAKE)


@pytest.fixture
def demo(lake: None, network: Network, stacks: Stacks) -> str:
    """A stack with a linked file system; returns the file system's id."""
    resources = {
        "FileSystem": file_system(network),
        "Checkpoints": link("checkpoints", "checkpoints/demo/"),
        "Logs": {
            **link("logs", "logs/demo/", AutoExportPolicy={"Events": ["NEW", "CHANGED"]}),
            "DependsOn": "Checkpoints",
        },
    }
    created = stacks.create(NAME, resources, Outputs=OUTPUTS)
    assert created["StackStatus"] == "CREATE_COMPLETE"
    return stacks.resource(NAME, "FileSystem")


def read(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> dict[str, Any]:
    assert main(["status", "--json", *arguments]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def loss(document: dict[str, Any], place: str) -> dict[str, Any]:
    found = [row for row in document["jobs"][0]["would_be_lost"] if row["what"].endswith(place)]
    assert len(found) == 1, document["jobs"][0]["would_be_lost"]
    result: dict[str, Any] = found[0]
    return result


def put_age(local_aws: LocalAws, identifier: str, seconds: float) -> None:
    local_aws.client("cloudwatch").put_metric_data(
        Namespace="AWS/FSx",
        MetricData=[
            {
                "MetricName": "AgeOfOldestQueuedMessage",
                "Dimensions": [
                    {"Name": "FileSystemId", "Value": identifier},
                    {"Name": "Publisher", "Value": "AutoExport"},
                ],
                "Timestamp": dt.datetime.now(tz=dt.UTC) - dt.timedelta(minutes=2),
                "Value": seconds,
            }
        ],
    )


def archive(local_aws: LocalAws, step: int, *, complete: bool = True) -> None:
    s3, folder = local_aws.client("s3"), f"checkpoints/demo/step-{step:010d}"
    s3.put_object(Bucket=LAKE, Key=f"{folder}/rank-0.pt", Body=b"x")
    if complete:
        file = CheckpointFile(path="rank-0.pt", bytes=1)
        text = Marker(step=step, finished_at=dt.datetime(2026, 11, 30, 11, tzinfo=dt.UTC), files=(file,)).to_json()
        s3.put_object(Bucket=LAKE, Key=f"{folder}/_COMPLETE.json", Body=text.encode())


def test_an_empty_region_is_healthy_and_says_that_nothing_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "nothing of a job stands here" in capsys.readouterr().out


def test_a_job_of_which_nothing_stands_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--job", "nobody"]) == 2
    assert "got: 'nobody'; there are: none" in capsys.readouterr().err


def test_a_job_that_stands_is_shown_in_a_hundred_columns(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(local_aws, 1200)
    put_age(local_aws, demo, 0)
    assert main(["status", "--job", "demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].split() == ["healthy", "yes"]
    assert lines[2].startswith("  costs          $0.99 an hour now")
    assert lines[3].startswith("  destroyed now  unknown: /checkpoints, elsewhere")
    text = "\n".join(lines)
    assert f"{NAME} CREATE_COMPLETE" in text
    assert f"{demo} AVAILABLE, PERSISTENT_2, 1,200 GiB at 1000 MB/s per TiB" in text
    assert "newest complete: step-0000001200" in text


def test_the_queue_says_what_of_the_logs_would_be_lost(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settled(lambda: loss(read(capsys, code=0), "/logs")["verdict"] == "nothing")
    local_aws.fsx_control(client_writes={demo: 4096})
    settled(lambda: loss(read(capsys, code=0), "/logs")["verdict"] == "unknown")
    local_aws.fsx_control(client_writes={}, queue_age_seconds=240)
    settled(lambda: loss(read(capsys, code=0), "/logs")["verdict"] == "lost")
    found = loss(read(capsys, code=0), "/logs")
    assert found["verdict"] == "lost"
    assert "last 4 min" in found["words"]


def test_what_is_newer_than_the_newest_complete_checkpoint_in_the_lake_would_be_lost(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(local_aws, 600)
    archive(local_aws, 1800, complete=False)
    found = loss(read(capsys, code=0), "/checkpoints")
    assert found["verdict"] == "unknown"
    assert "newer than step-0000000600 of 2026-11-30 11:00" in found["words"]
    assert found["command"] == "training-storage archive --job demo --region us-east-1"


def test_an_export_of_all_checkpoints_is_named(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fsx = local_aws.client("fsx")
    fsx.create_data_repository_task(
        FileSystemId=demo, Type="EXPORT_TO_REPOSITORY", Paths=["checkpoints"], Report={"Enabled": False}
    )
    assert read(capsys, code=0)["jobs"][0]["file_systems"][0]["tasks"][0]["kind"] == "EXPORT_TO_REPOSITORY"
    settled(lambda: not running(fsx))
    assert "An export of all of it, begun at " in loss(read(capsys, code=0), "/checkpoints")["words"]


def test_a_misconfigured_link_exports_nothing_and_says_why(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put_age(local_aws, demo, 0)
    local_aws.fsx_control(misconfigured={"/logs": "Amazon FSx is unable to access the bucket"})
    document = read(capsys, code=1)
    assert document["problems"] == [
        f"The link /logs of {demo} is MISCONFIGURED: Amazon FSx is unable to access the bucket."
    ]
    found = loss(document, "/logs")
    assert found["verdict"] == "unknown"
    assert "MISCONFIGURED: Amazon FSx is unable to access the bucket." in found["words"]


def test_a_failed_task_needs_attention(local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]) -> None:
    local_aws.fsx_control(task_outcome="FAIL")
    fsx = local_aws.client("fsx")
    fsx.create_data_repository_task(FileSystemId=demo, Type="RELEASE_DATA_FROM_FILESYSTEM", Report={"Enabled": False})
    settled(lambda: not running(fsx))
    document = read(capsys, code=1)
    assert document["healthy"] is False
    assert "RELEASE_DATA_FROM_FILESYSTEM" in document["problems"][0]


def test_a_file_system_that_outlives_its_stack_is_found_with_the_command_that_finishes_it(
    demo: str, stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stacks.delete(NAME)["StackStatus"] == "DELETE_COMPLETE"
    document = read(capsys, code=1)
    (found,) = document["jobs"]
    assert found["stack"] is None
    (system,) = found["file_systems"]
    assert (system["id"], system["in_stack"]) == (demo, False)
    assert system["command"] == "training-storage park --job demo --region us-east-1"
    assert system["command"] in document["problems"][0]
    # The links stand as well, and say where the checkpoints are.
    assert found["lake_checkpoints"]["place"] == f"s3://{LAKE}/checkpoints/demo/"


def test_a_file_system_that_an_update_dropped_is_found_too(
    demo: str, stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks.update(NAME, {"Bucket": {"Type": "AWS::S3::Bucket"}}, Outputs=OUTPUTS)
    document = read(capsys, code=1)
    (system,) = document["jobs"][0]["file_systems"]
    assert (system["id"], system["in_stack"]) == (demo, False)
    assert document["jobs"][0]["stack"]["state"] == "UPDATE_COMPLETE"


def test_what_a_deletion_left_standing_says_why(
    local_aws: LocalAws, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fsx = local_aws.client("fsx")
    arn = fsx.describe_file_systems(FileSystemIds=[demo])["FileSystems"][0]["ResourceARN"]
    reason = {"Key": "training-storage:left-standing", "Value": "2 files failed to export"}
    fsx.tag_resource(ResourceARN=arn, Tags=[reason])
    document = read(capsys, code=1)
    assert "(2 files failed to export)" in document["problems"][0]


def test_checkpoints_of_a_directory_bucket_that_the_lake_lacks_would_be_lost(
    local_aws: LocalAws, lake: None, stacks: Stacks, capsys: pytest.CaptureFixture[str]
) -> None:
    s3 = local_aws.client("s3")
    bucket = {
        "Type": "AWS::S3Express::DirectoryBucket",
        "Properties": {"LocationName": "use1-az6", "DataRedundancy": "SingleAvailabilityZone"},
    }
    stacks.create(NAME, {"Hot": bucket}, Outputs=OUTPUTS)
    hot = stacks.resource(NAME, "Hot")
    assert loss(read(capsys, code=0), hot)["verdict"] == "nothing"

    for step in (600, 1200):
        s3.put_object(Bucket=hot, Key=f"checkpoints/demo/step-{step:010d}/rank-0.pt", Body=b"x")
    archive(local_aws, 600)
    found = loss(read(capsys, code=0), f"{hot}, checkpoints")
    assert (found["verdict"], found["words"]) == ("lost", "1 not in the lake: step-0000001200")

    # A folder alone is no copy: the archive writes the marker last.
    archive(local_aws, 1200, complete=False)
    assert loss(read(capsys, code=0), f"{hot}, checkpoints")["verdict"] == "unknown"
    archive(local_aws, 1200)
    assert loss(read(capsys, code=0), f"{hot}, checkpoints")["verdict"] == "nothing"
    empty(local_aws, hot)


def test_only_the_job_that_is_asked_for_is_shown(demo: str, stacks: Stacks, capsys: pytest.CaptureFixture[str]) -> None:
    stacks.create("TrainingStorage", {"Bucket": {"Type": "AWS::S3::Bucket"}})
    assert [one["job"] for one in read(capsys, code=1)["jobs"]] == ["default", "demo"]
    assert [one["job"] for one in read(capsys, "--job", "demo", code=0)["jobs"]] == ["demo"]
