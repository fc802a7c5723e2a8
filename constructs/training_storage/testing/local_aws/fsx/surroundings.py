"""What FSx needs from the rest of the account; the server answers from its EC2 and S3."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Surroundings(Protocol):
    """The account around the file systems."""

    def account(self) -> str:
        """Return the account of the request."""

    def region(self) -> str:
        """Return the Region of the request."""

    def subnet(self, subnet_id: str) -> Mapping[str, Any] | None:
        """Return a subnet with VpcId and CidrBlock, or None."""

    def security_group(self, group_id: str) -> Mapping[str, Any] | None:
        """Return a security group with IpPermissions and IpPermissionsEgress, or None."""

    def default_security_group(self, vpc_id: str) -> str | None:
        """Return the id of a VPC's default security group."""

    def bucket_region(self, bucket: str) -> str | None:
        """Return the Region of a general purpose bucket, or None where it does not exist."""

    def put_object(self, *, bucket: str, key: str, body: bytes) -> None:
        """Write an object."""

    def put_metric(
        self, *, name: str, value: float, unit: str, dimensions: Mapping[str, str], at: float | None = None
    ) -> None:
        """Write a value of the namespace AWS/FSx, of now or of an earlier time in seconds of the epoch."""

    def add_network_interfaces(self, *, subnet_id: str, group_ids: Sequence[str], count: int) -> list[str]:
        """Make the network interfaces of a file system; return their ids."""

    def remove_network_interfaces(self, interface_ids: Sequence[str]) -> None:
        """Delete network interfaces."""
