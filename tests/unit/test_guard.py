"""The guard names what an update would replace or remove, and is quiet about everything else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage.planning.guard import Effect, compare_templates
from training_storage.testing.assertions import assert_legal, assert_nothing_lost

TEMPLATE: dict[str, Any] = {
    "Parameters": {"Capacity": {"Type": "Number", "Default": 1200}, "KeyArn": {"Type": "String", "Default": "k1"}},
    "Resources": {
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24", "AvailabilityZoneId": "use1-az4"},
        },
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "g", "VpcId": "vpc-1"}},
        "Key": {"Type": "AWS::KMS::Key", "DeletionPolicy": "Retain", "Properties": {}},
        "Fs": {
            "Type": "AWS::FSx::FileSystem",
            "UpdateReplacePolicy": "Retain",
            "DeletionPolicy": "RetainExceptOnCreate",
            "Properties": {
                "FileSystemType": "LUSTRE",
                "FileSystemTypeVersion": "2.15",
                "StorageCapacity": 4800,
                "KmsKeyId": {"Fn::GetAtt": ["Key", "Arn"]},
                "SubnetIds": [{"Ref": "Subnet"}],
                "SecurityGroupIds": [{"Fn::GetAtt": ["Group", "GroupId"]}],
                "LustreConfiguration": {
                    "DeploymentType": "PERSISTENT_2",
                    "PerUnitStorageThroughput": 125,
                    "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 6000},
                    "EfaEnabled": False,
                },
                "Tags": [{"Key": "a", "Value": "b"}],
            },
        },
        "Link": {
            "Type": "AWS::FSx::DataRepositoryAssociation",
            "Properties": {
                "FileSystemId": {"Ref": "Fs"},
                "FileSystemPath": "/a",
                "DataRepositoryPath": "s3://b/a/",
                "ImportedFileChunkSize": 1024,
            },
        },
        "Hot": {
            "Type": "AWS::S3Express::DirectoryBucket",
            "Properties": {"LocationName": "use1-az4", "DataRedundancy": "SingleAvailabilityZone"},
        },
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "a"}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the template with the value at a path; None drops it."""
    after = copy.deepcopy(TEMPLATE)
    node: Any = after["Resources"]
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    if value is None:
        node.pop(last, None)
    else:
        node[last] = value
    return after


def losses(path: str, value: Any) -> dict[str, tuple[Effect, tuple[str, ...]]]:
    return {
        loss.logical_id: (loss.effect, loss.properties) for loss in compare_templates(TEMPLATE, changed(path, value))
    }


FS = "Fs.Properties."
LUSTRE = FS + "LustreConfiguration."


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        (FS + "KmsKeyId", "arn:aws:kms:us-east-1:111122223333:key/other", "KmsKeyId"),
        (FS + "SubnetIds", ["subnet-2"], "SubnetIds"),
        (FS + "SecurityGroupIds", ["sg-2"], "SecurityGroupIds"),
        (FS + "BackupId", "backup-1", "BackupId"),
        (FS + "FileSystemTypeVersion", "2.12", "FileSystemTypeVersion"),
        (LUSTRE + "PerUnitStorageThroughput", 250, "LustreConfiguration.PerUnitStorageThroughput"),
        (LUSTRE + "DeploymentType", "PERSISTENT_1", "LustreConfiguration.DeploymentType"),
        (LUSTRE + "ImportPath", "s3://b", "LustreConfiguration.ImportPath"),
        (LUSTRE + "DriveCacheType", "READ", "LustreConfiguration.DriveCacheType"),
    ],
)
def test_a_property_that_replaces_the_file_system_is_named_and_its_links_go_with_it(
    path: str, value: Any, cause: str
) -> None:
    assert losses(path, value) == {
        "Fs": (Effect.REPLACED, (cause,)),
        "Link": (Effect.REPLACED, ("FileSystemId (Fs is replaced)",)),
    }


def test_a_changed_subnet_or_group_behind_the_same_name_counts() -> None:
    for path, value, behind in (
        ("Subnet.Properties.CidrBlock", "10.0.1.0/24", "SubnetIds (Subnet is replaced)"),
        ("Group.Properties.GroupDescription", "other", "SecurityGroupIds (Group is replaced)"),
    ):
        assert losses(path, value)["Fs"] == (Effect.REPLACED, (behind,))


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        ("Link.Properties.FileSystemPath", "/b", "FileSystemPath"),
        ("Link.Properties.DataRepositoryPath", "s3://b/c/", "DataRepositoryPath"),
        ("Link.Properties.BatchImportMetaDataOnCreate", True, "BatchImportMetaDataOnCreate"),
        ("Hot.Properties.LocationName", "use1-az5", "LocationName"),
        ("Hot.Properties.BucketName", "a--use1-az4--x-s3", "BucketName"),
    ],
)
def test_links_and_directory_buckets_are_guarded_as_well(path: str, value: Any, cause: str) -> None:
    assert losses(path, value) == {path.split(".", maxsplit=1)[0]: (Effect.REPLACED, (cause,))}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (FS + "StorageCapacity", 7200),
        (FS + "StorageCapacity", "4800"),
        (FS + "Tags", [{"Key": "c", "Value": "d"}]),
        (LUSTRE + "MetadataConfiguration.Iops", 12000),
        (LUSTRE + "DataCompressionType", "LZ4"),
        (LUSTRE + "AutoImportPolicy", "NEW"),
        (LUSTRE + "WeeklyMaintenanceStartTime", "1:00:00"),
        (LUSTRE + "LogConfiguration", {"Level": "WARN_ERROR"}),
        (LUSTRE + "EfaEnabled", "false"),
        ("Link.Properties.ImportedFileChunkSize", 2048),
        ("Link.Properties.S3", {"AutoImportPolicy": {"Events": ["NEW"]}}),
        ("Hot.Properties.LifecycleConfiguration", {"Rules": []}),
        ("Role.Properties.RoleName", "b"),
        ("Role", None),
        ("New", {"Type": "AWS::FSx::FileSystem"}),
        ("Group.Properties.SecurityGroupIngress", []),
    ],
)
def test_growth_tags_and_the_rest_are_quiet(path: str, value: Any) -> None:
    assert losses(path, value) == {}


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        (FS + "StorageType", "HDD", "StorageType"),
        (LUSTRE + "EfaEnabled", True, "LustreConfiguration.EfaEnabled"),
        (FS + "StorageCapacity", 2400, "StorageCapacity (4800 to 2400; it only grows)"),
        (LUSTRE + "MetadataConfiguration.Iops", 3000, "MetadataConfiguration.Iops (6000 to 3000; they only grow)"),
    ],
)
def test_what_changes_neither_in_place_nor_by_replacement_is_named(path: str, value: Any, cause: str) -> None:
    assert losses(path, value) == {"Fs": (Effect.REFUSED, (cause,))}


def test_metadata_cannot_be_added_later() -> None:
    before = changed("Fs.Properties.LustreConfiguration.MetadataConfiguration", None)
    [loss] = compare_templates(before, TEMPLATE)
    assert loss.properties == ("MetadataConfiguration (only at creation)",)


def test_a_removed_resource_says_what_becomes_of_its_data() -> None:
    [kept] = compare_templates(TEMPLATE, changed("Fs", None), accept=["Link"])
    assert (kept.logical_id, kept.effect) == ("Fs", Effect.REMOVED)
    assert "stays outside the stack (DeletionPolicy RetainExceptOnCreate)" in kept.message
    [gone] = compare_templates(TEMPLATE, changed("Hot", None))
    assert "lost: objects in one zone" in gone.message


def test_a_renamed_resource_is_a_removed_one() -> None:
    after = changed("Hot", None)
    after["Resources"]["Warm"] = TEMPLATE["Resources"]["Hot"]
    [loss] = compare_templates(TEMPLATE, after)
    assert "Warm is a new one, not the same renamed" in loss.message


def test_replacement_says_whether_the_old_one_stays() -> None:
    [kept, lost] = compare_templates(TEMPLATE, changed(FS + "KmsKeyId", "other"))
    assert "the new one is empty, and the old one stays" in kept.message
    assert "lost: changes that have not been exported" in lost.message


def test_a_loss_is_accepted_by_name_only() -> None:
    after = changed(FS + "KmsKeyId", "other")
    assert [loss.logical_id for loss in compare_templates(TEMPLATE, after, accept=["Fs"])] == ["Link"]
    assert compare_templates(TEMPLATE, after, accept=["Fs", "Link"]) == ()


def test_a_changed_parameter_behind_the_same_reference_counts() -> None:
    before = changed(FS + "KmsKeyId", {"Ref": "KeyArn"})
    after = copy.deepcopy(before)
    assert compare_templates(before, after) == ()
    after["Parameters"]["KeyArn"]["Default"] = "k2"
    assert [loss.properties for loss in compare_templates(before, after, accept=["Link"])] == [("KmsKeyId",)]
    # A deployed stack keeps its values unless others are given, whatever the new default says.
    assert compare_templates(before, after, parameters_before={"KeyArn": "mine"}) == ()
    found = compare_templates(before, after, parameters_before={"KeyArn": "mine"}, parameters_after={"KeyArn": "new"})
    assert [loss.logical_id for loss in found] == ["Fs", "Link"]


def test_a_change_within_a_function_counts_as_a_change() -> None:
    before = changed("Fs.Properties.LustreConfiguration", {"Fn::If": ["C", {"DeploymentType": "PERSISTENT_2"}, {}]})
    after = changed("Fs.Properties.LustreConfiguration", {"Fn::If": ["C", {"DeploymentType": "PERSISTENT_1"}, {}]})
    assert compare_templates(before, before) == ()
    assert compare_templates(before, after)[0].effect is Effect.REPLACED


def test_messages_are_short_and_have_sources() -> None:
    long = changed(FS + "KmsKeyId", "other" * 100)
    long["Resources"]["Fs"]["Properties"]["SubnetIds"] = ["other"]
    long["Resources"]["Fs"]["Properties"]["LustreConfiguration"]["ImportPath"] = "s3://x"
    for loss in compare_templates(TEMPLATE, long):
        assert len(loss.message) <= 200
        assert loss.source


@given(st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5)))
def test_a_template_never_differs_from_itself(properties: dict[str, Any]) -> None:
    template = {"Resources": {"Fs": {"Type": "AWS::FSx::FileSystem", "Properties": properties}}}
    assert compare_templates(template, copy.deepcopy(template)) == ()


def test_the_assertions_for_users_pass_and_fail() -> None:
    assert_legal(TEMPLATE, region="us-east-1")
    assert_nothing_lost(TEMPLATE, changed(FS + "StorageCapacity", 7200))
    with pytest.raises(AssertionError, match=r"Fs: storage_capacity_gib must be .*got: 1300"):
        assert_legal(changed(FS + "StorageCapacity", 1300))
    with pytest.raises(AssertionError, match="Fs: FSx::FileSystem would be replaced because of KmsKeyId"):
        assert_nothing_lost(TEMPLATE, changed(FS + "KmsKeyId", "other"))
    assert_nothing_lost(TEMPLATE, changed(FS + "KmsKeyId", "other"), accept=["Fs", "Link"])
