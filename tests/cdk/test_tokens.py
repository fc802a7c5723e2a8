"""Values known only at deployment and things made elsewhere: never a crash, never a false refusal, said once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsii
import pytest
from aws_cdk import Annotations as Own
from aws_cdk import App, CfnParameter, Environment, Fn, IStableStringProducer, Lazy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import (
    ConstructError,
    DataRepositoryAssociation,
    DirectoryBucket,
    ImportedDataLake,
    ImportedDirectoryBucket,
    ImportedLustreFileSystem,
    LustreFileSystem,
    TrainingNetwork,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]


def notes(stack: Stack) -> list[str]:
    """What was said of things that could not be checked, by construct."""
    found = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("not checked at synth"))
    return [f"{note.id} {note.entry.data}" for note in found]


@jsii.implements(IStableStringProducer)
class LazyName:
    def produce(self) -> str:
        return "shards"


@pytest.fixture(scope="module")
def everywhere() -> tuple[Stack, dict[str, Any]]:
    """A stack without account and Region in which everything is a parameter, an import or lazy."""
    stack = Stack(App(), "Anywhere")

    def text(name: str, **options: Any) -> str:
        return CfnParameter(stack, name, **options).value_as_string

    def number(name: str) -> Any:
        return CfnParameter(stack, name, type="Number").value_as_number

    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id=Fn.import_value("VpcId"), availability_zones=["unused"])
    system = LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=ec2.Subnet.from_subnet_id(stack, "Subnet", text("SubnetId")),
        deployment_type=text("DeploymentType"),
        storage_type=text("StorageType"),
        storage_capacity_gib=number("Capacity"),
        per_unit_storage_throughput=number("Throughput"),
        metadata_iops=number("MetadataIops"),
        data_compression=text("Compression"),
        log_level=text("LogLevel"),
        log_group=logs.LogGroup.from_log_group_name(stack, "Logs", text("LogGroup")),
        encryption_key=kms.Key.from_key_arn(stack, "Key", text("KeyArn")),
        weekly_maintenance_start_time=text("Maintenance"),
        automatic_backup_retention_days=number("Backups"),
        file_system_type_version=text("Version"),
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Servers", Fn.import_value("Servers")),
        client_security_group=ec2.SecurityGroup.from_security_group_id(stack, "Clients", text("ClientGroup")),
    )
    lake = ImportedDataLake(stack, "Lake", bucket_name=text("Bucket"), encryption_key_arn=Fn.import_value("KeyArn"))
    DataRepositoryAssociation(
        stack,
        "Link",
        file_system=system,
        file_system_path=text("Path"),
        data_lake=lake,
        prefix=text("Prefix"),
        import_events=CfnParameter(stack, "Events", type="CommaDelimitedList").value_as_list,
        imported_file_chunk_size_mib=number("ChunkSize"),
    )
    DirectoryBucket(
        stack, "Hot", zone_id=text("ZoneId"), base_name=Lazy.string(LazyName()), expiration_days=number("Days")
    )
    imported = ImportedLustreFileSystem(stack, "Theirs", file_system_id=text("FileSystemId"), mount_name=text("Mount"))
    DataRepositoryAssociation(
        stack, "TheirLink", file_system=imported, file_system_path="/datasets", data_lake=lake, prefix="datasets/"
    )
    ImportedDirectoryBucket(stack, "TheirHot", bucket_name=text("HotName"), zone_id="use1-az4")
    TrainingNetwork(stack, "Network", zone_id=text("NetworkZone"), addresses=number("Addresses"))
    return stack, dict(Template.from_stack(stack).to_json())


def test_everything_may_be_known_only_at_deployment(everywhere: tuple[Stack, dict[str, Any]]) -> None:
    resources = everywhere[1]["Resources"]
    system = resources["FileSystem8A8E25C0"]["Properties"]
    assert system["StorageCapacity"] == {"Ref": "Capacity"}
    lustre = system["LustreConfiguration"]
    assert lustre["DeploymentType"] == {"Ref": "DeploymentType"}
    # Taken for the default type: without a metadata configuration it could never be added.
    assert lustre["MetadataConfiguration"] == {"Mode": "USER_PROVISIONED", "Iops": {"Ref": "MetadataIops"}}
    assert lustre["AutomaticBackupRetentionDays"] == {"Ref": "Backups"}
    # Not every type takes it, and it was not asked for.
    assert "EfaEnabled" not in lustre
    links = [r["Properties"] for r in resources.values() if r["Type"] == "AWS::FSx::DataRepositoryAssociation"]
    assert links[0]["S3"] == {"AutoImportPolicy": {"Events": {"Ref": "Events"}}}
    (bucket,) = [r["Properties"] for r in resources.values() if r["Type"] == "AWS::S3Express::DirectoryBucket"]
    assert bucket["BucketName"] == {"Fn::Join": ["", ["shards--", {"Ref": "ZoneId"}, "--x-s3"]]}


def test_no_encoded_token_reaches_the_template(everywhere: tuple[Stack, dict[str, Any]]) -> None:
    text = json.dumps(everywhere[1])
    assert "Token[" not in text
    assert "e+289" not in text


SAID = (
    (
        "/Anywhere/FileSystem known only at deployment, so not checked at synth: deployment_type, storage_type,"
        " storage_capacity_gib, per_unit_storage_throughput, file_system_type_version, metadata_iops,"
        " automatic_backup_retention_days, log_level, log_group, data_compression, weekly_maintenance_start_time"
    ),
    "/Anywhere/Hot known only at deployment, so not checked at synth: base_name, zone_id, expiration_days",
    "/Anywhere/Lake known only at deployment, so not checked at synth: bucket_name, encryption_key_arn",
    (
        "/Anywhere/Link known only at deployment, so not checked at synth: file_system_path, prefix,"
        " imported_file_chunk_size_mib, import_events"
    ),
    "/Anywhere/Network known only at deployment, so not checked at synth: zone_id, addresses",
    "/Anywhere/TheirHot known only at deployment, so not checked at synth: bucket_name",
    "/Anywhere/Theirs not checked at synth: links that",
)


def test_what_could_not_be_checked_is_said_once_for_each_construct(everywhere: tuple[Stack, dict[str, Any]]) -> None:
    said = "\n".join(sorted(notes(everywhere[0])))
    for line in SAID:
        assert said.count(line) == 1, said
    assert said.count("the policy of Anywhere/Lake/Key must let linked file systems in") == 1


def test_what_decides_how_much_is_made_must_be_known_and_the_error_says_why(stack: Stack) -> None:
    tokens = CfnParameter(stack, "Apis", type="CommaDelimitedList").value_as_list
    with pytest.raises(ConstructError, match="node_apis must be known at synth, got a token: each gets an endpoint"):
        TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=1, egress="isolated", node_apis=tokens)


def test_no_number_known_at_deployment_stands_in_the_description_of_a_group(
    stack: Stack, vpc: ec2.Vpc, resources: Synthesize
) -> None:
    throughput: Any = CfnParameter(stack, "Throughput", type="Number").value_as_number
    LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=throughput,
    )
    described = [
        g["Properties"]["GroupDescription"] for g in resources(stack).of_type("AWS::EC2::SecurityGroup").values()
    ]
    assert "FSx for Lustre file servers (PERSISTENT_2, Lustre 2.15, aws/fsx)" in described


def test_a_bucket_of_the_same_app_whose_name_is_a_token_is_linked(stack: Stack, resources: Synthesize) -> None:
    bucket = s3.Bucket(stack, "Bucket")
    system = ImportedLustreFileSystem(stack, "Theirs", file_system_id="fs-0123456789abcdef0")
    link = DataRepositoryAssociation(
        stack, "Link", file_system=system, file_system_path="/datasets", bucket=bucket, prefix="datasets/"
    )
    assert link.data_lake is None
    found = resources(stack).one("AWS::FSx::DataRepositoryAssociation")["Properties"]
    assert found["DataRepositoryPath"] == {"Fn::Join": ["", ["s3://", {"Ref": "Bucket83908E77"}, "/datasets/"]]}


def test_a_note_can_be_acknowledged(stack: Stack) -> None:
    Own.of(stack).acknowledge_info("training-storage:unchecked", "Deployment checks it.")
    DirectoryBucket(stack, "Hot", zone_id=CfnParameter(stack, "Zone").value_as_string)
    assert notes(stack) == []


def test_a_region_that_is_not_known_is_no_reason_to_refuse() -> None:
    stack = Stack(App(), "Here", env=Environment(region="us-east-1"))
    key = kms.Key.from_key_arn(stack, "Key", Fn.import_value("Key"))
    assert DirectoryBucket(stack, "Hot", zone_id="use1-az4", encryption_key=key).encryption_key is key
