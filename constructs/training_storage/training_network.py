"""The network of one training job: one zone, private, no traffic to S3 over NAT."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from training_storage.planning.catalog.network import subnet_limits
from training_storage.planning.catalog.regions import ZONE_ID_ALLOWED, ZONE_ID_PATTERN, ZONE_ID_REMEDY
from training_storage.validation import (
    ConstructError,
    is_token,
    require_integer,
    require_match,
    require_one_of,
    require_same_region,
    say_unchecked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TrainingNetwork"]

DEFAULT_IP_RANGE = "10.0.0.0/16"
EGRESS_CHOICES = ("nat", "isolated")

# Room for Lambda functions and a second file system beside the first.
_SPARE_ADDRESSES = 256

# Names of APIs whose construct id is not the name with a capital.
_ENDPOINT_IDS = {"ssmmessages": "SsmMessages", "ec2messages": "Ec2Messages"}


class TrainingNetwork(Construct):
    """A VPC with one private subnet in one zone, named by zone id, with gateway endpoints for S3 and S3 Express.

    Keep the account out of the stack's environment: with one, CDK asks it for its zones, and synth needs credentials.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    zone_id
        Availability Zone id such as use1-az4. Nodes, file system and directory bucket share it.
    addresses
        Addresses that nodes, file servers and the engine take: instances × address-bearing interfaces + Lustre servers
        + `GpuCluster.further_addresses`. Those of interface endpoints are added here.
    egress
        "nat": a NAT gateway carries what is not S3. "isolated": no way out; an interface endpoint for each of
        `node_apis`.
    node_apis
        What nodes call besides S3, by the name of its endpoint, such as "ssm"; `GpuCluster.node_apis` lists them. Only
        isolated networks need it.
    ip_range
        Address range of the VPC. EFA clients must share a /16 with the file system.
    s3_express
        Make the gateway endpoint for S3 Express; only in Regions that have it. The S3 endpoint does not carry S3
        Express, and a directory bucket read through NAT costs thousands of dollars.
    flow_log_group
        Where the flow logs go; one that keeps them for a month is made if none is given.

    Attributes
    ----------
    vpc
        The VPC.
    subnet
        The private subnet for nodes and file system. Pass it explicitly: selecting subnets by zone id finds nothing.
    zone_id
        As given.
    s3_endpoint, s3_express_endpoint
        The gateway endpoints, whose policies can be narrowed; the second is None without S3 Express.
    interface_endpoints, endpoint_security_group
        Interface endpoints by API, and their security group; none and None unless isolated.
    flow_log, flow_log_group
        The flow log, and where it goes.

    Raises
    ------
    ConstructError
        For a zone name, a range too small for the addresses, or an isolated network without APIs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        zone_id: str,
        addresses: int,
        egress: str = "nat",
        node_apis: Sequence[str] = (),
        ip_range: str = DEFAULT_IP_RANGE,
        s3_express: bool = True,
        flow_log_group: logs.ILogGroup | None = None,
    ) -> None:
        require_match(
            zone_id,
            ZONE_ID_PATTERN,
            what="zone_id",
            allowed=ZONE_ID_ALLOWED,
            way_out=ZONE_ID_REMEDY,
        )
        require_one_of(egress, EGRESS_CHOICES, what="egress")
        require_integer(addresses, what="addresses", minimum=0)
        isolated = egress == "isolated"
        if any(map(is_token, (node_apis, *node_apis))):
            raise ConstructError(
                "node_apis must be known at synth, got a token: each gets an endpoint; for example ['ssm', 'sts']"
            )
        require_same_region(scope, flow_log_group, what="flow_log_group")
        apis = list(dict.fromkeys(node_apis))
        if isolated and not apis:
            raise ConstructError(
                "node_apis must name what nodes call for egress 'isolated', got: none; for example the node_apis of the"
                " engine's class"
            )
        further = len(apis) if isolated else 0
        prefix = _private_prefix(further if is_token(addresses) else addresses + further, ip_range)
        super().__init__(scope, id)
        say_unchecked(
            self, [name for name, value in (("zone_id", zone_id), ("addresses", addresses)) if is_token(value)]
        )
        self.zone_id: str = zone_id

        private = ec2.SubnetConfiguration(
            name="Private",
            subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS if egress == "nat" else ec2.SubnetType.PRIVATE_ISOLATED,
            cidr_mask=prefix,
        )
        public = ec2.SubnetConfiguration(
            name="Public",
            subnet_type=ec2.SubnetType.PUBLIC,
            # A NAT gateway takes one address.
            cidr_mask=subnet_limits().smallest_prefix_length,
            map_public_ip_on_launch=False,
        )
        self.vpc: ec2.Vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(ip_range),
            max_azs=1,
            nat_gateways=1 if egress == "nat" else 0,
            subnet_configuration=[private, public] if egress == "nat" else [private],
            restrict_default_security_group=True,
        )
        for subnet in [*self.vpc.private_subnets, *self.vpc.isolated_subnets, *self.vpc.public_subnets]:
            _pin_to_zone(subnet, zone_id)
        self.subnet: ec2.ISubnet = [*self.vpc.private_subnets, *self.vpc.isolated_subnets][0]
        services = ec2.GatewayVpcEndpointAwsService
        self.s3_endpoint: ec2.GatewayVpcEndpoint = self._add_gateway_endpoint("S3", services.S3)
        self.s3_express_endpoint: ec2.GatewayVpcEndpoint | None = None
        if s3_express:
            self.s3_express_endpoint = self._add_gateway_endpoint("S3Express", services.S3_EXPRESS)
        self.endpoint_security_group: ec2.SecurityGroup | None = None
        self.interface_endpoints: dict[str, ec2.InterfaceVpcEndpoint] = {}
        if isolated:
            self.endpoint_security_group = self._make_endpoint_security_group(ip_range)
            self.interface_endpoints = {
                api: self._add_interface_endpoint(api, self.endpoint_security_group) for api in apis
            }
        self.flow_log_group: logs.ILogGroup = flow_log_group or logs.LogGroup(
            self, "FlowLogs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        self.flow_log: ec2.FlowLog = self.vpc.add_flow_log(
            "FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(self.flow_log_group)
        )

    def _add_gateway_endpoint(self, id: str, service: ec2.GatewayVpcEndpointAwsService) -> ec2.GatewayVpcEndpoint:
        selection = [ec2.SubnetSelection(subnets=[self.subnet])]
        return self.vpc.add_gateway_endpoint(id, service=service, subnets=selection)

    def _make_endpoint_security_group(self, ip_range: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "EndpointSecurityGroup",
            vpc=self.vpc,
            allow_all_outbound=False,
            description="Interface endpoints of the training network",
        )
        group.add_ingress_rule(ec2.Peer.ipv4(ip_range), ec2.Port.tcp(443), "HTTPS from the VPC")
        return group

    def _add_interface_endpoint(self, api: str, group: ec2.ISecurityGroup) -> ec2.InterfaceVpcEndpoint:
        return self.vpc.add_interface_endpoint(
            _ENDPOINT_IDS.get(api, api.capitalize()),
            service=ec2.InterfaceVpcEndpointAwsService(api),
            subnets=ec2.SubnetSelection(subnets=[self.subnet]),
            security_groups=[group],
            open=False,
        )


def _pin_to_zone(subnet: ec2.ISubnet, zone_id: str) -> None:
    """State the zone by id. CDK writes a zone name, which means another zone in every account."""
    resource = subnet.node.default_child
    if not isinstance(resource, ec2.CfnSubnet):
        raise ConstructError(f"a subnet of the VPC must be made here, got: {subnet.node.path}")
    resource.add_property_override("AvailabilityZoneId", zone_id)
    resource.add_property_deletion_override("AvailabilityZone")


def _private_prefix(addresses: int, ip_range: str) -> int:
    """Return the prefix length of the private subnet: always half of the range, whatever the number of addresses.

    A subnet sized by the cluster would be replaced when the cluster grows, and the file system with it. Addresses cost
    nothing.
    """
    if is_token(ip_range):
        raise ConstructError(
            "ip_range must be known at synth, got a token: subnets are cut from it; for example '10.0.0.0/16'"
        )
    try:
        network = ipaddress.IPv4Network(ip_range)
    except ValueError:
        raise ConstructError(
            f"ip_range must be an IPv4 range with no host bits set, such as '10.0.0.0/16', got: {ip_range!r}"
        ) from None
    limits = subnet_limits()
    if not limits.largest_prefix_length <= network.prefixlen < limits.smallest_prefix_length:
        raise ConstructError(
            f"ip_range must be from /{limits.largest_prefix_length} to /{limits.smallest_prefix_length - 1},"
            f" got: {ip_range}; for example '{DEFAULT_IP_RANGE}'"
        )
    most = maximum_addresses(ip_range)
    if addresses > most:
        raise ConstructError(
            f"addresses must be at most {most} in {ip_range}, got: {addresses};"
            " use a larger ip_range (up to /16) or a VPC and subnet of your own"
        )
    return network.prefixlen + 1


def maximum_addresses(ip_range: str = DEFAULT_IP_RANGE) -> int:
    """Return how many addresses nodes and file servers can take in a network made in `ip_range`."""
    half = ipaddress.IPv4Network(ip_range).num_addresses // 2
    return max(half - _SPARE_ADDRESSES - subnet_limits().reserved_addresses, 0)
