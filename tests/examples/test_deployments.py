"""Every example stands in a local AWS, and goes again without losing anything."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples.example_apps import build, module
from training_storage.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from training_storage.testing import Deployment, LocalAws

pytestmark = pytest.mark.local_aws

FAST = {"Delay": 0.1, "MaxAttempts": 1200}


def destroy(deployment: Deployment, *names: str) -> None:
    """Delete some stacks of a deployment, all at once, as `cdk destroy NAME …` does."""
    client = deployment.client("cloudformation")
    for name in names:
        client.delete_stack(StackName=name)
    for name in names:
        client.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig=FAST)


def physical(deployment: Deployment, kind: str, *, stack: str) -> list[str]:
    return [resource.physical_id for resource in deployment.resources(kind, stack=stack)]


def keys(aws: LocalAws, bucket: str, prefix: str) -> set[str]:
    found = aws.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {entry["Key"] for entry in found}


def file_systems(aws: LocalAws) -> set[str]:
    return {system["FileSystemId"] for system in aws.client("fsx").describe_file_systems()["FileSystems"]}


@pytest.fixture(scope="module")
def network(local_aws: LocalAws) -> dict[str, str]:
    """A VPC with a private subnet that was there before."""
    ec2 = local_aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.40.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.40.0.0/20", AvailabilityZoneId="use1-az4")["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    return {"vpc_id": vpc, "subnet_id": subnet, "route_table_id": table}


@pytest.fixture(scope="module")
def lake(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return local_aws.deploy(build("data_lake", tmp_path_factory.mktemp("data-lake")))


def test_the_lake_refuses_to_go_and_its_bucket_stays_when_it_is_made_to(
    local_aws: LocalAws, lake: Deployment, network: dict[str, str], tmp_path: Path
) -> None:
    """And in between it is the lake of another app, which only has its outputs."""
    outputs = lake.outputs()
    bucket = outputs["BucketName"]
    local_aws.client("s3").put_object(Bucket=bucket, Key="datasets/a.tar", Body=b"data")
    express_beside_batch_loses_nothing(local_aws, outputs, network, tmp_path)

    client = lake.client("cloudformation")
    with pytest.raises(client.exceptions.ClientError, match="TerminationProtection"):
        client.delete_stack(StackName="ResearchLake")
    lake.destroy("ResearchLake", unprotect=True)
    assert "datasets/a.tar" in keys(local_aws, bucket, "datasets/")


def express_beside_batch_loses_nothing(
    aws: LocalAws, lake: dict[str, str], network: dict[str, str], folder: Path
) -> None:
    iam, s3 = aws.client("iam"), aws.client("s3")
    trust = {"Version": "2012-10-17", "Statement": []}
    role = iam.create_role(RoleName="BatchJob", AssumeRolePolicyDocument=json.dumps(trust))["Role"]
    given = {"job_role_arn": role["Arn"], "lake_bucket_name": lake["BucketName"], "lake_key_arn": lake["KeyArn"]}
    deployment = aws.deploy(build("express_beside_batch", folder, **network, **given))

    assert len(iam.list_role_policies(RoleName="BatchJob")["PolicyNames"]) == 2
    (endpoint,) = [
        one for one in aws.client("ec2").describe_vpc_endpoints()["VpcEndpoints"] if one["VpcId"] == network["vpc_id"]
    ]
    assert endpoint["RouteTableIds"] == [network["route_table_id"]]
    bucket = deployment.outputs()["CheckpointsUri"].split("/")[2]
    assert "--use1-az4--x-s3" in bucket
    step = "checkpoints/translation/step-0000000020/"
    files = [{"path": "rank-0.pt", "bytes": 5, "checksum": None}]
    mark = {"schema_version": 1, "step": 20, "finished_at": "2026-11-30T12:00:00Z", "files": files}
    s3.put_object(Bucket=bucket, Key=f"{step}rank-0.pt", Body=b"state")
    s3.put_object(Bucket=bucket, Key=f"{step}_COMPLETE.json", Body=json.dumps(mark).encode())

    deployment.destroy()
    assert bucket not in [one["Name"] for one in s3.list_directory_buckets()["Buckets"]]
    assert {f"{step}rank-0.pt", f"{step}_COMPLETE.json"} <= keys(aws, lake["BucketName"], step)
    assert iam.list_role_policies(RoleName="BatchJob")["PolicyNames"] == []
    iam.delete_role(RoleName="BatchJob")


def test_checkpoints_on_lustre_are_in_the_lake_before_the_file_system_goes(
    local_aws: LocalAws, network: dict[str, str], tmp_path: Path
) -> None:
    before = file_systems(local_aws)
    given = {key: network[key] for key in ("vpc_id", "subnet_id")}
    deployment = local_aws.deploy(build("lustre_two_links", tmp_path, **given))
    (system,) = physical(deployment, "AWS::FSx::FileSystem", stack="SpeechFileSystem")
    assert deployment.outputs("SpeechFileSystem")["FileSystemId"] == system
    links = local_aws.client("fsx").describe_data_repository_associations(
        Filters=[{"Name": "file-system-id", "Values": [system]}]
    )["Associations"]
    assert {link["FileSystemPath"]: sorted(link.get("S3", {})) for link in links} == {
        "/datasets": ["AutoImportPolicy"],
        "/checkpoints": [],
    }

    checkpoint = {
        "/checkpoints/step-0000000010/rank-0.distcp": "state",
        "/checkpoints/step-0000000010/.metadata": "end",
    }
    local_aws.fsx_control(files={system: checkpoint})
    deployment.destroy("SpeechFileSystem")
    assert file_systems(local_aws) == before
    bucket = deployment.outputs("SpeechLake")["DatasetsUri"].split("/")[2]
    assert keys(local_aws, bucket, "checkpoints/speech/step-") == {
        path.replace("/checkpoints/", "checkpoints/speech/") for path in checkpoint
    }
    deployment.destroy(unprotect=True)


def test_the_whole_stands_with_its_accelerators_at_zero_and_goes_again(local_aws: LocalAws, tmp_path: Path) -> None:
    before = file_systems(local_aws)
    deployment = local_aws.deploy(build("pcs", tmp_path))
    assert len(physical(deployment, "AWS::PCS::ComputeNodeGroup", stack="TrainingStorage-llm")) == 2
    assert len(file_systems(local_aws) - before) == 1
    assert deployment.outputs("TrainingStorage-llm")["StartNodesCommand"].startswith(
        "sbatch --partition=train --nodes=64"
    )
    (topic,) = physical(deployment, "AWS::SNS::Topic", stack="TrainingStorage-llm")
    alarms = local_aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="TrainingStorage-llm")["MetricAlarms"]
    assert {action for alarm in alarms for action in alarm["AlarmActions"]} == {topic}

    deployment.destroy("TrainingStorage-llm")
    assert file_systems(local_aws) == before
    assert deployment.status("ModelLake") == "CREATE_COMPLETE"
    deployment.destroy(unprotect=True)


def test_of_three_jobs_each_goes_without_the_others_and_the_lake_waits_for_the_last(
    local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file_systems(local_aws)
    deployment = local_aws.deploy(build("three_jobs", tmp_path))
    jobs = [f"TrainingStorage-{plan.job.name}" for plan in module("three_jobs").plans(region="us-east-1")]
    assert set(deployment.stack_names) == {"SharedLake", *jobs}
    assert len(file_systems(local_aws) - before) == 2

    # As the README says: what stands, and what parking would do.
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    for verb in (["status"], ["park", "--dry-run"]):
        assert main([*verb, "--job", "finetune"]) == 0, verb

    gone, *others = jobs
    deployment.destroy(gone)
    assert {deployment.status(name) for name in ["SharedLake", *others]} == {"CREATE_COMPLETE"}
    client = deployment.client("cloudformation")
    client.update_termination_protection(StackName="SharedLake", EnableTerminationProtection=False)
    client.delete_stack(StackName="SharedLake")
    wait_until(lambda: "in use by TrainingStorage-" in reasons(client, "SharedLake"))
    assert deployment.status("SharedLake")
    destroy(deployment, *others)
    assert file_systems(local_aws) == before
    deployment.destroy("SharedLake")


def reasons(client: Any, name: str) -> str:
    events = client.describe_stack_events(StackName=name)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason", "") for event in events)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
