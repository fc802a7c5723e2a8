"""The real CDK CLI deploys the real app into a local AWS, and what the template asks for stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.local_aws

ROOT = Path(__file__).resolve().parents[2]
MIXED = {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"}
ALPHA = {"instances": "32", "name": "alpha"}
BETA = {"instances": "600", "interface": "object", "name": "beta"}


class Account:
    """A bootstrapped local AWS and the CDK CLI pointed at it."""

    def __init__(self, aws: LocalAws, output: Path) -> None:
        self.aws = aws
        self._output = output
        self.cdk("bootstrap", "aws://000000000000/us-east-1")

    def cdk(self, command: str, *arguments: str, succeeds: bool = True, **context: str) -> str:
        flags = [flag for key, value in context.items() for flag in ("-c", f"{key}={value}")]
        environment = self.aws.environment()
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        result = subprocess.run(
            [
                str(ROOT / "node_modules" / ".bin" / "cdk"),
                command,
                *arguments,
                *flags,
                "--output",
                str(self._output),
                "--no-color",
            ],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        text = result.stdout + result.stderr
        assert (result.returncode == 0) == succeeds, text
        return text

    def deploy(self, **context: str) -> str:
        return self.cdk("deploy", "TrainingStorage", "--require-approval", "never", **context)

    def destroy(self, *, succeeds: bool = True, **context: str) -> str:
        return self.cdk("destroy", "TrainingStorage", "--force", succeeds=succeeds, **context)

    def stacks(self) -> dict[str, str]:
        found = self.aws.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in found if stack["StackName"] != "CDKToolkit"}

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

    def delete_file_systems_by_hand(self, stack: str) -> None:
        """Do what docs/deleting.md says, for one stack."""
        fsx = self.aws.client("fsx")
        for system in self.file_systems():
            tags = {tag["Key"]: tag["Value"] for tag in system["Tags"]}
            if tags["aws:cloudformation:stack-name"] == stack:
                fsx.delete_file_system(FileSystemId=system["FileSystemId"])
                self._wait_until_gone(system["FileSystemId"])

    def _wait_until_gone(self, identifier: str) -> None:
        import time  # noqa: PLC0415

        for _ in range(200):
            if identifier not in {system["FileSystemId"] for system in self.file_systems()}:
                return
            time.sleep(0.05)
        pytest.fail(f"{identifier} is still there")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with LocalAws.start() as aws:
        yield Account(aws, tmp_path / "cdk.out")


def test_one_number_brings_lake_and_linked_file_system_and_a_cluster_at_zero(account: Account) -> None:
    account.deploy(instances="256")

    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE", "TrainingStorage": "CREATE_COMPLETE"}
    assert len(account.lakes()) == 1
    system = account.file_systems()[0]
    assert system["Lifecycle"] == "AVAILABLE"
    assert system["StorageCapacity"] == 43_200
    assert system["LustreConfiguration"]["PerUnitStorageThroughput"] == 1000
    assert {(link["FileSystemPath"].strip("/"), link["Lifecycle"]) for link in account.links()} == {
        (path, "AVAILABLE") for path in ("datasets", "checkpoints", "logs", "evaluations")
    }
    assert list(account.groups().values()) == [(0, 0, 256)]
    assert account.directory_buckets() == []

    # CloudFormation never deletes the file system, and AWS refuses to take its network away from under it.
    text = account.destroy(succeeds=False)
    assert "DELETE_FAILED" in text
    assert len(account.file_systems()) == 1
    assert len(account.links()) == 4

    # Without -c instances, as somebody types who only wants it gone.
    account.delete_file_systems_by_hand("TrainingStorage")
    account.destroy()
    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE"}
    assert len(account.lakes()) == 1


def test_eight_instances_need_no_file_system(account: Account) -> None:
    account.deploy(instances="8")
    assert account.file_systems() == []
    assert account.directory_buckets() == []
    assert list(account.groups().values()) == [(0, 0, 8)]
    account.destroy()
    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE"}


def test_a_mixed_job_gets_both_hot_tiers_in_one_zone(account: Account) -> None:
    account.deploy(**MIXED)
    (system,) = account.file_systems()
    (bucket,) = account.directory_buckets()
    subnet = account.aws.client("ec2").describe_subnets(SubnetIds=system["SubnetIds"])["Subnets"][0]
    assert f"--{subnet['AvailabilityZoneId']}--x-s3" in bucket
    account.delete_file_systems_by_hand("TrainingStorage")
    account.destroy()
    assert account.directory_buckets() == []
    assert len(account.lakes()) == 1


def test_a_thousand_object_readers_get_a_directory_bucket_and_no_file_system(account: Account) -> None:
    account.deploy(instances="1000", interface="object")
    assert len(account.directory_buckets()) == 1
    assert account.file_systems() == []


@pytest.mark.parametrize(("first", "second"), [(ALPHA, BETA), (BETA, ALPHA)], ids=["alpha-first", "beta-first"])
def test_two_named_jobs_share_a_lake_and_go_one_by_one(
    account: Account, first: dict[str, str], second: dict[str, str]
) -> None:
    account.deploy(**first)
    account.deploy(**second)
    both = {f"TrainingStorage-{job['name']}": "CREATE_COMPLETE" for job in (first, second)}
    assert account.stacks() == {"TrainingDataLake": "CREATE_COMPLETE", **both}
    assert len(account.lakes()) == 1
    assert len(account.file_systems()) == 1
    assert len(account.directory_buckets()) == 1

    for gone, standing in ((first, [second]), (second, [])):
        account.delete_file_systems_by_hand(f"TrainingStorage-{gone['name']}")
        account.destroy(**gone)
        assert account.stacks() == {
            "TrainingDataLake": "CREATE_COMPLETE",
            **{f"TrainingStorage-{job['name']}": "CREATE_COMPLETE" for job in standing},
        }
    assert len(account.lakes()) == 1


def test_the_lake_refuses_to_lose_what_a_job_uses(account: Account) -> None:
    account.deploy(instances="8")
    cloudformation = account.aws.client("cloudformation")
    cloudformation.update_termination_protection(StackName="TrainingDataLake", EnableTerminationProtection=False)
    text = account.cdk("destroy", "TrainingDataLake", "--force", "--exclusively", succeeds=False, instances="8")
    assert "in use by" in text
    assert len(account.lakes()) == 1


@pytest.mark.parametrize("context", [{}, {"instances": "abc"}])
def test_deploying_without_a_usable_number_makes_nothing_and_says_what_to_type(
    account: Account, context: dict[str, str]
) -> None:
    text = account.cdk("deploy", "TrainingStorage", "--require-approval", "never", succeeds=False, **context)
    assert "example" in text
    assert "256" in text
    assert "Traceback" not in text
    assert account.stacks() == {}
