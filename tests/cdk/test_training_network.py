"""The network: one zone by id, enough addresses, nothing public, S3 off the NAT gateway."""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage import ConstructError, TrainingNetwork
from training_storage.gpu_cluster import ENGINES
from training_storage.training_network import maximum_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_cdk import Stack

    Synthesize = Callable[[Stack], Any]


def subnets(template: Any) -> dict[str, Any]:
    return {
        next(t["Value"] for t in s["Properties"]["Tags"] if t["Key"] == "aws-cdk:subnet-name"): s["Properties"]
        for s in template.of_type("AWS::EC2::Subnet").values()
    }


def service_names(template: Any, kind: str) -> set[str]:
    return {
        json.dumps(endpoint["Properties"]["ServiceName"]).strip('"').rsplit(".", 1)[-1].rstrip('"]}')
        for endpoint in template.of_type("AWS::EC2::VPCEndpoint").values()
        if endpoint["Properties"]["VpcEndpointType"] == kind
    }


@pytest.mark.parametrize("egress", ["nat", "isolated"])
def test_every_subnet_names_its_zone_by_id_and_only_so(stack: Stack, resources: Synthesize, egress: str) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10, egress=egress, node_apis=["ssm"])
    template = resources(stack)
    for subnet in template.of_type("AWS::EC2::Subnet").values():
        assert subnet["Properties"]["AvailabilityZoneId"] == "use1-az4"
        assert "AvailabilityZone" not in subnet["Properties"]
    assert "Fn::GetAZs" not in json.dumps(template.template)


def test_no_subnet_gives_public_addresses(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    flags = [s["Properties"]["MapPublicIpOnLaunch"] for s in resources(stack).of_type("AWS::EC2::Subnet").values()]
    assert flags == [False, False]


def test_s3_and_s3_express_have_gateway_endpoints_on_the_private_route_table(
    stack: Stack, resources: Synthesize
) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    template = resources(stack)
    assert service_names(template, "Gateway") == {"s3", "s3express"}
    tables = {
        json.dumps(endpoint["Properties"]["RouteTableIds"])
        for endpoint in template.of_type("AWS::EC2::VPCEndpoint").values()
    }
    assert len(tables) == 1
    assert "PrivateSubnet1RouteTable" in tables.pop()


def test_a_region_without_s3_express_gets_no_endpoint_for_it(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="euc1-az2", addresses=10, s3_express=False)
    assert service_names(resources(stack), "Gateway") == {"s3"}


def test_nat_is_the_way_out_by_default(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    template = resources(stack)
    assert len(template.of_type("AWS::EC2::NatGateway")) == 1
    assert service_names(template, "Interface") == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_isolated_has_no_way_out_and_an_endpoint_for_everything_that_an_engines_nodes_call_and_no_other(
    stack: Stack, resources: Synthesize, engine: str
) -> None:
    apis = ENGINES[engine].node_apis
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10, egress="isolated", node_apis=apis)
    template = resources(stack)
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::EIP", "AWS::EC2::Route"):
        assert template.of_type(kind) == {}, kind
    assert service_names(template, "Interface") == set(apis)
    # Session Manager needs three of them; without it nobody reaches a node.
    assert {"ssm", "ssmmessages", "ec2messages"} <= set(apis)
    endpoints = [
        e["Properties"]
        for e in template.of_type("AWS::EC2::VPCEndpoint").values()
        if e["Properties"]["VpcEndpointType"] == "Interface"
    ]
    assert all(endpoint["PrivateDnsEnabled"] is True for endpoint in endpoints)


def test_an_isolated_network_without_apis_is_refused(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="node_apis must name what nodes call for egress 'isolated', got: none"):
        TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10, egress="isolated")


def test_endpoints_take_addresses_too(stack: Stack) -> None:
    most = maximum_addresses()
    TrainingNetwork(stack, "Fits", zone_id="use1-az4", addresses=most - 2, egress="isolated", node_apis=["ssm", "pcs"])
    with pytest.raises(ConstructError, match=rf"addresses must be at most {most} .*got: {most + 1}"):
        TrainingNetwork(
            stack, "Full", zone_id="use1-az4", addresses=most - 1, egress="isolated", node_apis=["ssm", "pcs"]
        )


def test_flow_logs_record_all_traffic(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    assert resources(stack).one("AWS::EC2::FlowLog")["Properties"]["TrafficType"] == "ALL"


def test_the_default_security_group_is_closed(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    assert len(resources(stack).of_type("Custom::VpcRestrictDefaultSG")) == 1


@pytest.mark.parametrize("addresses", [0, 1, 274, 2042, 32_507])
def test_a_growing_cluster_never_replaces_its_subnet(stack: Stack, resources: Synthesize, addresses: int) -> None:
    # The file system lives in the subnet: a changed range would replace both.
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=addresses)
    found = subnets(resources(stack))
    assert (found["Private"]["CidrBlock"], found["Public"]["CidrBlock"]) == ("10.0.0.0/17", "10.0.128.0/28")


@settings(max_examples=200)
@given(st.integers(min_value=16, max_value=27))
def test_what_is_accepted_fits_beside_awss_five_addresses(length: int) -> None:
    half = ipaddress.IPv4Network(f"10.0.0.0/{length + 1}")
    assert maximum_addresses(f"10.0.0.0/{length}") <= max(half.num_addresses - 5, 0)


@pytest.mark.parametrize("addresses", [32_508, 100_000])
def test_a_cluster_too_large_for_the_range_is_refused_with_the_most_that_fits(stack: Stack, addresses: int) -> None:
    with pytest.raises(ConstructError, match=rf"addresses must be at most 32507 in 10.0.0.0/16, got: {addresses}; use"):
        TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=addresses)


@pytest.mark.parametrize("ip_range", ["10.0.0.1/16", "10.0.0.0/8", "10.0.0.0", "nonsense", "10.0.0.0/28"])
def test_an_unusable_address_range_is_refused(stack: Stack, ip_range: str) -> None:
    with pytest.raises(ConstructError, match=r"ip_range must be .*got: "):
        TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=1, ip_range=ip_range)


def test_a_local_zone_that_a_plan_accepts_is_accepted(stack: Stack, resources: Synthesize) -> None:
    TrainingNetwork(stack, "Network", zone_id="use1-dfw2-az1", addresses=10)
    assert subnets(resources(stack))["Private"]["AvailabilityZoneId"] == "use1-dfw2-az1"


@pytest.mark.parametrize("zone", ["us-east-1a", "", "az4"])
def test_a_zone_name_is_refused(stack: Stack, zone: str) -> None:
    with pytest.raises(ConstructError, match="zone_id must be an Availability Zone id"):
        TrainingNetwork(stack, "Network", zone_id=zone, addresses=1)


def test_another_way_out_is_refused(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="egress must be one of nat, isolated, got: 'internet'"):
        TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=1, egress="internet")


def test_every_endpoint_and_log_is_exposed_for_the_caller_to_narrow(stack: Stack, resources: Synthesize) -> None:
    network = TrainingNetwork(
        stack, "Network", zone_id="use1-az4", addresses=100, egress="isolated", node_apis=["ssm", "sts"]
    )
    assert list(network.interface_endpoints) == ["ssm", "sts"]
    assert network.endpoint_security_group is not None
    assert network.s3_express_endpoint is not None
    for endpoint in (network.s3_endpoint, network.s3_express_endpoint):
        endpoint.add_to_policy(
            iam.PolicyStatement(actions=["s3:*", "s3express:*"], principals=[iam.AnyPrincipal()], resources=["*"])
        )
    template = resources(stack)
    endpoints = template.of_type("AWS::EC2::VPCEndpoint").values()
    assert len([one for one in endpoints if "PolicyDocument" in one["Properties"]]) == 2
    assert len(endpoints) == 4
    assert stack.resolve(network.flow_log.flow_log_id) == {"Ref": next(iter(template.of_type("AWS::EC2::FlowLog")))}


def test_nat_networks_have_no_interface_endpoints(stack: Stack) -> None:
    network = TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=100, s3_express=False)
    assert network.interface_endpoints == {}
    assert network.endpoint_security_group is None
    assert network.s3_express_endpoint is None


def test_flow_logs_go_to_the_callers_log_group(stack: Stack, resources: Synthesize) -> None:
    group = logs.LogGroup.from_log_group_name(stack, "Audit", "/audit/flows")
    network = TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=100, flow_log_group=group)
    assert network.flow_log_group is group
    template = resources(stack)
    assert template.of_type("AWS::Logs::LogGroup") == {}
    assert template.one("AWS::EC2::FlowLog")["Properties"]["LogGroupName"] == "/audit/flows"
