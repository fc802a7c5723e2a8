"""Lake and hot tiers of a plan in a stack without nodes, and the checks that every stack must pass."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import Validations
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import lint
from cfnlint.config import ManualArgs

from training_storage import DataLake, DataRepositoryAssociation, DirectoryBucket, LustreFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from aws_cdk import App, Stack
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
    """What cfn-lint finds; W3005 comes for every function that CDK makes."""
    config = ManualArgs(regions=["us-east-1"], ignore_checks=["W3005"])
    return [f"{match.rule.id} {match.path}: {match.message}" for match in lint(json.dumps(template), config=config)]


def nag_findings(app: App, folder: Path) -> list[str]:
    """What cdk-nag finds in an app that writes to `folder`."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
    report = json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))
    return [
        f"{violation['ruleName']} {[where.get('constructPath') for where in violation.get('violatingConstructs', [])]}"
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
    ]
