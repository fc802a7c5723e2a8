"""The stack of one job: safe to destroy, for the lake is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Annotations, CfnOutput, Environment, Stack
from aws_cdk import aws_ec2 as ec2

from training_storage import DataLakeBase, ImportedDataLake, TrainingStorage

if TYPE_CHECKING:
    from constructs import Construct

    from training_storage import StoragePlan
    from training_storage.planning import DeploymentOptions


class TrainingStorageStack(Stack):
    """Network, hot tiers and cluster of one training job.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    plan
        The plan; None if the user has not said how many instances. The stack is then empty but has its name, so that
        it can be destroyed, and deploying it says what to type.
    options
        Deployment options.
    data_lake
        The lake of `TrainingDataLakeStack`; None if the options adopt another.
    job_name, region
        From the context, for a stack without a plan.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        plan: StoragePlan | None,
        options: DeploymentOptions,
        data_lake: DataLakeBase | None,
        job_name: str | None,
        region: str,
    ) -> None:
        super().__init__(
            scope,
            id,
            stack_name=f"{id}-{job_name}" if job_name else None,
            env=Environment(region=region),
            description="Hot storage and cluster of one training job",
        )
        if plan is None:
            Annotations.of(self).add_error(
                "instances is missing: say how many instances train, for example -c instances=256"
            )
            return
        self.storage = TrainingStorage(
            self,
            "Storage",
            plan=plan,
            data_lake=data_lake or self._adopted_lake(options),
            vpc=self._adopted_vpc(options, plan),
            subnet=self._adopted_subnet(options),
            egress=options.egress,
            engine=options.engine,
            purchase=options.purchase,
            capacity_reservation_ids=options.capacity_reservation_ids,
            ami_parameter=options.ami_parameter,
        )
        self._write_outputs()

    def _adopted_lake(self, options: DeploymentOptions) -> ImportedDataLake:
        return ImportedDataLake(
            self,
            "DataLake",
            bucket_name=options.data_lake_bucket_name,
            encryption_key_arn=options.data_lake_key_arn,
        )

    def _adopted_vpc(self, options: DeploymentOptions, plan: StoragePlan) -> ec2.IVpc | None:
        if options.vpc_id is None:
            return None
        return ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=options.vpc_id,
            availability_zones=[plan.zone_id],
            private_subnet_ids=[options.subnet_id],
        )

    def _adopted_subnet(self, options: DeploymentOptions) -> ec2.ISubnet | None:
        if options.subnet_id is None:
            return None
        return ec2.Subnet.from_subnet_id(self, "Subnet", options.subnet_id)

    def _write_outputs(self) -> None:
        storage = self.storage
        lake, name = storage.data_lake, storage.job_name
        self._output("DataLakeBucketName", lake.bucket.bucket_name, "Data lake")
        self._output("DatasetsUri", lake.s3_uri("datasets/"), "Put training data here")
        self._output("CheckpointsUri", lake.s3_uri(f"checkpoints/{name}/"), "Checkpoints worth keeping")
        if storage.file_system:
            self._output("FileSystemId", storage.file_system.file_system_id, "FSx for Lustre")
            self._output("MountCommand", storage.file_system.mount_command(), "On a node, after mkdir /fsx")
            self._output(
                "ClientSecurityGroupId",
                storage.file_system.client_security_group.security_group_id,
                "Attach to every client of the file system",
            )
        if storage.directory_bucket:
            self._output("DirectoryBucketName", storage.directory_bucket.bucket_name, "S3 Express One Zone")
            self._output("DirectoryBucketUri", f"s3://{storage.directory_bucket.bucket_name}/", "Hot objects")
        self._output("StartNodesCommand", storage.cluster.start_nodes_command, "Starts (and bills) the nodes")
        self._output("StartSessionCommand", storage.cluster.start_session_command, "A shell on the first node")

    def _output(self, name: str, value: str, description: str) -> None:
        CfnOutput(self, name, value=value, description=description)
