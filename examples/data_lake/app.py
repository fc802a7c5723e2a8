#!/usr/bin/env python3
"""A data lake alone: one bucket that stays, a role that fills it, a role that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from training_storage import DataLake, FolderLifecycle

if TYPE_CHECKING:
    from constructs import Construct


class ResearchLake(Stack):
    """The lake, and who may do what in it.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the lake; training should run in the same one.
    """

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        super().__init__(scope, id, env=Environment(region=region), termination_protection=True)
        self.lake = DataLake(
            self,
            "Lake",
            bucket_name_prefix="research-lake",
            lifecycles={
                # Raw material is read once, when it is packed: after a month it may lie where reading costs extra.
                "raw": FolderLifecycle(
                    noncurrent_days=7, tiering_days=30, storage_class=s3.StorageClass.INFREQUENT_ACCESS
                ),
                # A data set that was overwritten by mistake can be brought back for three months.
                "datasets": FolderLifecycle(
                    noncurrent_days=90, tiering_days=30, storage_class=s3.StorageClass.INTELLIGENT_TIERING
                ),
            },
        )

        # Tasks that collect and clean data. They cannot touch checkpoints or weights.
        self.writer = iam.Role(self, "Writer", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
        self.lake.grant_read_write(self.writer, prefixes=["raw/", "datasets/"])

        # Machines that look at data. The second grant is for tools that list the lake from its root.
        self.reader = iam.Role(self, "Reader", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        self.lake.grant_read(self.reader, prefixes=["datasets/", "models/"])
        self.lake.grant_list_names(self.reader)

        # What another app needs to adopt the lake: ImportedDataLake(bucket_name=…, encryption_key_arn=…).
        CfnOutput(self, "BucketName", value=self.lake.bucket.bucket_name)
        CfnOutput(self, "KeyArn", value=self.lake.encryption_key.key_arn)
        CfnOutput(self, "WriterRoleArn", value=self.writer.role_arn)
        CfnOutput(self, "ReaderRoleArn", value=self.reader.role_arn)


def build(app: App) -> None:
    """Add the stack that the context in cdk.json describes."""
    ResearchLake(app, "ResearchLake", region=app.node.get_context("region"))


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
