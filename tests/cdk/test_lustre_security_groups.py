"""Security groups of a file system: made here, the caller's, the security team's, or those of CDK's own construct."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import ConstructError, LustreFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

SERVERS, CLIENTS = "sg-0123456789abcdef0", "sg-0fedcba9876543210"
RULES = ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")


def make(stack: Stack, vpc: ec2.IVpc, name: str = "FileSystem", **overrides: Any) -> LustreFileSystem:
    arguments: dict[str, Any] = {
        "vpc": vpc,
        "subnet": vpc.private_subnets[0],
        "storage_capacity_gib": 2400,
        "per_unit_storage_throughput": 250,
    }
    return LustreFileSystem(stack, name, **(arguments | overrides))


def group(stack: Stack, identifier: str) -> ec2.ISecurityGroup:
    return ec2.SecurityGroup.from_security_group_id(stack, f"Group{identifier[-4:]}", identifier)


def rules(template: Any) -> list[dict[str, Any]]:
    return [rule["Properties"] for kind in RULES for rule in template.of_type(kind).values()]


def notes(stack: Stack) -> list[str]:
    found = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("no replacement protection"))
    return [str(note.entry.data) for note in found]


def test_groups_of_the_caller_are_used_and_get_the_rules(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    system = make(stack, vpc, security_group=group(stack, SERVERS), client_security_group=group(stack, CLIENTS))
    template = resources(stack)
    assert template.of_type("AWS::EC2::SecurityGroup") == {}
    assert template.one("AWS::FSx::FileSystem")["Properties"]["SecurityGroupIds"] == [SERVERS]
    pairs = {
        (rule["GroupId"], rule["SourceSecurityGroupId"]) for rule in rules(template) if "SourceSecurityGroupId" in rule
    }
    assert pairs == {(SERVERS, SERVERS), (SERVERS, CLIENTS), (CLIENTS, SERVERS)}
    assert system.security_group_rules is not None
    assert len(system.security_group_rules.rules) == len(rules(template)) == 12


@pytest.mark.parametrize("efa", [False, True])
def test_one_group_for_servers_and_clients_gets_each_rule_once(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, efa: bool
) -> None:
    # EC2 refuses a rule that the group has already.
    both = group(stack, SERVERS)
    make(stack, vpc, storage_capacity_gib=19200, security_group=both, client_security_group=both, efa_enabled=efa)
    found = [json.dumps(rule, sort_keys=True) for rule in rules(resources(stack))]
    assert len(found) == len(set(found)) == (2 if efa else 4)


def test_rules_of_the_security_team_are_left_alone(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    servers = ec2.SecurityGroup(stack, "Servers", vpc=vpc)
    servers.connections.allow_internally(ec2.Port.tcp(988))
    system = make(stack, vpc, security_group=servers, manage_security_group_rules=False)
    with pytest.raises(
        ConstructError, match="manage_security_group_rules must be on to let clients in, got: False for"
    ):
        system.allow_from(group(stack, CLIENTS))
    template = resources(stack)
    (theirs,) = template.of_type("AWS::EC2::SecurityGroupIngress")
    assert template.of_type("AWS::EC2::SecurityGroupEgress") == {}
    # FSx looks at the rules when it makes the file system: it waits for those of the caller too.
    assert theirs in template.one("AWS::FSx::FileSystem")["DependsOn"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"manage_security_group_rules": False}, "manage_security_group_rules must be left on without security_group"),
        (
            {"keep_l2_security_group": True, "security_group": SERVERS},
            "keep_l2_security_group must be left out with security_group",
        ),
    ],
)
def test_groups_that_cannot_work_are_refused(stack: Stack, vpc: ec2.Vpc, options: Any, words: str) -> None:
    given: dict[str, Any] = {
        name: group(stack, value) if value == SERVERS else value for name, value in options.items()
    }
    with pytest.raises(ConstructError, match=words):
        make(stack, vpc, **given)


def test_with_servers_of_the_caller_the_clients_group_stops_a_replacement(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, security_group=group(stack, SERVERS), subnet=ec2.Subnet.from_subnet_id(stack, "Mine", "subnet-01"))
    properties = resources(stack).one("AWS::EC2::SecurityGroup")["Properties"]
    assert properties["GroupName"] == "Test/FileSystem/clients"
    assert properties["GroupDescription"] == (
        "FSx for Lustre clients (PERSISTENT_2, Lustre 2.15, 250 MB/s per TiB, subnet-01, aws/fsx)"
    )
    assert notes(stack) == []


def test_without_a_group_of_ours_it_is_said_that_nothing_stops_a_replacement(stack: Stack, vpc: ec2.Vpc) -> None:
    given: dict[str, Any] = {"security_group": group(stack, SERVERS), "client_security_group": group(stack, CLIENTS)}
    make(stack, vpc, "Quiet", replacement_protection=False, **given)
    make(stack, vpc, "Said", **given)
    assert len(notes(stack)) == 1


def test_whatever_has_security_groups_is_let_in_once(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    system = make(stack, vpc)
    nodes = [ec2.SecurityGroup(stack, name, vpc=vpc) for name in ("Nodes", "More")]
    fleet = ec2.Connections(security_groups=list(nodes))
    before = len(system.security_group_rules.rules) if system.security_group_rules else 0
    system.allow_from(fleet)
    system.allow_from(nodes[0])
    assert system.security_group_rules is not None
    assert len(system.security_group_rules.rules) - before == 2 * 8
    for rule in system.security_group_rules.rules:
        assert stack.get_logical_id(rule) in resources(stack).one("AWS::FSx::FileSystem")["DependsOn"]


def test_an_address_range_is_no_client(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(ConstructError, match="other must have a security group, got: none; rules that name an address"):
        make(stack, vpc).allow_from(ec2.Peer.ipv4("10.0.0.0/8"))


def by_cdk_and_by_us() -> tuple[dict[str, Any], dict[str, Any]]:
    found = []
    for ours in (False, True):
        stack = Stack(App(), "Research", env=Environment(region="us-east-1"))
        vpc = ec2.Vpc.from_vpc_attributes(
            stack, "Vpc", vpc_id="vpc-01234567", availability_zones=["x"], private_subnet_ids=["subnet-01234567"]
        )
        if ours:
            make(stack, vpc, keep_l2_security_group=True)
        else:
            fsx.LustreFileSystem(
                stack,
                "FileSystem",
                vpc=vpc,
                vpc_subnet=vpc.private_subnets[0],
                storage_capacity_gib=2400,
                lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.PERSISTENT_2),
            )
        found.append(dict(Template.from_stack(stack).to_json()["Resources"]))
    return found[0], found[1]


def test_the_group_that_cdk_made_is_kept_to_the_letter() -> None:
    theirs, ours = by_cdk_and_by_us()
    kept = {name: resource for name, resource in theirs.items() if resource["Type"] != "AWS::FSx::FileSystem"}
    assert {resource["Type"] for resource in kept.values()} == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
    }
    assert {name: ours[name] for name in kept} == kept
    (system,) = theirs.keys() - kept.keys()
    assert ours[system]["Properties"]["SecurityGroupIds"] == theirs[system]["Properties"]["SecurityGroupIds"]


# What stands already, and cannot be changed any more


def test_a_file_system_without_metadata_configuration_is_left_without(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, metadata_configuration=False, file_system_type_version=None, storage_type=None)
    properties = resources(stack).one("AWS::FSx::FileSystem")["Properties"]
    assert not {"StorageType", "FileSystemTypeVersion"} & set(properties)
    assert not {"MetadataConfiguration", "EfaEnabled"} & set(properties["LustreConfiguration"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metadata_iops": 6000}, "metadata_iops must be left out with metadata_configuration=False, got: 6000"),
        ({"efa_enabled": True, "storage_capacity_gib": 19200}, "metadata_configuration must"),
    ],
)
def test_what_needs_a_metadata_configuration_is_refused_without(
    stack: Stack, vpc: ec2.Vpc, options: Any, words: str
) -> None:
    with pytest.raises(ConstructError, match=words):
        make(stack, vpc, metadata_configuration=False, **options)


def test_backups_are_kept_as_asked_and_refused_where_there_are_none(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, automatic_backup_retention_days=7)
    lustre = resources(stack).one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]
    assert lustre["AutomaticBackupRetentionDays"] == 7
    with pytest.raises(ConstructError, match="automatic_backup_retention_days must"):
        make(stack, vpc, "Long", automatic_backup_retention_days=91)
    scratch = {"deployment_type": "SCRATCH_2", "per_unit_storage_throughput": None}
    with pytest.raises(ConstructError, match="automatic_backup_retention_days must"):
        make(stack, vpc, "Scratch", automatic_backup_retention_days=7, **scratch)
