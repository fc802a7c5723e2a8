"""EC2 types that ministack's CloudFormation lacks but whose API it has: made through that API, so boto3 sees them."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import re
from collections.abc import Mapping
from typing import Any

from ministack.services import ec2
from ministack.services.cloudformation import provisioners

from training_storage.testing.local_aws.registry_resource import Behaviour, Made, Place
from training_storage.testing.local_aws.resource_attributes import generated_id_of, new_id

_FIRST_ERROR_STATUS = 400
_ALLOW_ALL = "_training_storage_default_egress"


def behaviours() -> dict[str, Behaviour]:
    """Return the behaviour of each EC2 type served here."""
    return {
        "AWS::EC2::EIP": Behaviour(create=_create_address, delete=_delete_address),
        "AWS::EC2::NatGateway": Behaviour(create=_create_nat_gateway, delete=_delete_nat_gateway),
        "AWS::EC2::FlowLog": Behaviour(create=_create_flow_log, delete=_delete_flow_log),
        "AWS::EC2::PlacementGroup": Behaviour(create=_create_placement_group, delete=_delete_placement_group),
        "AWS::EC2::NetworkAcl": Behaviour(create=_create_network_acl, delete=_delete_network_acl),
        "AWS::EC2::SecurityGroupIngress": Behaviour(create=_create_ingress, delete=_delete_ingress),
        "AWS::EC2::SecurityGroupEgress": Behaviour(create=_create_egress, delete=_delete_egress),
    }


def mark_default_egress(group_id: str) -> None:
    """Note that a group's only egress rule is the default that allows everything.

    CloudFormation removes that default as soon as a separate egress resource joins the group.
    """
    ec2._security_groups[group_id][_ALLOW_ALL] = True


def in_use(*, kind: str, identifier: str) -> bool:
    """Whether something else still stands on a subnet or security group."""
    if kind == "subnet":
        interfaces = any(item["SubnetId"] == identifier for item in ec2._network_interfaces.values())
        gateways = any(
            item["SubnetId"] == identifier and item["State"] != "deleted" for item in ec2._nat_gateways.values()
        )
        endpoints = any(identifier in item.get("SubnetIds", []) for item in ec2._vpc_endpoints.values())
        return interfaces or gateways or endpoints
    interfaces = any(
        group["GroupId"] == identifier for item in ec2._network_interfaces.values() for group in item.get("Groups", [])
    )
    endpoints = any(identifier in item.get("SecurityGroupIds", []) for item in ec2._vpc_endpoints.values())
    named = any(
        pair.get("GroupId") == identifier
        for group in ec2._security_groups.values()
        if group["GroupId"] != identifier
        for rule in [*group.get("IpPermissions", []), *group.get("IpPermissionsEgress", [])]
        for pair in rule.get("UserIdGroupPairs", [])
    )
    return interfaces or endpoints or named


def _call(action: str, parameters: Mapping[str, Any]) -> str:
    """Call an EC2 API action; return the answer's XML."""
    flat = {key: [str(value)] for key, value in parameters.items() if value is not None}
    status, _headers, body = ec2._ACTION_MAP[action](flat)
    text = body.decode() if isinstance(body, bytes) else str(body)
    if status >= _FIRST_ERROR_STATUS:
        message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
        raise ValueError(message[1] if message else text)
    return text


def _element(text: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return found[1].strip() if found else ""


def _tag(resource_id: str, properties: Mapping[str, Any]) -> None:
    if properties.get("Tags"):
        ec2._tags[resource_id] = [{"Key": tag["Key"], "Value": str(tag["Value"])} for tag in properties["Tags"]]


def _create_address(properties: Mapping[str, Any], _place: Place) -> Made:
    answer = _call("AllocateAddress", {"Domain": properties.get("Domain", "vpc")})
    allocation_id, address = _element(answer, "allocationId"), _element(answer, "publicIp")
    _tag(allocation_id, properties)
    return Made(physical_id=address, attributes={"AllocationId": allocation_id, "PublicIp": address})


def _delete_address(physical_id: str, _properties: Mapping[str, Any]) -> None:
    for allocation_id, address in ec2._addresses.items():
        if address["PublicIp"] == physical_id:
            gateways = [
                gateway
                for gateway in ec2._nat_gateways.values()
                if gateway.get("AllocationId") == allocation_id and gateway["State"] != "deleted"
            ]
            if gateways:
                message = f"The address with allocation id [{allocation_id}] cannot be released because it is in use."
                raise ValueError(message)
            _call("ReleaseAddress", {"AllocationId": allocation_id})
            return


def _create_nat_gateway(properties: Mapping[str, Any], _place: Place) -> Made:
    subnet = ec2._subnets.get(properties.get("SubnetId"))
    if subnet is None:
        message = f"The subnet ID '{properties.get('SubnetId')}' does not exist"
        raise ValueError(message)
    names = ("SubnetId", "AllocationId", "ConnectivityType")
    gateway_id = _element(_call("CreateNatGateway", {name: properties.get(name) for name in names}), "natGatewayId")
    _tag(gateway_id, properties)
    return Made(physical_id=gateway_id, attributes={"NatGatewayId": gateway_id})


def _delete_nat_gateway(physical_id: str, _properties: Mapping[str, Any]) -> None:
    if physical_id in ec2._nat_gateways:
        _call("DeleteNatGateway", {"NatGatewayId": physical_id})


def _create_flow_log(properties: Mapping[str, Any], _place: Place) -> Made:
    names = ("ResourceType", "TrafficType", "LogDestinationType", "LogDestination", "LogGroupName")
    parameters = {name: properties.get(name) for name in names}
    answer = _call("CreateFlowLogs", {**parameters, "ResourceId.1": properties["ResourceId"]})
    flow_log_id = _element(_element(answer, "flowLogIdSet"), "item")
    _tag(flow_log_id, properties)
    return Made(physical_id=flow_log_id, attributes={"Id": flow_log_id})


def _delete_flow_log(physical_id: str, _properties: Mapping[str, Any]) -> None:
    _call("DeleteFlowLogs", {"FlowLogId.1": physical_id})


def _create_placement_group(properties: Mapping[str, Any], place: Place) -> Made:
    name = str(properties.get("GroupName") or generated_id_of(place.stack_name, place.logical_id, place.seed))
    parameters = {name_: properties.get(name_) for name_ in ("Strategy", "PartitionCount")}
    answer = _call("CreatePlacementGroup", {"GroupName": name, **parameters})
    group_id = _element(answer, "groupId")
    _tag(group_id, properties)
    return Made(physical_id=name, attributes={"GroupName": name, "GroupId": group_id})


def _delete_placement_group(physical_id: str, _properties: Mapping[str, Any]) -> None:
    if physical_id in ec2._placement_groups:
        _call("DeletePlacementGroup", {"GroupName": physical_id})


def _create_network_acl(properties: Mapping[str, Any], _place: Place) -> Made:
    acl_id = _element(_call("CreateNetworkAcl", {"VpcId": properties["VpcId"]}), "networkAclId")
    _tag(acl_id, properties)
    return Made(physical_id=acl_id, attributes={"Id": acl_id})


def _delete_network_acl(physical_id: str, _properties: Mapping[str, Any]) -> None:
    if physical_id in ec2._network_acls:
        _call("DeleteNetworkAcl", {"NetworkAclId": physical_id})


def _create_ingress(properties: Mapping[str, Any], _place: Place) -> Made:
    return _create_rule(properties, "IpPermissions", "AWS::EC2::SecurityGroupIngress")


def _create_egress(properties: Mapping[str, Any], _place: Place) -> Made:
    group = ec2._security_groups.get(properties.get("GroupId"))
    if group is not None and group.pop(_ALLOW_ALL, False):
        group["IpPermissionsEgress"] = []
    return _create_rule(properties, "IpPermissionsEgress", "AWS::EC2::SecurityGroupEgress")


def _create_rule(properties: Mapping[str, Any], direction: str, type_name: str) -> Made:
    group = ec2._security_groups.get(properties.get("GroupId"))
    if group is None:
        message = f"The security group '{properties.get('GroupId')}' does not exist"
        raise ValueError(message)
    [rule] = provisioners._ec2_sg_permissions([dict(properties)])
    for pair in rule["UserIdGroupPairs"]:
        if pair.get("GroupId") not in ec2._security_groups:
            message = f"The security group '{pair.get('GroupId')}' does not exist"
            raise ValueError(message)
    if any(ec2._rules_match(rule, existing) for existing in group[direction]):
        message = f"the specified rule already exists in the security group {group['GroupId']}"
        raise ValueError(message)
    rule_id = new_id(type_name)
    group[direction].append({**rule, "SecurityGroupRuleId": rule_id})
    return Made(physical_id=rule_id, attributes={"Id": rule_id})


def _delete_ingress(physical_id: str, properties: Mapping[str, Any]) -> None:
    _delete_rule(physical_id, properties, "IpPermissions")


def _delete_egress(physical_id: str, properties: Mapping[str, Any]) -> None:
    _delete_rule(physical_id, properties, "IpPermissionsEgress")


def _delete_rule(physical_id: str, properties: Mapping[str, Any], direction: str) -> None:
    group = ec2._security_groups.get(properties.get("GroupId"))
    if group is not None:
        group[direction] = [rule for rule in group[direction] if rule.get("SecurityGroupRuleId") != physical_id]
