"""One local AWS for the whole test session, and short ways to drive its CloudFormation."""

import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from training_storage.testing.local_aws import LocalAws

_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """CloudFormation through boto3, one template at a time."""

    client: Any

    def create(self, name: str, resources: dict[str, Any], **template: Any) -> dict[str, Any]:
        self.client.create_stack(
            StackName=name, TemplateBody=self._body(resources, template), Capabilities=["CAPABILITY_NAMED_IAM"]
        )
        return self.settled(name)

    def update(self, name: str, resources: dict[str, Any], **template: Any) -> dict[str, Any]:
        self.client.update_stack(
            StackName=name, TemplateBody=self._body(resources, template), Capabilities=["CAPABILITY_NAMED_IAM"]
        )
        return self.settled(name)

    def delete(self, name: str) -> dict[str, Any]:
        stack_id = self.client.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        self.client.delete_stack(StackName=name)
        return self.settled(stack_id)

    def settled(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            stack: dict[str, Any] = self.client.describe_stacks(StackName=name)["Stacks"][0]
            if not stack["StackStatus"].endswith("_IN_PROGRESS"):
                return stack
            time.sleep(0.02)
        message = f"{name} did not settle"
        raise TimeoutError(message)

    def outputs(self, name: str) -> dict[str, str]:
        stack = self.client.describe_stacks(StackName=name)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """(logical id, status, reason), the oldest first."""
        events = self.client.describe_stack_events(StackName=name)["StackEvents"]
        return [
            (event["LogicalResourceId"], event["ResourceStatus"], event.get("ResourceStatusReason", ""))
            for event in reversed(events)
        ]

    def reasons(self, name: str) -> str:
        return "\n".join(reason for _, status, reason in self.events(name) if status.endswith("FAILED"))

    def resource(self, name: str, logical_id: str) -> str:
        answer = self.client.describe_stack_resource(StackName=name, LogicalResourceId=logical_id)
        physical_id: str = answer["StackResourceDetail"]["PhysicalResourceId"]
        return physical_id

    @staticmethod
    def _body(resources: dict[str, Any], template: dict[str, Any]) -> str:
        return json.dumps({"Resources": resources, **template})


def scale_waits(aws: LocalAws, scale: float) -> None:
    """Let state machines wait `scale` times what they ask for; a second is the shortest that they can ask for."""
    body = json.dumps({"stepfunctions._SFN_WAIT_SCALE": scale}).encode()
    request = urllib.request.Request(f"{aws.endpoint_url}/_ministack/config", data=body, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- loopback only
        assert json.loads(answer.read())["applied"], "ministack has another name for it"


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    """One of its own, with the waits of AWS: other folders of the same session have the plugin's, which is quick."""
    with LocalAws.start() as aws:
        yield aws


@pytest.fixture(scope="session")
def stacks(local_aws: LocalAws) -> Stacks:
    return Stacks(client=local_aws.client("cloudformation"))


@dataclass(frozen=True, kw_only=True)
class Network:
    """A VPC with one subnet and groups that let different things through."""

    vpc: str
    subnet: str
    open_group: str
    efa_group: str
    closed_group: str


@pytest.fixture(scope="session")
def network(local_aws: LocalAws) -> Network:
    ec2 = local_aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/20", AvailabilityZoneId="use1-az6")["Subnet"]["SubnetId"]

    def group(name: str) -> str:
        identifier: str = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
        return identifier

    opened, efa, closed = group("open"), group("efa"), group("closed")
    tcp = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 1023}
    ec2.authorize_security_group_ingress(
        GroupId=opened, IpPermissions=[{**tcp, "IpRanges": [{"CidrIp": "10.9.0.0/16"}]}]
    )
    everything = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": efa}]}
    ec2.authorize_security_group_ingress(GroupId=efa, IpPermissions=[everything])
    ec2.authorize_security_group_egress(GroupId=efa, IpPermissions=[everything])
    return Network(vpc=vpc, subnet=subnet, open_group=opened, efa_group=efa, closed_group=closed)
