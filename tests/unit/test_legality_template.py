"""Any CloudFormation template: faults are found through references, functions are left alone, nothing else is said."""

from __future__ import annotations

from typing import Any

import pytest

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


def link(path: str = "/a", repository: Any = "s3://bucket/a/", system: Any = None, **more: Any) -> dict[str, Any]:
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
