"""Stacks with a gate, fresh ones, in a local AWS: what is destroyed, dropped or replaced, and what stands."""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, CfnResource, DefaultStackSynthesizer, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2

from tests.local_aws.conftest import scale_waits
from training_storage import DataRepositoryAssociation, ImportedDataLake, LustreFileSystem
from training_storage.final_export import FinalExport
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.local_aws

ACCOUNT, REGION, ZONE = "000000000000", "us-east-1", "use1-az4"
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-0000-4000-8000-000000000001"
SECONDS = 60
POLICY = ["CHANGED", "NEW"]
OTHER_KEY = KEY.replace("0a1b", "9f8e")
EXPORTED = {"checkpoints/default/step-1/rank-0.pt", "logs/default/train.log"}
CHECKPOINT = {"/checkpoints/step-1/rank-0.pt": "weights", "/logs/train.log": "loss 1.0"}


class Account:
    """A local AWS with an assets bucket, and stacks that go through its CloudFormation API."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws = aws
        self.folder = folder
        self.cloudformation = aws.client("cloudformation")
        self.fsx = aws.client("fsx")
        self.s3 = aws.client("s3")
        self.s3.create_bucket(Bucket=ASSETS)
        self._published: set[str] = set()

    def publish(self, manifest: Path) -> None:
        for asset in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
            source = manifest.parent / asset["source"]["path"]
            [destination] = asset["destinations"].values()
            if asset["source"]["packaging"] != "zip" or destination["objectKey"] in self._published:
                continue
            archive = shutil.make_archive(
                str(self.folder / destination["objectKey"].removesuffix(".zip")), "zip", source
            )
            self.s3.upload_file(archive, ASSETS, destination["objectKey"])
            self._published.add(destination["objectKey"])

    def file_system(self, identifier: str) -> dict[str, Any] | None:
        found = [fs for fs in self.fsx.describe_file_systems()["FileSystems"] if fs["FileSystemId"] == identifier]
        return found[0] if found else None

    def links(self, identifier: str) -> dict[str, list[str]]:
        """Events of automatic export by linked path."""
        filters = [{"Name": "file-system-id", "Values": [identifier]}]
        found = self.fsx.describe_data_repository_associations(Filters=filters)["Associations"]
        return {
            link["FileSystemPath"]: sorted((link["S3"].get("AutoExportPolicy") or {}).get("Events") or [])
            for link in found
        }

    def tasks(self, identifier: str) -> list[dict[str, Any]]:
        filters = [{"Name": "file-system-id", "Values": [identifier]}]
        tasks: list[dict[str, Any]] = self.fsx.describe_data_repository_tasks(Filters=filters)["DataRepositoryTasks"]
        return tasks


class Deployment:
    """One stack: network, file system with three links, gate; and a lake of its own."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.name = f"Job-{uuid.uuid4().hex[:8]}"
        self.lake = f"lake-{uuid.uuid4().hex[:8]}"
        account.s3.create_bucket(Bucket=self.lake)

    # ---- operations ----

    def create(self, **options: Any) -> str:
        return self._deploy(self.account.cloudformation.create_stack, options)

    def update(self, **options: Any) -> str:
        return self._deploy(self.account.cloudformation.update_stack, options)

    def destroy(self) -> str:
        self.account.cloudformation.delete_stack(StackName=self.name)
        return self._settled()

    def _deploy(self, operation: Callable[..., Any], options: dict[str, Any]) -> str:
        folder = self.account.folder / uuid.uuid4().hex
        stack = self._stack(App(outdir=str(folder)), **options)
        assembly = stack.node.root.synth()  # type: ignore[attr-defined]
        self.account.publish(folder / f"{stack.artifact_id}.assets.json")
        template = assembly.get_stack_artifact(stack.artifact_id).template
        operation(StackName=self.name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
        return self._settled()

    def _settled(self) -> str:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            status = self.status()
            if not status.endswith("IN_PROGRESS"):
                return status
            time.sleep(0.05)
        raise TimeoutError(f"{self.name}: {self.status()}")

    def status(self) -> str:
        stacks = self.account.cloudformation.describe_stacks()["Stacks"]
        return next((str(stack["StackStatus"]) for stack in stacks if stack["StackName"] == self.name), "")

    # ---- what there is ----

    @property
    def file_system(self) -> str:
        return self.resource("AWS::FSx::FileSystem")

    def resource(self, kind: str) -> str:
        found = self.account.cloudformation.describe_stack_resources(StackName=self.name)["StackResources"]
        return next(str(r["PhysicalResourceId"]) for r in found if r["ResourceType"] == kind)

    def kinds(self) -> list[str]:
        found = self.account.cloudformation.describe_stack_resources(StackName=self.name)["StackResources"]
        return [str(r["ResourceType"]) for r in found]

    def reasons(self) -> str:
        events = self.account.cloudformation.describe_stack_events(StackName=self.name)["StackEvents"]
        return "\n".join(
            event.get("ResourceStatusReason", "") for event in events if event["ResourceStatus"].endswith("FAILED")
        )

    def reason(self) -> str:
        """Why the last operation failed."""
        return self.reasons().partition("The following resource(s)")[2].partition("The following resource(s)")[0]

    def start_export(self, identifier: str) -> None:
        """Start an export task of the checkpoints, as archiving does."""
        self.account.fsx.create_data_repository_task(
            FileSystemId=identifier,
            Type="EXPORT_TO_REPOSITORY",
            Paths=["checkpoints"],
            Report={"Enabled": False},
        )

    def exported(self) -> set[str]:
        found = self.account.s3.list_objects_v2(Bucket=self.lake).get("Contents", [])
        return {item["Key"] for item in found if "/final-export/" not in item["Key"]}

    def outcome(self, identifier: str) -> dict[str, Any]:
        key = f"logs/default/final-export/{identifier}/outcome.json"
        content: dict[str, Any] = json.loads(self.account.s3.get_object(Bucket=self.lake, Key=key)["Body"].read())
        return content

    # ---- the stack ----

    def _stack(
        self,
        app: App,
        *,
        tier: bool = True,
        key: str = KEY,
        broken: str | None = None,
        broken_after: str = "gate",
        wait_seconds: int | None = None,
        disposable_paths: tuple[str, ...] = (),
    ) -> Stack:
        synthesizer = DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
        stack = Stack(app, self.name, env=Environment(region=REGION), synthesizer=synthesizer)
        lake = ImportedDataLake(stack, "Lake", bucket_name=self.lake, encryption_key_arn=key)
        network = ec2.CfnVPC(stack, "Network", cidr_block="10.0.0.0/16")
        subnet = ec2.CfnSubnet(stack, "Subnet", vpc_id=network.ref, cidr_block="10.0.0.0/20", availability_zone_id=ZONE)
        vpc = ec2.Vpc.from_vpc_attributes(
            stack,
            "Vpc",
            vpc_id=network.ref,
            availability_zones=[ZONE],
            isolated_subnet_ids=[subnet.ref],
            isolated_subnet_route_table_ids=["rtb-0"],
        )
        gate = self._tier(stack, lake, vpc, subnet, wait_seconds, disposable_paths) if tier else None
        if broken:
            wrong = CfnResource(stack, "Broken", type="AWS::SQS::Queue", properties={"NoSuchProperty": broken})
            wrong.node.add_dependency(gate if broken_after == "gate" and gate else stack.node.find_child("FileSystem"))
            if gate and broken_after != "gate":
                # Before the gate, so that the creation fails without it.
                gate.gate.node.add_dependency(wrong)
        return stack

    def _tier(
        self,
        stack: Stack,
        lake: ImportedDataLake,
        vpc: ec2.IVpc,
        subnet: ec2.CfnSubnet,
        wait_seconds: int | None,
        disposable_paths: tuple[str, ...],
    ) -> FinalExport:
        file_system = LustreFileSystem(
            stack,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.isolated_subnets[0],
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
            encryption_key=lake.encryption_key,
            replacement_protection=False,
        )
        for path, prefix, imports, exports in (
            ("/datasets", "datasets/", ["NEW"], []),
            ("/checkpoints", "checkpoints/default/", [], []),
            ("/logs", "logs/default/", [], POLICY),
        ):
            DataRepositoryAssociation(
                stack,
                path.strip("/").title(),
                file_system=file_system,
                file_system_path=path,
                data_lake=lake,
                prefix=prefix,
                import_events=imports,
                export_events=exports,
            )
        gate = FinalExport(
            stack,
            "FinalExport",
            file_system=file_system,
            data_lake=lake,
            job_name="default",
            network=[subnet],
            poll_interval=Duration.seconds(1),
            time_limit=Duration.seconds(60),
            metric_period=Duration.seconds(1),
            disposable_paths=disposable_paths,
        )
        if wait_seconds is not None:
            # Shorter than any real limit: 3 polls are kept for the refusal.
            gate.functions[1].add_environment("WAIT_SECONDS", str(wait_seconds))
        return gate


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    pytest.importorskip("ministack", reason="pip install 'training-storage[local-aws]'")
    with LocalAws.start() as aws:
        # The waiter of CDK's provider framework looks once a second at most; here a second is shorter.
        scale_waits(aws, 0.1)
        yield Account(aws, tmp_path_factory.mktemp("final-export"))


@pytest.fixture
def deployed(account: Account) -> Iterator[Deployment]:
    account.aws.fsx_control(transition_seconds=0.02)
    yield Deployment(account)
    account.aws.fsx_control(
        task_outcome="SUCCEED",
        failed_files={},
        misconfigured={},
        queue_age_seconds=None,
        client_writes={},
        denied=[],
        task_seconds=None,
        files={"*": {}},
    )


def write(deployed: Deployment, files: dict[str, str] | None = None) -> str:
    """Put files into the file system; return its id."""
    identifier = deployed.file_system
    deployed.account.aws.fsx_control(files={identifier: CHECKPOINT if files is None else files})
    return identifier


def stands(deployed: Deployment, identifier: str) -> None:
    """File system and links are there, export themselves again, and say by a tag that they were left."""
    system = deployed.account.file_system(identifier)
    assert system is not None
    assert system["Lifecycle"] == "AVAILABLE"
    assert deployed.account.links(identifier) == {"/datasets": [], "/checkpoints": [], "/logs": POLICY}
    tags = {tag["Key"]: tag["Value"] for tag in system["Tags"]}
    assert tags["training-storage:stack"] == deployed.name
    assert len(tags["training-storage:left-standing"]) > 10


# ---- destroying ----


def test_exported_data_lets_everything_go(deployed: Deployment) -> None:
    assert deployed.create() == "CREATE_COMPLETE"
    identifier = write(deployed)
    assert deployed.destroy() == "", deployed.reasons()
    assert deployed.account.file_system(identifier) is None
    assert deployed.account.links(identifier) == {}
    assert deployed.exported() == EXPORTED
    outcome = deployed.outcome(identifier)
    assert outcome["not_exported"] == ["/datasets", "whatever is outside the linked directories"]
    # A minute without a metric costs another task; the first is the one that brought everything.
    task, *_ = outcome["export_tasks"]
    assert task["status"]["SucceededCount"] == 2
    reports = deployed.account.s3.list_objects_v2(Bucket=deployed.lake, Prefix="logs/default/final-export/")
    assert f"{task['task']}/failures.csv" in json.dumps(reports, default=str)


OBSTACLES: dict[str, tuple[dict[str, Any], str]] = {
    "a failing task": ({"task_outcome": "FAIL"}, "ended FAILED, 2 of 2 files are not in the lake"),
    "a file that fails": (
        {"failed_files": {"/logs/train.log": "S3AccessDenied"}},
        r"1 of 2 files are not in the lake .*/logs/train.log \(S3AccessDenied\).*aws s3 cp s3://.*/failures.csv -",
    ),
    "a misconfigured link": (
        {"misconfigured": {"/checkpoints": "The bucket policy denies access"}},
        "link /checkpoints .* is MISCONFIGURED: The bucket policy denies access.*--association-ids dra-",
    ),
    "no permission to export": (
        {"denied": ["CreateDataRepositoryTask"]},
        "fsx:CreateDataRepositoryTask is denied .*Let the function's role do fsx:CreateDataRepositoryTask",
    ),
    "no permission to delete": ({"denied": ["DeleteFileSystem"]}, "fsx:DeleteFileSystem is denied"),
}
MENDED: dict[str, Any] = {"task_outcome": "SUCCEED", "failed_files": {}, "misconfigured": {}, "denied": []}


def test_each_obstacle_leaves_everything_standing_until_it_is_mended(deployed: Deployment) -> None:
    deployed.create()
    identifier = write(deployed)
    before = deployed.kinds()
    for obstacle, reason in OBSTACLES.values():
        deployed.account.aws.fsx_control(**obstacle)
        assert deployed.destroy() == "DELETE_FAILED"
        assert re.search(f"{identifier} and its links stand, nothing is deleted: .*{reason}", deployed.reason())
        stands(deployed, identifier)
        assert deployed.kinds() == before
        deployed.account.aws.fsx_control(**MENDED)
    assert deployed.destroy() == "", deployed.reasons()
    assert deployed.account.file_system(identifier) is None
    assert deployed.exported() == EXPORTED


def test_a_task_that_outlasts_the_limit_goes_on_and_the_next_try_waits_for_it(deployed: Deployment) -> None:
    deployed.create(wait_seconds=12)
    identifier = write(deployed)
    deployed.account.aws.fsx_control(task_seconds=3600)
    deployed.start_export(identifier)
    assert deployed.destroy() == "DELETE_FAILED"
    assert re.search(r"time ran out .* waiting for task-\w+, which is EXECUTING .*It goes on", deployed.reason())
    stands(deployed, identifier)
    [adopted] = deployed.account.tasks(identifier)
    assert adopted["Lifecycle"] == "EXECUTING"
    deployed.account.aws.fsx_control(task_seconds=None)
    assert deployed.destroy() == "", deployed.reasons()
    first, confirming, *_ = deployed.account.tasks(identifier)
    assert (first["TaskId"], first["Lifecycle"], first["Status"]["SucceededCount"]) == (
        adopted["TaskId"],
        "SUCCEEDED",
        1,
    )
    assert confirming["Status"]["TotalCount"] == 1
    assert deployed.exported() == EXPORTED


def test_queued_changes_and_writing_clients_hold_it_until_they_are_gone(deployed: Deployment) -> None:
    deployed.create(wait_seconds=12)
    identifier = write(deployed)
    deployed.account.aws.fsx_control(queue_age_seconds=30)
    assert deployed.destroy() == "DELETE_FAILED"
    assert re.search("its oldest queued change is 30 seconds old.*AgeOfOldestQueuedMessage", deployed.reason())
    stands(deployed, identifier)
    deployed.account.aws.fsx_control(queue_age_seconds=0, client_writes={identifier: 4096})
    assert deployed.destroy() == "DELETE_FAILED"
    assert re.search("clients to stop writing.*unmount the file system", deployed.reason())
    stands(deployed, identifier)
    deployed.account.aws.fsx_control(client_writes={})
    assert deployed.destroy() == "", deployed.reasons()
    assert deployed.exported() == EXPORTED


def test_an_empty_file_system_goes_at_once_even_if_nothing_can_be_exported(deployed: Deployment) -> None:
    deployed.create()
    identifier = deployed.file_system
    deployed.account.aws.fsx_control(misconfigured={"/checkpoints": "x", "/logs": "x"}, task_outcome="FAIL")
    assert deployed.destroy() == "", deployed.reasons()
    assert deployed.account.file_system(identifier) is None
    assert deployed.account.tasks(identifier) == []


def test_a_file_system_that_is_gone_already_holds_nothing_up(deployed: Deployment) -> None:
    deployed.create()
    identifier = write(deployed)
    deployed.account.fsx.delete_file_system(FileSystemId=identifier)
    assert deployed.destroy() == "", deployed.reasons()


def test_what_is_called_disposable_is_not_exported_and_the_record_says_so(deployed: Deployment) -> None:
    deployed.create(disposable_paths=("/checkpoints",))
    identifier = write(deployed)
    assert deployed.destroy() == "", deployed.reasons()
    assert deployed.exported() == {"logs/default/train.log"}
    assert deployed.outcome(identifier)["not_exported"][:2] == ["/datasets", "/checkpoints"]


# ---- updating ----


def test_an_update_that_drops_the_tier_deletes_what_is_exported(deployed: Deployment) -> None:
    deployed.create()
    identifier = write(deployed)
    assert deployed.update(tier=False) == "UPDATE_COMPLETE"
    assert deployed.account.file_system(identifier) is None
    assert deployed.exported() == EXPORTED


def test_an_update_that_drops_the_tier_leaves_what_cannot_be_exported(deployed: Deployment) -> None:
    deployed.create()
    identifier = write(deployed)
    deployed.account.aws.fsx_control(task_outcome="FAIL")
    assert deployed.update(tier=False) == "UPDATE_COMPLETE"
    stands(deployed, identifier)


def test_an_update_that_replaces_the_file_system_finishes_the_old_one_or_rolls_back(deployed: Deployment) -> None:
    deployed.create()
    identifier = write(deployed)
    deployed.account.aws.fsx_control(task_outcome="FAIL")
    assert deployed.update(key=OTHER_KEY) == "UPDATE_ROLLBACK_COMPLETE"
    assert "are not in the lake" in deployed.reasons()
    assert deployed.file_system == identifier
    assert deployed.account.links(identifier) == {"/datasets": [], "/checkpoints": [], "/logs": POLICY}
    # The new one was never used: it costs nothing any more. The old one is not left standing, the stack has it.
    systems = deployed.account.fsx.describe_file_systems()["FileSystems"]
    ours = [system for system in systems if deployed.name in json.dumps(system["Tags"])]
    assert [system["FileSystemId"] for system in ours] == [identifier]
    assert "left-standing" not in json.dumps(ours[0]["Tags"])
    deployed.account.aws.fsx_control(task_outcome="SUCCEED")
    assert deployed.update(key=OTHER_KEY) == "UPDATE_COMPLETE", deployed.reasons()
    assert deployed.file_system != identifier
    assert deployed.account.file_system(identifier) is None
    assert deployed.exported() == EXPORTED


@pytest.mark.parametrize("used", [True, False])
def test_an_update_that_rolls_back_after_creating_leaves_what_was_used_and_no_more(
    deployed: Deployment, used: bool
) -> None:
    deployed.create(tier=False)
    deployed.account.aws.fsx_control(task_outcome="FAIL", files={"*": CHECKPOINT if used else {}})
    assert deployed.update(broken="yes") == "UPDATE_ROLLBACK_COMPLETE"
    systems = deployed.account.fsx.describe_file_systems()["FileSystems"]
    ours = [system["FileSystemId"] for system in systems if deployed.name in json.dumps(system["Tags"])]
    assert len(ours) == int(used)
    for identifier in ours:
        stands(deployed, identifier)


@pytest.mark.parametrize("broken_after", ["gate", "file system"])
def test_a_failed_first_creation_is_not_held_up(deployed: Deployment, broken_after: str) -> None:
    deployed.account.aws.fsx_control(misconfigured={"/checkpoints": "x"}, task_outcome="FAIL")
    assert deployed.create(broken="yes", broken_after=broken_after) == "ROLLBACK_COMPLETE", deployed.reasons()
    systems = deployed.account.fsx.describe_file_systems()["FileSystems"]
    assert [system for system in systems if deployed.name in json.dumps(system["Tags"])] == []
