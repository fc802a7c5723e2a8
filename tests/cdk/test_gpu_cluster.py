"""The EC2 engine: stands at zero, private, with the interface layout that each type demands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2

from training_storage import ConstructError, Ec2AutoScalingCluster
from training_storage.planning import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

TYPES = sorted(catalog.instance_types())
# Systems Manager user guide, minimum permissions for Session Manager.
SESSION_MANAGER = [
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]


def make(stack: Stack, vpc: ec2.Vpc, instance_type: str = "p5.48xlarge", **overrides: Any) -> Ec2AutoScalingCluster:
    kind = catalog.instance_type(instance_type)
    arguments: dict[str, Any] = {"instances": 256, "purchase": kind.purchase[0]}
    if kind.purchase[0] == "capacity-block":
        arguments |= {"instances": 64, "capacity_reservation_ids": ["cr-0123456789abcdef0"]}
    return Ec2AutoScalingCluster(
        stack,
        "Cluster",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        instance_type=kind,
        **(arguments | overrides),
    )


def launch_template(template: Any) -> Any:
    return template.one("AWS::EC2::LaunchTemplate")["Properties"]["LaunchTemplateData"]


def test_no_stack_waits_for_accelerators(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    group = resources(stack).one("AWS::AutoScaling::AutoScalingGroup")
    assert group["Properties"]["MinSize"] == "0"
    assert group["Properties"]["MaxSize"] == "256"
    # Stated, it would stop running nodes at every update.
    assert "DesiredCapacity" not in group["Properties"]
    assert "CreationPolicy" not in group


# Facts of the EC2 user guide (efa-acc-inst-types) and of DescribeInstanceTypes, written down here once more: whether
# the first card has an EFA beside its ENA, and the other network cards with one.
EFA_LAYOUTS: dict[str, tuple[bool, list[int]]] = {
    "p4d.24xlarge": (True, [1, 2, 3]),
    "p4de.24xlarge": (True, [1, 2, 3]),
    "p5.4xlarge": (True, []),
    "p5.48xlarge": (True, list(range(1, 32))),
    "p5e.48xlarge": (True, list(range(1, 32))),
    "p5en.48xlarge": (True, list(range(1, 16))),
    "p6-b200.48xlarge": (True, list(range(1, 8))),
    "p6-b300.48xlarge": (False, list(range(1, 17))),
    "p6e-gb200.36xlarge": (False, [1, 5, 9, 13]),
    "g5.12xlarge": (True, []),
    "g5.24xlarge": (True, []),
    "g5.48xlarge": (True, []),
    "g6.12xlarge": (True, []),
    "g6.24xlarge": (True, []),
    "g6.48xlarge": (True, []),
    "g6e.12xlarge": (True, []),
    "g6e.24xlarge": (True, [1]),
    "g6e.48xlarge": (True, [1, 2, 3]),
    "g7e.12xlarge": (True, []),
    "g7e.24xlarge": (True, [1]),
    "g7e.48xlarge": (True, [1, 2, 3]),
    "g7.48xlarge": (True, [1]),
    "trn1.32xlarge": (True, list(range(1, 8))),
    "trn1n.32xlarge": (True, list(range(1, 16))),
    "trn2.3xlarge": (True, []),
    "trn2.48xlarge": (True, list(range(1, 16))),
    "trn2u.48xlarge": (True, list(range(1, 16))),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_the_documented_interfaces_in_the_documented_places(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, name: str
) -> None:
    make(stack, vpc, name)
    interfaces = launch_template(resources(stack))["NetworkInterfaces"]
    layout = [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in interfaces]
    on_first_card, others = EFA_LAYOUTS.get(name, (False, []))
    expected = [(0, 0, "interface")]
    if on_first_card:
        expected.append((0, 1, "efa-only"))
    assert layout == [*expected, *((card, 0, "efa-only") for card in others)]


def test_the_table_of_layouts_covers_every_type_with_efa() -> None:
    assert {name for name, kind in catalog.instance_types().items() if kind.efa_interfaces_maximum} == set(EFA_LAYOUTS)


def test_p5_has_one_address_and_32_efa_interfaces(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    interfaces = launch_template(resources(stack))["NetworkInterfaces"]
    layout = [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in interfaces]
    assert layout == [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))]


def test_p6_b300_leaves_its_first_card_to_ena(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, "p6-b300.48xlarge")
    interfaces = launch_template(resources(stack))["NetworkInterfaces"]
    layout = [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in interfaces]
    assert layout == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_gets_a_private_template_with_its_groups_on_every_interface(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, name: str
) -> None:
    client_group = ec2.SecurityGroup(stack, "Client", vpc=vpc)
    make(stack, vpc, name, client_security_groups=[client_group])
    data = launch_template(resources(stack))
    assert "SecurityGroupIds" not in data
    assert data["InstanceType"] == name
    interfaces = data["NetworkInterfaces"]
    assert [i for i in interfaces if len(i["Groups"]) != 2] == []
    assert [i for i in interfaces if i.get("AssociatePublicIpAddress")] == []
    # EC2 refuses the field beside a second interface.
    assert ("AssociatePublicIpAddress" in interfaces[0]) == (len(interfaces) == 1)
    assert len({(i["NetworkCardIndex"], i["DeviceIndex"]) for i in interfaces}) == len(interfaces)


def test_metadata_needs_a_token_and_volumes_are_encrypted(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    data = launch_template(resources(stack))
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    volume = data["BlockDeviceMappings"][0]["Ebs"]
    assert volume["Encrypted"] is True
    # A key of its own would need a grant for the Auto Scaling role.
    assert "KmsKeyId" not in volume


def test_nodes_are_placed_together(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    template = resources(stack)
    assert template.one("AWS::EC2::PlacementGroup")["Properties"] == {"Strategy": "cluster"}
    assert launch_template(template)["Placement"]["GroupName"]["Ref"] in template.by_id


def test_traffic_between_nodes_is_allowed_by_group_id_both_ways(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    template = resources(stack)
    ingress = template.one("AWS::EC2::SecurityGroupIngress")["Properties"]
    egress = template.one("AWS::EC2::SecurityGroupEgress")["Properties"]
    assert ingress["IpProtocol"] == egress["IpProtocol"] == "-1"
    assert ingress["SourceSecurityGroupId"] == ingress["GroupId"] == egress["DestinationSecurityGroupId"]
    group = template.one("AWS::AutoScaling::AutoScalingGroup")
    assert {
        *template.of_type("AWS::EC2::SecurityGroupIngress"),
        *template.of_type("AWS::EC2::SecurityGroupEgress"),
    } <= set(group["DependsOn"])


def test_the_role_has_session_manager_and_nothing_else(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    template = resources(stack)
    # AWS's managed policy would let a node read every parameter of the account.
    assert "ManagedPolicyArns" not in template.one("AWS::IAM::Role")["Properties"]
    assert template.statements() == [{"Action": SESSION_MANAGER, "Effect": "Allow", "Resource": "*"}]


def test_the_image_is_the_base_image_of_the_accelerator(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, "trn1.32xlarge")
    parameters = json.dumps(resources(stack).template["Parameters"])
    assert "/aws/service/neuron/dlami/base/amazon-linux-2023/latest/image_id" in parameters


def test_an_image_of_the_caller_brings_its_root_device(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
    make(stack, vpc, ami_parameter=name)
    template = resources(stack)
    assert name in json.dumps(template.template["Parameters"])
    assert launch_template(template)["BlockDeviceMappings"][0]["DeviceName"] == "/dev/sda1"


def test_capacity_blocks_are_targeted_and_place_their_nodes_themselves(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, instances=64, purchase="capacity-block", capacity_reservation_ids=["cr-0123456789abcdef0"])
    template = resources(stack)
    assert launch_template(template)["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert template.of_type("AWS::EC2::PlacementGroup") == {}
    specification = template.one("AWS::AutoScaling::AutoScalingGroup")["Properties"]["CapacityReservationSpecification"]
    assert specification["CapacityReservationPreference"] == "capacity-reservations-only"
    assert specification["CapacityReservationTarget"] == {"CapacityReservationIds": ["cr-0123456789abcdef0"]}


def test_a_reservation_is_targeted_and_nothing_starts_beside_it(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    ids = ["cr-0123456789abcdef0", "cr-0123456789abcdef1"]
    make(stack, vpc, capacity_reservation_ids=ids)
    template = resources(stack)
    specification = template.one("AWS::AutoScaling::AutoScalingGroup")["Properties"]["CapacityReservationSpecification"]
    assert specification == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationIds": ids},
    }
    assert "InstanceMarketOptions" not in launch_template(template)
    # Its instances are where it is: a placement group could only refuse them.
    assert template.of_type("AWS::EC2::PlacementGroup") == {}


def test_boot_commands_run_at_first_boot(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, boot_commands=lambda *, role, **_: [f"echo {role}", "echo two"])
    assert launch_template(resources(stack))["UserData"] == {"Fn::Base64": "#!/bin/bash\necho compute\necho two\n"}


def test_nodes_are_told_the_capacity_blocks_that_they_start_in_and_of_no_other_reservation(
    vpc: ec2.Vpc, stack: Stack, resources: Synthesize
) -> None:
    ids = ["cr-0123456789abcdef0", "cr-0123456789abcdef1"]
    options: dict[str, Any] = {
        "instances": 128,
        "capacity_reservation_ids": ids,
        "boot_commands": lambda *, role, capacity_reservation_ids: [f"echo {role} {capacity_reservation_ids}"],
    }
    make(stack, vpc, purchase="capacity-block", **options)
    assert str(tuple(ids)) in launch_template(resources(stack))["UserData"]["Fn::Base64"]

    other = Stack(App(), "Other", env=Environment(region="us-east-1"))
    make(other, ec2.Vpc(other, "Vpc", max_azs=1), purchase="on-demand", **options)
    assert "echo compute ()" in launch_template(resources(other))["UserData"]["Fn::Base64"]


def test_nodes_wait_for_what_they_need_and_the_rest_of_the_cluster_does_not(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    needed = ec2.SecurityGroup(stack, "Needed", vpc=vpc)
    make(stack, vpc).nodes_wait_for(needed)
    template = resources(stack)
    (identifier,) = (i for i, r in template.of_type("AWS::EC2::SecurityGroup").items() if i.startswith("Needed"))
    waiting = [r["Type"] for r in template.by_id.values() if identifier in r.get("DependsOn", ())]
    assert waiting == ["AWS::AutoScaling::AutoScalingGroup"]


def test_spot_is_a_market_option(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, purchase="spot")
    assert launch_template(resources(stack))["InstanceMarketOptions"] == {"MarketType": "spot"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"purchase": "reserved"}, "purchase for p5.48xlarge must be one of on-demand, spot, capacity-block, got"),
        ({"purchase": "capacity-block"}, "capacity_reservation_ids must name the Capacity Blocks"),
        ({"purchase": "spot", "capacity_reservation_ids": ["cr-01234567"]}, "must be empty for purchase spot"),
        (
            {"instances": 65, "purchase": "capacity-block", "capacity_reservation_ids": ["cr-01234567"]},
            r"at least 2 Capacity Blocks for 65 instances \(64 per block\), got: 1",
        ),
        (
            {"purchase": "capacity-block", "capacity_reservation_ids": ["cr-01234567", "cr-01234568"]},
            r"at least 4 Capacity Blocks for 256 instances \(64 per block\), got: 2",
        ),
        (
            {"instances": 257, "purchase": "capacity-block", "capacity_reservation_ids": ["cr-01234567"]},
            "instances must be at most 256 for purchase capacity-block, got: 257; more need on-demand reservations",
        ),
        ({"capacity_reservation_ids": ["cr-01234567"] * 2}, "must name each reservation once, got: cr-01234567, cr-0"),
        (
            {"instances": 1, "capacity_reservation_ids": ["cr-01234567", "cr-01234568"]},
            "at most as many reservations as instances, 1, got: 2",
        ),
        ({"boot_commands": lambda **_: ["x" * 17_000]}, "boot_commands must be at most 16384 bytes .*got: 17013"),
        ({"home_file_system_id": "fs-01234567"}, "home_file_system_id must be left out for engine ec2"),
        (
            {"slurm_version": "25.11"},
            "slurm_version must be left out for engine ec2, which runs no Slurm, got: '25.11'",
        ),
        ({"capacity_reservation_ids": ["block-1"]}, "capacity_reservation_ids must be ids such as cr-"),
        ({"instances": 0}, "instances must be a whole number, at least 1, got: 0"),
        ({"instances": True}, "instances must be a whole number, at least 1, got: True"),
    ],
)
def test_an_impossible_purchase_is_refused(stack: Stack, vpc: ec2.Vpc, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstructError, match=message):
        make(stack, vpc, **options)


def test_a_type_that_is_only_sold_in_blocks_is_not_bought_on_demand(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(ConstructError, match=r"purchase for p5e.48xlarge must be one of capacity-block"):
        make(stack, vpc, "p5e.48xlarge", purchase="on-demand")
