"""Does the network let Lustre through? Computed from the real rules of the security groups."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from training_storage.testing.local_aws.fsx.errors import FsxError
from training_storage.testing.local_aws.fsx.surroundings import Surroundings

LNET_PORT = 988

_PORT_CLOSED = (
    "The file system cannot be created because the default security group in the subnet provided or the provided "
    "security groups do not permit Lustre LNET network traffic on port 988"
)
_EFA_CLOSED = (
    "Insufficient security group permissions to create an EFA-enabled file system. "
    "The security group must allow all inbound and outbound traffic to and from itself."
)


def check_network(
    *, surroundings: Surroundings, subnet_ids: Sequence[str], group_ids: Sequence[str], efa: bool
) -> tuple[str, list[str]]:
    """Refuse a network through which the file system's servers could not speak.

    Parameters
    ----------
    surroundings
        The account's EC2.
    subnet_ids
        Exactly one subnet.
    group_ids
        The file system's security groups; empty for the VPC's default group.
    efa
        Whether the file system is EFA-enabled: then a group must allow all traffic from and to itself, named by its
        id; CIDR rules do not count.

    Returns
    -------
    tuple of str and list of str
        The VPC and the security groups in use.

    Raises
    ------
    FsxError
        ``InvalidNetworkSettings``.
    """
    if len(subnet_ids) != 1:
        raise FsxError("BadRequest", "Exactly one subnet ID must be specified for a Lustre file system.")
    subnet = surroundings.subnet(subnet_ids[0])
    if subnet is None:
        message = f"The subnet ID '{subnet_ids[0]}' does not exist"
        raise FsxError("InvalidNetworkSettings", message, {"InvalidSubnetId": subnet_ids[0]})
    vpc_id = str(subnet["VpcId"])
    default = surroundings.default_security_group(vpc_id)
    ids = list(group_ids) or ([default] if default else [])
    groups = [_group(surroundings, group_id, vpc_id) for group_id in ids]
    if efa and not any(_all_traffic_with_itself(group) for group in groups):
        raise FsxError("InvalidNetworkSettings", _EFA_CLOSED, {"InvalidSecurityGroupId": ids[0] if ids else ""})
    inbound = [rule for group in groups for rule in group.get("IpPermissions", [])]
    outbound = [rule for group in groups for rule in group.get("IpPermissionsEgress", [])]
    cidr = str(subnet["CidrBlock"])
    if not (_permits(inbound, ids, cidr) and _permits(outbound, ids, cidr)):
        raise FsxError("InvalidNetworkSettings", _PORT_CLOSED, {"InvalidSecurityGroupId": ids[0] if ids else ""})
    return vpc_id, ids


def _group(surroundings: Surroundings, group_id: str, vpc_id: str) -> Mapping[str, Any]:
    group = surroundings.security_group(group_id)
    if group is None:
        message = f"The security group '{group_id}' does not exist"
        raise FsxError("InvalidNetworkSettings", message, {"InvalidSecurityGroupId": group_id})
    if group.get("VpcId") != vpc_id:
        message = f"The security group '{group_id}' and the subnet belong to different networks."
        raise FsxError("InvalidNetworkSettings", message, {"InvalidSecurityGroupId": group_id})
    return group


def _permits(rules: Iterable[Mapping[str, Any]], group_ids: Sequence[str], subnet_cidr: str) -> bool:
    """Whether the rules let the servers of one subnet and group reach each other on the LNET port."""
    return any(
        _covers_port(rule) and (_names_group(rule, group_ids) or _covers_subnet(rule, subnet_cidr)) for rule in rules
    )


def _covers_port(rule: Mapping[str, Any]) -> bool:
    protocol = str(rule.get("IpProtocol", "")).lower()
    if protocol == "-1":
        return True
    return protocol in {"tcp", "6"} and int(rule.get("FromPort", 0)) <= LNET_PORT <= int(rule.get("ToPort", 65535))


def _names_group(rule: Mapping[str, Any], group_ids: Sequence[str]) -> bool:
    return any(pair.get("GroupId") in group_ids for pair in rule.get("UserIdGroupPairs", []))


def _covers_subnet(rule: Mapping[str, Any], subnet_cidr: str) -> bool:
    subnet = ipaddress.ip_network(subnet_cidr, strict=False)
    for entry in rule.get("IpRanges", []):
        network = ipaddress.ip_network(entry["CidrIp"], strict=False)
        if network.version == subnet.version and subnet.subnet_of(network):  # type: ignore[arg-type]
            return True
    return False


def _all_traffic_with_itself(group: Mapping[str, Any]) -> bool:
    group_id = [str(group["GroupId"])]
    return all(
        any(str(rule.get("IpProtocol")) == "-1" and _names_group(rule, group_id) for rule in group.get(direction, []))
        for direction in ("IpPermissions", "IpPermissionsEgress")
    )
