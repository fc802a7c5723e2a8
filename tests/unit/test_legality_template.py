"""Any CloudFormation template: faults are found through references, functions are left alone, nothing else is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning.legality import check_template

LUSTRE: dict[str, Any] = {
    "DeploymentType": "PERSISTENT_2",
    "PerUnitStorageThroughput": 250,
    "MetadataConfiguration": {"Mode": "AUTOMATIC"},
}


def file_system(lustre: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    properties = {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 19200,
        "SubnetIds": [{"Ref": "Subnet"}],
        **top,
        "LustreConfiguration": {**LUSTRE, **(lustre or {})},
    }
    return {"Type": "AWS::FSx::FileSystem", "Properties": properties}


def link(path: Any = "/a", repository: Any = "s3://bucket/a/", system: Any = None, **more: Any) -> dict[str, Any]:
    properties = {
        "FileSystemId": system or {"Ref": "Fs"},
        "FileSystemPath": path,
        "DataRepositoryPath": repository,
        **more,
    }
    return {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": properties}


def found(region: str = "us-east-1", /, **resources: Any) -> list[tuple[str, str]]:
    report = check_template({"Resources": resources}, region=region)
    return [(finding.logical_id, finding.finding.rule) for finding in report.findings]


def skipped(**resources: Any) -> tuple[str, ...]:
    return check_template({"Resources": resources}, region="us-east-1").skipped


def test_a_legal_template_gives_nothing() -> None:
    assert found(Fs=file_system(), Link=link()) == []
    assert skipped(Fs=file_system(), Link=link()) == ()


@pytest.mark.parametrize(
    "reference", [{"Ref": "Fs"}, {"Fn::GetAtt": ["Fs", "Id"]}, {"Fn::GetAtt": "Fs.Id"}, {"Fn::Sub": "${Fs}"}]
)
def test_links_find_their_file_system_however_it_is_referred_to(reference: Any) -> None:
    resources = {f"L{n}": link(f"/{n}", f"s3://bucket/{n}/", system=reference) for n in range(8)}
    resources["L8"] = link("/8", "s3://bucket/8/")
    assert found(Fs=file_system(), **resources) == [("L8", "link-count")]


def test_nine_links_in_two_ways_of_referring_are_still_nine() -> None:
    resources = {f"L{n}": link(f"/{n}", f"s3://b{n}/", system="fs-0123456789abcdef0") for n in range(9)}
    assert found(**resources) == [("L8", "link-count")]


def test_default_lustre_versions_cannot_be_linked_and_that_is_said() -> None:
    old = {"DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": None, "MetadataConfiguration": None}
    scratch = file_system(old, StorageCapacity=1200, FileSystemTypeVersion=None)
    assert found(Fs=scratch, Link=link()) == [("Link", "link-file-system")]


def test_a_linked_file_system_has_no_backups() -> None:
    backups = {"AutomaticBackupRetentionDays": 7}
    assert found(Fs=file_system(backups)) == []
    assert found(Fs=file_system(backups), Link=link()) == [("Fs", "lustre-backups")]


def test_prefixes_overlap_through_joined_and_substituted_text() -> None:
    joined = {"Fn::Join": ["", ["s3://", {"Ref": "Bucket"}, "/data/"]]}
    substituted = {"Fn::Sub": "s3://${Bucket}/data/inner"}
    other = {"Fn::Sub": ["s3://${Name}/data/", {"Name": {"Fn::ImportValue": "Lake"}}]}
    assert found(Fs=file_system(), A=link("/a", joined), B=link("/b", substituted)) == [("B", "link-prefix-overlap")]
    assert found(Fs=file_system(), A=link("/a", joined), B=link("/b", other)) == []


def test_conditional_links_are_not_counted_against_each_other_and_that_is_said() -> None:
    one, two = {**link(), "Condition": "Big"}, {**link(), "Condition": "Small"}
    assert found(Fs=file_system(), A=one, B=two) == []
    assert any("conditional" in note for note in skipped(Fs=file_system(), A=one, B=two))


@pytest.mark.parametrize(
    "value", [{"Ref": "P"}, {"Fn::If": ["C", 1300, 1200]}, {"Fn::Newest": [1]}, {"Fn::Sub": "${P}"}]
)
def test_functions_are_left_alone_and_named(value: Any) -> None:
    resource = file_system(StorageCapacity=value)
    assert found(Fs=resource) == []
    assert "Fs.storage_capacity_gib: known only at deployment" in skipped(Fs=resource)


def test_a_whole_block_that_is_a_function_is_left_alone() -> None:
    resource = file_system()
    resource["Properties"]["LustreConfiguration"] = {"Fn::If": ["C", {"DeploymentType": "X"}, {}]}
    assert found(Fs=resource) == []
    assert len(skipped(Fs=resource)) >= 5


def test_no_value_is_the_same_as_leaving_out() -> None:
    nothing = {"Ref": "AWS::NoValue"}
    assert found(Fs=file_system({"AutomaticBackupRetentionDays": nothing, "DriveCacheType": nothing})) == []
    assert found(Fs=file_system({"MetadataConfiguration": nothing, "EfaEnabled": True})) == [
        ("Fs", "lustre-efa-metadata")
    ]


def test_numbers_and_switches_may_be_text() -> None:
    lustre = {"PerUnitStorageThroughput": "250", "EfaEnabled": "true"}
    assert found(Fs=file_system(lustre, StorageCapacity="19200")) == []
    assert found(Fs=file_system(lustre, StorageCapacity="2400")) == [("Fs", "lustre-capacity")]


def test_other_file_systems_are_none_of_its_business() -> None:
    windows = {"Type": "AWS::FSx::FileSystem", "Properties": {"FileSystemType": "WINDOWS", "StorageCapacity": 32}}
    assert found(Fs=windows, Other={"Type": "AWS::S3::Bucket"}, Odd={"Type": "Acme::Thing", "Properties": 3}) == []


def test_the_region_decides_what_exists() -> None:
    assert found("sa-east-1", Fs=file_system()) == [("Fs", "region-deployment-type")]
    assert found("us-east-1", Fs=file_system()) == []
    assert any("Region" in note for note in check_template({"Resources": {"Fs": file_system()}}).skipped)
    unknown = check_template({"Resources": {"Fs": file_system()}}, region="xx-nowhere-1")
    assert unknown.findings == ()
    assert any("xx-nowhere-1" in note for note in unknown.skipped)


def bucket(**properties: Any) -> dict[str, Any]:
    return {"Type": "AWS::S3::Bucket", "Properties": properties}


LINKED = {"Fn::Sub": "s3://${Lake}/data/"}
IMPORTING = {"S3": {"AutoImportPolicy": {"Events": ["NEW"]}}}
GLACIER = {
    "Rules": [
        {"Status": "Enabled", "Prefix": "data/", "Transitions": [{"StorageClass": "GLACIER", "TransitionInDays": 90}]}
    ]
}


def test_glacier_under_a_linked_prefix_is_refused_and_elsewhere_not() -> None:
    assert found(Fs=file_system(), A=link("/a", LINKED), Lake=bucket(LifecycleConfiguration=GLACIER)) == [
        ("Lake", "link-glacier")
    ]
    assert found(Lake=bucket(LifecycleConfiguration=GLACIER)) == []


def policy(condition: dict[str, Any]) -> dict[str, Any]:
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", "Condition": condition}
    return {
        "Type": "AWS::S3::BucketPolicy",
        "Properties": {"Bucket": {"Ref": "Lake"}, "PolicyDocument": {"Statement": [statement]}},
    }


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ({"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}, True),
        ({"StringNotEquals": {"aws:sourceVpc": "vpc-1"}}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, False),
        (
            {"StringNotEquals": {"aws:SourceVpce": "vpce-1"}, "ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::*"}},
            False,
        ),
    ],
)
def test_policies_that_look_at_the_vpc_are_refused_on_linked_buckets(condition: Any, refused: bool) -> None:
    rules = found(Fs=file_system(), A=link("/a", LINKED), Lake=bucket(), Policy=policy(condition))
    assert rules == ([("Policy", "link-source-vpc")] if refused else [])
    assert found(Lake=bucket(), Policy=policy(condition)) == []


def test_notifications_that_overwrite_those_of_fsx_are_refused() -> None:
    cdk = {"Type": "Custom::S3BucketNotifications", "Properties": {"BucketName": {"Ref": "Lake"}, "Managed": True}}
    foreign = {"Type": cdk["Type"], "Properties": {"BucketName": {"Ref": "Lake"}, "Managed": False}}
    importing, exporting = link("/a", LINKED, **IMPORTING), link("/a", LINKED)
    native = bucket(NotificationConfiguration={"EventBridgeConfiguration": {}})
    assert found(Fs=file_system(), A=importing, Lake=bucket(), N=cdk) == [("N", "link-notifications")]
    assert found(Fs=file_system(), A=importing, Lake=native) == [("Lake", "link-notifications")]
    assert found(Fs=file_system(), A=importing, Lake=bucket(), N=foreign) == []
    assert found(Fs=file_system(), A=exporting, Lake=native) == []
    assert found(Fs=file_system(), A=exporting, Lake=bucket(), N=cdk) == []


def directory_bucket(**properties: Any) -> dict[str, Any]:
    given = {"LocationName": "use1-az4", "DataRedundancy": "SingleAvailabilityZone", **properties}
    return {"Type": "AWS::S3Express::DirectoryBucket", "Properties": given}


def grant(**statement: Any) -> dict[str, Any]:
    given = {
        "Effect": "Allow",
        "Principal": {"Service": "lifecycle.s3.amazonaws.com"},
        "Action": "s3express:CreateSession",
        "Resource": "*",
        **statement,
    }
    return {
        "Type": "AWS::S3Express::BucketPolicy",
        "Properties": {"Bucket": {"Ref": "Hot"}, "PolicyDocument": {"Statement": given}},
    }


EXPIRY = {"LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "ExpirationInDays": 3}]}}


def test_a_lifecycle_needs_its_grant() -> None:
    assert found(Hot=directory_bucket(**EXPIRY), Policy=grant()) == []
    assert found(Hot=directory_bucket(**EXPIRY)) == [("Hot", "express-lifecycle-grant")]
    assert found(Hot=directory_bucket(**EXPIRY), Policy=grant(Effect="Deny")) == [("Hot", "express-lifecycle-grant")]
    assert found(Hot=directory_bucket()) == []


def test_directory_buckets_are_checked_as_they_are_named() -> None:
    assert found(Hot=directory_bucket(BucketName="mybucket", LocationName="us-east-1a")) == [
        ("Hot", "express-name-suffix"),
        ("Hot", "express-zone"),
    ]
    named = {"Fn::Sub": "data-${AWS::AccountId}--use1-az4--x-s3"}
    assert found(Hot=directory_bucket(BucketName=named)) == []
    versioned = directory_bucket(VersioningConfiguration={"Status": "Enabled"})
    assert found(Hot=versioned) == [("Hot", "express-features")]


def test_a_key_by_alias_is_refused() -> None:
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "alias/mine"}
    rules = [{"ServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}]
    encrypted = directory_bucket(BucketEncryption={"ServerSideEncryptionConfiguration": rules})
    assert found(Hot=encrypted) == [("Hot", "express-kms-key")]


def group_rule(kind: str, peer: str) -> dict[str, Any]:
    properties = {"GroupId": {"Ref": "Group"}, "IpProtocol": "-1", peer: {"Fn::GetAtt": ["Group", "GroupId"]}}
    return {"Type": f"AWS::EC2::{kind}", "Properties": properties}


def test_groups_of_an_efa_file_system_let_themselves_in_and_out_by_id() -> None:
    system = file_system({"EfaEnabled": True}, SecurityGroupIds=[{"Ref": "Group"}])
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"SecurityGroupEgress": [{"CidrIp": "0.0.0.0/0"}]}}
    inward = group_rule("SecurityGroupIngress", "SourceSecurityGroupId")
    outward = group_rule("SecurityGroupEgress", "DestinationSecurityGroupId")
    assert found(Fs=system, Group=group, In=inward, Out=outward) == []
    assert found(Fs=system, Group=group, In=inward) == [("Fs", "lustre-efa-security-group")]
    narrow = {**inward, "Properties": {**inward["Properties"], "IpProtocol": "tcp", "FromPort": 988, "ToPort": 988}}
    assert found(Fs=system, Group=group, In=narrow, Out=outward) == [("Fs", "lustre-efa-security-group")]
    assert found(Fs=system) == []  # a group of somebody else's: nothing is known of it


def test_a_key_serves_125_file_systems() -> None:
    many = {f"Fs{n}": file_system(KmsKeyId={"Ref": "Key"}) for n in range(125)}
    assert found(**many) == []
    assert found(**many, Last=file_system(KmsKeyId={"Ref": "Key"})) == [("Last", "lustre-key-shared")]


@pytest.mark.parametrize("resources", [None, [], {"Fn::Transform": {}}, "x", {"A": 3, "B": {"Type": 4}, "C": []}])
def test_resources_that_are_none_are_skipped_and_said(resources: Any) -> None:
    report = check_template({"Resources": resources})
    assert report.findings == ()
    assert report.skipped


def test_macros_are_said() -> None:
    report = check_template({"Transform": "AWS::LanguageExtensions", "Resources": {"Fs": file_system()}})
    assert any("Transform" in note for note in report.skipped)
    loop = {"Fn::ForEach::Links": ["N", ["a"], {"Link${N}": link()}]}
    assert any("Fn::ForEach::Links" in note for note in check_template({"Resources": loop}).skipped)


@pytest.mark.parametrize(
    ("kind", "region", "there"),
    [
        ("AWS::PCS::Cluster", "us-east-1", True),
        ("AWS::PCS::Cluster", "us-gov-west-1", True),
        ("AWS::PCS::Cluster", "cn-north-1", False),
        ("AWS::PCS::Cluster", "us-west-1", False),
        ("AWS::SageMaker::Cluster", "eu-west-1", True),
        ("AWS::SageMaker::Cluster", "eu-west-3", False),
        ("AWS::SageMaker::Cluster", "us-gov-west-1", False),
        ("AWS::Batch::ComputeEnvironment", "cn-north-1", True),
    ],
)
def test_engines_exist_where_the_registry_has_them(kind: str, region: str, there: bool) -> None:
    assert found(region, Cluster={"Type": kind}) == ([] if there else [("Cluster", "region-engine")])


def test_a_backup_brings_what_is_left_out() -> None:
    restored = {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {"FileSystemType": "LUSTRE", "SubnetIds": ["s"], "BackupId": "backup-1"},
    }
    assert found(Fs=restored) == []
    assert found(Fs=file_system(StorageCapacity=None, BackupId="backup-1")) == []
    assert found(Fs=file_system(StorageCapacity=1300, StorageType="SSD", BackupId={"Ref": "Backup"})) == [
        ("Fs", "lustre-capacity")
    ]
    assert found(Fs=file_system(StorageCapacity=None)) == [("Fs", "lustre-capacity")]
    scratch = {"DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": None, "MetadataConfiguration": None}
    assert found(Fs=file_system(scratch, StorageCapacity=1200, BackupId="backup-1")) == [("Fs", "lustre-from-backup")]


def express(name: Any = None, zone: Any = "use1-az4", **more: Any) -> dict[str, Any]:
    properties = {"BucketName": name, "LocationName": zone, "DataRedundancy": "SingleAvailabilityZone", **more}
    return {"Type": "AWS::S3Express::DirectoryBucket", "Properties": properties}


@pytest.mark.parametrize(
    "name",
    [
        {"Fn::Sub": "data--${Zone}--x-s3"},
        {"Fn::Join": ["", ["data--", {"Ref": "Zone"}, "--x-s3"]]},
        {"Fn::Sub": "${AWS::StackName}--use1-az4--x-s3"},
    ],
)
def test_a_name_with_a_zone_from_a_parameter_is_legal(name: Any) -> None:
    assert found(Hot=express(name, {"Ref": "Zone"})) == []


def test_what_a_template_must_write_is_missed() -> None:
    bare = {"Type": "AWS::S3Express::DirectoryBucket", "Properties": {}}
    assert found(Hot=bare) == [("Hot", "express-required")]
    assert found(Hot={"Type": "AWS::S3Express::DirectoryBucket"}) == [("Hot", "express-required")]
    assert found(Hot={"Type": "AWS::S3Express::DirectoryBucket", "Properties": {"Fn::Transform": {}}}) == []
    assert found(Fs=file_system(SubnetIds=None)) == [("Fs", "lustre-required")]
    assert ("Fs", "lustre-required") in found(Fs=file_system(FileSystemType=None))
    for name in ("FileSystemPath", "DataRepositoryPath", "FileSystemId"):
        own = link()
        del own["Properties"][name]
        assert found(Fs=file_system(), Link=own) == [("Link", "link-required")]


def test_what_a_template_cannot_write_is_said() -> None:
    squash = {"RootSquashConfiguration": {"RootSquash": "65534:65534"}}
    assert found(Fs=file_system(squash)) == [("Fs", "lustre-root-squash-template")]
    assert found(Fs=file_system(FileSystemType="LUSTER")) == [("Fs", "lustre-file-system-type")]
    assert found(Fs=file_system(FileSystemType={"Ref": "Type"})) == []


ELSEWHERE = {"StringNotEquals": {"aws:SourceVpc": "vpc-1"}}
FREEZE = [{"StorageClass": "GLACIER", "TransitionInDays": 1}]


def denial(condition: Any = None, *, bucket: Any, **statement: Any) -> dict[str, Any]:
    given = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", **statement}
    document = {"Statement": [{**given, "Condition": ELSEWHERE if condition is None else condition}]}
    return {"Type": "AWS::S3::BucketPolicy", "Properties": {"Bucket": bucket, "PolicyDocument": document}}


@pytest.mark.parametrize(
    ("bucket", "repository"),
    [
        ({"Ref": "Parameter"}, {"Fn::Sub": "s3://${Parameter}/x/"}),
        ({"Fn::Sub": "${Parameter}"}, {"Fn::Join": ["", ["s3://", {"Ref": "Parameter"}, "/x/"]]}),
        ("literal", "s3://literal/x/"),
        ({"Fn::ImportValue": "Lake"}, {"Fn::Sub": ["s3://${B}/x/", {"B": {"Fn::ImportValue": "Lake"}}]}),
    ],
)
def test_policies_and_notifications_of_a_bucket_that_is_only_named_count(bucket: Any, repository: Any) -> None:
    notifications = {"Type": "Custom::S3BucketNotifications", "Properties": {"BucketName": bucket, "Managed": True}}
    own = link("/a", repository, **IMPORTING)
    resources = {"Fs": file_system(), "Link": own, "Policy": denial(bucket=bucket), "Notify": notifications}
    assert found(**resources) == [("Policy", "link-source-vpc"), ("Notify", "link-notifications")]
    other = {"Policy": denial(bucket="other"), "Notify": {**notifications, "Properties": {"BucketName": "other"}}}
    assert found(**resources | other) == []


@pytest.mark.parametrize(
    ("statement", "condition", "legal"),
    [
        ({}, {"StringEquals": {"aws:SourceVpc": "vpc-1"}}, True),
        ({}, {"StringLike": {"aws:SourceVpce": ["vpce-1"]}}, True),
        ({}, {"StringNotEqualsIfExists": {"aws:sourceVpce": "vpce-1"}}, False),
        ({}, {"StringEqualsIfExists": {"aws:SourceVpc": "vpc-1"}}, False),
        ({}, {"Null": {"aws:SourceVpc": True}}, False),
        ({}, {"Null": {"aws:SourceVpc": "false"}}, True),
        ({}, {"NotIpAddress": {"aws:VpcSourceIp": "10.0.0.0/8"}}, False),
        ({"Action": "s3:PutBucketPolicy"}, ELSEWHERE, True),
        ({"Action": ["s3:PutBucketPolicy", "s3:Get*"]}, ELSEWHERE, False),
        ({"Action": "*"}, ELSEWHERE, False),
        ({"Action": None, "NotAction": "s3:PutBucketPolicy"}, ELSEWHERE, False),
        ({"Action": None, "NotAction": "s3:*"}, ELSEWHERE, True),
        ({"Effect": "Allow"}, ELSEWHERE, True),
        ({}, {**ELSEWHERE, "Bool": {"aws:PrincipalIsAWSService": "false"}}, True),
    ],
)
def test_only_denials_that_keep_fsx_out_count(statement: dict[str, Any], condition: Any, legal: bool) -> None:
    policy = denial(condition, bucket="lake", **statement)
    rules = found(Fs=file_system(), Link=link("/a", "s3://lake/x/"), Policy=policy)
    assert rules == ([] if legal else [("Policy", "link-source-vpc")])


def test_an_import_that_is_turned_off_leaves_notifications_alone() -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"NotificationConfiguration": {}}}
    for events, expected in (([], []), (["NEW"], [("Lake", "link-notifications")])):
        own = link("/a", {"Fn::Sub": "s3://${Lake}/x/"}, S3={"AutoImportPolicy": {"Events": events}})
        assert found(Fs=file_system(), Link=own, Lake=bucket) == expected


def test_buckets_behind_import_paths_and_archive_tiers_count() -> None:
    rule = {"Status": "Enabled", "Transitions": FREEZE}
    frozen = {"Type": "AWS::S3::Bucket", "Properties": {"LifecycleConfiguration": {"Rules": [rule]}}}
    tiers = {"Id": "a", "Status": "Enabled", "Tierings": [{"AccessTier": "DEEP_ARCHIVE_ACCESS", "Days": 180}]}
    archived = {"Type": "AWS::S3::Bucket", "Properties": {"IntelligentTieringConfigurations": [tiers]}}
    legacy = {
        "DeploymentType": "SCRATCH_2",
        "PerUnitStorageThroughput": None,
        "MetadataConfiguration": None,
        "ImportPath": {"Fn::Sub": "s3://${Lake}/x"},
    }
    for bucket in (frozen, archived):
        own = link("/a", {"Fn::Sub": "s3://${Lake}/x/"})
        assert found(Fs=file_system(), Link=own, Lake=bucket) == [("Lake", "link-glacier")]
        assert found(Fs=file_system(legacy, StorageCapacity=1200), Lake=bucket) == [("Lake", "link-glacier")]


def test_links_of_one_condition_exist_together() -> None:
    one, two = {**link("/a"), "Condition": "Big"}, {**link("/a", "s3://bucket/b/"), "Condition": "Big"}
    assert found(Fs=file_system(), A=one, B=two) == [("B", "link-path-overlap")]
    nine = {f"L{n}": {**link(f"/{n}", f"s3://b{n}/"), "Condition": "Big"} for n in range(9)}
    assert found(Fs=file_system(), **nine) == [("L8", "link-count")]
    always = link("/a", "s3://bucket/b/")
    assert found(Fs=file_system(), A=one, B=always) == [("A", "link-path-overlap")]


def test_a_conditional_link_forbids_backups_and_that_is_said() -> None:
    resources = {"Fs": file_system({"AutomaticBackupRetentionDays": 7}), "A": {**link(), "Condition": "Big"}}
    assert found(**resources) == [("Fs", "lustre-backups")]
    assert "Fs: taken as linked, though conditional: A" in skipped(**resources)


def test_the_root_stands_alone_beside_a_path_that_is_not_known() -> None:
    resources = {"A": link("/", "s3://a/"), "B": link({"Ref": "Path"}, "s3://b/")}
    assert found(Fs=file_system(), **resources) == [("B", "link-root")]


@pytest.mark.parametrize(
    "destination",
    [
        {"Fn::GetAtt": ["Logs", "Arn"]},
        {"Ref": "Logs"},
        {"Fn::Sub": "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:${Logs}"},
        {"Fn::Select": [0, [{"Fn::GetAtt": ["Logs", "Arn"]}]]},
    ],
)
def test_a_log_group_of_the_template_is_followed(destination: Any) -> None:
    system = file_system({"LogConfiguration": {"Level": "WARN_ONLY", "Destination": destination}})

    def group(**properties: Any) -> dict[str, Any]:
        return {"Type": "AWS::Logs::LogGroup", "Properties": properties}

    assert found(Fs=system, Logs=group(LogGroupName="/aws/fsx/a")) == []
    assert skipped(Fs=system, Logs=group(LogGroupName="/aws/fsx/a")) == ()
    assert found(Fs=system, Logs=group(LogGroupName="/logs/a")) == [("Fs", "lustre-log-group")]
    assert found(Fs=system, Logs=group(LogGroupName={"Fn::Sub": "/aws/${P}"})) == [("Fs", "lustre-log-group")]
    assert found(Fs=system, Logs=group()) == [("Fs", "lustre-log-group")]
    unknown = group(LogGroupName={"Ref": "Name"})
    assert found(Fs=system, Logs=unknown) == []
    assert "Fs.logging.group: known only at deployment" in skipped(Fs=system, Logs=unknown)


def test_a_literal_log_group_is_of_the_partition() -> None:
    for partition, region, expected in (
        ("aws", "us-east-1", []),
        ("aws-cn", "us-east-1", [("Fs", "lustre-log-group")]),
        ("${AWS::Partition}", "us-east-1", []),
    ):
        arn = f"arn:{partition}:logs:{region}:111122223333:log-group:/aws/fsx/a"
        logs = {"Level": "WARN_ONLY", "Destination": {"Fn::Sub": arn}}
        assert found(Fs=file_system({"LogConfiguration": logs})) == expected


LIFECYCLE = {"LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "ExpirationInDays": 3}]}}
SERVICE = {"Service": "lifecycle.s3.amazonaws.com"}


def session(action: Any = "s3express:CreateSession", mode: str | None = None, **more: Any) -> dict[str, Any]:
    condition = {} if mode is None else {"Condition": {"StringEquals": {"s3express:SessionMode": mode}}}
    return {"Effect": "Allow", "Principal": SERVICE, "Action": action, "Resource": "*", **condition, **more}


@pytest.mark.parametrize(
    ("statements", "granted"),
    [
        ([session()], True),
        ([session(mode="ReadWrite")], True),
        ([session(mode="ReadOnly")], False),
        ([session(mode="ReadOnly"), session(mode="ReadWrite")], True),
        ([session("s3express:Create*")], True),
        ([session("s3express:*")], True),
        ([session(["s3express:GetBucketPolicy"])], False),
        ([session(Principal="*")], True),
        ([session(Principal={"AWS": "*"})], True),
        ([session(Principal={"Service": "ec2.amazonaws.com"})], False),
        ([session(), session(Effect="Deny", Principal="*")], False),
        ([session(Effect="Deny", Principal="*", mode="ReadWrite"), session()], False),
        ([session(Effect="Deny", Principal="*", mode="ReadOnly"), session()], True),
        (
            [
                session(),
                session("*", Effect="Deny", Principal="*", Condition={"Bool": {"aws:SecureTransport": "false"}}),
            ],
            True,
        ),
        ([session(Condition={"StringNotEquals": {"s3express:SessionMode": "ReadOnly"}})], True),
        ([session(Condition={"StringNotEquals": {"s3express:SessionMode": "ReadWrite"}})], False),
    ],
)
def test_lifecycle_needs_sessions_that_write(statements: list[Any], granted: bool) -> None:
    policy = {
        "Type": "AWS::S3Express::BucketPolicy",
        "Properties": {"Bucket": {"Ref": "Hot"}, "PolicyDocument": {"Statement": statements}},
    }
    expected = [] if granted else [("Hot", "express-lifecycle-grant")]
    assert found(Hot=express(**LIFECYCLE), Policy=policy) == expected


def test_a_reference_to_an_alias_is_no_key() -> None:
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": {"Ref": "Alias"}}
    encryption = {"ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": by_default}]}
    alias = {"Type": "AWS::KMS::Alias", "Properties": {"AliasName": "alias/a", "TargetKeyId": "k"}}
    key = {"Type": "AWS::KMS::Key", "Properties": {}}
    assert found(Hot=express(BucketEncryption=encryption), Alias=alias) == [("Hot", "express-kms-key")]
    assert found(Hot=express(BucketEncryption=encryption), Alias=key) == []


def test_an_access_point_is_in_the_zone_of_its_bucket() -> None:
    def point(zone: str, bucket: Any) -> dict[str, Any]:
        name = f"ab--{zone}--xa-s3"
        return {"Type": "AWS::S3Express::AccessPoint", "Properties": {"Name": name, "Bucket": bucket}}

    for bucket in ({"Ref": "Hot"}, "data--use1-az4--x-s3"):
        assert found(Hot=express(), Point=point("use1-az4", bucket)) == []
        assert found(Hot=express(), Point=point("use1-az5", bucket)) == [("Point", "express-access-point-zone")]


def test_events_that_are_no_list_are_refused() -> None:
    own = link(S3={"AutoImportPolicy": {"Events": "NEW"}})
    assert found(Fs=file_system(), Link=own) == [("Link", "link-events")]


def test_nested_stacks_are_said() -> None:
    nested = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "https://example.com"}}
    assert any(note.startswith("Child: nested stack") for note in skipped(Child=nested))


#: One resource of every type that is looked into, with every property that is read.
EVERYTHING: dict[str, Any] = {
    "Fs": file_system(
        {
            "LogConfiguration": {"Level": "WARN_ONLY", "Destination": {"Ref": "Logs"}},
            "ImportPath": "s3://bucket/a",
            "ExportPath": "s3://bucket/b",
            "DataReadCacheConfiguration": {"SizingMode": "NO_CACHE", "SizeGiB": 1},
            "EfaEnabled": True,
            "AutomaticBackupRetentionDays": 1,
            "ImportedFileChunkSize": 1,
            "AutoImportPolicy": "NEW",
            "DriveCacheType": "READ",
            "ThroughputCapacity": 4000,
        },
        KmsKeyId="k",
        Tags=[{"Key": "a", "Value": "b"}],
        SecurityGroupIds=[{"Ref": "Group"}],
        BackupId="backup-1",
    ),
    "Link": link("/a", {"Fn::Sub": "s3://${Lake}/x/"}, ImportedFileChunkSize=1, **IMPORTING),
    "Lake": {
        "Type": "AWS::S3::Bucket",
        "Properties": {
            "BucketName": "bucket",
            "LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "Prefix": "x", "Transitions": FREEZE}]},
            "IntelligentTieringConfigurations": [
                {"Status": "Enabled", "Tierings": [{"AccessTier": "DEEP_ARCHIVE_ACCESS"}]}
            ],
            "NotificationConfiguration": {},
        },
    },
    "Policy": denial(bucket={"Ref": "Lake"}),
    "Notify": {"Type": "Custom::S3BucketNotifications", "Properties": {"BucketName": {"Ref": "Lake"}, "Managed": True}},
    "Hot": express(
        "data--use1-az4--x-s3",
        BucketEncryption={
            "ServerSideEncryptionConfiguration": [
                {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "k"}}
            ]
        },
        **LIFECYCLE,
    ),
    "HotPolicy": {
        "Type": "AWS::S3Express::BucketPolicy",
        "Properties": {"Bucket": {"Ref": "Hot"}, "PolicyDocument": {"Statement": [session(mode="ReadWrite")]}},
    },
    "Point": {"Type": "AWS::S3Express::AccessPoint", "Properties": {"Name": "a", "Bucket": {"Ref": "Hot"}}},
    "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/aws/fsx/a"}},
    "Group": {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"SecurityGroupIngress": [{"IpProtocol": "-1", "SourceSecurityGroupId": {"Ref": "Group"}}]},
    },
    "Alias": {"Type": "AWS::KMS::Alias", "Properties": {"AliasName": "alias/a"}},
    "Child": {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "u"}},
}


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["Hot", "*", "${A}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5)
            | st.sampled_from(["Ref", "Fn::Sub", "Fn::GetAtt", "Fn::Join", "Fn::If", "Events", "Statement", "Service"])
            | st.sampled_from(["AutoImportPolicy", "Condition", "StringNotEquals", "Rules", "Action", "AWS", "Mode"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(places(EVERYTHING)), ANYTHING)
@settings(max_examples=400, deadline=None)
def test_any_value_anywhere_gives_findings_or_notes_never_an_exception(place: tuple[Any, ...], value: Any) -> None:
    template: Any = {"Resources": copy.deepcopy(EVERYTHING)}
    node, key = template, "Resources"
    for step in place:
        node, key = node[key], step
    node[key] = value
    report = check_template(template, region="us-east-1")
    assert all(len(found.finding.message) <= 200 for found in report.findings)
