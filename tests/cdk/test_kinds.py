"""What is given as a construct and is none of its kind is named, in one line, by every construct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3

from training_storage import (
    CheckpointArchive,
    ConstructError,
    DataLake,
    DataRepositoryAssociation,
    DirectoryBucket,
    ExpressGate,
    FinalExport,
    LustreFileSystem,
    Park,
    ScheduledRelease,
    StorageAlarms,
    TrainingJob,
    TrainingStorage,
    plan_storage,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Right:
    """One of each, as it should be, and of CDK's own what looks like it."""

    def __init__(self) -> None:
        self.stack = Stack(App(), "Test", env=Environment(region="us-east-1"))
        self.vpc = ec2.Vpc(self.stack, "Vpc", max_azs=1)
        self.subnet = self.vpc.private_subnets[0]
        self.file_system = LustreFileSystem(
            self.stack,
            "FileSystem",
            vpc=self.vpc,
            subnet=self.subnet,
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
        )
        self.lake = DataLake(self.stack, "Lake")
        self.directory_bucket = DirectoryBucket(self.stack, "Express", zone_id="use1-az4")
        self.bucket = s3.Bucket(self.stack, "Bucket")
        self.l2 = fsx.LustreFileSystem(
            self.stack,
            "L2",
            vpc=self.vpc,
            vpc_subnet=self.subnet,
            storage_capacity_gib=1200,
            lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
        )


@pytest.fixture(scope="module")
def right() -> Right:
    return Right()


CASES: dict[str, tuple[Callable[[Right], dict[str, Any]], str]] = {
    "no-subnet": (
        lambda it: {"kind": LustreFileSystem, "vpc": it.vpc, "subnet": None},
        "subnet must be given, an ec2.ISubnet, such as vpc.private_subnets[0], got: None",
    ),
    "id-of-a-vpc": (
        lambda it: {"kind": LustreFileSystem, "vpc": "vpc-0123", "subnet": it.subnet},
        "vpc must be an ec2.IVpc, such as ec2.Vpc or ec2.Vpc.from_vpc_attributes, got: 'vpc-0123'",
    ),
    "bucket-for-a-lake": (
        lambda it: {
            "kind": DataRepositoryAssociation,
            "file_system": it.file_system,
            "file_system_path": "/datasets",
            "prefix": "datasets/",
            "data_lake": it.bucket,
        },
        "data_lake must be a DataLake or an ImportedDataLake; wrap a bucket of yours in the latter, got: aws_s3.Bucket",
    ),
    "l2-for-a-file-system": (
        lambda it: {
            "kind": DataRepositoryAssociation,
            "file_system": it.l2,
            "file_system_path": "/datasets",
            "prefix": "datasets/",
            "data_lake": it.lake,
        },
        "of training_storage; wrap one of yours in the latter, got: aws_fsx.LustreFileSystem",
    ),
    "l2-behind-a-gate": (
        lambda it: {"kind": FinalExport, "file_system": it.l2, "data_lake": it.lake, "job_name": "one"},
        "file_system must be a LustreFileSystem",
    ),
    "l2-watched": (
        lambda it: {"kind": StorageAlarms, "file_system": it.l2, "job_name": "one", "baseline_mb_per_s": 1.0},
        "file_system must be a LustreFileSystem",
    ),
    "l2-released": (
        lambda it: {"kind": ScheduledRelease, "file_system": it.l2, "unused_days": 1},
        "file_system must be a LustreFileSystem",
    ),
    "bucket-for-a-directory-bucket": (
        lambda it: {"kind": ExpressGate, "directory_bucket": it.bucket, "data_lake": it.lake, "job_name": "one"},
        "directory_bucket must be a DirectoryBucket or an ImportedDirectoryBucket, got: aws_s3.Bucket",
    ),
    "lake-for-a-directory-bucket": (
        lambda it: {
            "kind": CheckpointArchive,
            "directory_bucket": it.lake,
            "data_lake": it.lake,
            "job_name": "one",
            "durable_interval_minutes": 60,
            "durable_checkpoints_kept": 1,
        },
        "directory_bucket must be a DirectoryBucket",
    ),
    "arn-of-a-key": (
        lambda it: {"kind": LustreFileSystem, "vpc": it.vpc, "subnet": it.subnet, "encryption_key": "arn:aws:kms:…"},
        "encryption_key must be a kms.IKey, such as kms.Key.from_key_arn, got: 'arn:aws:kms:…'",
    ),
    "arn-of-a-lakes-key": (
        lambda _: {"kind": DataLake, "bucket_name_prefix": "another", "encryption_key": "arn:aws:kms:…"},
        "encryption_key must be a kms.IKey",
    ),
    "days-for-a-lifecycle": (
        lambda _: {"kind": DataLake, "bucket_name_prefix": "another", "lifecycles": {"raw": 5}},
        "lifecycles must be a dict from folders to FolderLifecycle, got: 5",
    ),
    "folders-for-lifecycles": (
        lambda _: {"kind": DataLake, "bucket_name_prefix": "another", "lifecycles": ["raw"]},
        "lifecycles must be a dict from folders to FolderLifecycle, got: ['raw']",
    ),
    "text-for-a-flag": (
        lambda it: {
            "kind": TrainingStorage,
            "plan": plan_storage(TrainingJob(instances=32)),
            "data_lake": it.lake,
            "checkpoints_disposable": "false",
        },
        "checkpoints_disposable must be True or False, got: 'false'; values of the context are texts",
    ),
    "text-for-a-flag-of-a-gate": (
        lambda it: {
            "kind": ExpressGate,
            "directory_bucket": it.directory_bucket,
            "data_lake": it.lake,
            "job_name": "one",
            "disposable": "no",
        },
        "disposable must be True or False, got: 'no'",
    ),
    "text-for-a-flag-of-a-file-system": (
        lambda it: {"kind": LustreFileSystem, "vpc": it.vpc, "subnet": it.subnet, "replacement_protection": "false"},
        "replacement_protection must be True or False, got: 'false'",
    ),
    "no-cluster": (
        lambda it: {"kind": Park, "cluster": it.vpc, "job_name": "one"},
        "cluster must be a GpuCluster",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_of_another_kind_is_named_with_what_is_taken(right: Right, case: str) -> None:
    arguments, message = CASES[case]
    given = arguments(right)
    kind = given.pop("kind")
    with pytest.raises(ConstructError) as raised:
        kind(right.stack, f"Wrong{case}", **given)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("job_name", ["", "A b/..", "a" * 31, "../other", "-a", "größe"])
def test_a_job_name_that_is_no_folder_of_the_lake_is_refused_by_whatever_takes_one(right: Right, job_name: str) -> None:
    system, lake, bucket = right.file_system, right.lake, right.directory_bucket
    makers: list[Callable[[str], object]] = [
        lambda id: FinalExport(right.stack, id, file_system=system, data_lake=lake, job_name=job_name),
        lambda id: ExpressGate(right.stack, id, directory_bucket=bucket, data_lake=lake, job_name=job_name),
        lambda id: StorageAlarms(right.stack, id, job_name=job_name),
    ]
    for number, make in enumerate(makers):
        with pytest.raises(ConstructError, match="job_name must be a lowercase letter, then letters, digits"):
            make(f"Named{number}{job_name.encode().hex()}")
