"""Stacks fail, roll back, replace and go as they do on AWS."""

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

_VPC = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}
_BROKEN = {"Type": "AWS::SQS::Queue", "Properties": {"NoSuchProperty": 1}}


def _name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def _bucket(name: str, **attributes: Any) -> dict[str, Any]:
    return {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": name}, **attributes}


def _queue(name: str | None = None, **attributes: Any) -> dict[str, Any]:
    return {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": name} if name else {}, **attributes}


def _buckets(aws: Any) -> set[str]:
    return {bucket["Name"] for bucket in aws.client("s3").list_buckets()["Buckets"]}


# ---- failed creations and updates ----


def test_forbidden_property_fails_the_deployment_with_its_name_and_rolls_back(local_aws: LocalAws, stacks: Any) -> None:
    bucket = _name("kept")
    name = _name("forbidden")
    stack = stacks.create(name, {"Bucket": _bucket(bucket), "Queue": {**_BROKEN, "DependsOn": "Bucket"}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "extraneous key [NoSuchProperty] is not permitted" in stacks.reasons(name)
    assert bucket not in _buckets(local_aws)


def test_failed_creation_removes_what_it_made_even_retain_except_on_create(local_aws: LocalAws, stacks: Any) -> None:
    bucket = _name("except")
    resources = {
        "Bucket": _bucket(bucket, DeletionPolicy="RetainExceptOnCreate"),
        "Queue": {**_BROKEN, "DependsOn": "Bucket"},
    }
    assert stacks.create(_name("except"), resources)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert bucket not in _buckets(local_aws)


def test_failed_creation_keeps_a_retained_resource(local_aws: LocalAws, stacks: Any) -> None:
    bucket = _name("retained")
    resources = {"Bucket": _bucket(bucket, DeletionPolicy="Retain"), "Queue": {**_BROKEN, "DependsOn": "Bucket"}}
    assert stacks.create(_name("retained"), resources)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert bucket in _buckets(local_aws)


def test_failed_update_restores_properties_and_removes_new_resources(local_aws: LocalAws, stacks: Any) -> None:
    name, added = _name("restore"), _name("added")
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 30}}
    stacks.create(name, {"Queue": queue})
    changed = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 60}}
    broken = {**_BROKEN, "DependsOn": ["Queue", "Bucket"]}
    stack = stacks.update(name, {"Queue": changed, "Bucket": _bucket(added), "Broken": broken})
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    url = stacks.resource(name, "Queue")
    attributes = local_aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "30"
    assert added not in _buckets(local_aws)


# ---- replacement ----


def test_create_only_change_replaces_and_deletes_the_old_one_afterwards(local_aws: LocalAws, stacks: Any) -> None:
    name = _name("replace")
    group = {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}}
    stacks.create(name, {"Group": group})
    before = stacks.resource(name, "Group")
    group = {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "spread"}}
    assert stacks.update(name, {"Group": group})["StackStatus"] == "UPDATE_COMPLETE"
    after = stacks.resource(name, "Group")
    assert after != before
    names = {g["GroupName"] for g in local_aws.client("ec2").describe_placement_groups()["PlacementGroups"]}
    assert after in names
    assert before not in names
    created = [status for logical_id, status, _ in stacks.events(name) if logical_id == "Group"]
    assert created.index("DELETE_IN_PROGRESS") > created.index("UPDATE_COMPLETE")


def test_replaced_resource_with_update_replace_policy_retain_stays(local_aws: LocalAws, stacks: Any) -> None:
    name = _name("keepold")
    group = {"Type": "AWS::EC2::PlacementGroup", "UpdateReplacePolicy": "Retain"}
    stacks.create(name, {"Group": {**group, "Properties": {"Strategy": "cluster"}}})
    before = stacks.resource(name, "Group")
    stacks.update(name, {"Group": {**group, "Properties": {"Strategy": "spread"}}})
    names = {g["GroupName"] for g in local_aws.client("ec2").describe_placement_groups()["PlacementGroups"]}
    assert {before, stacks.resource(name, "Group")} <= names


def test_subnet_moved_to_another_zone_is_replaced(stacks: Any) -> None:
    name = _name("zone")

    def subnet(zone: str, cidr: str) -> dict[str, Any]:
        properties = {"VpcId": {"Ref": "Vpc"}, "CidrBlock": cidr, "AvailabilityZoneId": zone}
        return {"Vpc": _VPC, "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": properties}}

    stacks.create(name, subnet("use1-az4", "10.0.0.0/24"))
    before = stacks.resource(name, "Subnet")
    stacks.update(name, subnet("use1-az6", "10.0.1.0/24"))
    assert stacks.resource(name, "Subnet") != before


def test_custom_named_resource_cannot_be_replaced_under_the_same_name(stacks: Any) -> None:
    name = _name("named")

    def cluster(size: str) -> dict[str, Any]:
        properties = {
            "LocationName": size,
            "DataRedundancy": "SingleAvailabilityZone",
            "BucketName": f"{name}--use1-az4--x-s3",
        }
        return {"Bucket": {"Type": "AWS::S3Express::DirectoryBucket", "Properties": properties}}

    stacks.create(name, cluster("use1-az4"))
    stack = stacks.update(name, cluster("use1-az5"))
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "cannot update a stack when a custom-named resource requires replacing" in stacks.reasons(name)


def test_cleanup_of_an_update_tries_three_times_then_completes(local_aws: LocalAws, stacks: Any) -> None:
    name, bucket = _name("cleanup"), _name("full")
    stacks.create(name, {"Bucket": _bucket(bucket), "Queue": _queue()})
    local_aws.client("s3").put_object(Bucket=bucket, Key="x", Body=b"1")
    assert stacks.update(name, {"Queue": _queue()})["StackStatus"] == "UPDATE_COMPLETE"
    failures = [reason for logical_id, status, reason in stacks.events(name) if status == "DELETE_FAILED"]
    assert len(failures) == 3
    assert all("not empty" in reason for reason in failures)
    assert bucket in _buckets(local_aws)


# ---- deletion ----


def test_deletion_leaves_what_a_failed_resource_depends_on(local_aws: LocalAws, stacks: Any) -> None:
    name, bucket = _name("depends"), _name("dependent")
    # Parameter <- Bucket (fails) and Queue, which nothing failed depends on; Topic depends on the bucket.
    resources = {
        "Parameter": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": bucket}},
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            "Properties": {"BucketName": {"Fn::Sub": ["${Name}", {"Name": {"Fn::GetAtt": ["Parameter", "Value"]}}]}},
        },
        "Queue": _queue(),
        "Topic": {"Type": "AWS::SNS::Topic", "DependsOn": "Bucket"},
    }
    assert stacks.create(name, resources)["StackStatus"] == "CREATE_COMPLETE"
    local_aws.client("s3").put_object(Bucket=bucket, Key="x", Body=b"1")
    stack = stacks.delete(name)
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "[Bucket]" in stack["StackStatusReason"]
    listed = local_aws.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    assert {r["LogicalResourceId"]: r["ResourceStatus"] for r in listed} == {
        "Bucket": "DELETE_FAILED",
        "Parameter": "CREATE_COMPLETE",
    }
    local_aws.client("s3").delete_object(Bucket=bucket, Key="x")
    assert stacks.delete(name)["StackStatus"] == "DELETE_COMPLETE"


@pytest.mark.parametrize("versioned", [False, True])
def test_bucket_with_content_is_not_deleted(local_aws: LocalAws, stacks: Any, versioned: Any) -> None:
    name = bucket = _name("content")
    properties: dict[str, Any] = {"BucketName": bucket}
    if versioned:
        properties["VersioningConfiguration"] = {"Status": "Enabled"}
    stacks.create(name, {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": properties}})
    s3 = local_aws.client("s3")
    s3.put_object(Bucket=bucket, Key="x", Body=b"1")
    if versioned:
        s3.delete_object(Bucket=bucket, Key="x")
    assert stacks.delete(name)["StackStatus"] == "DELETE_FAILED"
    assert "The bucket you tried to delete is not empty" in stacks.reasons(name)
    assert bucket in _buckets(local_aws)


def test_deletion_runs_dependents_first(stacks: Any) -> None:
    name = _name("order")
    resources = {
        "Vpc": _VPC,
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24"}},
        "Acl": {"Type": "AWS::EC2::NetworkAcl", "Properties": {"VpcId": {"Fn::GetAtt": ["Vpc", "VpcId"]}}},
        "Name": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {"Type": "String", "Value": {"Fn::Sub": "${Subnet}"}},
        },
        "Last": _queue(DependsOn="Name"),
    }
    assert stacks.create(name, resources)["StackStatus"] == "CREATE_COMPLETE"
    gone = stacks.delete(name)
    assert gone["StackStatus"] == "DELETE_COMPLETE"
    order = [logical_id for logical_id, status, _ in stacks.events(gone["StackId"]) if status == "DELETE_COMPLETE"]
    assert order.index("Last") < order.index("Name") < order.index("Subnet") < order.index("Vpc")
    assert order.index("Acl") < order.index("Vpc")


@pytest.mark.parametrize(
    ("policy", "stays"), [("Retain", True), ("RetainExceptOnCreate", True), ("Delete", False), (None, False)]
)
def test_deletion_policy_is_honoured(local_aws: LocalAws, stacks: Any, policy: Any, stays: Any) -> None:
    name = bucket = _name("policy")
    attributes = {"DeletionPolicy": policy} if policy else {}
    stacks.create(name, {"Bucket": _bucket(bucket, **attributes)})
    gone = stacks.delete(name)
    assert gone["StackStatus"] == "DELETE_COMPLETE"
    assert (bucket in _buckets(local_aws)) is stays
    skipped = any(status == "DELETE_SKIPPED" for _, status, _ in stacks.events(gone["StackId"]))
    assert skipped is stays


def test_resource_dropped_by_an_update_survives_with_retain(local_aws: LocalAws, stacks: Any) -> None:
    name, bucket = _name("drop"), _name("dropped")
    stacks.create(name, {"Bucket": _bucket(bucket, DeletionPolicy="RetainExceptOnCreate"), "Queue": _queue()})
    assert stacks.update(name, {"Queue": _queue()})["StackStatus"] == "UPDATE_COMPLETE"
    assert bucket in _buckets(local_aws)


def test_termination_protection_refuses_deletion(stacks: Any) -> None:
    name = _name("protected")
    stacks.create(name, {"Queue": _queue()})
    stacks.client.update_termination_protection(StackName=name, EnableTerminationProtection=True)
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        stacks.client.delete_stack(StackName=name)


def _stubborn() -> dict[str, Any]:
    """A custom resource whose handler answers FAILED on Delete, and what it depends on."""
    code = (
        "import json, urllib.request\n"
        "def handler(event, context):\n"
        "    status = 'FAILED' if event['RequestType'] == 'Delete' else 'SUCCESS'\n"
        "    answer = {'Status': status, 'Reason': 'not yet exported', 'PhysicalResourceId': 'guard',\n"
        "              'StackId': event['StackId'], 'RequestId': event['RequestId'],\n"
        "              'LogicalResourceId': event['LogicalResourceId']}\n"
        "    request = urllib.request.Request(event['ResponseURL'], data=json.dumps(answer).encode(), method='PUT')\n"
        "    urllib.request.urlopen(request)\n"
    )
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": []}}}
    function = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Code": {"ZipFile": code},
            "Handler": "index.handler",
            "Runtime": "python3.13",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        },
    }
    token = {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}}
    return {"Role": role, "Function": function, "Guard": {"Type": "Custom::Guard", "Properties": token}}


def _statuses(stacks: Any, name: str) -> dict[str, str]:
    listed = stacks.client.describe_stack_resources(StackName=name)["StackResources"]
    return {resource["LogicalResourceId"]: resource["ResourceStatus"] for resource in listed}


def test_failing_custom_resource_keeps_its_function_when_the_stack_is_deleted(stacks: Any) -> None:
    name = _name("guarded")
    assert stacks.create(name, {**_stubborn(), "Queue": _queue()})["StackStatus"] == "CREATE_COMPLETE"
    assert stacks.delete(name)["StackStatus"] == "DELETE_FAILED"
    assert "not yet exported" in stacks.reasons(name)
    assert _statuses(stacks, name) == {
        "Guard": "DELETE_FAILED",
        "Function": "CREATE_COMPLETE",
        "Role": "CREATE_COMPLETE",
    }


def test_failing_custom_resource_keeps_its_function_when_a_creation_rolls_back(stacks: Any) -> None:
    name = _name("unguarded")
    stack = stacks.create(name, {**_stubborn(), "Queue": {**_BROKEN, "DependsOn": "Guard"}})
    assert stack["StackStatus"] == "ROLLBACK_FAILED"
    assert set(_statuses(stacks, name)) == {"Guard", "Function", "Role"}


def test_custom_resource_whose_function_breaks_down_fails_at_once(stacks: Any) -> None:
    name = _name("broken")
    resources = _stubborn()
    resources["Function"]["Properties"]["Code"] = {
        "ZipFile": "def handler(event, context):\n    raise KeyError('x1')\n"
    }
    stacks.create(name, resources)
    assert "failed without an answer" in stacks.reasons(name)
    assert "x1" in stacks.reasons(name)


# ---- exports ----


def _exporter(value: str, export: str | None) -> dict[str, Any]:
    output = {"Value": value, **({"Export": {"Name": export}} if export else {})}
    return {"Outputs": {"Out": output}}


def _importer(export: str) -> dict[str, Any]:
    properties = {"Type": "String", "Value": {"Fn::ImportValue": export}}
    return {"Parameter": {"Type": "AWS::SSM::Parameter", "Properties": properties}}


@pytest.fixture
def shared(stacks: Any) -> tuple[str, str, str]:
    """(exporting stack, importing stack, export)."""
    lake, job, export = _name("lake"), _name("job"), _name("export")
    stacks.create(lake, {"Queue": _queue()}, **_exporter("one", export))
    assert stacks.create(job, _importer(export))["StackStatus"] == "CREATE_COMPLETE"
    return lake, job, export


def test_export_in_use_cannot_be_deleted_with_its_stack(stacks: Any, shared: tuple[str, str, str]) -> None:
    lake, job, export = shared
    stack = stacks.delete(lake)
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    reason = f"Export {export} cannot be deleted as it is in use by {job}"
    assert stack["StackStatusReason"] == reason
    assert reason in [text for _, _, text in stacks.events(lake)]
    stacks.delete(job)
    assert stacks.delete(lake)["StackStatus"] == "DELETE_COMPLETE"


def test_export_in_use_cannot_be_dropped_by_an_update(stacks: Any, shared: tuple[str, str, str]) -> None:
    lake, job, export = shared
    stack = stacks.update(lake, {"Queue": _queue()}, **_exporter("one", None))
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert f"Export {export} cannot be deleted as it is in use by {job}" in stacks.reasons(lake)
    assert export in {item["Name"] for item in stacks.client.list_exports()["Exports"]}


def test_export_in_use_cannot_change_its_value(stacks: Any, shared: tuple[str, str, str]) -> None:
    lake, job, export = shared
    stack = stacks.update(lake, {"Queue": _queue()}, **_exporter("two", export))
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert f"Cannot update export {export} as it is in use by {job}" in stacks.reasons(lake)
    values = {item["Name"]: item["Value"] for item in stacks.client.list_exports()["Exports"]}
    assert values[export] == "one"


def test_unused_export_may_change_and_go(stacks: Any) -> None:
    lake, export = _name("lake"), _name("export")
    stacks.create(lake, {"Queue": _queue()}, **_exporter("one", export))
    assert stacks.update(lake, {"Queue": _queue()}, **_exporter("two", export))["StackStatus"] == "UPDATE_COMPLETE"
    assert stacks.update(lake, {"Queue": _queue()}, **_exporter("two", None))["StackStatus"] == "UPDATE_COMPLETE"
    assert export not in {item["Name"] for item in stacks.client.list_exports()["Exports"]}


def test_two_stacks_cannot_export_one_name(stacks: Any, shared: tuple[str, str, str]) -> None:
    lake, _job, export = shared
    other = _name("other")
    assert stacks.create(other, {"Queue": _queue()}, **_exporter("x", export))["StackStatus"] == "ROLLBACK_COMPLETE"
    assert f"Export with name {export} is already exported by stack {lake}" in stacks.reasons(other)


def test_conditions_compare_joined_values(stacks: Any) -> None:
    name = _name("conditions")
    joined = {"Fn::Equals": ["", {"Fn::Join": ["", {"Ref": "List"}]}]}
    stacks.create(
        name,
        {"Queue": _queue(), "Extra": _queue(Condition="NonEmpty")},
        Parameters={"List": {"Type": "CommaDelimitedList", "Default": ""}},
        Conditions={
            "NonEmpty": {"Fn::Not": [joined]},
            "Here": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-1"]},
        },
        Outputs={"Here": {"Condition": "Here", "Value": "yes"}},
    )
    listed = stacks.client.describe_stack_resources(StackName=name)["StackResources"]
    assert [resource["LogicalResourceId"] for resource in listed] == ["Queue"]
    assert stacks.outputs(name) == {"Here": "yes"}
