#!/usr/bin/env python3
"""Checkpoints on S3 Express One Zone for jobs of an AWS Batch that exists, archived to a lake that exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, App, CfnOutput, Environment, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from training_storage import CheckpointArchive, DirectoryBucket, ExpressGate, ImportedDataLake

if TYPE_CHECKING:
    from constructs import Construct

JOB = "translation"


class FastCheckpoints(Stack):
    """A directory bucket in the zone of the Batch nodes, its way in, its archive and its gate.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region, zone_id
        Where the Batch nodes run. The zone by id, such as use1-az4: names mean another zone in every account.
    vpc_id, subnet_id, route_table_id
        Their network: the route table is the subnet's.
    job_role_arn
        Role of the Batch jobs (`jobRoleArn` of the job definition).
    lake_bucket_name, lake_key_arn
        The lake, such as the one of the example data_lake.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        region: str,
        zone_id: str,
        vpc_id: str,
        subnet_id: str,
        route_table_id: str,
        job_role_arn: str,
        lake_bucket_name: str,
        lake_key_arn: str,
    ) -> None:
        super().__init__(scope, id, env=Environment(region=region))
        lake = ImportedDataLake(self, "Lake", bucket_name=lake_bucket_name, encryption_key_arn=lake_key_arn)
        self.bucket = DirectoryBucket(self, "Bucket", zone_id=zone_id, encryption_key=lake.encryption_key)

        # The endpoint for S3 does not carry S3 Express, and through NAT every byte would cost.
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=vpc_id,
            availability_zones=["unused"],
            private_subnet_ids=[subnet_id],
            private_subnet_route_table_ids=[route_table_id],
        )
        vpc.add_gateway_endpoint("S3Express", service=ec2.GatewayVpcEndpointAwsService.S3_EXPRESS)

        self.archive = CheckpointArchive(
            self,
            "Archive",
            directory_bucket=self.bucket,
            data_lake=lake,
            job_name=JOB,
            durable_interval_minutes=60,
            durable_checkpoints_kept=24,
        )
        self.gate = ExpressGate(self, "Gate", directory_bucket=self.bucket, data_lake=lake, job_name=JOB)

        job_role = iam.Role.from_role_arn(self, "JobRole", job_role_arn)
        # A policy of its own, so that it can wait for the gate: when the stack goes, writing ends first.
        self.writing = iam.Policy(self, "Writing", roles=[job_role])
        self.bucket.grant_read_write(self.writing)
        self.writing.node.add_dependency(self.gate)
        # Data to train on, and an archived checkpoint to begin from.
        folders = ["datasets/", f"checkpoints/{JOB}/"]
        lake.grant_read(job_role, prefixes=folders)
        for folder in folders:
            # For cdk-nag; roles that the app makes itself need no such line.
            objects = f"arn:aws:s3:::{lake_bucket_name}/{folder}*"
            finding = Acknowledgment(id=f"AwsSolutions-IAM5[Resource::{objects}]", reason="It ends within the folder.")
            Validations.of(job_role).acknowledge(finding)

        CfnOutput(self, "CheckpointsUri", value=f"s3://{self.bucket.bucket_name}/checkpoints/{JOB}/")
        CfnOutput(self, "ArchiveUri", value=lake.s3_uri(f"checkpoints/{JOB}/"))


def build(app: App) -> None:
    """Add the stack that the context in cdk.json describes."""
    given = app.node.get_context
    FastCheckpoints(
        app,
        "FastCheckpoints",
        region=given("region"),
        zone_id=given("zone_id"),
        vpc_id=given("vpc_id"),
        subnet_id=given("subnet_id"),
        route_table_id=given("route_table_id"),
        job_role_arn=given("job_role_arn"),
        lake_bucket_name=given("lake_bucket_name"),
        lake_key_arn=given("lake_key_arn"),
    )


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
