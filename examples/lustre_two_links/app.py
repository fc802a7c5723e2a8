#!/usr/bin/env python3
"""A Lustre file system in a VPC that exists: data sets come from the lake, checkpoints reach it before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Annotations, App, CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2

from training_storage import DataLake, DataRepositoryAssociation, FinalExport, LustreFileSystem

if TYPE_CHECKING:
    from constructs import Construct

JOB = "speech"
STORAGE_CAPACITY_GIB = 4800
PER_UNIT_STORAGE_THROUGHPUT = 500


class SpeechLake(Stack):
    """The lake, in a stack of its own: it stays when the file system goes.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the lake and the file system.
    """

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        super().__init__(scope, id, env=Environment(region=region), termination_protection=True)
        self.lake = DataLake(self, "Lake", bucket_name_prefix="speech-lake")
        CfnOutput(self, "DatasetsUri", value=self.lake.derived_s3_uri("datasets/"))


class SpeechFileSystem(Stack):
    """The file system with its two links, and the gate that lets it go only when the lake has everything.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the VPC.
    vpc_id, subnet_id
        The private subnet for the file servers; clients should be in its zone.
    lake
        The lake.
    """

    def __init__(self, scope: Construct, id: str, *, region: str, vpc_id: str, subnet_id: str, lake: DataLake) -> None:
        super().__init__(scope, id, env=Environment(region=region))
        # Attributes instead of ec2.Vpc.from_lookup: synth then needs no credentials and gives the same template
        # everywhere. The zone is not used.
        vpc = ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=vpc_id, availability_zones=["unused"], private_subnet_ids=[subnet_id]
        )
        Annotations.of(vpc).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing is routed here.")

        self.file_system = LustreFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=STORAGE_CAPACITY_GIB,
            per_unit_storage_throughput=PER_UNIT_STORAGE_THROUGHPUT,
            # A key that outlives this stack, as the retained file system may.
            encryption_key=lake.encryption_key,
        )
        # What changes in the lake shows up here; nothing flows back.
        DataRepositoryAssociation(
            self,
            "Datasets",
            file_system=self.file_system,
            file_system_path="/datasets",
            data_lake=lake,
            prefix="datasets/",
            import_events=["NEW", "CHANGED", "DELETED"],
        )
        # Checkpoints stay here until something exports them: every one of them would be petabytes a month in the lake.
        DataRepositoryAssociation(
            self,
            "Checkpoints",
            file_system=self.file_system,
            file_system_path="/checkpoints",
            data_lake=lake,
            prefix=f"checkpoints/{JOB}/",
        )
        # Last, because it must know every link.
        self.gate = FinalExport(self, "FinalExport", file_system=self.file_system, data_lake=lake, job_name=JOB)

        CfnOutput(self, "FileSystemId", value=self.file_system.file_system_id)
        CfnOutput(self, "MountCommand", value=self.file_system.mount_command("/fsx"))
        CfnOutput(self, "ClientSecurityGroupId", value=self.file_system.client_security_group.security_group_id)
        CfnOutput(
            self,
            "ImportDatasetsCommand",
            value=self.file_system.import_metadata_command(lake.derived_s3_uri("datasets/")),
        )


def build(app: App) -> None:
    """Add the stacks that the context in cdk.json describes."""
    region = app.node.get_context("region")
    lake = SpeechLake(app, "SpeechLake", region=region).lake
    SpeechFileSystem(
        app,
        "SpeechFileSystem",
        region=region,
        vpc_id=app.node.get_context("vpc_id"),
        subnet_id=app.node.get_context("subnet_id"),
        lake=lake,
    )


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
