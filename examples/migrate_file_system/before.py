#!/usr/bin/env python3
"""What stands: a file system by hand, with CDK's own constructs, linked to a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Annotations, App, CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3

if TYPE_CHECKING:
    from constructs import Construct


class VisionStorage(Stack):
    """A bucket, a file system with the group that CDK makes for it, one link, and the group of the nodes.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the VPC.
    vpc_id, subnet_id
        The network.
    """

    def __init__(self, scope: Construct, id: str, *, region: str, vpc_id: str, subnet_id: str) -> None:
        super().__init__(scope, id, env=Environment(region=region))
        vpc = ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=vpc_id, availability_zones=["unused"], private_subnet_ids=[subnet_id]
        )
        Annotations.of(vpc).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing is routed here.")
        bucket = s3.Bucket(self, "Images", enforce_ssl=True)
        nodes = ec2.SecurityGroup(self, "Nodes", vpc=vpc, description="Training nodes")

        file_system = fsx.LustreFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            vpc_subnet=vpc.private_subnets[0],
            storage_capacity_gib=2400,
            lustre_configuration=fsx.LustreConfiguration(
                deployment_type=fsx.LustreDeploymentType.PERSISTENT_2, per_unit_storage_throughput=250
            ),
        )
        file_system.connections.allow_default_port_from(nodes)
        # FSx looks at the rules when it makes the file system, and CDK does not wait for them.
        file_system.node.find_child("Resource").node.add_dependency(*file_system.connections.security_groups)
        fsx.CfnDataRepositoryAssociation(
            self,
            "Datasets",
            file_system_id=file_system.file_system_id,
            file_system_path="/datasets",
            data_repository_path=f"s3://{bucket.bucket_name}/datasets/",
            s3=fsx.CfnDataRepositoryAssociation.S3Property(
                auto_import_policy=fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(events=["NEW", "CHANGED"])
            ),
        )
        CfnOutput(self, "FileSystemId", value=file_system.file_system_id)


def build(app: App) -> None:
    """Add the stack that the context in cdk.json describes."""
    region, vpc_id, subnet_id = (app.node.get_context(key) for key in ("region", "vpc_id", "subnet_id"))
    VisionStorage(app, "VisionStorage", region=region, vpc_id=vpc_id, subnet_id=subnet_id)


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
