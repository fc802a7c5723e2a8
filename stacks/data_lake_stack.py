"""The long-lived stack: the data lake that every job shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, Environment, Stack

from training_storage import DataLake

if TYPE_CHECKING:
    from constructs import Construct


class TrainingDataLakeStack(Stack):
    """The lake, protected from termination. Its template is the same whatever jobs use it.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the lake and of the jobs that use it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        region: str,
    ) -> None:
        super().__init__(
            scope,
            id,
            # Never an account: with one, CDK asks it for its zones, and synth needs credentials.
            env=Environment(region=region),
            termination_protection=True,
            description="Data lake of training jobs (retained)",
        )
        self.data_lake = DataLake(self, "DataLake", linked_elsewhere=True)
        # Or the deployment of one job would take away what another job uses.
        self.data_lake.keep_exports()
        CfnOutput(self, "BucketName", value=self.data_lake.bucket.bucket_name, description="Data lake")
        CfnOutput(self, "DatasetsUri", value=self.data_lake.s3_uri("datasets/"), description="Put training data here")
