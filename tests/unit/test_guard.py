"""The guard names what an update would replace or remove, and is quiet about everything else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage.planning.guard import Effect, Nested, compare, compare_templates
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


def with_conditions(template: dict[str, Any], **conditions: Any) -> dict[str, Any]:
    return {**template, "Conditions": conditions}


TRUE, FALSE = {"Fn::Equals": ["a", "a"]}, {"Fn::Equals": ["a", "b"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TRUE, FALSE),
        ({"Fn::Equals": ["a", "a"]}, {"Fn::Not": [TRUE]}),
        ({"Fn::Or": [FALSE, TRUE]}, {"Fn::Or": [FALSE, FALSE]}),
        ({"Fn::And": [TRUE, TRUE]}, {"Fn::And": [TRUE, FALSE]}),
        ({"Condition": "Yes"}, {"Condition": "No"}),
        ({"Fn::Equals": [{"Ref": "KeyArn"}, "k1"]}, {"Fn::Equals": [{"Ref": "KeyArn"}, "other"]}),
        ({"Fn::Equals": [{"Ref": "Capacity"}, "1200"]}, {"Fn::Equals": [{"Ref": "Capacity"}, 2400]}),
    ],
)
def test_a_condition_that_turns_false_removes_and_turns_what_it_chooses(before: Any, after: Any) -> None:
    conditional = changed("Hot.Condition", "C")
    old = with_conditions(conditional, C=before, Yes=TRUE, No=FALSE)
    new = with_conditions(conditional, C=after, Yes=TRUE, No=FALSE)
    assert [(loss.logical_id, loss.effect) for loss in compare_templates(old, new)] == [("Hot", Effect.REMOVED)]
    assert compare_templates(old, old) == ()
    assert compare_templates(new, old) == ()
    chosen = changed(FS + "SubnetIds", [{"Fn::If": ["C", "subnet-1", "subnet-2"]}])
    found = compare_templates(
        with_conditions(chosen, C=before, Yes=TRUE, No=FALSE),
        with_conditions(chosen, C=after, Yes=TRUE, No=FALSE),
        accept=["Link"],
    )
    assert [loss.properties for loss in found] == [("SubnetIds",)]


def test_a_changed_parameter_turns_a_condition() -> None:
    template = with_conditions(changed("Hot.Condition", "C"), C={"Fn::Equals": [{"Ref": "KeyArn"}, "k1"]})
    other = copy.deepcopy(template)
    other["Parameters"]["KeyArn"]["Default"] = "k2"
    assert [loss.logical_id for loss in compare_templates(template, other)] == ["Hot"]
    # The stack keeps the value that it has.
    assert compare_templates(template, other, parameters_before={"KeyArn": "k1"}) == ()


def test_a_changed_mapping_counts() -> None:
    before = changed(FS + "SubnetIds", [{"Fn::FindInMap": ["Nets", "a", "subnet"]}])
    before["Mappings"] = {"Nets": {"a": {"subnet": "subnet-1"}}}
    after = copy.deepcopy(before)
    after["Mappings"]["Nets"]["a"]["subnet"] = "subnet-2"
    assert [loss.properties for loss in compare_templates(before, after, accept=["Link"])] == [("SubnetIds",)]
    literal = changed(FS + "SubnetIds", ["subnet-1"])
    assert compare_templates(before, literal) == ()


@pytest.mark.parametrize(
    "template",
    [
        {**changed("Hot.Condition", "C"), "Conditions": {"C": {"Fn::Equals": [{"Ref": "AWS::AccountId"}, "1"]}}},
        {
            **changed("Hot.Properties.LocationName", {"Fn::FindInMap": ["C", {"Ref": "AWS::AccountId"}, "zone"]}),
            "Mappings": {"C": {"1": {"zone": "use1-az4"}}},
        },
        {
            **changed("Hot.Properties.LocationName", {"Fn::If": ["C", "use1-az4", "use1-az5"]}),
            "Conditions": {"C": {"Fn::Equals": [{"Ref": "AWS::AccountId"}, "1"]}},
        },
    ],
)
def test_what_depends_on_an_unknown_condition_or_mapping_that_changed_is_said(template: dict[str, Any]) -> None:
    after = copy.deepcopy(template)
    for part in ("Conditions", "Mappings"):
        if part in after:
            after[part]["C"] = {"Fn::Equals": [{"Ref": "AWS::AccountId"}, "2"]}
    found = compare(template, after)
    assert found.losses == ()
    assert len(found.unchecked) == 1
    assert "known only at deployment" in found.unchecked[0]
    assert compare(template, template).unchecked == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"Fn::GetAtt": "Key.Arn"}, {"Fn::GetAtt": ["Key", "Arn"]}),
        ({"Ref": "Key"}, {"Fn::Sub": "${Key}"}),
        ({"Fn::GetAtt": ["Key", "Arn"]}, {"Fn::Sub": "${Key.Arn}"}),
        ({"Ref": "KeyArn"}, "k1"),
        ({"Fn::Sub": "${KeyArn}-${AWS::Region}"}, {"Fn::Join": ["-", ["k1", {"Ref": "AWS::Region"}]]}),
        ({"Fn::Select": [1, ["k0", {"Ref": "KeyArn"}]]}, {"Fn::Select": ["0", {"Fn::Split": [",", "k1,k2"]}]}),
        ({"Fn::If": ["Yes", "k1", "k2"]}, "k1"),
        ({"Fn::Sub": ["${Name}", {"Name": {"Ref": "Key"}}]}, {"Ref": "Key"}),
    ],
)
def test_the_same_value_in_another_form_is_no_change(one: Any, other: Any) -> None:
    before, after = (with_conditions(changed(FS + "KmsKeyId", value), Yes=TRUE) for value in (one, other))
    assert compare_templates(before, after) == ()
    assert compare_templates(after, before) == ()
    literal = changed(FS + "KmsKeyId", "elsewhere")
    assert [loss.properties for loss in compare_templates(before, literal, accept=["Link"])] == [("KmsKeyId",)]


def test_text_that_looks_like_a_reference_is_none() -> None:
    before, after = changed(FS + "KmsKeyId", {"Ref": "Key"}), changed(FS + "KmsKeyId", "${Key}")
    assert [loss.properties for loss in compare_templates(before, after, accept=["Link"])] == [("KmsKeyId",)]


def test_a_change_within_a_block_that_a_condition_chooses_names_only_what_changed() -> None:
    def chosen(**lustre: Any) -> dict[str, Any]:
        block = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125, **lustre}
        return changed("Fs.Properties.LustreConfiguration", {"Fn::If": ["C", block, {"Ref": "AWS::NoValue"}]})

    assert compare_templates(chosen(), chosen(DataCompressionType="LZ4")) == ()
    found = compare_templates(chosen(), chosen(PerUnitStorageThroughput=250), accept=["Link"])
    assert [loss.properties for loss in found] == [("LustreConfiguration.PerUnitStorageThroughput",)]


def test_a_block_that_is_another_function_is_named_once() -> None:
    before = changed("Fs.Properties.LustreConfiguration", {"Fn::Transform": {"Name": "a"}})
    after = changed("Fs.Properties.LustreConfiguration", {"Fn::Transform": {"Name": "b"}})
    assert compare_templates(before, after, accept=["Link"])[0].properties == ("LustreConfiguration",)


def test_a_capacity_that_shrinks_through_a_parameter_is_named() -> None:
    before = changed(FS + "StorageCapacity", {"Ref": "Capacity"})
    after = copy.deepcopy(before)
    after["Parameters"]["Capacity"]["Default"] = 600
    [loss] = compare_templates(before, after)
    assert loss.properties == ("StorageCapacity (1200 to 600; it only grows)",)
    assert compare_templates(after, before) == ()


@pytest.mark.parametrize("resource", ["Fs", "Hot", "Key"])
def test_a_snapshot_is_promised_only_where_cloudformation_takes_one(resource: str) -> None:
    before = changed(f"{resource}.DeletionPolicy", "Snapshot")
    after = changed(resource, None)
    loss = next(found for found in compare_templates(before, after) if found.logical_id == resource)
    assert "lost (DeletionPolicy Snapshot is not supported here)" in loss.message
    volume = {"Resources": {"V": {"Type": "AWS::EC2::Volume", "DeletionPolicy": "Snapshot"}}}
    assert "after a snapshot" in compare_templates(volume, {})[0].message


NESTED: dict[str, Any] = {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "https://example.com/1"}}
PARENT: dict[str, Any] = {"Resources": {"Child": NESTED}}


def test_a_removed_nested_stack_is_named_with_what_it_holds() -> None:
    [loss] = compare_templates(PARENT, {"Resources": {}})
    assert (loss.logical_id, loss.effect) == ("Child", Effect.REMOVED)
    known = compare(PARENT, {"Resources": {}}, nested_before=lambda *_: Nested(template=TEMPLATE))
    assert {found.logical_id for found in known.losses} == {"Child/Key", "Child/Fs", "Child/Link", "Child/Hot"}
    kept = {"Resources": {"Child": {**NESTED, "DeletionPolicy": "Retain"}}}
    assert compare_templates(kept, {}) == ()


def test_nested_stacks_are_compared_where_their_templates_are_at_hand() -> None:
    found = compare(
        PARENT,
        PARENT,
        nested_before=lambda *_: Nested(template=TEMPLATE),
        nested_after=lambda *_: Nested(template=changed("Hot", None)),
    )
    assert [loss.logical_id for loss in found.losses] == ["Child/Hot"]
    unknown = compare(PARENT, PARENT)
    assert (unknown.losses, len(unknown.unchecked)) == ((), 1)
    assert "Child: nested stack" in unknown.unchecked[0]


CHILD: dict[str, Any] = {
    "Parameters": {"Subnet": {"Type": "String", "Default": "subnet-0"}},
    "Resources": {"Fs": changed(FS + "SubnetIds", [{"Ref": "Subnet"}])["Resources"]["Fs"]},
}


@pytest.mark.parametrize(
    ("before", "after", "standing", "causes"),
    [
        ("subnet-1", "subnet-1", None, []),
        ("subnet-1", "subnet-2", None, ["SubnetIds"]),
        (None, None, None, []),
        (None, "subnet-1", None, ["SubnetIds"]),
        ({"Ref": "Net"}, {"Fn::Sub": "${Net}"}, {"Subnet": "subnet-0a1"}, []),
        ({"Ref": "Net"}, {"Ref": "Other"}, {"Subnet": "subnet-0a1"}, ["SubnetIds"]),
        ({"Ref": "Moved"}, {"Ref": "Moved"}, {"Subnet": "subnet-0a1"}, ["SubnetIds"]),
    ],
)
def test_what_a_nested_stack_is_given_counts(before: Any, after: Any, standing: Any, causes: list[str]) -> None:
    def parent(value: Any, cidr: str) -> dict[str, Any]:
        properties = {**NESTED["Properties"], **({} if value is None else {"Parameters": {"Subnet": value}})}
        moved = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": "v", "CidrBlock": cidr}}
        return {"Resources": {"Moved": moved, "Child": {**NESTED, "Properties": properties}}}

    found = compare(
        parent(before, "10.0.0.0/24"),
        parent(after, "10.0.1.0/24"),
        nested_before=lambda *_: Nested(template=CHILD, parameters=standing),
        nested_after=lambda *_: Nested(template=CHILD),
    )
    assert [cause for loss in found.losses for cause in loss.properties] == causes


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["C", "Fs", "${C}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Ref", "Fn::If", "Fn::Sub", "Fn::Join", "Fn::FindInMap", "Fn::GetAtt", "Fn::Select"])
            | st.sampled_from(["Fn::Equals", "Fn::And", "Condition", "Fn::Split", "LustreConfiguration", "Type"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


@given(
    JSON_VALUES,
    JSON_VALUES,
    st.sampled_from([FS + "KmsKeyId", "Fs.Properties", "Fs.Condition", "Fs", LUSTRE + "ImportPath"]),
)
def test_the_guard_answers_whatever_stands_where(value: Any, condition: Any, path: str) -> None:
    template = with_conditions(changed(path, value), C=condition)
    assert compare(template, copy.deepcopy(template)).losses == ()
    for part in ("Conditions", "Mappings", "Parameters", "Resources"):
        compare({**template, part: value}, TEMPLATE)
        compare(TEMPLATE, {**template, part: {"C": value, "Fs": condition}})


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


LUSTRE_P2 = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}


def lustre_template(lustre: dict[str, Any], **properties: Any) -> dict[str, Any]:
    system = {"FileSystemType": "LUSTRE", "SubnetIds": ["subnet-01234567"], "StorageCapacity": 2400, **properties}
    return {
        "Resources": {"Fs": {"Type": "AWS::FSx::FileSystem", "Properties": {**system, "LustreConfiguration": lustre}}}
    }


@pytest.mark.parametrize(
    ("lustre", "properties", "words"),
    [
        ({"EfaEnabled": False}, {}, "may not be updated: the service may refuse to be told LustreConfiguration.Efa"),
        ({"EfaEnabled": "false"}, {}, "may not be updated: the service may refuse to be told LustreConfiguration.Efa"),
        (
            {"CopyTagsToBackups": False},
            {},
            "may be replaced because of LustreConfiguration.CopyTagsToBackups (left out",
        ),
        ({}, {"StorageType": "SSD"}, "may not be updated: the service may refuse to be told StorageType (left out"),
    ],
)
def test_a_default_that_is_written_out_may_be_a_change_to_cloudformation(
    lustre: dict[str, Any], properties: dict[str, Any], words: str
) -> None:
    left_out, written = lustre_template(LUSTRE_P2), lustre_template({**LUSTRE_P2, **lustre}, **properties)
    for before, after in ((left_out, written), (written, left_out)):
        (loss,) = compare_templates(before, after)
        assert loss.possible
        assert words in loss.message
        assert compare_templates(after, after) == ()


def test_a_link_whose_batch_import_is_written_out_may_be_replaced_and_so_may_what_refers_to_a_doubtful_one() -> None:
    def template(*, tags: object = None, batch: object = None) -> dict[str, Any]:
        lustre = {**LUSTRE_P2} if tags is None else {**LUSTRE_P2, "CopyTagsToBackups": tags}
        link: dict[str, Any] = {
            "FileSystemId": {"Ref": "Fs"},
            "FileSystemPath": "/a",
            "DataRepositoryPath": "s3://b/a/",
        }
        if batch is not None:
            link["BatchImportMetaDataOnCreate"] = batch
        resources = lustre_template(lustre)["Resources"]
        return {"Resources": {**resources, "Link": {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": link}}}

    def found(after: dict[str, Any]) -> dict[str, tuple[bool, tuple[str, ...]]]:
        return {loss.logical_id: (loss.possible, loss.properties) for loss in compare_templates(template(), after)}

    assert found(template(batch=False)) == {"Link": (True, ("BatchImportMetaDataOnCreate (left out of one template)",))}
    assert found(template(batch=True)) == {"Link": (False, ("BatchImportMetaDataOnCreate",))}
    assert found(template(tags=False))["Link"] == (True, ("FileSystemId (Fs may be replaced)",))
    # What is certain hides what is not, also behind a reference.
    assert found(template(tags=True, batch=False)) == {
        "Fs": (False, ("LustreConfiguration.CopyTagsToBackups",)),
        "Link": (False, ("FileSystemId (Fs is replaced)",)),
    }


@pytest.mark.parametrize(("iops", "refused"), [(1500, False), (3000, False), (6000, True)])
def test_automatic_metadata_iops_below_the_provisioned_ones_are_refused(iops: int, refused: bool) -> None:
    # FSx: metadata IOPS only grow; AUTOMATIC gives 3,000 on 2,400 GiB.
    before = lustre_template({**LUSTRE_P2, "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": iops}})
    after = lustre_template({**LUSTRE_P2, "MetadataConfiguration": {"Mode": "AUTOMATIC"}})
    assert bool(compare_templates(before, after)) == refused
