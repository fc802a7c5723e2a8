#!/usr/bin/env python3
"""The app: reads the context once, plans, wires the two stacks, attaches cdk-nag."""

from __future__ import annotations

import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from stacks.data_lake_stack import TrainingDataLakeStack
from stacks.training_storage_stack import TrainingStorageStack
from training_storage import ConstructError
from training_storage.planning import DEFAULT_REGION, PlanningError, plan_storage, split_context


def build(app: App) -> None:
    """Add the stacks that the context of `app` asks for.

    Raises
    ------
    PlanningError, ConstructError
        For anything in the context that cannot be deployed; the message is one line for the user.
    """
    context = app.node.get_all_context()
    environment_region = os.environ.get("CDK_DEFAULT_REGION")
    request = split_context({key: value for key, value in context.items() if isinstance(value, str)})
    plan = request.plan or (plan_storage(request.job, environment_region=environment_region) if request.job else None)
    region = plan.region if plan else request.region or environment_region or DEFAULT_REGION
    lake = None
    if request.options.data_lake_bucket_name is None:
        lake = TrainingDataLakeStack(app, "TrainingDataLake", region=region).data_lake
    TrainingStorageStack(
        app,
        "TrainingStorage",
        plan=plan,
        options=request.options,
        data_lake=lake,
        job_name=plan.job.name if plan else request.name,
        region=region,
    )
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def main() -> int:
    """Synthesize; on bad input print one line and return 2, so that no stack trace hides it."""
    app = App()
    try:
        build(app)
        app.synth()
    except (PlanningError, ConstructError) as error:
        sys.stderr.write(f"training-storage: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
