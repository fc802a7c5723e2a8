"""Lake and hot tiers of a plan in a stack without nodes, and what cfn-lint says of a template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage import DataLake, DataRepositoryAssociation, DirectoryBucket, LustreFileSystem
from training_storage import testing as storage_testing

if TYPE_CHECKING:
    from aws_cdk import Stack
    from aws_cdk import aws_ec2 as ec2

    from training_storage import StoragePlan


@dataclass(frozen=True, kw_only=True)
class Tiers:
    lake: DataLake
    file_system: LustreFileSystem | None
    directory_bucket: DirectoryBucket | None


def tiers(stack: Stack, vpc: ec2.IVpc, plan: StoragePlan, *, exports: bool = True, lake: str = "lake") -> Tiers:
    """Make the tiers of `plan`, on a lake whose bucket name begins with `lake`; the file system has one link."""
    data_lake = DataLake(stack, "Lake", bucket_name_prefix=lake)
    system = None
    if plan.fsx_lustre:
        system = LustreFileSystem(
            stack,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=plan.fsx_lustre.storage_capacity_gib,
            per_unit_storage_throughput=plan.fsx_lustre.per_unit_storage_throughput,
            encryption_key=data_lake.encryption_key,
        )
        DataRepositoryAssociation(
            stack,
            "Link",
            file_system=system,
            file_system_path="/logs/",
            data_lake=data_lake,
            prefix="logs/default/",
            import_events=() if exports else ("NEW",),
            export_events=("NEW", "CHANGED") if exports else (),
        )
    express = DirectoryBucket(stack, "Express", zone_id=plan.zone_id or "") if plan.s3_express else None
    return Tiers(lake=data_lake, file_system=system, directory_bucket=express)


def lint_findings(template: dict[str, Any]) -> list[str]:
    """What cfn-lint finds."""
    return [str(finding) for finding in storage_testing.lint_findings(template, region="us-east-1")]
