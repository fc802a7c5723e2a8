"""The stack of one job: safe to destroy, for the lake is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Annotations, CfnOutput, Environment, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns

from training_storage import ConstructError, DataLakeBase, ImportedDataLake, TrainingStorage
from training_storage.planning import DeploymentOptions

if TYPE_CHECKING:
    from constructs import Construct

    from training_storage import StoragePlan


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
            # One line is enough; that an empty stack has no resources is no news.
            Validations.of(self).acknowledge(Acknowledgment(id="CloudFormation-Validate::F0001", reason="no plan"))
            Annotations.of(self).add_error(
                "instances is missing: say how many instances train, for example -c instances=256"
            )
            return
        vpc, subnet = self._adopted_network(options, plan)
        self.storage = TrainingStorage(
            self,
            "Storage",
            plan=plan,
            data_lake=data_lake or self._adopted_lake(options),
            vpc=vpc,
            subnet=subnet,
            egress=options.egress,
            engine=options.engine,
            purchase=options.purchase,
            capacity_reservation_ids=options.capacity_reservation_ids,
            ami_parameter=options.ami_parameter,
            home_file_system_id=options.home_file_system_id,
            slurm_version=options.slurm_version,
            alarm_topic=self._alarm_topic(options),
            checkpoints_disposable=options.checkpoints_disposable,
            release_after_days=options.release_after_days,
            time_to_live_hours=options.time_to_live_hours,
            idle_park_hours=options.idle_park_hours,
        )
        self._write_outputs()

    def _adopted_lake(self, options: DeploymentOptions) -> ImportedDataLake:
        return ImportedDataLake(
            self,
            "DataLake",
            bucket_name=options.data_lake_bucket_name or "",
            encryption_key_arn=options.data_lake_key_arn or "",
        )

    def _alarm_topic(self, options: DeploymentOptions) -> sns.ITopic | None:
        if options.alarm_topic_arn is None:
            return None
        return sns.Topic.from_topic_arn(self, "AlarmTopic", options.alarm_topic_arn)

    def _adopted_network(
        self, options: DeploymentOptions, plan: StoragePlan
    ) -> tuple[ec2.IVpc, ec2.ISubnet] | tuple[None, None]:
        if options.vpc_id is None or options.subnet_id is None:
            return None, None
        if options.egress != DeploymentOptions().egress:
            raise ConstructError(
                f"egress must be left out with vpc_id, got: {options.egress!r}; a network of yours has its own way out"
            )
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=options.vpc_id,
            availability_zones=[plan.zone_id or ""],
            private_subnet_ids=[options.subnet_id],
        )
        # Nothing is routed here, so that CDK does not know the route table is no matter.
        Validations.of(vpc).acknowledge(
            Acknowledgment(id="Annotation::@aws-cdk/aws-ec2:noSubnetRouteTableId", reason="nothing is routed here")
        )
        Annotations.of(self).add_info(
            f"Not checked at synth: {options.subnet_id} must be private, in zone {plan.zone_id}, with addresses for the"
            " nodes and file servers, and its route table must lead to gateway endpoints for S3 and S3 Express"
        )
        return vpc, vpc.private_subnets[0]

    def _write_outputs(self) -> None:
        storage = self.storage
        lake, name = storage.data_lake, storage.job_name
        self._output("DataLakeUri", lake.derived_s3_uri(), "Data lake")
        self._output("DatasetsUri", lake.derived_s3_uri("datasets/"), "Put training data here")
        self._output("CheckpointsUri", lake.derived_s3_uri(f"checkpoints/{name}/"), "Checkpoints worth keeping")
        self._output("ContractParameterName", storage.contract.parameter_name, "Where training code finds its storage")
        if storage.file_system:
            self._output("FileSystemId", storage.file_system.file_system_id, "FSx for Lustre")
            self._output(
                "MountCommand", storage.file_system.mount_command(), "On a client of yours; nodes mount by themselves"
            )
            self._output(
                "ImportDatasetsCommand",
                storage.file_system.import_metadata_command(lake.derived_s3_uri("datasets/")),
                "Shows on /datasets what was in the lake before the link; later changes come by themselves",
            )
            self._output(
                "ClientSecurityGroupId",
                storage.file_system.client_security_group.security_group_id,
                "Attach to every client of the file system",
            )
        if storage.directory_bucket:
            self._output("DirectoryBucketName", storage.directory_bucket.bucket_name, "S3 Express One Zone")
            self._output("DirectoryBucketUri", f"s3://{storage.directory_bucket.bucket_name}/", "Hot objects")
        cluster = storage.cluster
        self._output("StartNodesCommand", cluster.start_nodes_command, cluster.start_nodes_description)
        self._output("StartSessionCommand", cluster.start_session_command, "A shell, on the login node if there is one")
        for name, (value, description) in cluster.outputs.items():
            self._output(name, value, description)

    def _output(self, name: str, value: str, description: str) -> None:
        CfnOutput(self, name, value=value, description=description)
