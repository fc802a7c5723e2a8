"""FSx says no like AWS, through its API and through CloudFormation alike."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

_P2 = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
_METADATA = {"MetadataConfiguration": {"Mode": "AUTOMATIC"}}
_IT = {
    "DeploymentType": "PERSISTENT_2",
    "ThroughputCapacity": 4000,
    "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 6000},
    "DataReadCacheConfiguration": {"SizingMode": "PROPORTIONAL_TO_THROUGHPUT_CAPACITY"},
}
_INTELLIGENT = {"StorageType": "INTELLIGENT_TIERING", "StorageCapacity": None}


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in _IT.items() if key != name}


# (what, top-level members, Lustre members, error code, words)
_CREATIONS: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("capacity off the grid", {"StorageCapacity": 3600}, _P2, "BadRequest", "multiple of 2400 GiB"),
    ("capacity below the least", {"StorageCapacity": 600}, _P2, "BadRequest", "multiple of 2400 GiB"),
    ("no capacity", {"StorageCapacity": None}, _P2, "BadRequest", "StorageCapacity is required"),
    (
        "throughput off the grid",
        {},
        {**_P2, "PerUnitStorageThroughput": 300},
        "InvalidPerUnitStorageThroughput",
        "Valid values for PERSISTENT_2 file systems with SSD storage are 125, 250, 500, 1000",
    ),
    (
        "another type's throughput",
        {},
        {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 125},
        "InvalidPerUnitStorageThroughput",
        "50, 100, 200",
    ),
    (
        "throughput of scratch",
        {},
        {"DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": 50},
        "BadRequest",
        "SCRATCH_2",
    ),
    (
        "hard disks without cache choice",
        {"StorageType": "HDD", "StorageCapacity": 6000},
        {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 12},
        "BadRequest",
        "DriveCacheType",
    ),
    (
        "hard disks off the grid",
        {"StorageType": "HDD", "StorageCapacity": 2400},
        {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 12, "DriveCacheType": "NONE"},
        "BadRequest",
        "multiple of 6000 GiB",
    ),
    (
        "EFA without metadata configuration",
        {"StorageCapacity": 38400},
        {**_P2, "EfaEnabled": True},
        "BadRequest",
        "EFA is only supported for PERSISTENT_2 filesystems with metadata configuration",
    ),
    (
        "EFA on an older type",
        {},
        {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 50, "EfaEnabled": True},
        "BadRequest",
        "EFA is only supported for PERSISTENT_2 filesystems with metadata configuration",
    ),
    *[
        (
            f"EFA below its minimum at {throughput}",
            {"StorageCapacity": minimum - 2400},
            {**_P2, **_METADATA, "PerUnitStorageThroughput": throughput, "EfaEnabled": True},
            "BadRequest",
            f"multiple of {minimum} GiB",
        )
        for throughput, minimum in ((125, 38400), (250, 19200), (500, 9600), (1000, 4800))
    ],
    (
        "metadata on 2.12",
        {"FileSystemTypeVersion": "2.12"},
        {**_P2, **_METADATA},
        "BadRequest",
        "A FileSystemTypeVersion of '2.15' is required",
    ),
    (
        "metadata on persistent 1",
        {},
        {"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 50, **_METADATA},
        "BadRequest",
        "Metadata configuration is not supported for PERSISTENT_1",
    ),
    ("metadata on scratch", {}, {"DeploymentType": "SCRATCH_2", **_METADATA}, "BadRequest", "SCRATCH_2"),
    (
        "metadata IOPS off the grid",
        {},
        {**_P2, "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 5000}},
        "BadRequest",
        "Invalid value for Metadata IOPS: 5000",
    ),
    (
        "IOPS with automatic metadata",
        {},
        {**_P2, "MetadataConfiguration": {"Mode": "AUTOMATIC", "Iops": 6000}},
        "BadRequest",
        "AUTOMATIC",
    ),
    ("persistent 2 on 2.10", {"FileSystemTypeVersion": "2.10"}, _P2, "BadRequest", "2.10"),
    (
        "persistent 2 with an import path",
        {},
        {**_P2, "ImportPath": "s3://somewhere"},
        "BadRequest",
        "Linking a Persistent 2 file system to an S3 bucket using the LustreConfiguration is not supported",
    ),
    ("tiering with a capacity", {**_INTELLIGENT, "StorageCapacity": 1200}, _IT, "BadRequest", "StorageCapacity"),
    ("tiering without read cache", _INTELLIGENT, _without("DataReadCacheConfiguration"), "BadRequest", "DataReadCache"),
    (
        "tiering without metadata",
        _INTELLIGENT,
        _without("MetadataConfiguration"),
        "BadRequest",
        "MetadataConfiguration",
    ),
    ("tiering off the grid", _INTELLIGENT, {**_IT, "ThroughputCapacity": 6000}, "BadRequest", "multiple of 4000"),
    ("a key for scratch", {"KmsKeyId": "alias/x"}, {"DeploymentType": "SCRATCH_2"}, "BadRequest", "KmsKeyId"),
    (
        "backups of scratch",
        {},
        {"DeploymentType": "SCRATCH_2", "AutomaticBackupRetentionDays": 7},
        "BadRequest",
        "backup",
    ),
    (
        "a log group with another name",
        {},
        {**_P2, "LogConfiguration": {"Level": "WARN_ERROR", "Destination": "arn:aws:logs:us-east-1:0:log-group:/x"}},
        "BadRequest",
        "/aws/fsx",
    ),
]
_IDS = [what for what, *_ in _CREATIONS]


def _request(network: Any, top: dict[str, Any], lustre: dict[str, Any]) -> dict[str, Any]:
    members = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 1200,
        "SubnetIds": [network.subnet],
        "SecurityGroupIds": [network.efa_group],
        **top,
        "LustreConfiguration": lustre,
    }
    return {name: value for name, value in members.items() if value is not None}


@pytest.mark.parametrize(("what", "top", "lustre", "code", "words"), _CREATIONS, ids=_IDS)
def test_api_refuses_a_file_system(
    local_aws: LocalAws, network: Any, what: Any, top: Any, lustre: Any, code: Any, words: Any
) -> None:
    with pytest.raises(ClientError) as refusal:
        local_aws.client("fsx").create_file_system(**_request(network, top, lustre))
    assert refusal.value.response["Error"]["Code"] == code
    assert words in refusal.value.response["Error"]["Message"]


@pytest.mark.parametrize(("what", "top", "lustre", "code", "words"), _CREATIONS, ids=_IDS)
def test_cloudformation_refuses_the_same_file_system(
    stacks: Any, network: Any, what: Any, top: Any, lustre: Any, code: Any, words: Any
) -> None:
    name = f"refused-{uuid.uuid4().hex[:8]}"
    properties = _request(network, top, lustre)
    stack = stacks.create(name, {"Fs": {"Type": "AWS::FSx::FileSystem", "Properties": properties}})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert words in stacks.reasons(name)


# ---- network ----


def test_closed_port_is_refused(local_aws: LocalAws, network: Any) -> None:
    request = {**_request(network, {}, _P2), "SecurityGroupIds": [network.closed_group]}
    with pytest.raises(ClientError, match="do not permit Lustre LNET network traffic on port 988") as refusal:
        local_aws.client("fsx").create_file_system(**request)
    assert refusal.value.response["Error"]["Code"] == "InvalidNetworkSettings"


def test_efa_needs_a_group_that_names_itself(local_aws: LocalAws, network: Any) -> None:
    lustre = {**_P2, **_METADATA, "EfaEnabled": True}
    request = {**_request(network, {"StorageCapacity": 38400}, lustre), "SecurityGroupIds": [network.open_group]}
    with pytest.raises(
        ClientError, match="Insufficient security group permissions to create an EFA-enabled file system"
    ):
        local_aws.client("fsx").create_file_system(**request)


def test_unknown_subnet_and_group_are_refused(local_aws: LocalAws, network: Any) -> None:
    fsx = local_aws.client("fsx")
    with pytest.raises(ClientError, match="subnet-0000"):
        fsx.create_file_system(**{**_request(network, {}, _P2), "SubnetIds": ["subnet-0000000000000000f"]})
    with pytest.raises(ClientError, match="sg-0000"):
        fsx.create_file_system(**{**_request(network, {}, _P2), "SecurityGroupIds": ["sg-0000000000000000f"]})
    with pytest.raises(ClientError, match="Exactly one subnet"):
        fsx.create_file_system(**{**_request(network, {}, _P2), "SubnetIds": [network.subnet, network.subnet]})


def _racing(*, waits: bool) -> dict[str, Any]:
    rule = {
        "GroupId": {"Ref": "Group"},
        "SourceSecurityGroupId": {"Ref": "Group"},
        "IpProtocol": "tcp",
        "FromPort": 988,
        "ToPort": 988,
    }
    file_system: dict[str, Any] = {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": 1200,
            "SubnetIds": [{"Ref": "Subnet"}],
            "SecurityGroupIds": [{"Ref": "Group"}],
            "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        },
    }
    if waits:
        file_system["DependsOn"] = "Rule"
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24"}},
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "g", "VpcId": {"Ref": "Vpc"}},
        },
        "AFileSystem": file_system,
        "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
    }


def test_file_system_made_before_its_rules_fails(stacks: Any) -> None:
    assert stacks.create("race-lost", _racing(waits=False))["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "do not permit Lustre LNET network traffic on port 988" in stacks.reasons("race-lost")


def test_file_system_that_waits_for_its_rules_is_made(stacks: Any) -> None:
    assert stacks.create("race-won", _racing(waits=True))["StackStatus"] == "CREATE_COMPLETE"
    assert stacks.delete("race-won")["StackStatus"] == "DELETE_COMPLETE"


# ---- updates ----


@pytest.fixture
def file_system(local_aws: Any, network: Any) -> Iterator[Any]:
    made: list[str] = []
    fsx = local_aws.client("fsx")
    local_aws.fsx_control(transition_seconds=0)

    def make(lustre: dict[str, Any], **top: Any) -> str:
        answer = fsx.create_file_system(**_request(network, top, lustre))["FileSystem"]
        made.append(answer["FileSystemId"])
        fsx.describe_file_systems()
        return made[-1]

    yield make
    local_aws.fsx_control(transition_seconds=0.2)
    for identifier in made:
        for task in fsx.describe_data_repository_tasks(Filters=[{"Name": "file-system-id", "Values": [identifier]}])[
            "DataRepositoryTasks"
        ]:
            if task["Lifecycle"] in ("PENDING", "EXECUTING"):
                fsx.cancel_data_repository_task(TaskId=task["TaskId"])


_UPDATES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (
        "metadata never specified",
        _P2,
        {},
        {"LustreConfiguration": {"MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 6000}}},
        "Updating metadata configuration is not supported on file systems created without specifying",
    ),
    (
        "fewer metadata IOPS",
        {**_P2, "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 6000}},
        {},
        {"LustreConfiguration": {"MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 3000}}},
        "can only be increased",
    ),
    ("smaller", _P2, {"StorageCapacity": 4800}, {"StorageCapacity": 2400}, "must be greater than the current 4800"),
    ("off the grid", _P2, {"StorageCapacity": 2400}, {"StorageCapacity": 3000}, "multiple of 2400"),
    (
        "throughput of scratch",
        {"DeploymentType": "SCRATCH_2"},
        {},
        {"LustreConfiguration": {"PerUnitStorageThroughput": 100}},
        "persistent SSD file systems only",
    ),
    (
        "throughput with EFA",
        {**_P2, **_METADATA, "EfaEnabled": True},
        {"StorageCapacity": 38400},
        {"LustreConfiguration": {"PerUnitStorageThroughput": 250}},
        "EFA-enabled",
    ),
    ("older version", _P2, {"FileSystemTypeVersion": "2.15"}, {"FileSystemTypeVersion": "2.12"}, "newer version"),
]


@pytest.mark.parametrize(("what", "lustre", "top", "change", "words"), _UPDATES, ids=[row[0] for row in _UPDATES])
def test_api_refuses_an_update(
    local_aws: LocalAws, file_system: Any, what: Any, lustre: Any, top: Any, change: Any, words: Any
) -> None:
    with pytest.raises(ClientError, match=words) as refusal:
        local_aws.client("fsx").update_file_system(FileSystemId=file_system(lustre, **top), **change)
    assert refusal.value.response["Error"]["Code"] == "BadRequest"


# ---- associations ----


@pytest.fixture(scope="module")
def bucket(local_aws: Any) -> str:
    local_aws.client("s3").create_bucket(Bucket="linked-bucket")
    return "linked-bucket"


def _link(local_aws: Any, identifier: str, path: str, repository: str, **members: Any) -> Any:
    return local_aws.client("fsx").create_data_repository_association(
        FileSystemId=identifier, FileSystemPath=path, DataRepositoryPath=repository, **members
    )["Association"]


@pytest.mark.parametrize(
    ("lustre", "top"),
    [
        ({"DeploymentType": "SCRATCH_1"}, {}),
        ({"DeploymentType": "SCRATCH_2"}, {}),
        ({"DeploymentType": "PERSISTENT_1", "PerUnitStorageThroughput": 50}, {}),
        (_IT, _INTELLIGENT),
    ],
    ids=["scratch 1", "scratch 2 on 2.10", "persistent 1 on 2.10", "intelligent tiering"],
)
def test_association_is_refused_where_the_file_system_has_none(
    local_aws: LocalAws, file_system: Any, bucket: Any, lustre: Any, top: Any
) -> None:
    identifier = file_system(lustre, **top)
    with pytest.raises(ClientError, match="This file system does not support data repository associations"):
        _link(local_aws, identifier, "/a", f"s3://{bucket}/a/")


def test_association_on_a_missing_bucket_is_refused(local_aws: LocalAws, file_system: Any) -> None:
    with pytest.raises(ClientError, match="Amazon FSx is unable to validate access to the S3 bucket"):
        _link(local_aws, file_system(_P2), "/a", "s3://no-such-bucket-here/a/")


@pytest.mark.parametrize(
    ("path", "repository", "words"),
    [
        ("/data/inner", "s3://linked-bucket/other/", "file system path /data/inner overlaps with /data"),
        ("/data", "s3://linked-bucket/other/", "overlaps"),
        ("/other", "s3://linked-bucket/data/inner/", "data repository path .* overlaps"),
        ("/other", "s3://linked-bucket", "overlaps"),
        ("/", "s3://linked-bucket/other/", "first and only"),
        ("other", "s3://linked-bucket/other/", "forward slash"),
        ("/other", "linked-bucket/other/", "s3://bucket/prefix/"),
    ],
)
def test_overlapping_or_malformed_association_is_refused(
    local_aws: LocalAws, file_system: Any, bucket: Any, path: Any, repository: Any, words: Any
) -> None:
    identifier = file_system(_P2)
    _link(local_aws, identifier, "/data", f"s3://{bucket}/data/")
    with pytest.raises(ClientError, match=words):
        _link(local_aws, identifier, path, repository)


def test_neighbouring_names_do_not_overlap(local_aws: LocalAws, file_system: Any, bucket: Any) -> None:
    identifier = file_system(_P2)
    _link(local_aws, identifier, "/data", f"s3://{bucket}/data")
    assert _link(local_aws, identifier, "/data2", f"s3://{bucket}/data2")["DataRepositoryPath"].endswith("/data2/")


def test_root_is_the_only_association(local_aws: LocalAws, file_system: Any, bucket: Any) -> None:
    identifier = file_system(_P2)
    _link(local_aws, identifier, "/", f"s3://{bucket}/root/")
    with pytest.raises(ClientError, match="first and only"):
        _link(local_aws, identifier, "/second", f"s3://{bucket}/second/")


def test_ninth_association_is_refused(local_aws: LocalAws, file_system: Any, bucket: Any) -> None:
    identifier = file_system(_P2)
    for number in range(8):
        _link(local_aws, identifier, f"/n{number}", f"s3://{bucket}/n{number}/")
    with pytest.raises(ClientError, match="at most 8") as refusal:
        _link(local_aws, identifier, "/n8", f"s3://{bucket}/n8/")
    assert refusal.value.response["Error"]["Code"] == "ServiceLimitExceeded"


def test_cloudformation_refuses_the_same_association(
    stacks: Any, file_system: Any, local_aws: LocalAws, bucket: Any
) -> None:
    identifier = file_system(_P2)
    _link(local_aws, identifier, "/data", f"s3://{bucket}/data/")
    properties = {"FileSystemId": identifier, "FileSystemPath": "/data/x", "DataRepositoryPath": f"s3://{bucket}/x/"}
    name = f"overlap-{uuid.uuid4().hex[:8]}"
    resources = {"Link": {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": properties}}
    assert stacks.create(name, resources)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "overlaps" in stacks.reasons(name)


def test_linked_file_system_has_no_backups(local_aws: LocalAws, file_system: Any, bucket: Any) -> None:
    identifier = file_system(_P2)
    _link(local_aws, identifier, "/data", f"s3://{bucket}/data/")
    with pytest.raises(ClientError, match="Backups cannot be created on S3-linked file systems"):
        local_aws.client("fsx").create_backup(FileSystemId=identifier)


# ---- the rest ----


def test_file_system_with_a_running_task_is_not_deleted(
    local_aws: LocalAws, file_system: Any, bucket: Any, stacks: Any
) -> None:
    identifier = file_system(_P2)
    fsx = local_aws.client("fsx")
    _link(local_aws, identifier, "/data", f"s3://{bucket}/data/")
    tags = [{"Key": "training-storage:task-outcome", "Value": "HANG"}]
    request = {"FileSystemId": identifier, "Type": "EXPORT_TO_REPOSITORY", "Report": {"Enabled": False}}
    task = fsx.create_data_repository_task(**request, Tags=tags)["DataRepositoryTask"]
    with pytest.raises(ClientError, match="PENDING or EXECUTING") as refusal:
        fsx.delete_file_system(FileSystemId=identifier)
    assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    with pytest.raises(ClientError) as second:
        fsx.create_data_repository_task(**request)
    assert second.value.response["Error"]["Code"] == "DataRepositoryTaskExecuting"
    fsx.cancel_data_repository_task(TaskId=task["TaskId"])
    fsx.describe_file_systems()
    with pytest.raises(ClientError) as ended:
        fsx.cancel_data_repository_task(TaskId=task["TaskId"])
    assert ended.value.response["Error"]["Code"] == "DataRepositoryTaskEnded"
    assert fsx.delete_file_system(FileSystemId=identifier)["Lifecycle"] == "DELETING"


@pytest.mark.parametrize(
    ("operation", "request_", "code"),
    [
        ("describe_file_systems", {"FileSystemIds": ["fs-0123456789abcdef0"]}, "FileSystemNotFound"),
        ("delete_file_system", {"FileSystemId": "fs-0123456789abcdef0"}, "FileSystemNotFound"),
        (
            "describe_data_repository_associations",
            {"AssociationIds": ["dra-0123456789abcdef0"]},
            "DataRepositoryAssociationNotFound",
        ),
        ("cancel_data_repository_task", {"TaskId": "task-0123456789abcdef0"}, "DataRepositoryTaskNotFound"),
        ("delete_backup", {"BackupId": "backup-0123456789abcdef0"}, "BackupNotFound"),
    ],
)
def test_unknown_ids_have_their_own_codes(local_aws: LocalAws, operation: Any, request_: Any, code: Any) -> None:
    with pytest.raises(ClientError) as refusal:
        getattr(local_aws.client("fsx"), operation)(**request_)
    assert refusal.value.response["Error"]["Code"] == code


@pytest.mark.parametrize(
    ("quotas", "limit"), [({"L-8F1B9C74": 3600}, "TOTAL_STORAGE"), ({"L-FD6F2F22": 1}, "FILE_SYSTEM_COUNT")]
)
def test_quota_is_enforced_when_the_control_sets_it(local_aws: LocalAws, quotas: Any, limit: Any) -> None:
    region = "eu-west-1"
    ec2 = local_aws.client("ec2", region_name=region)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    [group] = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    cidr = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/16"}]}
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[cidr])
    request = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 2400,
        "SubnetIds": [subnet],
        "LustreConfiguration": _P2,
    }
    fsx = local_aws.client("fsx", region_name=region)
    first = fsx.create_file_system(**request)["FileSystem"]["FileSystemId"]
    local_aws.fsx_control(region_name=region, quotas=quotas, transition_seconds=0)
    with pytest.raises(ClientError) as refusal:
        fsx.create_file_system(**request)
    assert refusal.value.response["Error"]["Code"] == "ServiceLimitExceeded"
    assert refusal.value.response["Limit"] == limit
    local_aws.fsx_control(region_name=region, quotas={})
    fsx.delete_file_system(FileSystemId=first)


def test_unknown_control_is_refused(local_aws: LocalAws) -> None:
    with pytest.raises(ValueError, match="unknown FSx control 'task_outcomes'; the controls are task_outcome"):
        local_aws.fsx_control(task_outcomes="FAIL")
    with pytest.raises(ValueError, match="task_outcome must be one of SUCCEED, FAIL, HANG, got: 'MAYBE'"):
        local_aws.fsx_control(task_outcome="MAYBE")
