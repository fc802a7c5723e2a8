"""The file system: legal before CDK sees it, never deleted by CloudFormation, never racing its rules."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import CfnParameter, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Annotations, Match

from training_storage import ConstructError, DataLake, DataRepositoryAssociation, LustreFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

RULE_TYPES = ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")


def make(stack: Stack, vpc: ec2.Vpc, **overrides: Any) -> LustreFileSystem:
    arguments: dict[str, Any] = {
        "vpc": vpc,
        "subnet": vpc.private_subnets[0],
        "storage_capacity_gib": 2400,
        "per_unit_storage_throughput": 250,
    }
    return LustreFileSystem(stack, "FileSystem", **(arguments | overrides))


def rules(template: Any) -> dict[str, Any]:
    return {name: rule for kind in RULE_TYPES for name, rule in template.of_type(kind).items()}


def test_the_default_is_persistent_2_on_2_15_with_metadata_configuration(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    properties = resources(stack).one("AWS::FSx::FileSystem")["Properties"]
    assert properties["FileSystemTypeVersion"] == "2.15"
    assert properties["StorageType"] == "SSD"
    lustre = properties["LustreConfiguration"]
    assert lustre["DeploymentType"] == "PERSISTENT_2"
    assert lustre["MetadataConfiguration"] == {"Mode": "AUTOMATIC"}
    assert lustre["PerUnitStorageThroughput"] == 250
    assert lustre["DataCompressionType"] == "LZ4"
    assert lustre["EfaEnabled"] is False


def test_no_import_or_export_path_is_ever_written(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    lustre = resources(stack).one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]
    assert not {"ImportPath", "ExportPath", "AutoImportPolicy", "ImportedFileChunkSize"} & set(lustre)


def test_cloudformation_never_deletes_it(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc)
    file_system = resources(stack).one("AWS::FSx::FileSystem")
    assert file_system["DeletionPolicy"] == "RetainExceptOnCreate"
    assert file_system["UpdateReplacePolicy"] == "Retain"


@pytest.mark.parametrize("efa_enabled", [False, True])
def test_it_waits_for_every_one_of_its_rules(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, efa_enabled: bool
) -> None:
    make(stack, vpc, storage_capacity_gib=19200, efa_enabled=efa_enabled)
    template = resources(stack)
    assert set(rules(template)) <= set(template.one("AWS::FSx::FileSystem")["DependsOn"])
    assert len(rules(template)) >= 8


def test_a_client_group_let_in_later_is_waited_for_as_well(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    file_system = make(stack, vpc)
    before = len(rules(resources(Stack())))
    file_system.allow_from(ec2.SecurityGroup(stack, "Mine", vpc=vpc, allow_all_outbound=True))
    template = resources(stack)
    mine = [rule for rule in rules(template).values() if "Mine" in json.dumps(rule)]
    assert len(mine) == 8
    assert before == 0
    assert set(rules(template)) <= set(template.one("AWS::FSx::FileSystem")["DependsOn"])


def test_over_tcp_the_lustre_ports_are_open_both_ways_by_group_id(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    for rule in rules(resources(stack)).values():
        properties = rule["Properties"]
        assert (properties["IpProtocol"], properties["FromPort"], properties["ToPort"]) in {
            ("tcp", 988, 988),
            ("tcp", 1018, 1023),
        }
        assert not {"CidrIp", "CidrIpv6"} & set(properties)


def pairs(template: Any, kind: str, peer: str) -> set[tuple[str, str]]:
    return {
        (json.dumps(rule["Properties"]["GroupId"]), json.dumps(rule["Properties"][peer]))
        for rule in template.of_type(kind).values()
    }


@pytest.mark.parametrize("efa_enabled", [False, True])
def test_what_may_go_out_of_one_group_may_come_into_the_other(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, efa_enabled: bool
) -> None:
    make(stack, vpc, storage_capacity_gib=19200, efa_enabled=efa_enabled)
    template = resources(stack)
    outward = pairs(template, "AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId")
    inward = pairs(template, "AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId")
    assert outward == {(there, here) for here, there in inward}
    servers, clients = (
        json.dumps({"Fn::GetAtt": [name, "GroupId"]})
        for name in (
            next(n for n in template.of_type("AWS::EC2::SecurityGroup") if n.startswith("FileSystemSecurity")),
            next(n for n in template.of_type("AWS::EC2::SecurityGroup") if n.startswith("FileSystemClient")),
        )
    )
    expected = {(servers, servers), (servers, clients), (clients, servers)}
    assert outward == (expected | {(clients, clients)} if efa_enabled else expected)


def test_with_efa_everything_is_open_between_the_groups(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, storage_capacity_gib=19200, efa_enabled=True)
    template = resources(stack)
    assert {rule["Properties"]["IpProtocol"] for rule in rules(template).values()} == {"-1"}
    assert template.one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]["EfaEnabled"] is True


@pytest.mark.parametrize(
    ("capacity", "throughput", "efa", "following"),
    [
        (1300, 250, False, 2400),
        (0, 250, False, None),
        (-2400, 250, False, None),
        (1199, 125, False, 1200),
        (3600, 125, False, 4800),
        (4800, 125, True, 38400),
        (9600, 250, True, 19200),
        (4800, 500, True, 9600),
        (2400, 1000, True, 4800),
    ],
)
def test_a_capacity_off_the_grid_is_refused_and_the_next_is_named(
    stack: Stack, vpc: ec2.Vpc, capacity: int, throughput: int, efa: bool, following: int | None
) -> None:
    ending = f"the next is {following}$" if following else ""
    with pytest.raises(ConstructError, match=rf"storage_capacity_gib must be .*got: {capacity}.*{ending}"):
        make(stack, vpc, storage_capacity_gib=capacity, per_unit_storage_throughput=throughput, efa_enabled=efa)


@pytest.mark.parametrize(("throughput", "nearest"), [(0, 125), (50, 125), (200, 250), (300, 250), (1001, 1000)])
def test_a_throughput_that_persistent_2_lacks_is_refused_and_the_nearest_is_named(
    stack: Stack, vpc: ec2.Vpc, throughput: int, nearest: int
) -> None:
    words = f"must be one of 125, 250, 500, 1000, got: {throughput}; the nearest is {nearest}$"
    with pytest.raises(ConstructError, match=words):
        make(stack, vpc, per_unit_storage_throughput=throughput)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("metadata_iops", 5000),
        ("data_compression", "GZIP"),
        ("log_level", "ALL"),
        ("file_system_type_version", "2.10"),
        ("file_system_type_version", "2.12"),
        ("weekly_maintenance_start_time", "8:25:00"),
        ("storage_capacity_gib", True),
        ("storage_capacity_gib", 2400.0),
    ],
)
def test_an_illegal_option_is_refused_with_its_name_and_value(
    stack: Stack, vpc: ec2.Vpc, argument: str, value: object
) -> None:
    with pytest.raises(ConstructError, match=rf"^{argument} must be .*got: {value!r}"):
        make(stack, vpc, **{argument: value})


def test_a_misspelt_option_is_a_type_error(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(TypeError, match="efa_enable"):
        make(stack, vpc, efa_enable=True)


def test_values_known_only_at_deployment_pass(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    capacity = CfnParameter(stack, "Capacity", type="Number").value_as_number
    make(stack, vpc, storage_capacity_gib=capacity)
    assert resources(stack).one("AWS::FSx::FileSystem")["Properties"]["StorageCapacity"] == {"Ref": "Capacity"}


def test_provisioned_metadata_iops_are_written(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, metadata_iops=24000)
    lustre = resources(stack).one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]
    assert lustre["MetadataConfiguration"] == {"Mode": "USER_PROVISIONED", "Iops": 24000}


def test_its_log_group_is_named_as_fsx_demands_and_stands_before_it(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc)
    template = resources(stack)
    name, group = next(iter(template.of_type("AWS::Logs::LogGroup").items()))
    assert group["Properties"]["LogGroupName"] == "/aws/fsx/Test/FileSystem"
    file_system = template.one("AWS::FSx::FileSystem")
    assert name in file_system["DependsOn"]
    destination = json.dumps(file_system["Properties"]["LustreConfiguration"]["LogConfiguration"]["Destination"])
    assert ":log-group:" in destination
    assert ":*" not in destination


def test_a_log_group_of_another_name_is_refused(stack: Stack, vpc: ec2.Vpc) -> None:
    group = logs.LogGroup.from_log_group_name(stack, "Logs", "/training/lustre")
    with pytest.raises(ConstructError, match="log_group must be .*begins with /aws/fsx/, got: '/training/lustre'"):
        make(stack, vpc, log_group=group)


def test_logs_can_be_off(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, log_level="DISABLED")
    template = resources(stack)
    assert template.of_type("AWS::Logs::LogGroup") == {}
    assert "LogConfiguration" not in template.one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]


def test_a_log_group_of_the_same_app_is_checked_by_the_name_that_it_was_given(stack: Stack, vpc: ec2.Vpc) -> None:
    make(stack, vpc, log_group=logs.LogGroup(stack, "Right", log_group_name="/aws/fsx/training"))
    wrong = logs.LogGroup(stack, "Wrong", log_group_name="/training")
    with pytest.raises(ConstructError, match="log_group must be .*begins with /aws/fsx/, got: '/training'"):
        make(stack, vpc, log_group=wrong)
    with pytest.raises(ConstructError, match="got: 'a log group without a name'"):
        make(stack, vpc, log_group=logs.LogGroup(stack, "Nameless"))
    with pytest.raises(ConstructError, match="log_group must be left out at level DISABLED"):
        make(stack, vpc, log_level="DISABLED", log_group=wrong)


def test_two_file_systems_in_one_stack_have_log_groups_of_their_own(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    from constructs import Construct  # noqa: PLC0415

    for parent in ("A", "B"):
        LustreFileSystem(
            Construct(stack, parent),
            "FileSystem",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
        )
    names = [g["Properties"]["LogGroupName"] for g in resources(stack).of_type("AWS::Logs::LogGroup").values()]
    assert sorted(names) == ["/aws/fsx/Test/A/FileSystem", "/aws/fsx/Test/B/FileSystem"]


def test_the_callers_key_encrypts_it(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    key = kms.Key.from_key_arn(
        stack, "Key", "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    )
    make(stack, vpc, encryption_key=key)
    properties = resources(stack).one("AWS::FSx::FileSystem")["Properties"]
    assert properties["KmsKeyId"] == "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def test_the_mount_command_uses_the_dns_name_attribute(stack: Stack, vpc: ec2.Vpc) -> None:
    # Building the name from id and Region is wrong in China.
    file_system = make(stack, vpc)
    command = json.dumps(stack.resolve(file_system.mount_command("/data")))
    assert '"DNSName"' in command
    assert '"LustreMountName"' in command
    assert "relatime,flock" in command
    assert "amazonaws" not in command


def test_describing_is_granted_on_all_because_the_action_takes_no_resource(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc).grant_describe(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
    statement = resources(stack).statements()[0]
    assert (statement["Action"], statement["Resource"]) == ("fsx:DescribeFileSystems", "*")


def test_tasks_are_granted_on_this_file_system_only(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    make(stack, vpc).grant_data_repository_tasks(role)
    statement = next(s for s in resources(stack).statements() if "fsx:CreateDataRepositoryTask" in s["Action"])
    assert '"ResourceARN"' in json.dumps(statement["Resource"])


def servers(template: Any) -> dict[str, Any]:
    groups = template.of_type("AWS::EC2::SecurityGroup")
    return next(g["Properties"] for name, g in groups.items() if name.startswith("FileSystemSecurityGroup"))


def test_what_replaces_the_file_system_stands_in_a_group_that_cannot_be_replaced(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    arn = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    make(
        stack,
        vpc,
        encryption_key=kms.Key.from_key_arn(stack, "Key", arn),
        subnet=ec2.Subnet.from_subnet_id(stack, "Mine", "subnet-01234567"),
    )
    group = servers(resources(stack))
    assert group["GroupName"] == "Test/FileSystem"
    assert group["GroupDescription"] == (
        f"FSx for Lustre file servers (PERSISTENT_2, Lustre 2.15, 250 MB/s per TiB, subnet-01234567, {arn})"
    )
    # EC2: at most 255 characters of these.
    assert re.fullmatch(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{1,255}", group["GroupDescription"])


def test_the_protection_can_be_left_off(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    make(stack, vpc, replacement_protection=False)
    group = servers(resources(stack))
    assert "GroupName" not in group
    assert group["GroupDescription"] == "FSx for Lustre file servers"


def lustre_of(template: Any) -> dict[str, Any]:
    properties: dict[str, Any] = template.one("AWS::FSx::FileSystem")["Properties"]["LustreConfiguration"]
    return properties


def test_persistent_1_has_neither_metadata_configuration_nor_efa(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    system = make(stack, vpc, deployment_type="PERSISTENT_1", per_unit_storage_throughput=100)
    lustre = lustre_of(resources(stack))
    assert (lustre["DeploymentType"], lustre["PerUnitStorageThroughput"]) == ("PERSISTENT_1", 100)
    assert not {"MetadataConfiguration", "EfaEnabled", "DriveCacheType"} & set(lustre)
    assert system.lacks == ("metadata configuration", "EFA and GPUDirect Storage")


def test_scratch_2_has_no_throughput_no_backups_and_no_key(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    system = make(stack, vpc, deployment_type="SCRATCH_2", per_unit_storage_throughput=None)
    template = resources(stack)
    assert not {"PerUnitStorageThroughput", "AutomaticBackupRetentionDays", "EfaEnabled"} & set(lustre_of(template))
    assert "KmsKeyId" not in template.one("AWS::FSx::FileSystem")["Properties"]
    assert template.one("AWS::FSx::FileSystem")["Properties"]["FileSystemTypeVersion"] == "2.15"
    assert "replication" in system.lacks
    key = kms.Key(stack, "Key")
    with pytest.raises(ConstructError, match="encryption_key must be left out for SCRATCH_2, got: a key"):
        LustreFileSystem(
            stack,
            "Other",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            deployment_type="SCRATCH_2",
            storage_capacity_gib=1200,
            encryption_key=key,
        )


@pytest.mark.parametrize(("throughput", "capacity"), [(12, 6000), (40, 1800)])
def test_hard_disks_have_their_own_grid_and_a_cache_type(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, throughput: int, capacity: int
) -> None:
    disks = {
        "deployment_type": "PERSISTENT_1",
        "storage_type": "HDD",
        "per_unit_storage_throughput": throughput,
        "storage_capacity_gib": capacity,
    }
    with pytest.raises(ConstructError, match="drive_cache_type must be one of NONE, READ on HDD, got: None"):
        make(stack, vpc, **disks)
    with pytest.raises(ConstructError, match=f"a multiple of {capacity} GiB on HDD .*the next is {capacity * 2}"):
        make(stack, vpc, **{**disks, "storage_capacity_gib": capacity + 1, "drive_cache_type": "NONE"})
    make(stack, vpc, drive_cache_type="READ", **disks)
    template = resources(stack)
    assert template.one("AWS::FSx::FileSystem")["Properties"]["StorageType"] == "HDD"
    assert lustre_of(template)["DriveCacheType"] == "READ"


TIERING: dict[str, Any] = {
    "storage_type": "INTELLIGENT_TIERING",
    "storage_capacity_gib": None,
    "per_unit_storage_throughput": None,
    "throughput_capacity": 4000,
}


def test_intelligent_tiering_is_elastic_with_safe_metadata_and_a_proportional_cache(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    make(stack, vpc, **TIERING)
    template = resources(stack)
    lustre = lustre_of(template)
    assert "StorageCapacity" not in template.one("AWS::FSx::FileSystem")["Properties"]
    assert lustre["ThroughputCapacity"] == 4000
    assert lustre["MetadataConfiguration"] == {"Mode": "USER_PROVISIONED", "Iops": 6000}
    assert lustre["DataReadCacheConfiguration"] == {"SizingMode": "PROPORTIONAL_TO_THROUGHPUT_CAPACITY"}


@pytest.mark.parametrize(
    ("size", "written"), [(0, {"SizingMode": "NO_CACHE"}), (64, {"SizingMode": "USER_PROVISIONED", "SizeGiB": 64})]
)
def test_the_read_cache_can_be_sized(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize, size: int, written: dict[str, Any]
) -> None:
    make(stack, vpc, read_cache_gib=size, **TIERING)
    assert lustre_of(resources(stack))["DataReadCacheConfiguration"] == written


def test_small_tiering_throughput_is_an_option_of_its_own(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    with pytest.raises(ConstructError, match="only with small_tiering_throughput"):
        make(stack, vpc, **{**TIERING, "throughput_capacity": 1000})
    make(stack, vpc, small_tiering_throughput=True, **{**TIERING, "throughput_capacity": 1000})
    assert lustre_of(resources(stack))["ThroughputCapacity"] == 1000


def test_everything_wrong_is_said_at_once_in_one_line(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(ConstructError) as refused:
        make(stack, vpc, storage_capacity_gib=1300, per_unit_storage_throughput=300, data_compression="GZIP")
    assert [finding.rule for finding in refused.value.findings] == [
        "lustre-throughput",
        "lustre-capacity",
        "lustre-compression",
    ]
    assert str(refused.value).count(" Also: ") == 2
    assert "\n" not in str(refused.value)


def test_a_region_without_the_type_is_refused(vpc: ec2.Vpc) -> None:
    brazil = Stack(None, "Brazil", env=Environment(region="sa-east-1"))
    there = ec2.Vpc(brazil, "Vpc", max_azs=1)
    with pytest.raises(ConstructError, match="deployment_type must be one of PERSISTENT_1, SCRATCH_2 in sa-east-1"):
        make(brazil, there)
    make(brazil, there, deployment_type="PERSISTENT_1", per_unit_storage_throughput=50)


def test_what_could_not_be_checked_is_noted_once(stack: Stack, vpc: ec2.Vpc) -> None:
    parameter = CfnParameter(stack, "Throughput", type="Number").value_as_number
    make(stack, vpc, per_unit_storage_throughput=parameter)
    notes = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("not checked at synth"))
    (note,) = notes
    assert str(note.entry.data).startswith(
        "known only at deployment, so not checked at synth: per_unit_storage_throughput [ack: "
    )


@pytest.mark.parametrize(
    ("options", "linkable"),
    [
        ({"deployment_type": "SCRATCH_2", "per_unit_storage_throughput": None}, True),
        ({"deployment_type": "PERSISTENT_1", "per_unit_storage_throughput": 50}, True),
        (
            {
                "deployment_type": "PERSISTENT_1",
                "per_unit_storage_throughput": 50,
                "file_system_type_version": "2.10",
            },
            False,
        ),
        (TIERING, False),
    ],
    ids=["scratch", "persistent 1", "2.10", "tiering"],
)
def test_links_are_refused_where_the_type_has_none(
    stack: Stack, vpc: ec2.Vpc, options: dict[str, Any], linkable: bool
) -> None:
    system = make(stack, vpc, **options)

    def link() -> DataRepositoryAssociation:
        return DataRepositoryAssociation(
            stack,
            "Link",
            file_system=system,
            file_system_path="/a",
            data_lake=DataLake(stack, "Lake"),
            prefix="a/",
        )

    if linkable:
        assert link().file_system_path == "/a"
        assert "links to S3" not in system.lacks
        return
    with pytest.raises(ConstructError, match=r"file_system must be .* to be linked"):
        link()
    assert "links to S3" in system.lacks
