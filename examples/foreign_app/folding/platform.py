"""The group's stacks: a network as its organisation makes them, a lake, and the file system that a plan asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import CfnOutput, Environment, Stack, Stage, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from training_storage import (
    DataLake,
    DataRepositoryAssociation,
    FinalExport,
    LustreFileSystem,
    StoragePlan,
    TrainingJob,
    plan_storage,
)

if TYPE_CHECKING:
    from constructs import Construct

JOB = "folding"


def planned(*, instances: int, region: str) -> StoragePlan:
    """Say what the group trains; the library says which storage that needs."""
    return plan_storage(
        TrainingJob(
            name=JOB,
            instances=instances,
            model_parameters=3_000_000_000,
            checkpoint_interval_minutes=30,
            region=region,
        )
    )


class FoldingLake(Stack):
    """What outlives every run, and the role of those who prepare data."""

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        super().__init__(scope, id, env=Environment(region=region), termination_protection=True)
        self.lake = DataLake(self, "Lake", bucket_name_prefix="folding-lake")
        # CDK names the parameters of its classes and interfaces differently, which pyright refuses and mypy does not.
        tasks: Any = iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        self.curators = iam.Role(self, "Curators", assumed_by=tasks)
        self.lake.grant_read_write(self.curators, prefixes=["raw/", "datasets/"])


class FoldingTraining(Stack):
    """A private network, and the file system between the accelerators and the lake."""

    def __init__(self, scope: Construct, id: str, *, plan: StoragePlan, lake: DataLake) -> None:
        super().__init__(scope, id, env=Environment(region=plan.region))
        sizes = plan.fsx_lustre
        if sizes is None:
            raise ValueError(f"the plan must have FSx for Lustre, got: {', '.join(plan.tiers)}")

        vpc = ec2.Vpc(
            self,
            "Vpc",
            max_azs=1,
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="training", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=20)
            ],
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        vpc.add_flow_log("FlowLog")

        self.file_system = LustreFileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.isolated_subnets[0],
            deployment_type=sizes.deployment_type,
            storage_capacity_gib=sizes.storage_capacity_gib,
            per_unit_storage_throughput=sizes.per_unit_storage_throughput,
            encryption_key=lake.encryption_key,
        )
        DataRepositoryAssociation(
            self,
            "Datasets",
            file_system=self.file_system,
            file_system_path="/datasets",
            data_lake=lake,
            prefix="datasets/",
            import_events=["NEW", "CHANGED", "DELETED"],
        )
        DataRepositoryAssociation(
            self,
            "Checkpoints",
            file_system=self.file_system,
            file_system_path="/checkpoints",
            data_lake=lake,
            prefix=f"checkpoints/{JOB}/",
        )
        FinalExport(self, "FinalExport", file_system=self.file_system, data_lake=lake, job_name=JOB)

        # The group's own workstations; nodes attach the client group instead.
        self.workstations = ec2.SecurityGroup(self, "Workstations", vpc=vpc, allow_all_outbound=False)
        self.file_system.allow_from(self.workstations)

        CfnOutput(self, "FileSystemId", value=self.file_system.file_system_id)
        CfnOutput(self, "MountCommand", value=self.file_system.mount_command("/fsx"))


class FoldingPlatform(Stage):
    """One environment of the platform, such as production."""

    def __init__(self, scope: Construct, id: str, *, instances: int, region: str) -> None:
        super().__init__(scope, id)
        self.lake = FoldingLake(self, "Lake", region=region)
        self.training = FoldingTraining(
            self, "Training", plan=planned(instances=instances, region=region), lake=self.lake.lake
        )
        Tags.of(self).add("CostCenter", "structural-biology")
