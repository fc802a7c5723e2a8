"""The real CDK CLI deploys the real app into a local AWS, and what the template asks for stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App

from app import build
from training_storage.gpu_cluster import ENGINES
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.local_aws

ROOT = Path(__file__).resolve().parents[2]
MIXED = {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"}
ALPHA = {"instances": "32", "name": "alpha"}
BETA = {"instances": "600", "interface": "object", "name": "beta"}

#: What the CLI adds: with it the lake's template is the one that the CLI deployed, and stays as it is.
_OF_THE_CLI = {"aws:cdk:enable-path-metadata": True, "aws:cdk:enable-asset-metadata": True}


class Account:
    """A local AWS with the real app in it."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        self._cloudformation = aws.client("cloudformation")

    def cdk(self, *arguments: str, succeeds: bool = True, folder: Path | None = None) -> str:
        """Run the real CDK CLI, as a person would."""
        environment = self.aws.environment()
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        result = subprocess.run(
            [str(ROOT / "node_modules" / ".bin" / "cdk"), *arguments, "--no-color"],
            env=environment,
            cwd=folder or ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        text = result.stdout + result.stderr
        assert (result.returncode == 0) == succeeds, text
        return text

    def deploy(self, folder: Path, **context: str) -> None:
        """Synthesize the app in this process and deploy it through the CloudFormation API: quicker than the CLI."""
        flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
        app = App(context={**flags, **_OF_THE_CLI, **context}, outdir=str(folder))
        build(app)
        # What becomes of a stack is the test's question.
        self.aws.deploy(app, check=False)

    def destroy(self, name: str) -> str:
        """Delete a stack; return its status, or an empty text once it is gone."""
        self._cloudformation.delete_stack(StackName=name)
        wait_until(lambda: self.stacks().get(name, "") != "DELETE_IN_PROGRESS")
        return self.stacks().get(name, "")

    def stacks(self) -> dict[str, str]:
        found = self._cloudformation.describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in found if stack["StackName"] != "CDKToolkit"}

    def reasons(self, name: str) -> str:
        return json.dumps(self._cloudformation.describe_stack_events(StackName=name)["StackEvents"], default=str)

    def file_systems(self) -> list[dict[str, Any]]:
        systems: list[dict[str, Any]] = self.aws.client("fsx").describe_file_systems()["FileSystems"]
        return systems

    def links(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.aws.client("fsx").describe_data_repository_associations()["Associations"]
        return links

    def directory_buckets(self) -> list[str]:
        return [bucket["Name"] for bucket in self.aws.client("s3").list_directory_buckets()["Buckets"]]

    def lakes(self) -> list[str]:
        names = [bucket["Name"] for bucket in self.aws.client("s3").list_buckets()["Buckets"]]
        return [name for name in names if name.startswith("training-data-lake-")]

    def groups(self) -> dict[str, tuple[int, int, int]]:
        found = self.aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        return {
            group["AutoScalingGroupName"]: (group["MinSize"], group["DesiredCapacity"], group["MaxSize"])
            for group in found
        }

    def outputs(self, stack: str) -> dict[str, str]:
        (found,) = self._cloudformation.describe_stacks(StackName=stack)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}

    def resources(self, stack: str, kind: str) -> list[str]:
        """Physical ids of what stands of a type."""
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        return [
            resource["PhysicalResourceId"]
            for page in pages
            for resource in page["StackResourceSummaries"]
            if resource["ResourceType"] == kind and resource["ResourceStatus"] in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}
        ]

    def homes(self) -> dict[str, int]:
        """Mount targets by file system."""
        found = self.aws.client("efs").describe_file_systems()["FileSystems"]
        targets = self.aws.client("efs").describe_mount_targets
        return {
            system["FileSystemId"]: len(targets(FileSystemId=system["FileSystemId"])["MountTargets"])
            for system in found
        }


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def bootstrapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    # The gates look every half minute.
    with LocalAws.start(quick=True) as aws:
        account = Account(aws)
        # Away from the app: there the CLI would synthesize it first, into the folder that a user may be using.
        account.cdk("bootstrap", "aws://000000000000/us-east-1", folder=tmp_path_factory.mktemp("empty"))
        yield account


@pytest.fixture
def account(bootstrapped: Account) -> Iterator[Account]:
    """The account; what a test leaves of its jobs is removed after it, and the lake stays, as it does for people."""
    yield bootstrapped
    for name in bootstrapped.stacks():
        if name != "TrainingDataLake":
            assert bootstrapped.destroy(name) == ""


def test_one_number_brings_lake_and_linked_file_system_and_a_cluster_at_zero(account: Account, tmp_path: Path) -> None:
    output = ["--output", str(tmp_path)]
    account.cdk("deploy", "TrainingStorage", "-c", "instances=256", "--require-approval", "never", *output)

    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE", "TrainingStorage": "CREATE_COMPLETE"}
    assert len(account.lakes()) == 1
    system = account.file_systems()[0]
    assert system["Lifecycle"] == "AVAILABLE"
    assert system["StorageCapacity"] == 43_200
    assert system["LustreConfiguration"]["PerUnitStorageThroughput"] == 1000
    assert {(link["FileSystemPath"].strip("/"), link["Lifecycle"]) for link in account.links()} == {
        (path, "AVAILABLE") for path in ("datasets", "checkpoints", "logs", "evaluations")
    }
    # The way in is the login node; the other group waits at zero for a job.
    outputs = account.outputs("TrainingStorage")
    assert len(account.resources("TrainingStorage", "AWS::PCS::ComputeNodeGroup")) == 2
    (cluster,) = account.resources("TrainingStorage", "AWS::PCS::Cluster")
    assert cluster.endswith(f"cluster/{outputs['ClusterId']}")
    assert "aws ssm start-session --region us-east-1 --target" in outputs["StartSessionCommand"]
    assert outputs["StartNodesCommand"] == "sbatch --partition=train --nodes=256 --exclusive JOB.sh"
    assert account.groups() == {}
    assert account.directory_buckets() == []

    # Without -c instances, as somebody types who only wants it gone. The gate exports what was written, then deletes.
    written = {"/checkpoints/step-0000000010/.metadata": "end", "/checkpoints/step-0000000010/rank-0.distcp": "state"}
    account.aws.fsx_control(files={system["FileSystemId"]: written})
    account.cdk("destroy", "TrainingStorage", "--force", *output)
    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE"}
    assert (account.file_systems(), account.links()) == ([], [])
    (lake,) = account.lakes()
    found = account.aws.client("s3").list_objects_v2(Bucket=lake, Prefix="checkpoints/default/")["Contents"]
    assert {f"/{entry['Key'].replace('default/', '', 1)}" for entry in found} == set(written)
    assert len(account.lakes()) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("instances", ["4", "256", "1200"])
def test_both_engines_stand_at_any_size_and_go_again(
    account: Account, tmp_path: Path, instances: str, engine: str
) -> None:
    account.deploy(tmp_path, instances=instances, engine=engine, egress="isolated")
    assert account.stacks()["TrainingStorage"] == "CREATE_COMPLETE", account.reasons("TrainingStorage")
    queues = account.resources("TrainingStorage", "AWS::PCS::Queue")
    groups = list(account.groups().values())
    assert (len(queues), groups) == ((1, []) if engine == "pcs" else (0, [(0, 0, int(instances))]))
    endpoints = account.aws.client("ec2").describe_vpc_endpoints()["VpcEndpoints"]
    called = {e["ServiceName"].rsplit(".", 1)[-1] for e in endpoints if e["VpcEndpointType"] == "Interface"}
    assert called == set(ENGINES[engine].node_apis)
    assert account.destroy("TrainingStorage") == ""


def test_home_outlives_its_cluster_and_comes_back_in_the_next(account: Account, tmp_path: Path) -> None:
    before = account.homes()
    account.deploy(tmp_path / "first", instances="4")
    home = account.outputs("TrainingStorage")["HomeFileSystemId"]
    assert home not in before
    assert account.homes()[home] == 1
    (system,) = account.aws.client("efs").describe_file_systems(FileSystemId=home)["FileSystems"]
    assert system["Encrypted"] is True
    (key,) = account.resources("TrainingDataLake", "AWS::KMS::Key")
    assert system["KmsKeyId"].endswith(f"key/{key}")

    assert account.destroy("TrainingStorage") == ""
    # Its files stay; its mount target went, and so the network could go.
    assert account.homes()[home] == 0

    account.deploy(tmp_path / "second", instances="4", home_file_system_id=home)
    assert account.stacks()["TrainingStorage"] == "CREATE_COMPLETE"
    assert account.outputs("TrainingStorage")["HomeFileSystemId"] == home
    assert account.homes()[home] == 1
    assert set(account.homes()) == {*before, home}
    assert account.destroy("TrainingStorage") == ""
    assert account.homes()[home] == 0


def test_three_capacity_blocks_stand_as_three_node_groups_and_a_fourth_leaves_them_alone(
    account: Account, tmp_path: Path
) -> None:
    def blocks(count: int) -> dict[str, str]:
        ids = ",".join(f"cr-{number:017x}" for number in range(count))
        return {"instances": str(64 * count), "purchase": "capacity-block", "capacity_reservation_ids": ids}

    account.deploy(tmp_path / "three", **blocks(3))
    three = account.resources("TrainingStorage", "AWS::PCS::ComputeNodeGroup")
    assert len(three) == 4  # and the login node's
    account.deploy(tmp_path / "four", **blocks(4))
    assert account.stacks()["TrainingStorage"] == "UPDATE_COMPLETE", account.reasons("TrainingStorage")
    four = account.resources("TrainingStorage", "AWS::PCS::ComputeNodeGroup")
    assert set(three) < set(four)
    assert len(four) == 5


def test_a_job_that_outgrows_its_cluster_gets_a_larger_one_and_keeps_home_and_another_type_only_new_nodes(
    account: Account, tmp_path: Path
) -> None:
    def standing(kind: str) -> set[str]:
        return set(account.resources("TrainingStorage", kind))

    kinds = ("AWS::PCS::Cluster", "AWS::PCS::ComputeNodeGroup", "AWS::PCS::Queue")
    account.deploy(tmp_path / "small", instances="4", tiers="s3")
    small, home = [standing(kind) for kind in kinds], standing("AWS::EFS::FileSystem")
    account.deploy(tmp_path / "medium", instances="40", tiers="s3")
    assert account.stacks()["TrainingStorage"] == "UPDATE_COMPLETE", account.reasons("TrainingStorage")
    medium = [standing(kind) for kind in kinds]
    assert [before & after for before, after in zip(small, medium, strict=True)] == [set(), set(), set()]
    assert [len(found) for found in medium] == [1, 2, 1]
    assert standing("AWS::EFS::FileSystem") == home

    account.deploy(tmp_path / "other", instances="40", tiers="s3", instance_type="p4d.24xlarge", zone_id="use1-az1")
    assert account.stacks()["TrainingStorage"] == "UPDATE_COMPLETE", account.reasons("TrainingStorage")
    other = [standing(kind) for kind in kinds]
    # The login node stays, and so do cluster and queue.
    assert [len(before & after) for before, after in zip(medium, other, strict=True)] == [1, 1, 1]
    assert len(other[1]) == 2
    assert account.destroy("TrainingStorage") == ""


def test_eight_instances_need_no_file_system(account: Account, tmp_path: Path) -> None:
    account.deploy(tmp_path, instances="8", engine="ec2")
    assert account.stacks()["TrainingStorage"] == "CREATE_COMPLETE"
    assert account.file_systems() == []
    assert account.directory_buckets() == []
    assert list(account.groups().values()) == [(0, 0, 8)]
    assert account.destroy("TrainingStorage") == ""
    assert account.groups() == {}


def test_a_mixed_job_gets_both_hot_tiers_in_one_zone(account: Account, tmp_path: Path) -> None:
    account.deploy(tmp_path, **MIXED)
    (system,) = account.file_systems()
    (bucket,) = account.directory_buckets()
    subnet = account.aws.client("ec2").describe_subnets(SubnetIds=system["SubnetIds"])["Subnets"][0]
    assert f"--{subnet['AvailabilityZoneId']}--x-s3" in bucket
    assert account.destroy("TrainingStorage") == ""
    assert account.directory_buckets() == []
    assert len(account.lakes()) == 1


def test_a_thousand_object_readers_get_a_directory_bucket_and_no_file_system(account: Account, tmp_path: Path) -> None:
    account.deploy(tmp_path, instances="1000", interface="object")
    assert account.stacks()["TrainingStorage"] == "CREATE_COMPLETE"
    assert len(account.directory_buckets()) == 1
    assert account.file_systems() == []


def test_a_directory_bucket_goes_only_after_its_newest_checkpoint_is_in_the_lake(
    account: Account, tmp_path: Path
) -> None:
    account.deploy(tmp_path, instances="600", interface="object")
    (bucket,) = account.directory_buckets()
    (lake,) = account.lakes()
    s3 = account.aws.client("s3")
    folder = "checkpoints/default/step-0000000020/"

    def put(bucket: str, state: bytes) -> None:
        files = [{"path": "rank-0.pt", "bytes": len(state), "checksum": None}]
        marker = {"schema_version": 1, "step": 20, "finished_at": "2026-11-30T12:00:00Z", "files": files}
        s3.put_object(Bucket=bucket, Key=f"{folder}rank-0.pt", Body=state)
        s3.put_object(Bucket=bucket, Key=f"{folder}_COMPLETE.json", Body=json.dumps(marker).encode())

    put(bucket, b"state!")
    # Another complete one has its name in the lake, and is never replaced.
    put(lake, b"of another run")
    assert account.destroy("TrainingStorage") == "DELETE_FAILED"
    assert account.directory_buckets() == [bucket]
    assert "step-0000000020 is in the lake already with other content" in account.reasons("TrainingStorage")

    for name in ("rank-0.pt", "_COMPLETE.json"):
        s3.delete_object(Bucket=lake, Key=f"{folder}{name}")
    assert account.destroy("TrainingStorage") == ""
    assert account.directory_buckets() == []
    assert s3.get_object(Bucket=lake, Key=f"{folder}rank-0.pt")["Body"].read() == b"state!"
    s3.head_object(Bucket=lake, Key=f"{folder}_COMPLETE.json")


@pytest.mark.parametrize(("first", "second"), [(ALPHA, BETA), (BETA, ALPHA)], ids=["alpha-first", "beta-first"])
def test_two_named_jobs_share_a_lake_and_go_one_by_one(
    account: Account, tmp_path: Path, first: dict[str, str], second: dict[str, str]
) -> None:
    for job in (first, second):
        account.deploy(tmp_path / job["name"], **job)
    names = [f"TrainingStorage-{job['name']}" for job in (first, second)]
    assert account.stacks() == dict.fromkeys(["TrainingDataLake", *names], "CREATE_COMPLETE")
    assert len(account.lakes()) == 1
    assert len(account.file_systems()) == 1
    assert len(account.directory_buckets()) == 1

    while names:
        gone = names.pop(0)
        assert account.destroy(gone) == ""
        assert account.stacks() == dict.fromkeys(["TrainingDataLake", *names], "CREATE_COMPLETE")
    assert len(account.lakes()) == 1


def test_the_lake_refuses_to_go_while_a_job_uses_it(account: Account, tmp_path: Path) -> None:
    account.deploy(tmp_path, instances="8")
    account.aws.client("cloudformation").update_termination_protection(
        StackName="TrainingDataLake", EnableTerminationProtection=False
    )
    account.destroy("TrainingDataLake")
    assert account.stacks()["TrainingDataLake"]
    assert "in use by TrainingStorage" in account.reasons("TrainingDataLake")
    assert len(account.lakes()) == 1


@pytest.mark.parametrize("flags", [[], ["-c", "instances=abc"]], ids=["none", "abc"])
def test_deploying_without_a_usable_number_makes_nothing_and_says_what_to_type(
    account: Account, tmp_path: Path, flags: list[str]
) -> None:
    before = account.stacks()
    text = account.cdk("deploy", "TrainingStorage", *flags, "--output", str(tmp_path), succeeds=False)
    assert "example" in text
    assert "256" in text
    assert "Traceback" not in text
    assert account.stacks() == before


def test_more_instances_grow_the_file_system_in_place(account: Account, tmp_path: Path) -> None:
    account.deploy(tmp_path / "64", instances="64")
    (before,) = account.file_systems()
    account.deploy(tmp_path / "256", instances="256")
    assert account.stacks()["TrainingStorage"] == "UPDATE_COMPLETE"
    (after,) = account.file_systems()
    assert after["FileSystemId"] == before["FileSystemId"]
    assert (before["StorageCapacity"], after["StorageCapacity"]) == (21_600, 43_200)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"dataset_gib": "60000"}, id="throughput-tier"),
        pytest.param({"instance_type": "p5en.48xlarge"}, id="zone"),
    ],
)
def test_a_change_that_would_replace_the_file_system_is_refused_and_rolled_back(
    account: Account, tmp_path: Path, change: dict[str, str]
) -> None:
    account.deploy(tmp_path / "before", instances="64")
    (before,) = account.file_systems()
    account.deploy(tmp_path / "after", instances="64", **change)
    assert account.stacks()["TrainingStorage"] == "UPDATE_ROLLBACK_COMPLETE"
    (after,) = account.file_systems()
    assert after["FileSystemId"] == before["FileSystemId"]
    assert len(account.links()) == 4
