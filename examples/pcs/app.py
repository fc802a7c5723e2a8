#!/usr/bin/env python3
"""The whole for one model: lake, file system, Slurm cluster on AWS PCS, alarms that reach somebody, and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, Environment, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions

from training_storage import DataLake, StoragePlan, TrainingJob, TrainingStorage, plan_storage

if TYPE_CHECKING:
    from constructs import Construct

TIME_TO_LIVE_HOURS = 24 * 30


def plan(*, region: str) -> StoragePlan:
    """Return the plan: all sizes below come from these four lines."""
    return plan_storage(
        TrainingJob(name="llm", instances=64, model="llama3-70b", checkpoint_interval_minutes=10, region=region)
    )


class ModelLake(Stack):
    """The lake, which stays when the training stack goes.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the lake and the training.
    """

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        super().__init__(scope, id, env=Environment(region=region), termination_protection=True)
        self.lake = DataLake(self, "Lake", bucket_name_prefix="model-lake")
        CfnOutput(self, "DatasetsUri", value=self.lake.derived_s3_uri("datasets/"))


class ModelTraining(Stack):
    """Network, file system and cluster of the plan; accelerators wait at zero.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    plan
        What to make.
    lake
        The lake.
    email
        Who is told of alarms, and an hour before the stack parks itself.
    """

    def __init__(self, scope: Construct, id: str, *, plan: StoragePlan, lake: DataLake, email: str) -> None:
        super().__init__(scope, id, env=Environment(region=plan.region))
        key = self._make_topic_key()
        self.topic = sns.Topic(self, "Alarms", master_key=key, enforce_ssl=True)
        self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self.storage = TrainingStorage(
            self,
            "Storage",
            plan=plan,
            data_lake=lake,
            engine="pcs",
            alarm_topic=self.topic,
            time_to_live_hours=TIME_TO_LIVE_HOURS,
        )
        CfnOutput(self, "StartSessionCommand", value=self.storage.cluster.start_session_command)
        CfnOutput(self, "StartNodesCommand", value=self.storage.cluster.start_nodes_command)
        CfnOutput(self, "ContractParameterName", value=self.storage.contract.parameter_name)

    def _make_topic_key(self) -> kms.Key:
        key = kms.Key(self, "TopicKey", enable_key_rotation=True, removal_policy=RemovalPolicy.DESTROY)
        # Without this CloudWatch sends nothing, and says nothing. The AWS managed key cannot be given it.
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
            )
        )
        return key


def build(app: App) -> None:
    """Add the stacks that the context in cdk.json describes."""
    region = app.node.get_context("region")
    lake = ModelLake(app, "ModelLake", region=region).lake
    chosen, email = plan(region=region), app.node.get_context("alarm_email")
    # `training-storage status` and `park` know a job by the name of its stack.
    ModelTraining(app, f"TrainingStorage-{chosen.job.name}", plan=chosen, lake=lake, email=email)


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
