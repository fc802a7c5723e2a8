#!/usr/bin/env python3
"""Three jobs on one lake: each has a stack and folders of its own, and any of them may come and go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, Environment, Stack

from training_storage import DataLake, StoragePlan, TrainingJob, TrainingStorage, plan_storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from constructs import Construct

#: Written by `training-storage plan --out`, and reviewed: deployed as it stands, whatever prices say later.
PRETRAIN_PLAN = Path(__file__).parent / "pretrain.json"


def plans(*, region: str) -> Iterable[StoragePlan]:
    """Yield the plan of each job; names are folders of the lake, so no two may be the same."""
    yield StoragePlan.read(PRETRAIN_PLAN)
    yield plan_storage(TrainingJob(name="finetune", instances=8, model="llama3-8b", fine_tuning="lora", region=region))
    yield plan_storage(TrainingJob(name="images", instances=4, workload="resnet50", interface="posix", region=region))


class SharedLake(Stack):
    """The lake of all jobs.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    region
        Region of the lake and of every job.
    """

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        super().__init__(scope, id, env=Environment(region=region), termination_protection=True)
        self.lake = DataLake(self, "Lake", bucket_name_prefix="shared-lake")
        # Or taking a job out of the app would take away an export that its stack still uses.
        self.lake.keep_exports()


class TrainingJobStack(Stack):
    """What one job needs beside the lake.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    plan
        The job's plan.
    lake
        The lake.
    """

    def __init__(self, scope: Construct, id: str, *, plan: StoragePlan, lake: DataLake) -> None:
        super().__init__(scope, id, env=Environment(region=plan.region))
        self.storage = TrainingStorage(self, "Storage", plan=plan, data_lake=lake)
        CfnOutput(self, "StartSessionCommand", value=self.storage.cluster.start_session_command)
        CfnOutput(self, "StartNodesCommand", value=self.storage.cluster.start_nodes_command)
        CfnOutput(self, "CheckpointsUri", value=lake.derived_s3_uri(f"checkpoints/{self.storage.job_name}/"))


def build(app: App) -> None:
    """Add the lake, and a stack for each job."""
    region = app.node.get_context("region")
    lake = SharedLake(app, "SharedLake", region=region).lake
    for plan in plans(region=region):
        TrainingJobStack(app, f"TrainingStorage-{plan.job.name}", plan=plan, lake=lake)


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
