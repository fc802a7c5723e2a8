"""Every registry type is served: validated, named in its real format, seen through boto3 where there is an API."""

import json
import re
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from training_storage.testing.local_aws import LocalAws
from training_storage.testing.local_aws.property_validation import property_errors
from training_storage.testing.local_aws.registry_resource import Place, create
from training_storage.testing.local_aws.registry_schema import known_types, schema_for

pytestmark = pytest.mark.local_aws

_ROLE = {"Version": "2012-10-17", "Statement": []}


def _name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


# ---- validation ----


@pytest.mark.parametrize(
    ("type_name", "properties", "words"),
    [
        ("AWS::PCS::Cluster", {"Size": "SMALL", "Networking": {}}, "#: required key [Scheduler] not found"),
        (
            "AWS::PCS::Cluster",
            {"Size": "TINY", "Networking": {}, "Scheduler": {"Type": "SLURM", "Version": "25.05"}},
            "#/Size: TINY is not a valid enum value",
        ),
        (
            "AWS::FSx::DataRepositoryAssociation",
            {"FileSystemId": "fs-x", "FileSystemPath": "/a", "DataRepositoryPath": "s3://b/"},
            "#/FileSystemId: string [fs-x] does not match pattern ^(fs-[0-9a-f]{8,})$",
        ),
        (
            "AWS::FSx::DataRepositoryAssociation",
            {"FileSystemId": "fs-01234567", "FileSystemPath": "", "DataRepositoryPath": "s3://b/"},
            "#/FileSystemPath: expected minLength: 1, actual: 0",
        ),
        (
            "AWS::FSx::FileSystem",
            {"FileSystemType": "LUSTRE", "SubnetIds": ["s"], "StorageCapacity": "much"},
            "#/StorageCapacity: expected type: Integer, found: String",
        ),
        (
            "AWS::FSx::FileSystem",
            {"FileSystemType": "LUSTRE", "SubnetIds": ["s"], "LustreConfiguration": {"EfaEnable": True}},
            "#/LustreConfiguration: extraneous key [EfaEnable] is not permitted",
        ),
        ("AWS::FSx::FileSystem", {"FileSystemType": "LUSTRE", "SubnetIds": ["s"], "DNSName": "x"}, "[DNSName]"),
        # Types that ministack serves by itself are held to their schemas as well.
        ("AWS::SQS::Queue", {"VisibilityTimeout": "long"}, "#/VisibilityTimeout: expected type: Integer"),
        ("AWS::EC2::Subnet", {"CidrBlock": "10.0.0.0/24"}, "#: required key [VpcId] not found"),
        (
            "AWS::EC2::Subnet",
            {"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24", "AvailabilityZone": "a", "AvailabilityZoneId": "b"},
            "property [AvailabilityZone] is not permitted together with [AvailabilityZoneId]",
        ),
        ("AWS::Logs::LogGroup", {"RetentionInDays": 8}, "#/RetentionInDays: 8 is not a valid enum value"),
        # Names of tags are held to a pattern with Unicode classes.
        (
            "AWS::SSM::Parameter",
            {"Type": "String", "Value": "v", "Tags": {"no;": "x", "training:job": "1"}},
            "#/Tags: extraneous key [no;] is not permitted",
        ),
        ("AWS::S3::Bucket", {"BucketNam": "x"}, "#: extraneous key [BucketNam] is not permitted"),
    ],
)
def test_forbidden_property_fails_with_its_name(stacks: Any, type_name: Any, properties: Any, words: Any) -> None:
    name = _name("invalid")
    stack = stacks.create(name, {"Thing": {"Type": type_name, "Properties": properties}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "Properties validation failed for resource Thing with message:" in stacks.reasons(name)
    assert words in stacks.reasons(name)


def test_properties_are_validated_as_resolved(stacks: Any) -> None:
    name = _name("resolved")
    resources = {
        "Name": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "not an id"}},
        "Link": {
            "Type": "AWS::FSx::DataRepositoryAssociation",
            "Properties": {
                "FileSystemId": {"Fn::GetAtt": ["Name", "Value"]},
                "FileSystemPath": "/a",
                "DataRepositoryPath": "s3://b/",
            },
        },
    }
    stacks.create(name, resources)
    assert "string [not an id] does not match pattern" in stacks.reasons(name)


def test_scalars_convert_as_in_cloudformation() -> None:
    schema = schema_for(type_name="AWS::FSx::FileSystem", region="us-east-1")
    assert schema is not None
    properties = {
        "FileSystemType": "LUSTRE",
        "SubnetIds": ["s"],
        "StorageCapacity": "1200",
        "LustreConfiguration": {"EfaEnabled": "true"},
    }
    assert property_errors(schema=schema, properties=properties) == []


def test_type_that_the_region_lacks_is_unrecognized(local_aws: LocalAws) -> None:
    client = local_aws.client("cloudformation", region_name="ap-southeast-7")
    assert schema_for(type_name="AWS::PCS::Cluster", region="ap-southeast-7") is None
    body = json.dumps({"Resources": {"C": {"Type": "AWS::PCS::Cluster"}}})
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::PCS::Cluster\]"):
        client.create_stack(StackName="absent", TemplateBody=body)


def test_type_that_nobody_knows_is_unrecognized(stacks: Any) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Nothing::Here\]"):
        stacks.create("unknown", {"C": {"Type": "AWS::Nothing::Here"}})


def test_every_registry_type_can_be_made() -> None:
    place = Place(account="000000000000", region="us-east-1", stack_name="stack", logical_id="Thing")
    made = 0
    for type_name in sorted(known_types()):
        schema = schema_for(type_name=type_name, region="us-east-1")
        if schema is None:
            continue
        physical_id, attributes = create(schema=schema, behaviour=None, properties={}, place=place)
        assert physical_id, type_name
        missing = {".".join(path) for path in schema.read_only if "*" not in path} - set(attributes)
        assert not missing, type_name
        made += 1
    assert made > 1500


# ---- formats and visibility ----


def test_network_types_have_real_ids_and_are_seen(local_aws: LocalAws, stacks: Any) -> None:
    name = _name("network")

    def reference(logical_id: str, attribute: str | None = None) -> dict[str, Any]:
        return {"Fn::GetAtt": [logical_id, attribute]} if attribute else {"Ref": logical_id}

    resources = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": reference("Vpc"), "CidrBlock": "10.0.0.0/24", "AvailabilityZoneId": "use1-az6"},
        },
        "Eip": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {"SubnetId": reference("Subnet"), "AllocationId": reference("Eip", "AllocationId")},
        },
        "Log": {
            "Type": "AWS::EC2::FlowLog",
            "Properties": {
                "ResourceId": reference("Vpc"),
                "ResourceType": "VPC",
                "TrafficType": "ALL",
                "LogGroupName": "flows",
                "DeliverLogsPermissionArn": "arn:aws:iam::000000000000:role/flow",
            },
        },
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "g", "VpcId": reference("Vpc")},
        },
        "In": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {
                "GroupId": reference("Group"),
                "SourceSecurityGroupId": reference("Group"),
                "IpProtocol": "-1",
            },
        },
        "Out": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {
                "GroupId": reference("Group"),
                "DestinationSecurityGroupId": reference("Group"),
                "IpProtocol": "-1",
            },
        },
        "Place": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}},
        "Endpoint": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {"VpcId": reference("Vpc"), "ServiceName": "com.amazonaws.us-east-1.s3express"},
        },
    }
    outputs = {"Allocation": {"Value": reference("Eip", "AllocationId")}}
    assert stacks.create(name, resources, Outputs=outputs)["StackStatus"] == "CREATE_COMPLETE"
    ids = {logical_id: stacks.resource(name, logical_id) for logical_id in resources}
    for logical_id, pattern in {
        "Nat": r"nat-[0-9a-f]{17}",
        "Log": r"fl-[0-9a-f]{17}",
        "In": r"sgr-[0-9a-f]{17}",
        "Out": r"sgr-[0-9a-f]{17}",
        "Endpoint": r"vpce-[0-9a-f]{17}",
        "Eip": r"(\d+\.){3}\d+",
    }.items():
        assert re.fullmatch(pattern, ids[logical_id]), logical_id
    allocation = stacks.outputs(name)["Allocation"]
    assert re.fullmatch(r"eipalloc-[0-9a-f]{17}", allocation)

    ec2 = local_aws.client("ec2")
    [subnet] = ec2.describe_subnets(SubnetIds=[ids["Subnet"]])["Subnets"]
    assert (subnet["AvailabilityZoneId"], subnet["AvailabilityZone"]) == ("use1-az6", "us-east-1f")
    [gateway] = ec2.describe_nat_gateways(NatGatewayIds=[ids["Nat"]])["NatGateways"]
    assert gateway["State"] == "available"
    assert ec2.describe_addresses(AllocationIds=[allocation])["Addresses"][0]["PublicIp"] == ids["Eip"]
    assert ec2.describe_flow_logs(FlowLogIds=[ids["Log"]])["FlowLogs"][0]["ResourceId"] == ids["Vpc"]
    assert ec2.describe_placement_groups(GroupNames=[ids["Place"]])["PlacementGroups"][0]["Strategy"] == "cluster"
    [group] = ec2.describe_security_groups(GroupIds=[ids["Group"]])["SecurityGroups"]
    for direction in ("IpPermissions", "IpPermissionsEgress"):
        # The separate egress resource has taken the place of the default that allows everything.
        [rule] = group[direction]
        assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [ids["Group"]]

    assert stacks.delete(name)["StackStatus"] == "DELETE_COMPLETE"
    assert ec2.describe_addresses(Filters=[{"Name": "allocation-id", "Values": [allocation]}])["Addresses"] == []


def test_default_security_group_of_a_vpc_lets_its_members_talk(local_aws: LocalAws, stacks: Any) -> None:
    name = _name("default")
    stacks.create(name, {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}})
    filters = [{"Name": "vpc-id", "Values": [stacks.resource(name, "Vpc")]}]
    [group] = local_aws.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    assert group["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == group["GroupId"]


def test_duplicate_rule_and_unknown_zone_are_refused(stacks: Any) -> None:
    name = _name("twice")
    rule = {"GroupId": {"Ref": "Group"}, "CidrIp": "10.0.0.0/8", "IpProtocol": "tcp", "FromPort": 1, "ToPort": 1}
    resources = {
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "g"}},
        "A": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
        "B": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
    }
    stacks.create(name, resources)
    assert "already exists" in stacks.reasons(name)
    name = _name("nozone")
    subnet = {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24", "AvailabilityZoneId": "usw2-az1"}
    resources = {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": subnet},
    }
    stacks.create(name, resources)
    assert "Value (usw2-az1) for parameter availabilityZoneId is invalid." in stacks.reasons(name)


def test_other_types_have_real_identifiers(stacks: Any) -> None:
    name = _name("formats")
    networking = {"SubnetIds": ["subnet-0123456789abcdef0"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
    cluster = {
        "Size": "MEDIUM",
        "Scheduler": {"Type": "SLURM", "Version": "25.05"},
        "Networking": networking,
    }
    groups = [
        {
            "InstanceGroupName": "workers",
            "InstanceType": "ml.p5.48xlarge",
            "InstanceCount": 0,
            "ExecutionRole": "arn:aws:iam::000000000000:role/x",
            "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-x/", "OnCreate": "on_create.sh"},
        }
    ]
    resources = {
        "Pcs": {"Type": "AWS::PCS::Cluster", "Properties": cluster},
        "Hyper": {"Type": "AWS::SageMaker::Cluster", "Properties": {"InstanceGroups": groups}},
    }
    outputs = {
        "Id": {"Value": {"Fn::GetAtt": ["Pcs", "Id"]}},
        "Arn": {"Value": {"Fn::GetAtt": ["Pcs", "Arn"]}},
        "Hyper": {"Value": {"Fn::GetAtt": ["Hyper", "ClusterArn"]}},
    }
    assert stacks.create(name, resources, Outputs=outputs)["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(name)
    values = stacks.outputs(name)
    assert re.fullmatch(r"pcs_[a-z0-9]{10}", values["Id"])
    assert values["Arn"] == f"arn:aws:pcs:us-east-1:000000000000:cluster/{values['Id']}"
    assert re.fullmatch(r"arn:aws:sagemaker:us-east-1:000000000000:cluster/[a-z0-9]{12}", values["Hyper"])


def test_image_parameters_resolve(stacks: Any) -> None:
    names = [
        "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
        "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
        *[
            f"/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-{system}/latest/ami-id"
            for architecture in ("x86_64", "arm64")
            for system in ("amazon-linux-2023", "ubuntu-22.04", "ubuntu-24.04")
        ],
        "/aws/service/pcs/ami/dlami-base-ubuntu2404/x86_64/latest/ami-id",
    ]
    kind = "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    parameters = {f"P{index}": {"Type": kind, "Default": name} for index, name in enumerate(names)}
    outputs = {name: {"Value": {"Ref": name}} for name in parameters}
    name = _name("images")
    stacks.create(name, {"Q": {"Type": "AWS::SQS::Queue"}}, Parameters=parameters, Outputs=outputs)
    values = stacks.outputs(name)
    assert len(values) == len(names)
    assert all(re.fullmatch(r"ami-[0-9a-f]{17}", value) for value in values.values())


def test_role_and_its_kin_are_seen(local_aws: LocalAws, stacks: Any) -> None:
    name = _name("roles")
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": _ROLE, "RoleName": name}}
    profile = {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [{"Ref": "Role"}]}}
    assert stacks.create(name, {"Role": role, "Profile": profile})["StackStatus"] == "CREATE_COMPLETE"
    assert local_aws.client("iam").get_role(RoleName=name)["Role"]["RoleName"] == name


def test_alarm_on_metric_math_is_made_changed_and_deleted(stacks: Any) -> None:
    name = _name("math")

    def alarm(threshold: int) -> dict[str, Any]:
        metric = {"MetricStat": {"Metric": {"Namespace": "n", "MetricName": "m"}, "Period": 60, "Stat": "Sum"}}
        metrics = [{"Id": "a", "ReturnData": False, **metric}, {"Id": "b", "Expression": "a * 2"}]
        properties = {
            "ComparisonOperator": "GreaterThanThreshold",
            "EvaluationPeriods": 1,
            "Threshold": threshold,
            "Metrics": metrics,
        }
        return {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}}

    outputs = {"Arn": {"Value": {"Fn::GetAtt": ["Alarm", "Arn"]}}}
    stacks.create(name, alarm(1), Outputs=outputs)
    arn = f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{stacks.resource(name, 'Alarm')}"
    assert stacks.outputs(name) == {"Arn": arn}
    assert stacks.update(name, alarm(2), Outputs=outputs)["StackStatus"] == "UPDATE_COMPLETE"
    assert stacks.outputs(name) == {"Arn": arn}
    assert stacks.delete(name)["StackStatus"] == "DELETE_COMPLETE"


# ---- directory buckets ----


def _directory_bucket(name: str | None, zone: str = "use1-az4") -> dict[str, Any]:
    properties = {"LocationName": zone, "DataRedundancy": "SingleAvailabilityZone"}
    named = {"BucketName": name} if name else {}
    return {"Bucket": {"Type": "AWS::S3Express::DirectoryBucket", "Properties": {**properties, **named}}}


def test_directory_bucket_is_listed_and_holds_objects(local_aws: LocalAws, stacks: Any) -> None:
    name = f"{_name('hot')}--use1-az4--x-s3"
    stack = _name("express")
    outputs = {
        "Arn": {"Value": {"Fn::GetAtt": ["Bucket", "Arn"]}},
        "Zone": {"Value": {"Fn::GetAtt": ["Bucket", "AvailabilityZoneName"]}},
    }
    stacks.create(stack, _directory_bucket(name), Outputs=outputs)
    assert stacks.outputs(stack) == {
        "Arn": f"arn:aws:s3express:us-east-1:000000000000:bucket/{name}",
        "Zone": "us-east-1d",
    }
    s3 = local_aws.client("s3")
    assert name in {bucket["Name"] for bucket in s3.list_directory_buckets()["Buckets"]}
    assert name not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    s3.put_object(Bucket=name, Key="a/b", Body=b"hot")
    assert s3.get_object(Bucket=name, Key="a/b")["Body"].read() == b"hot"
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=name)["Contents"]] == ["a/b"]

    assert stacks.delete(stack)["StackStatus"] == "DELETE_FAILED"
    assert "The bucket you tried to delete is not empty" in stacks.reasons(stack)
    s3.delete_object(Bucket=name, Key="a/b")
    upload = s3.create_multipart_upload(Bucket=name, Key="unfinished")["UploadId"]
    assert stacks.delete(stack)["StackStatus"] == "DELETE_FAILED"
    s3.abort_multipart_upload(Bucket=name, Key="unfinished", UploadId=upload)
    assert stacks.delete(stack)["StackStatus"] == "DELETE_COMPLETE"
    assert name not in {bucket["Name"] for bucket in s3.list_directory_buckets()["Buckets"]}


def test_directory_bucket_without_a_name_gets_a_valid_one(stacks: Any) -> None:
    stack = _name("unnamed")
    stacks.create(stack, _directory_bucket(None))
    name = stacks.resource(stack, "Bucket")
    assert name.endswith("--use1-az4--x-s3")
    assert len(name) <= 63


@pytest.mark.parametrize(
    ("name", "zone", "words"),
    [
        ("mybucket", "use1-az4", "--use1-az4--x-s3"),
        ("b--use1-az5--x-s3", "use1-az4", "--use1-az4--x-s3"),
        ("b--us-east-1a--x-s3", "us-east-1a", "must be an Availability Zone ID"),
        ("b--usw2-az1--x-s3", "usw2-az1", "not a zone of us-east-1"),
        ("b.c--use1-az4--x-s3", "use1-az4", "not valid"),
    ],
)
def test_directory_bucket_name_and_zone_must_fit(stacks: Any, name: Any, zone: Any, words: Any) -> None:
    stack = _name("misnamed")
    assert stacks.create(stack, _directory_bucket(name, zone))["StackStatus"] == "ROLLBACK_COMPLETE"
    assert words in stacks.reasons(stack)


def test_directory_bucket_policy_needs_its_bucket(stacks: Any) -> None:
    stack = _name("policy")
    policy = {"Bucket": "none--use1-az4--x-s3", "PolicyDocument": _ROLE}
    stacks.create(stack, {"Policy": {"Type": "AWS::S3Express::BucketPolicy", "Properties": policy}})
    assert "The specified bucket does not exist" in stacks.reasons(stack)


def test_a_subnet_that_overlaps_another_of_its_vpc_is_refused(stacks: Any) -> None:
    subnet = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.8.0.0/22"}}
    other = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.8.2.0/24"}}
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.8.0.0/16"}}
    stack = stacks.create("overlap", {"Vpc": vpc, "One": subnet, "Two": {**other, "DependsOn": "One"}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "The CIDR '10.8.2.0/24' conflicts with another subnet" in stacks.reasons("overlap")


def test_a_group_with_a_name_of_its_own_is_never_replaced(stacks: Any) -> None:
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.7.0.0/16"}}

    def group(description: str) -> dict[str, Any]:
        properties = {"GroupName": "kept", "GroupDescription": description, "VpcId": {"Ref": "Vpc"}}
        return {"Vpc": vpc, "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": properties}}

    stacks.create("kept-group", group("one"))
    before = stacks.resource("kept-group", "Group")
    assert stacks.update("kept-group", group("two"))["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "custom-named resource requires replacing" in stacks.reasons("kept-group")
    assert stacks.resource("kept-group", "Group") == before


def test_generated_names_of_directory_buckets_differ(stacks: Any) -> None:
    bucket = {
        "Type": "AWS::S3Express::DirectoryBucket",
        "Properties": {"LocationName": "use1-az4", "DataRedundancy": "SingleAvailabilityZone"},
    }
    names = set()
    for _ in range(2):
        stacks.create("a-stack-with-a-rather-long-name-of-its-own", {"TheDirectoryBucketOfTheJob": bucket})
        names.add(stacks.resource("a-stack-with-a-rather-long-name-of-its-own", "TheDirectoryBucketOfTheJob"))
        stacks.delete("a-stack-with-a-rather-long-name-of-its-own")
    assert len(names) == 2
    assert all(len(name) <= 63 and name.endswith("--use1-az4--x-s3") for name in names)
