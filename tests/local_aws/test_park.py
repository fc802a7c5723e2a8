"""A job with a file system and nodes in a local AWS: parked, interrupted, refused, taken back, and brought back."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, DefaultStackSynthesizer, Duration, Environment, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns

from training_storage import DataRepositoryAssociation, Ec2AutoScalingCluster, ImportedDataLake, LustreFileSystem
from training_storage.cli import main
from training_storage.cli import park as cli_park
from training_storage.final_export import FinalExport
from training_storage.park import Park
from training_storage.planning import catalog
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.local_aws

ACCOUNT, REGION, ZONE = "000000000000", "us-east-1", "use1-az4"
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-0000-4000-8000-000000000001"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-{REGION}"
FILES = {"/checkpoints/step-1/rank-0.pt": "weights", "/logs/train.log": "loss 1.0"}
EXPORTED = {"checkpoints/{job}/step-1/rank-0.pt", "logs/{job}/train.log"}
SECONDS = 90


class Account:
    """A local AWS with an assets bucket."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self.aws = aws
        self.folder = folder
        self.cloudformation, self.fsx, self.s3 = (aws.client(name) for name in ("cloudformation", "fsx", "s3"))
        self.sfn, self.ec2, self.scaling = (aws.client(name) for name in ("stepfunctions", "ec2", "autoscaling"))
        self.functions, self.sns, self.sqs = (aws.client(name) for name in ("lambda", "sns", "sqs"))
        self.s3.create_bucket(Bucket=ASSETS)
        self._published: set[str] = set()

    def publish(self, manifest: Path) -> None:
        for asset in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
            source = manifest.parent / asset["source"]["path"]
            [destination] = asset["destinations"].values()
            if asset["source"]["packaging"] != "zip" or destination["objectKey"] in self._published:
                continue
            name = str(self.folder / destination["objectKey"].removesuffix(".zip"))
            self.s3.upload_file(shutil.make_archive(name, "zip", source), ASSETS, destination["objectKey"])
            self._published.add(destination["objectKey"])


class Job:
    """A stack of one job: network, file system with links, gate, an Auto Scaling group, park."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.job = f"j{uuid.uuid4().hex[:8]}"
        self.name = f"TrainingStorage-{self.job}"
        self.lake = f"lake-{self.job}"
        self.machine = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:training-storage-park-{self.job}"
        account.s3.create_bucket(Bucket=self.lake)

    def deploy(self, *, role: str | None = ROLE) -> str:
        folder = self.account.folder / uuid.uuid4().hex
        stack = self._stack(App(outdir=str(folder)))
        assembly = stack.node.root.synth()  # type: ignore[attr-defined]
        self.account.publish(folder / f"{stack.artifact_id}.assets.json")
        template = assembly.get_stack_artifact(stack.artifact_id).template
        given = {"RoleARN": role} if role else {}
        key = f"{uuid.uuid4().hex}.json"
        self.account.s3.put_object(Bucket=ASSETS, Key=key, Body=json.dumps(template).encode())
        self.account.cloudformation.create_stack(
            StackName=self.name,
            TemplateURL=f"{self.account.aws.endpoint_url}/{ASSETS}/{key}",
            Capabilities=["CAPABILITY_IAM"],
            **given,
        )
        return self.settled()

    def settled(self) -> str:
        until(lambda: not self.status().endswith("IN_PROGRESS"), lambda: f"{self.name}: {self.status()}")
        return self.status()

    def status(self) -> str:
        stacks = self.account.cloudformation.describe_stacks()["Stacks"]
        return next((str(stack["StackStatus"]) for stack in stacks if stack["StackName"] == self.name), "")

    def reasons(self) -> str:
        events = self.account.cloudformation.describe_stack_events(StackName=self.name)["StackEvents"]
        return "\n".join(one.get("ResourceStatusReason", "") for one in events if "FAILED" in one["ResourceStatus"])

    def resource(self, kind: str) -> str:
        found = self.account.cloudformation.describe_stack_resources(StackName=self.name)["StackResources"]
        return next(str(row["PhysicalResourceId"]) for row in found if row["ResourceType"] == kind)

    @property
    def file_system(self) -> str:
        return self.resource("AWS::FSx::FileSystem")

    def write(self) -> str:
        self.account.aws.fsx_control(files={self.file_system: FILES})
        return self.file_system

    def start_nodes(self, count: int) -> list[str]:
        group = self.resource("AWS::AutoScaling::AutoScalingGroup")
        self.account.scaling.update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=count)
        tags = [{"Key": "aws:autoscaling:groupName", "Value": group}]
        made = self.account.ec2.run_instances(
            ImageId="ami-1",
            InstanceType="g6.12xlarge",
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return [instance["InstanceId"] for instance in made["Instances"]]

    def limits(self) -> tuple[int, int, int]:
        [group] = self.account.scaling.describe_auto_scaling_groups(
            AutoScalingGroupNames=[self.resource("AWS::AutoScaling::AutoScalingGroup")]
        )["AutoScalingGroups"]
        return group["MinSize"], group["DesiredCapacity"], group["MaxSize"]

    def links(self, identifier: str) -> dict[str, Any]:
        filters = [{"Name": "file-system-id", "Values": [identifier]}]
        found = self.account.fsx.describe_data_repository_associations(Filters=filters)["Associations"]
        return {
            link["FileSystemPath"]: (
                link["DataRepositoryPath"],
                link["BatchImportMetaDataOnCreate"],
                sorted((link["S3"].get("AutoImportPolicy") or {}).get("Events") or []),
                sorted((link["S3"].get("AutoExportPolicy") or {}).get("Events") or []),
            )
            for link in found
        }

    def tasks(self, identifier: str) -> list[dict[str, Any]]:
        filters = [{"Name": "file-system-id", "Values": [identifier]}]
        tasks: list[dict[str, Any]] = self.account.fsx.describe_data_repository_tasks(Filters=filters)[
            "DataRepositoryTasks"
        ]
        return tasks

    def imports(self, identifier: str) -> int:
        """How many tasks have brought names from the lake."""
        return [task["Type"] for task in self.tasks(identifier)].count("IMPORT_METADATA_FROM_REPOSITORY")

    def stands(self, identifier: str) -> bool:
        found = self.account.fsx.describe_file_systems()["FileSystems"]
        return any(system["FileSystemId"] == identifier for system in found)

    def exported(self) -> set[str]:
        found = self.account.s3.list_objects_v2(Bucket=self.lake).get("Contents", [])
        return {item["Key"].replace(self.job, "{job}") for item in found if "/final-export/" not in item["Key"]}

    # ---- executions ----

    def start(self, trigger: str = "command", **values: Any) -> str:
        arn = self.account.sfn.start_execution(
            stateMachineArn=self.machine,
            name=f"{trigger}-{uuid.uuid4().hex[:8]}",
            input=json.dumps({"Trigger": trigger, "StopNodes": True, **values}),
        )
        return str(arn["executionArn"])

    def state(self, execution: str) -> str:
        """The state that was entered last; empty once the machine is gone with its stack."""
        try:
            events = self.account.sfn.get_execution_history(executionArn=execution, maxResults=1000)["events"]
        except self.account.sfn.exceptions.ExecutionDoesNotExist:
            return ""
        entered = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
        return entered[-1] if entered else "Trigger"

    def describe(self, execution: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.account.sfn.describe_execution(executionArn=execution)
        except self.account.sfn.exceptions.ExecutionDoesNotExist:
            return {"status": "GONE"}
        return found

    def ended(self, execution: str) -> dict[str, Any]:
        until(lambda: self.describe(execution)["status"] != "RUNNING", lambda: self.state(execution))
        return self.describe(execution)

    def watch(self) -> dict[str, Any]:
        """Run the function that the schedule runs."""
        [name] = [
            row["FunctionName"]
            for page in self.account.functions.get_paginator("list_functions").paginate()
            for row in page["Functions"]
            if row["FunctionName"].startswith(self.name) and "ParkWatch" in row["FunctionName"]
        ]
        answer = self.account.functions.invoke(FunctionName=name, Payload=b"{}")
        content: dict[str, Any] = json.loads(answer["Payload"].read())
        return content

    def subscribe(self) -> str:
        """Return a queue that gets what the topic is told."""
        url = self.account.sqs.create_queue(QueueName=self.job)["QueueUrl"]
        arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.job}"
        self.account.sns.subscribe(TopicArn=TOPIC, Protocol="sqs", Endpoint=arn)
        return str(url)

    def subjects(self, queue: str) -> list[str]:
        found: list[str] = []
        while messages := self.account.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"])["Subject"])
                self.account.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return found

    def gone(self) -> None:
        until(lambda: self.status() in ("", "DELETE_FAILED"), self.status)
        assert self.status() == "", self.reasons()

    # ---- the stack ----

    def _stack(self, app: App) -> Stack:
        synthesizer = DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
        stack = Stack(app, self.name, env=Environment(region=REGION), synthesizer=synthesizer)
        lake = ImportedDataLake(stack, "Lake", bucket_name=self.lake, encryption_key_arn=KEY)
        network = ec2.CfnVPC(stack, "Network", cidr_block="10.0.0.0/16")
        subnet = ec2.CfnSubnet(stack, "Subnet", vpc_id=network.ref, cidr_block="10.0.0.0/20", availability_zone_id=ZONE)
        Tags.of(stack).add("training-storage:job", self.job)
        vpc = ec2.Vpc.from_vpc_attributes(
            stack,
            "Vpc",
            vpc_id=network.ref,
            availability_zones=[ZONE],
            isolated_subnet_ids=[subnet.ref],
            isolated_subnet_route_table_ids=["rtb-0"],
        )
        file_system = LustreFileSystem(
            stack,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.isolated_subnets[0],
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
            encryption_key=lake.encryption_key,
        )
        for path, prefix, imports, exports, batch in (
            ("/datasets", "datasets/", ["NEW"], [], True),
            ("/checkpoints", f"checkpoints/{self.job}/", [], [], True),
            ("/logs", f"logs/{self.job}/", [], ["NEW", "CHANGED"], False),
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
                batch_import_metadata_on_create=batch,
            )
        gate = FinalExport(
            stack,
            "FinalExport",
            file_system=file_system,
            data_lake=lake,
            job_name=self.job,
            network=[subnet],
            poll_interval=Duration.seconds(1),
            time_limit=Duration.seconds(60),
        )
        cluster = Ec2AutoScalingCluster(
            stack,
            "Cluster",
            vpc=vpc,
            subnet=vpc.isolated_subnets[0],
            instance_type=catalog.instance_type("g6.12xlarge"),
            instances=4,
        )
        cluster.node.add_dependency(gate)
        topic = sns.Topic.from_topic_arn(stack, "Topic", TOPIC)
        park = Park(
            stack,
            "Park",
            cluster=cluster,
            job_name=self.job,
            file_system=file_system,
            final_export=gate,
            alarm_topic=topic,
            time_to_live_hours=1,
            idle_park_hours=1,
            poll_interval=Duration.seconds(1),
            warning=Duration.seconds(1),
        )
        assert park.watch
        # It leads by as much as the time to live is long, so that this is due at once; the state waits a second.
        park.watch.add_environment("WARNING_SECONDS", "3600")
        return stack


def until(condition: Callable[[], bool], say: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(say())
        time.sleep(0.05)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    pytest.importorskip("ministack", reason="pip install 'training-storage[local-aws]'")
    aws = LocalAws.start(quick=True)
    with aws:
        aws.fsx_control(transition_seconds=0.05)
        aws.client("sns").create_topic(Name="alarms")
        yield Account(aws, tmp_path_factory.mktemp("park"))


@pytest.fixture
def parked(account: Account, request: pytest.FixtureRequest) -> Iterator[Job]:
    one = Job(account)
    assert one.deploy(role=getattr(request, "param", ROLE)) == "CREATE_COMPLETE", one.reasons()
    yield one
    account.aws.fsx_control(task_outcome="SUCCEED", client_writes={}, task_seconds=None, files={"*": {}})


@pytest.fixture
def command(parked: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command, for the job, as from a shell."""
    for name, value in parked.account.aws.settings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cli_park, "_POLL_SECONDS", 0.2)
    return lambda *options: main(["park", "--job", parked.job, "--region", REGION, *options])


class Interrupted:
    """A clock at which somebody presses Ctrl-C during the first wait."""

    monotonic = staticmethod(time.monotonic)

    def sleep(self, _seconds: float) -> None:
        raise KeyboardInterrupt


STATES = ("Begin", "Drain", "DrainWait", "Unmount", "Export", "ExportWait", "DeleteStack")


def test_killed_at_every_state_and_started_again_ends_the_same_as_never_killed(parked: Job) -> None:
    identifier, nodes = parked.write(), parked.start_nodes(2)
    parked.account.aws.fsx_control(task_seconds=0.5)
    for state in STATES:
        execution = parked.start()
        until(lambda: parked.state(execution) in (state, ""), lambda: (state, parked.state(execution)))  # noqa: B023
        if parked.describe(execution)["status"] == "RUNNING":
            parked.account.sfn.stop_execution(executionArn=execution)
    if parked.status() == "CREATE_COMPLETE":
        parked.start()
    parked.gone()
    assert not parked.stands(identifier)
    assert parked.exported() == EXPORTED
    found = parked.account.ec2.describe_instances(InstanceIds=nodes)["Reservations"]
    assert {one["State"]["Name"] for row in found for one in row["Instances"]} == {"terminated"}


# Without a service role the machine cannot delete the stack, so that the command does it.
@pytest.mark.parametrize("parked", [None], indirect=True, ids=["no service role"])
def test_a_failing_export_leaves_all_standing_and_can_be_taken_back_or_mended(
    parked: Job,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identifier = parked.write()
    before, imports = parked.links(identifier), parked.imports(identifier)
    nodes = parked.start_nodes(1)
    assert command("--no-wait") == 2
    assert "1 node of job" in capsys.readouterr().err
    assert parked.limits()[2] == 4
    assert command("--dry-run") == 0
    told = capsys.readouterr().out
    assert "1 run and would end" in told
    assert "exported: /checkpoints, /logs" in told
    assert "an hour until it is gone" in told

    parked.account.aws.fsx_control(task_outcome="FAIL")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(cli_park, "time", Interrupted())
        assert command("--yes") == 130
    assert f"To watch it again: training-storage park --job {parked.job}" in capsys.readouterr().err
    assert command("--yes") == 1
    told = capsys.readouterr().err
    assert f"{identifier} and its links stand, nothing is deleted: export task" in told
    assert "2 of 2 files are not in the lake" in told
    assert f"training-storage park --job {parked.job} --region {REGION} --undo" in told
    assert "stopping nodes: 1 node to end" in told
    assert parked.status() == "CREATE_COMPLETE"
    assert parked.stands(identifier)
    assert parked.links(identifier) == before
    assert parked.limits() == (0, 0, 0)
    found = parked.account.ec2.describe_instances(InstanceIds=nodes)["Reservations"]
    assert found[0]["Instances"][0]["State"]["Name"] == "terminated"

    assert command("--undo") == 0
    assert parked.limits() == (0, 0, 4)
    assert parked.links(identifier) == before
    [system] = parked.account.fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert "left-standing" not in json.dumps(system["Tags"])

    parked.account.aws.fsx_control(task_outcome="SUCCEED")
    capsys.readouterr()
    assert command("--json") == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "parked"
    assert parked.status() == ""
    assert parked.exported() == EXPORTED

    # The same plan brings back the same tree.
    assert parked.deploy() == "CREATE_COMPLETE"
    again = parked.file_system
    assert again != identifier
    assert parked.links(again) == before
    assert parked.imports(again) == imports == 1
    assert parked.limits() == (0, 0, 4)


def test_what_a_refused_destroy_left_is_finished_by_the_command_with_and_without_a_stack(
    parked: Job, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    identifier = parked.write()
    parked.account.aws.fsx_control(task_outcome="FAIL")
    parked.account.cloudformation.delete_stack(StackName=parked.name)
    assert parked.settled() == "DELETE_FAILED"
    # By now the state machine is gone: the command does it itself.
    assert command() == 1
    assert "2 of 2 files are not in the lake" in capsys.readouterr().err
    parked.account.cloudformation.delete_stack(StackName=parked.name, DeletionMode="FORCE_DELETE_STACK")
    parked.gone()
    assert parked.stands(identifier)
    assert command() == 1
    assert "2 of 2 files are not in the lake" in capsys.readouterr().err
    assert parked.stands(identifier)
    parked.account.aws.fsx_control(task_outcome="SUCCEED")
    assert command() == 0
    assert not parked.stands(identifier)
    assert parked.exported() == EXPORTED
    assert command() == 2
    assert "something stands" in capsys.readouterr().err


def test_a_time_that_is_over_warns_first_and_then_parks_once(parked: Job) -> None:
    identifier = parked.write()
    queue = parked.subscribe()
    # The time to live is an hour and so is the warning's lead: it is due at once.
    first, second = parked.watch(), parked.watch()
    assert first["Started"].rsplit(":", 1)[1].startswith("time-to-live-")
    assert second == {"Started": None}
    parked.gone()
    assert not parked.stands(identifier)
    assert parked.exported() == EXPORTED
    subjects = parked.subjects(queue)
    assert subjects[0] == f"Training job {parked.job} is parked in 60 minutes"
    assert f"Training job {parked.job} is parked" in subjects
