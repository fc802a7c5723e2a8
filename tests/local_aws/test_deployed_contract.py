"""Contract and alarms as CloudFormation makes them: what a node would read, and what stands in CloudWatch."""

from __future__ import annotations

import io
import json
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns

from tests.cdk.small_stacks import tiers
from training_storage import TrainingJob, plan_storage
from training_storage.functions.storage_watch import watch
from training_storage.storage_alarms import RUNBOOKS, StorageAlarms
from training_storage.storage_contract import StorageContractParameter
from training_storage.training import StorageContract

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(
    (ROOT / "constructs/training_storage/training/storage_contract.schema.json").read_text(encoding="utf-8")
)


def template(network: Any) -> dict[str, Any]:
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=flags)
    stack = Stack(app, "Watched", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id=network.vpc,
        availability_zones=["use1-az6"],
        private_subnet_ids=[network.subnet],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
    )
    plan = plan_storage(TrainingJob(instances=32, name="deployed"))
    assert plan.fsx_lustre is not None
    made = tiers(stack, vpc, plan, lake="watched-lake")
    StorageContractParameter(
        stack, "Contract", plan=plan, data_lake=made.lake, file_system=made.file_system, engine="ec2"
    )
    StorageAlarms(
        stack,
        "Alarms",
        job_name="deployed",
        file_system=made.file_system,
        baseline_mb_per_s=plan.fsx_lustre.baseline_mb_per_s,
        topic=sns.Topic(stack, "Topic"),
    )
    return dict(app.synth().get_stack_by_name("Watched").template)


@pytest.fixture(scope="module")
def deployed(local_aws: LocalAws, stacks: Any, network: Any) -> Any:
    """The stack, with the function's code in a bucket as the CDK CLI would put it there."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        for path in Path(watch.__file__).parent.glob("*.py"):
            files.write(path, path.name)
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket="watch-assets")
    s3.put_object(Bucket="watch-assets", Key="watch.zip", Body=archive.getvalue())
    made = template(network)
    for resource in made["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Code"] = {"S3Bucket": "watch-assets", "S3Key": "watch.zip"}
    stack = stacks.create("watched", made["Resources"])
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons("watched")
    yield made
    # The file system outlives its stack, and other tests count file systems.
    fsx, system = local_aws.client("fsx"), stacks.resource("watched", _only(made, "AWS::FSx::FileSystem"))
    fsx.delete_file_system(FileSystemId=system)
    deadline = time.monotonic() + 10
    while system in [one["FileSystemId"] for one in fsx.describe_file_systems()["FileSystems"]]:
        assert time.monotonic() < deadline, "the file system stays"
        time.sleep(0.05)
    stacks.delete("watched")


def _only(made: dict[str, Any], kind: str) -> str:
    [logical_id] = [str(name) for name, one in made["Resources"].items() if one["Type"] == kind]
    return logical_id


def test_a_node_reads_the_contract_of_what_was_deployed(local_aws: LocalAws, stacks: Any, deployed: Any) -> None:
    parameter = local_aws.client("ssm").get_parameter(Name="/training-storage/deployed/contract")["Parameter"]
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(parameter["Value"]))
    contract = StorageContract.from_json(parameter["Value"])
    identifier = stacks.resource("watched", _only(deployed, "AWS::FSx::FileSystem"))
    [system] = local_aws.client("fsx").describe_file_systems(FileSystemIds=[identifier])["FileSystems"]
    assert contract.lustre is not None
    assert contract.lustre.file_system_id == system["FileSystemId"]
    assert contract.lustre.dns_name == system["DNSName"]
    assert contract.lustre.mount_name == system["LustreConfiguration"]["MountName"]
    assert contract.checkpoints.write_to == "/fsx/checkpoints/"


def test_every_alarm_and_the_schedule_of_the_watch_stand(local_aws: LocalAws, stacks: Any, deployed: Any) -> None:
    kinds = [one["Type"] for one in deployed["Resources"].values()]
    assert kinds.count("AWS::CloudWatch::Alarm") == len(RUNBOOKS)
    # The server keeps alarms on metric math apart from those that it lists.
    listed = {
        alarm["MetricName"]: alarm
        for alarm in local_aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="watched-")["MetricAlarms"]
    }
    assert set(listed) >= {
        "FreeDataStorageCapacity",
        "AgeOfOldestQueuedMessage",
        "LinkMisconfigured",
        "NodeCheckFailed",
    }
    assert listed["LinkMisconfigured"]["AlarmActions"][0].startswith("arn:aws:sns:us-east-1:")
    rules = local_aws.client("events").list_rules()["Rules"]
    assert [rule["ScheduleExpression"] for rule in rules if "Watch" in rule["Name"]] == ["rate(5 minutes)"]


def test_the_deployed_watch_publishes_the_links_of_the_deployed_file_system(
    local_aws: LocalAws, stacks: Any, deployed: Any
) -> None:
    name = stacks.resource("watched", _only(deployed, "AWS::Lambda::Function"))
    answer = local_aws.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    payload = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, payload
    assert payload == {"published": 2}
