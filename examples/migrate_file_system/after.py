#!/usr/bin/env python3
"""The same file system in our constructs: the update replaces nothing and removes nothing that holds data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Annotations, App, CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from training_storage import DataRepositoryAssociation, LustreFileSystem

if TYPE_CHECKING:
    from constructs import Construct


class VisionStorage(Stack):
    """The stack of before.py; the comments say what each line keeps.

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

        file_system = LustreFileSystem(
            self,
            "FileSystem",  # the same id in the same place: the same logical id
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=2400,
            per_unit_storage_throughput=250,
            keep_l2_security_group=True,  # another group would replace the file system
            metadata_configuration=False,  # FSx cannot add one
            # before.py states neither; a version would replace the file system, a type be refused.
            file_system_type_version=None,
            storage_type=None,
        )
        file_system.allow_from(nodes)
        datasets = DataRepositoryAssociation(
            self,
            "Datasets",
            file_system=file_system,
            file_system_path="/datasets",
            bucket=bucket,
            prefix="datasets/",
            import_events=["NEW", "CHANGED"],
            batch_import_metadata_on_create=None,  # before.py does not state it, and stating it would replace the link
        )
        # An L1 at the top of a stack has its id as logical id; without this line the link would be made twice.
        datasets.resource.override_logical_id("Datasets")
        CfnOutput(self, "FileSystemId", value=file_system.file_system_id)


def build(app: App) -> None:
    """Add the stack that the context in cdk.json describes."""
    region, vpc_id, subnet_id = (app.node.get_context(key) for key in ("region", "vpc_id", "subnet_id"))
    VisionStorage(app, "VisionStorage", region=region, vpc_id=vpc_id, subnet_id=subnet_id)


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
