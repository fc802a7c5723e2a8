"""The account around FSx and S3 Express, answered from ministack's EC2 and S3."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch, ec2, s3

from training_storage.testing.local_aws.resource_attributes import new_id
from training_storage.testing.local_aws.server_settings import METRICS_AHEAD

_FSX_OWNER = "amazon-fsx"
_OK = 200
_MINUTE = 60


class MinistackAccount:
    """Reads and writes of the request's account and Region."""

    def account(self) -> str:
        """Return the account of the request."""
        return str(responses.get_account_id())

    def region(self) -> str:
        """Return the Region of the request."""
        return str(responses.get_region())

    def subnet(self, subnet_id: str) -> Mapping[str, Any] | None:
        """Return a subnet, or None."""
        found: Mapping[str, Any] | None = ec2._subnets.get(subnet_id)
        return found

    def security_group(self, group_id: str) -> Mapping[str, Any] | None:
        """Return a security group, or None."""
        found: Mapping[str, Any] | None = ec2._security_groups.get(group_id)
        return found

    def default_security_group(self, vpc_id: str) -> str | None:
        """Return the id of a VPC's default security group."""
        for group in ec2._security_groups.values():
            if group.get("VpcId") == vpc_id and group.get("GroupName") == "default":
                return str(group["GroupId"])
        return None

    def bucket_region(self, bucket: str) -> str | None:
        """Return the Region of a bucket, or None where it does not exist."""
        found = s3._buckets.get(bucket)
        return None if found is None else str(found.get("region") or self.region())

    def put_object(self, *, bucket: str, key: str, body: bytes) -> None:
        """Write an object through the S3 API, so that its metadata are complete."""
        status, _headers, answer = s3._put_object(bucket, key, body, {"content-type": "application/octet-stream"})
        if status != _OK:
            message = f"writing s3://{bucket}/{key} failed: {answer!r}"
            raise RuntimeError(message)

    def put_metric(
        self, *, name: str, value: float, unit: str, dimensions: Mapping[str, str], at: float | None = None
    ) -> None:
        """Write a value of the namespace AWS/FSx, of now or of an earlier time in seconds of the epoch."""
        now = time.time() if at is None else at
        minute = now // _MINUTE * _MINUTE
        stamps = [now]
        if os.environ.get(METRICS_AHEAD):
            # As if the minute were over: something was before it, and "nothing" is said of it and of the next one.
            stamps = [minute - _MINUTE] if value else [minute, minute + _MINUTE]
        for stamp in stamps:
            cloudwatch.record_metric("AWS/FSx", name, value, unit, dict(dimensions))
            cloudwatch._metric_bucket(("AWS/FSx", name, cloudwatch._dims_key(dict(dimensions))))[-1]["Timestamp"] = (
                stamp
            )

    def add_network_interfaces(self, *, subnet_id: str, group_ids: Sequence[str], count: int) -> list[str]:
        """Make the network interfaces of a file system, as EC2 shows them."""
        subnet = ec2._subnets[subnet_id]
        ids = []
        for _ in range(count):
            interface_id = new_id("AWS::EC2::NetworkInterface")
            ec2._network_interfaces[interface_id] = {
                "NetworkInterfaceId": interface_id,
                "SubnetId": subnet_id,
                "VpcId": subnet["VpcId"],
                "AvailabilityZone": subnet["AvailabilityZone"],
                "Description": "Created By Amazon FSx",
                "InterfaceType": "interface",
                "OwnerId": self.account(),
                "Status": "in-use",
                "PrivateIpAddress": subnet["CidrBlock"].rsplit(".", 1)[0] + ".10",
                "Groups": [
                    {"GroupId": group_id, "GroupName": ec2._security_groups[group_id]["GroupName"]}
                    for group_id in group_ids
                ],
                "SourceDestCheck": True,
                "MacAddress": "02:00:00:00:00:01",
                "Attachment": None,
                "RequesterId": _FSX_OWNER,
            }
            ids.append(interface_id)
        return ids

    def remove_network_interfaces(self, interface_ids: Sequence[str]) -> None:
        """Delete network interfaces."""
        for interface_id in interface_ids:
            ec2._network_interfaces.pop(interface_id, None)
            ec2._tags.pop(interface_id, None)
