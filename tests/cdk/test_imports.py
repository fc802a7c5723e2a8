"""What exists already takes links, grants and clients like what is made here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import (
    ConstructError,
    DataRepositoryAssociation,
    FinalExport,
    ImportedDataLake,
    ImportedDirectoryBucket,
    ImportedLustreFileSystem,
    ScheduledRelease,
    StorageAlarms,
    allow_file_systems_to_use_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

FILE_SYSTEM_ID = "fs-0123456789abcdef0"
KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def imported(stack: Stack, name: str = "Theirs", **options: Any) -> ImportedLustreFileSystem:
    return ImportedLustreFileSystem(stack, name, **({"file_system_id": FILE_SYSTEM_ID} | options))


def link(stack: Stack, name: str = "Link", **options: Any) -> DataRepositoryAssociation:
    defaults: dict[str, Any] = {"file_system_path": "/datasets", "prefix": "datasets/"}
    return DataRepositoryAssociation(stack, name, **(defaults | options))


def role(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def infos(stack: Stack, pattern: str) -> list[str]:
    return [str(n.entry.data) for n in Annotations.from_stack(stack).find_info("*", Match.string_like_regexp(pattern))]


# File systems


def test_an_imported_file_system_makes_nothing_and_is_linked_by_its_id(stack: Stack, resources: Synthesize) -> None:
    system = imported(stack)
    link(
        stack,
        file_system=system,
        data_lake=ImportedDataLake(stack, "Lake", bucket_name="lake", encryption_key_arn=KEY_ARN),
    )
    template = resources(stack)
    assert {resource["Type"] for resource in template.by_id.values()} == {"AWS::FSx::DataRepositoryAssociation"}
    properties = template.one("AWS::FSx::DataRepositoryAssociation")["Properties"]
    assert properties["FileSystemId"] == FILE_SYSTEM_ID
    assert properties["DataRepositoryPath"] == "s3://lake/datasets/"
    assert len(infos(stack, "links that fs-0123456789abcdef0 has already")) == 1


def test_it_is_mounted_and_granted_on_as_one_made_here(stack: Stack, resources: Synthesize) -> None:
    system = imported(stack, mount_name="abcdefgh")
    command = json.dumps(stack.resolve(system.mount_command("/data")))
    assert f"{FILE_SYSTEM_ID}.fsx.us-east-1." in command
    assert '{"Ref": "AWS::URLSuffix"}' in command
    assert "@tcp:/abcdefgh /data" in command
    system.grant_data_repository_tasks(role(stack))
    granted = json.dumps(resources(stack).statements())
    assert f":file-system/{FILE_SYSTEM_ID}" in granted


def test_clients_are_let_into_it_by_rules_of_this_stack(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    servers = ec2.SecurityGroup.from_security_group_id(stack, "Servers", "sg-0123456789abcdef0")
    system = imported(stack, security_group=servers)
    instances = ec2.SecurityGroup(stack, "Nodes", vpc=vpc)
    system.allow_from(instances)
    system.allow_from(instances)
    template = resources(stack)
    ingress = [r["Properties"] for r in template.of_type("AWS::EC2::SecurityGroupIngress").values()]
    assert sorted((r["FromPort"], r["GroupId"] == "sg-0123456789abcdef0") for r in ingress) == [
        (988, False),
        (988, True),
        (1018, False),
        (1018, True),
    ]


@pytest.mark.parametrize("what", ["mount_name", "security_group", "client_security_group"])
def test_what_was_not_given_is_asked_for_when_it_is_needed(stack: Stack, what: str) -> None:
    with pytest.raises(ConstructError, match=f"{what} must be given to ImportedLustreFileSystem Test/Theirs for this"):
        getattr(imported(stack), what)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"file_system_id": "sf-0123"}, "file_system_id must be the id of a file system such as fs-"),
        ({"file_system_id": None}, "file_system_id must be the id of a file system"),
        ({"mount_name": "too-long-by-far"}, "mount_name must be 1 to 8 letters"),
    ],
)
def test_an_id_that_is_none_is_refused(stack: Stack, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConstructError, match=words):
        imported(stack, **options)


def test_what_is_known_of_it_is_held_against_its_links(stack: Stack) -> None:
    tiering = imported(stack, deployment_type="PERSISTENT_2", storage_type="INTELLIGENT_TIERING")
    with pytest.raises(ConstructError, match="file_system must be SCRATCH_2 or persistent on SSD or HDD"):
        link(stack, file_system=tiering, bucket=s3.Bucket(stack, "Bucket"))


# Buckets of the caller


@pytest.mark.parametrize("given", ["neither", "both"])
def test_a_link_has_one_other_end(stack: Stack, given: str) -> None:
    ends: dict[str, Any] = {}
    if given == "both":
        lake = ImportedDataLake(stack, "Lake", bucket_name="lake", encryption_key_arn=KEY_ARN)
        ends = {"data_lake": lake, "bucket": lake.bucket}
    with pytest.raises(ConstructError, match=f"data_lake or bucket must be given, got: {given}"):
        link(stack, file_system=imported(stack), **ends)


def test_the_link_waits_for_the_policy_of_the_callers_bucket(stack: Stack, resources: Synthesize) -> None:
    link(stack, file_system=imported(stack), bucket=s3.Bucket(stack, "Bucket", enforce_ssl=True))
    template = resources(stack)
    (policy,) = template.of_type("AWS::S3::BucketPolicy")
    assert policy in template.one("AWS::FSx::DataRepositoryAssociation")["DependsOn"]


def test_the_link_waits_for_policy_and_key_behind_an_imported_lake(stack: Stack, resources: Synthesize) -> None:
    key = kms.Key(stack, "Key")
    bucket = s3.Bucket(stack, "Bucket", encryption_key=key, enforce_ssl=True)
    link(stack, file_system=imported(stack), data_lake=ImportedDataLake(stack, "Lake", bucket=bucket))
    template = resources(stack)
    needed = {*template.of_type("AWS::S3::BucketPolicy"), *template.of_type("AWS::KMS::Key")}
    assert len(needed) == 2
    assert needed <= set(template.one("AWS::FSx::DataRepositoryAssociation")["DependsOn"])


def test_one_bucket_by_two_imports_is_one_bucket(stack: Stack) -> None:
    system = imported(stack)
    link(stack, file_system=system, bucket=s3.Bucket.from_bucket_name(stack, "One", "images"))
    with pytest.raises(ConstructError, match="must not lie within or around another linked prefix"):
        link(
            stack,
            "Other",
            file_system=system,
            file_system_path="/other",
            prefix="datasets/a/",
            bucket=s3.Bucket.from_bucket_name(stack, "Two", "images"),
        )


def test_automatic_import_from_a_bucket_of_another_region_is_refused_and_export_is_not(stack: Stack) -> None:
    far = s3.Bucket.from_bucket_attributes(stack, "Far", bucket_name="far-away", region="eu-west-1")
    system = imported(stack)
    with pytest.raises(ConstructError, match="import_events must be empty unless the bucket is in .* us-east-1"):
        link(stack, file_system=system, bucket=far, import_events=["NEW"])
    assert link(stack, file_system=system, bucket=far, export_events=["NEW"]).bucket is far


def notify(bucket: s3.Bucket, stack: Stack) -> None:
    bucket.add_event_notification(s3.EventType.OBJECT_CREATED, notifications.SnsDestination(sns.Topic(stack, "Topic")))


def test_what_would_break_the_links_of_the_callers_bucket_fails_at_synth(stack: Stack) -> None:
    bucket = s3.Bucket(stack, "Bucket")
    link(stack, file_system=imported(stack), bucket=bucket, import_events=["NEW"])
    bucket.add_lifecycle_rule(
        prefix="datasets/",
        transitions=[s3.Transition(storage_class=s3.StorageClass.GLACIER, transition_after=Duration.days(90))],
    )
    notify(bucket, stack)
    with pytest.raises(RuntimeError) as refused:
        Template.from_stack(stack)
    assert "storage_class must not be GLACIER or DEEP_ARCHIVE" in str(refused.value)
    assert "the bucket is linked to a file system, so CDK event notifications on its bucket are" in str(refused.value)


def test_notifications_may_stand_beside_a_link_without_import(stack: Stack) -> None:
    bucket = s3.Bucket(stack, "Bucket")
    link(stack, file_system=imported(stack), bucket=bucket, export_events=["NEW"])
    notify(bucket, stack)
    Template.from_stack(stack)


def test_a_key_that_may_keep_fsx_out_is_noted_until_it_lets_fsx_in(stack: Stack, resources: Synthesize) -> None:
    words = "must let linked file systems in"
    shut, opened = (kms.Key(stack, name) for name in ("Shut", "Opened"))
    system = imported(stack)
    for name, key in {"one": shut, "two": opened}.items():
        bucket = s3.Bucket(stack, name.title(), encryption_key=key)
        if key is opened:
            assert allow_file_systems_to_use_key(key)
        link(stack, name, file_system=system, file_system_path=f"/{name}", prefix=f"{name}/", bucket=bucket)
    assert [note.split(" must")[0] for note in infos(stack, words)] == ["not checked at synth: the policy of Test/Shut"]
    keys = resources(stack).of_type("AWS::KMS::Key")
    (statement,) = [
        statement
        for key in keys.values()
        for statement in key["Properties"]["KeyPolicy"]["Statement"]
        if statement.get("Sid") == "FSxForLustreThroughS3"
    ]
    # Without a bucket's ARN, which would wait for the bucket, which waits for the key.
    assert statement["Condition"]["StringLike"] == {"aws:userid": "*:FSx"}
    assert not allow_file_systems_to_use_key(kms.Key.from_key_arn(stack, "Theirs2", KEY_ARN))


# Lakes


def test_a_bucket_of_the_same_app_is_a_lake_with_the_key_that_it_has(stack: Stack, resources: Synthesize) -> None:
    key = kms.Key(stack, "Key")
    bucket = s3.Bucket(stack, "Bucket", bucket_name="our-images", encryption_key=key)
    lake = ImportedDataLake(stack, "Lake", bucket=bucket)
    assert lake.bucket is bucket
    assert lake.derived_s3_uri("raw/") == "s3://our-images/raw/"
    lake.grant_read_write(role(stack), prefixes=["raw/"])
    template = resources(stack)
    assert len(template.of_type("AWS::S3::Bucket")) == 1
    statements = json.dumps(template.statements())
    assert '"kms:GenerateDataKey"' in statements
    assert '"/raw/*"' in statements


def test_a_lake_on_a_bucket_of_the_app_is_guarded_like_one_made_here(stack: Stack) -> None:
    bucket = s3.Bucket(stack, "Bucket", encryption_key=kms.Key(stack, "Key"))
    lake = ImportedDataLake(stack, "Lake", bucket=bucket)
    link(stack, file_system=imported(stack), data_lake=lake)
    assert lake.link_errors() == []
    bucket.enable_event_bridge_notification()
    assert ["the lake is linked" in error for error in lake.link_errors()] == [True]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "bucket_name or bucket must be given, got: neither"),
        ({"bucket_name": "lake"}, "encryption_key must be given unless the bucket was made or imported with one"),
        (
            {"bucket_name": "lake", "encryption_key_arn": KEY_ARN, "encryption_key": "key"},
            "encryption_key_arn or encryption_key must be given, got: both",
        ),
        ({"bucket_name": "lake", "bucket": "bucket"}, "bucket_name or bucket must be given, got: both"),
        ({"bucket": "bucket"}, "a bucket without a KMS key can be linked by DataRepositoryAssociation"),
        ({"bucket": "dots", "encryption_key": "key"}, "without dots, got: 'my.images'"),
        ({"bucket_name": "a--use1-az4--x-s3", "encryption_key_arn": KEY_ARN}, "must be a general purpose bucket"),
    ],
)
def test_half_a_lake_is_refused_with_the_way_out(stack: Stack, options: dict[str, Any], words: str) -> None:
    things = {
        "bucket": s3.Bucket(stack, "Bucket"),
        "dots": s3.Bucket.from_bucket_name(stack, "Dots", "my.images"),
        "key": kms.Key(stack, "Key"),
    }
    with pytest.raises(ConstructError, match=words):
        ImportedDataLake(stack, "Lake", **{name: things.get(value, value) for name, value in options.items()})


# Directory buckets


def test_an_imported_directory_bucket_knows_its_zone_and_grants_sessions(stack: Stack, resources: Synthesize) -> None:
    key = kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    bucket = ImportedDirectoryBucket(stack, "Hot", bucket_name="shards--use1-az4--x-s3", encryption_key=key)
    assert bucket.zone_id == "use1-az4"
    bucket.grant_read(role(stack))
    template = resources(stack)
    session, decrypt = template.statements()
    assert ":bucket/shards--use1-az4--x-s3" in json.dumps(session["Resource"])
    assert session["Condition"] == {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
    assert (decrypt["Action"], decrypt["Resource"]) == ("kms:Decrypt", KEY_ARN)
    assert template.of_type("AWS::S3Express::DirectoryBucket") == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket_name": "shards"}, "bucket_name must be a base name, a zone id and --x-s3"),
        ({"bucket_name": "shards--use1-az4--x-s3", "zone_id": "use1-az5"}, "zone_id must be use1-az4, that of shards"),
    ],
)
def test_a_name_that_is_none_of_a_directory_bucket_is_refused(stack: Stack, options: Any, words: str) -> None:
    with pytest.raises(ConstructError, match=words):
        ImportedDirectoryBucket(stack, "Hot", **options)


# Grants that would grant nothing


def test_a_grantee_without_policies_is_refused_instead_of_granted_nothing(stack: Stack) -> None:
    lake = ImportedDataLake(stack, "Lake", bucket_name="lake", encryption_key_arn=KEY_ARN)
    bucket = ImportedDirectoryBucket(stack, "Hot", bucket_name="shards--use1-az4--x-s3")
    words = "grantee must be a role, user or group that policies can be attached to, got: .*lambda.amazonaws.com"
    service = iam.ServicePrincipal("lambda.amazonaws.com")
    grants: tuple[Callable[[], iam.Grant], ...] = (
        lambda: lake.grant_read(service, prefixes=["raw/"]),
        lambda: bucket.grant_read(service),
        lambda: imported(stack).grant_describe(service),
    )
    for grant in grants:
        with pytest.raises(ConstructError, match=words):
            grant()


def test_a_role_of_another_app_is_granted_to_by_a_policy_of_this_one() -> None:
    stack = Stack(env=Environment(account="111122223333", region="us-east-1"))
    theirs = iam.Role.from_role_arn(stack, "Role", "arn:aws:iam::111122223333:role/batch-job")
    ImportedDirectoryBucket(stack, "Hot", bucket_name="shards--use1-az4--x-s3").grant_read_write(theirs)
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    assert [policy["Properties"]["Roles"] for policy in policies] == [["batch-job"]]


def test_alarms_and_release_take_an_imported_file_system(stack: Stack, resources: Synthesize) -> None:
    system = imported(stack, storage_capacity_gib=2400)
    StorageAlarms(stack, "Alarms", job_name="demo", file_system=system, baseline_mb_per_s=600)
    ScheduledRelease(stack, "Release", file_system=system, unused_days=7)
    made = resources(stack).by_id.values()
    alarms = [resource["Properties"] for resource in made if resource["Type"] == "AWS::CloudWatch::Alarm"]
    watched = {
        alarm["MetricName"]
        for alarm in alarms
        if {"Name": "FileSystemId", "Value": FILE_SYSTEM_ID} in alarm.get("Dimensions", [])
    }
    assert "FreeDataStorageCapacity" in watched
    (schedule,) = [resource["Properties"] for resource in made if resource["Type"] == "AWS::Scheduler::Schedule"]
    assert FILE_SYSTEM_ID in json.dumps(schedule["Target"]["Input"])


def test_the_gate_refuses_an_imported_file_system_with_what_exports_it(stack: Stack) -> None:
    lake = ImportedDataLake(stack, "Lake", bucket_name="their-lake", encryption_key_arn=KEY_ARN)
    system: Any = imported(stack)
    with pytest.raises(ConstructError, match="FinalExport must be made in its stack, got: .*Theirs.*archive"):
        FinalExport(stack, "Gate", file_system=system, data_lake=lake, job_name="demo")
