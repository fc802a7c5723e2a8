"""The FSx API: what it makes is seen, states pass, tasks run."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from training_storage.testing.local_aws import LocalAws
from training_storage.testing.local_aws.fsx.creation_rules import automatic_metadata_iops

pytestmark = pytest.mark.local_aws

_SECONDS = 10


def _until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        seen = look()
        if wanted(seen):
            return seen
        time.sleep(0.02)
    message = "waited in vain"
    raise TimeoutError(message)


def _create(local_aws: Any, network: Any, **lustre: Any) -> dict[str, Any]:
    answer: dict[str, Any] = local_aws.client("fsx").create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[network.subnet],
        SecurityGroupIds=[network.open_group],
        Tags=[{"Key": "team", "Value": "a"}],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125, **lustre},
    )["FileSystem"]
    return answer


@pytest.fixture
def quick(local_aws: Any) -> Iterator[None]:
    local_aws.fsx_control(transition_seconds=0.05)
    yield
    local_aws.fsx_control(transition_seconds=0.2, task_outcome="SUCCEED", failed_files={})


@pytest.fixture
def linked(local_aws: Any, network: Any, quick: None) -> tuple[str, str]:
    """(file system, bucket), with /checkpoints linked to s3://bucket/ck/."""
    bucket = f"repository-{uuid.uuid4().hex[:8]}"
    local_aws.client("s3").create_bucket(Bucket=bucket)
    fsx = local_aws.client("fsx")
    identifier = _create(local_aws, network)["FileSystemId"]
    _until(
        lambda: fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"][0]["Lifecycle"],
        lambda state: state == "AVAILABLE",
    )
    fsx.create_data_repository_association(
        FileSystemId=identifier, FileSystemPath="/checkpoints", DataRepositoryPath=f"s3://{bucket}/ck"
    )
    return identifier, bucket


def _export(local_aws: Any, identifier: str, bucket: str, **members: Any) -> str:
    report = {
        "Enabled": True,
        "Path": f"s3://{bucket}/ck/reports",
        "Format": "REPORT_CSV_20191124",
        "Scope": "FAILED_FILES_ONLY",
    }
    request = {"FileSystemId": identifier, "Type": "EXPORT_TO_REPOSITORY", "Report": report, **members}
    task_id: str = local_aws.client("fsx").create_data_repository_task(**request)["DataRepositoryTask"]["TaskId"]
    return task_id


def _ended(local_aws: Any, task_id: str) -> dict[str, Any]:
    fsx = local_aws.client("fsx")
    task: dict[str, Any] = _until(
        lambda: fsx.describe_data_repository_tasks(TaskIds=[task_id])["DataRepositoryTasks"][0],
        lambda seen: seen["Lifecycle"] in ("SUCCEEDED", "FAILED", "CANCELED"),
    )
    return task


# ---- file systems ----


def test_file_system_passes_from_creating_to_available_to_gone(local_aws: LocalAws, network: Any) -> None:
    fsx = local_aws.client("fsx")
    created = _create(local_aws, network)
    identifier = created["FileSystemId"]
    assert created["Lifecycle"] == "CREATING"

    def states() -> list[str]:
        return [
            fs["Lifecycle"] for fs in fsx.describe_file_systems()["FileSystems"] if fs["FileSystemId"] == identifier
        ]

    _until(states, lambda seen: seen == ["AVAILABLE"])
    assert fsx.delete_file_system(FileSystemId=identifier)["Lifecycle"] == "DELETING"
    assert states() == ["DELETING"]
    _until(states, lambda seen: seen == [])


def test_file_system_shows_its_names_in_real_formats(local_aws: LocalAws, network: Any) -> None:
    made = _create(local_aws, network, MetadataConfiguration={"Mode": "AUTOMATIC"})
    identifier = made["FileSystemId"]
    assert len(identifier) == len("fs-") + 17
    assert made["DNSName"] == f"{identifier}.fsx.us-east-1.amazonaws.com"
    assert made["ResourceARN"] == f"arn:aws:fsx:us-east-1:000000000000:file-system/{identifier}"
    assert len(made["LustreConfiguration"]["MountName"]) == 8
    assert made["LustreConfiguration"]["MetadataConfiguration"] == {"Mode": "AUTOMATIC", "Iops": 1500}
    assert made["FileSystemTypeVersion"] == "2.15"
    assert made["VpcId"] == network.vpc


def test_file_system_holds_network_interfaces_in_its_subnet(local_aws: LocalAws, network: Any) -> None:
    made = _create(local_aws, network)
    shown = local_aws.client("ec2").describe_network_interfaces(NetworkInterfaceIds=made["NetworkInterfaceIds"])
    assert {interface["SubnetId"] for interface in shown["NetworkInterfaces"]} == {network.subnet}


@pytest.mark.parametrize(
    ("capacity", "iops"),
    [(1200, 1500), (2400, 3000), (4800, 6000), (9600, 6000), (12000, 12000), (45600, 12000), (48000, 24000)],
)
def test_automatic_metadata_follows_the_capacity(capacity: Any, iops: Any) -> None:
    assert automatic_metadata_iops(capacity) == iops


def test_file_system_grows_in_place(local_aws: LocalAws, network: Any, quick: Any) -> None:
    fsx = local_aws.client("fsx")
    identifier = _create(local_aws, network, MetadataConfiguration={"Mode": "AUTOMATIC"})["FileSystemId"]
    time.sleep(0.1)
    fsx.update_file_system(
        FileSystemId=identifier, StorageCapacity=4800, LustreConfiguration={"PerUnitStorageThroughput": 250}
    )
    [seen] = fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert seen["StorageCapacity"] == 4800
    assert seen["LustreConfiguration"]["PerUnitStorageThroughput"] == 250
    assert seen["LustreConfiguration"]["MetadataConfiguration"]["Iops"] == 6000


def test_descriptions_come_in_pages(local_aws: LocalAws, network: Any) -> None:
    fsx = local_aws.client("fsx")
    made = {_create(local_aws, network)["FileSystemId"] for _ in range(3)}
    pages = list(fsx.get_paginator("describe_file_systems").paginate(PaginationConfig={"PageSize": 2}))
    assert len(pages) >= 2
    assert all(len(page["FileSystems"]) <= 2 for page in pages)
    assert made <= {fs["FileSystemId"] for page in pages for fs in page["FileSystems"]}


def test_tags_come_and_go(local_aws: LocalAws, network: Any) -> None:
    fsx = local_aws.client("fsx")
    arn = _create(local_aws, network)["ResourceARN"]
    fsx.tag_resource(ResourceARN=arn, Tags=[{"Key": "team", "Value": "b"}, {"Key": "job", "Value": "1"}])
    fsx.untag_resource(ResourceARN=arn, TagKeys=["job"])
    assert fsx.list_tags_for_resource(ResourceARN=arn)["Tags"] == [{"Key": "team", "Value": "b"}]


def test_regions_are_apart(local_aws: LocalAws, network: Any) -> None:
    identifier = _create(local_aws, network)["FileSystemId"]
    elsewhere = local_aws.client("fsx", region_name="eu-north-1").describe_file_systems()["FileSystems"]
    assert identifier not in {fs["FileSystemId"] for fs in elsewhere}


# ---- what CloudFormation made ----


def test_what_cloudformation_made_is_seen_with_its_tags(local_aws: LocalAws, stacks: Any, network: Any) -> None:
    bucket, name = f"seen-{uuid.uuid4().hex[:8]}", f"seen-{uuid.uuid4().hex[:8]}"
    local_aws.client("s3").create_bucket(Bucket=bucket)

    def resources(capacity: Any, events: list[str], throughput: int = 125) -> dict[str, Any]:
        return {
            "Fs": {
                "Type": "AWS::FSx::FileSystem",
                "Properties": {
                    "FileSystemType": "LUSTRE",
                    "StorageCapacity": capacity,
                    "SubnetIds": [network.subnet],
                    "SecurityGroupIds": [network.open_group],
                    "Tags": [{"Key": "team", "Value": "a"}],
                    "LustreConfiguration": {
                        "DeploymentType": "PERSISTENT_2",
                        "PerUnitStorageThroughput": throughput,
                    },
                },
            },
            "Link": {
                "Type": "AWS::FSx::DataRepositoryAssociation",
                "Properties": {
                    "FileSystemId": {"Ref": "Fs"},
                    "FileSystemPath": "/logs",
                    "DataRepositoryPath": f"s3://{bucket}/logs/",
                    "S3": {"AutoExportPolicy": {"Events": events}},
                },
            },
        }

    attributes = ("DNSName", "LustreMountName", "ResourceARN", "Id")
    outputs = {name: {"Value": {"Fn::GetAtt": ["Fs", name]}} for name in attributes}
    stacks.create(name, resources("1200", ["NEW"]), Outputs=outputs)
    identifier = stacks.resource(name, "Fs")
    fsx = local_aws.client("fsx")
    [seen] = fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert (tags["team"], tags["aws:cloudformation:stack-name"]) == ("a", name)
    assert tags["aws:cloudformation:logical-id"] == "Fs"
    assert seen["Lifecycle"] == "AVAILABLE"
    assert stacks.outputs(name) == {
        "DNSName": seen["DNSName"],
        "LustreMountName": seen["LustreConfiguration"]["MountName"],
        "ResourceARN": seen["ResourceARN"],
        "Id": identifier,
    }
    filters = [{"Name": "file-system-id", "Values": [identifier]}]
    [link] = fsx.describe_data_repository_associations(Filters=filters)["Associations"]
    assert (link["Lifecycle"], link["DataRepositoryPath"]) == ("AVAILABLE", f"s3://{bucket}/logs/")
    assert link["S3"] == {"AutoExportPolicy": {"Events": ["NEW"]}}

    # In place: capacity and policy. The attributes stay.
    before = stacks.outputs(name)
    stacks.update(name, resources(2400, ["NEW", "CHANGED"]), Outputs=outputs)
    assert stacks.outputs(name) == before
    assert fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"][0]["StorageCapacity"] == 2400
    [link] = fsx.describe_data_repository_associations(Filters=filters)["Associations"]
    assert link["S3"] == {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}}

    # A replacement: the documentation marks the throughput so. The association follows.
    stacks.update(name, resources(2400, ["NEW"], throughput=250), Outputs=outputs)
    assert stacks.resource(name, "Fs") != identifier
    assert identifier not in {fs["FileSystemId"] for fs in fsx.describe_file_systems()["FileSystems"]}

    replaced = stacks.resource(name, "Fs")
    assert stacks.delete(name)["StackStatus"] == "DELETE_COMPLETE"
    assert replaced not in {fs["FileSystemId"] for fs in fsx.describe_file_systems()["FileSystems"]}


def test_retained_file_system_keeps_its_subnet_from_deletion(local_aws: LocalAws, stacks: Any, network: Any) -> None:
    name = f"keeps-{uuid.uuid4().hex[:8]}"
    properties = {"VpcId": network.vpc, "CidrBlock": "10.9.64.0/24", "AvailabilityZoneId": "use1-az6"}
    resources = {
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": properties},
        "Fs": {
            "Type": "AWS::FSx::FileSystem",
            "DeletionPolicy": "RetainExceptOnCreate",
            "Properties": {
                "FileSystemType": "LUSTRE",
                "StorageCapacity": 1200,
                "SubnetIds": [{"Ref": "Subnet"}],
                "SecurityGroupIds": [network.open_group],
                "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
            },
        },
    }
    stacks.create(name, resources)
    identifier = stacks.resource(name, "Fs")
    assert stacks.delete(name)["StackStatus"] == "DELETE_FAILED"
    assert "has dependencies and cannot be deleted" in stacks.reasons(name)
    fsx = local_aws.client("fsx")
    fsx.delete_file_system(FileSystemId=identifier)
    _until(
        lambda: {fs["FileSystemId"] for fs in fsx.describe_file_systems()["FileSystems"]},
        lambda seen: identifier not in seen,
    )
    assert stacks.delete(name)["StackStatus"] == "DELETE_COMPLETE"


# ---- associations and tasks ----


def test_export_task_runs_and_writes_files_and_report(local_aws: LocalAws, linked: Any) -> None:
    identifier, bucket = linked
    files = {"/checkpoints/step-1/a.pt": "weights", "/checkpoints/step-2/b.pt": "more"}
    local_aws.fsx_control(files={identifier: files})
    task_id = _export(local_aws, identifier, bucket, Paths=["checkpoints/step-1"])
    task = _ended(local_aws, task_id)
    assert task["Lifecycle"] == "SUCCEEDED"
    assert task["Status"]["SucceededCount"] == 1
    s3 = local_aws.client("s3")
    assert s3.get_object(Bucket=bucket, Key="ck/step-1/a.pt")["Body"].read() == b"weights"
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert keys == {"ck/step-1/a.pt", f"ck/reports/{task_id}/failures.csv"}


def test_failed_files_stand_in_the_report_and_fail_the_task(local_aws: LocalAws, linked: Any) -> None:
    identifier, bucket = linked
    local_aws.fsx_control(
        files={identifier: {"/checkpoints/a": "1", "/checkpoints/b": "2"}},
        failed_files={"/checkpoints/b": "S3AccessDenied"},
    )
    task_id = _export(local_aws, identifier, bucket)
    task = _ended(local_aws, task_id)
    assert task["Lifecycle"] == "FAILED"
    assert {name: task["Status"][name] for name in ("TotalCount", "SucceededCount", "FailedCount")} == {
        "TotalCount": 2,
        "SucceededCount": 1,
        "FailedCount": 1,
    }
    report = local_aws.client("s3").get_object(Bucket=bucket, Key=f"ck/reports/{task_id}/failures.csv")
    assert report["Body"].read() == b"/checkpoints/b,FAILED,S3AccessDenied\n"


def test_report_appears_without_anybody_asking(local_aws: LocalAws, linked: Any) -> None:
    identifier, bucket = linked
    task_id = _export(local_aws, identifier, bucket)
    s3 = local_aws.client("s3")
    _until(
        lambda: s3.list_objects_v2(Bucket=bucket, Prefix=f"ck/reports/{task_id}")["KeyCount"], lambda count: count == 1
    )


def test_control_makes_tasks_fail(local_aws: LocalAws, linked: Any) -> None:
    local_aws.fsx_control(task_outcome="FAIL")
    task = _ended(local_aws, _export(local_aws, *linked))
    assert task["Lifecycle"] == "FAILED"
    assert task["FailureDetails"]["Message"]


def test_control_makes_tasks_hang_until_cancelled(local_aws: LocalAws, linked: Any) -> None:
    fsx = local_aws.client("fsx")
    local_aws.fsx_control(task_outcome="HANG")
    task_id = _export(local_aws, *linked)
    _until(
        lambda: fsx.describe_data_repository_tasks(TaskIds=[task_id])["DataRepositoryTasks"][0]["Lifecycle"],
        lambda state: state == "EXECUTING",
    )
    time.sleep(0.2)
    filters = [{"Name": "task-lifecycle", "Values": ["EXECUTING"]}]
    running = fsx.describe_data_repository_tasks(Filters=filters)["DataRepositoryTasks"]
    assert task_id in {task["TaskId"] for task in running}
    assert fsx.cancel_data_repository_task(TaskId=task_id)["Lifecycle"] == "CANCELING"
    assert _ended(local_aws, task_id)["Lifecycle"] == "CANCELED"


def test_batch_import_runs_one_task(local_aws: LocalAws, linked: Any) -> None:
    identifier, bucket = linked
    fsx = local_aws.client("fsx")
    fsx.create_data_repository_association(
        FileSystemId=identifier,
        FileSystemPath="/data",
        DataRepositoryPath=f"s3://{bucket}/data/",
        BatchImportMetaDataOnCreate=True,
    )
    filters = [{"Name": "file-system-id", "Values": [identifier]}]
    [task] = _until(
        lambda: fsx.describe_data_repository_tasks(Filters=filters)["DataRepositoryTasks"], lambda seen: len(seen) == 1
    )
    assert task["Type"] == "IMPORT_METADATA_FROM_REPOSITORY"


def test_association_goes_and_frees_its_path(local_aws: LocalAws, linked: Any) -> None:
    identifier, bucket = linked
    fsx = local_aws.client("fsx")
    filters = [{"Name": "file-system-id", "Values": [identifier]}]
    [link] = fsx.describe_data_repository_associations(Filters=filters)["Associations"]
    answer = fsx.delete_data_repository_association(AssociationId=link["AssociationId"], DeleteDataInFileSystem=False)
    assert answer["Lifecycle"] == "DELETING"
    _until(lambda: fsx.describe_data_repository_associations(Filters=filters)["Associations"], lambda seen: seen == [])
    fsx.create_data_repository_association(
        FileSystemId=identifier, FileSystemPath="/checkpoints", DataRepositoryPath=f"s3://{bucket}/ck/"
    )
