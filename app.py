#!/usr/bin/env python3
"""The app: reads the context once, plans, wires the two stacks, attaches cdk-nag and the storage rules."""

from __future__ import annotations

import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from stacks.data_lake_stack import TrainingDataLakeStack
from stacks.training_storage_stack import TrainingStorageStack
from training_storage import ConstructError, StorageLegalityChecks
from training_storage.planning import DEFAULT_REGION, PlanningError, choose_engine, plan_storage, split_context


def build(app: App) -> list[str]:
    """Add the stacks that the context of `app` asks for; return what to tell the user: the plan in short.

    Nothing is told where `instances` is missing: the stack says so itself.

    Raises
    ------
    PlanningError, ConstructError
        For anything in the context that cannot be deployed; the message is one line for the user.
    """
    request = split_context(app.node.get_all_context())
    environment_region = os.environ.get("CDK_DEFAULT_REGION")
    plan = request.plan
    if request.job:
        plan = plan_storage(request.job, environment_region=environment_region)
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
        job_name=request.name,
        region=region,
    )
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), StorageLegalityChecks())
    if plan is None:
        return []
    options = request.options
    choice = choose_engine(plan, engine=options.engine, ami_parameter=options.ami_parameter)
    notes = options.notes(instances=plan.job.instances, instance_type=plan.job.instance_type, engine=choice.name)
    return [*plan.summary_lines(), *choice.lines(), *notes]


def main() -> int:
    """Synthesize; return 2 for bad input, 1 for a failed validation, each without a stack trace that would hide it."""
    app = App(stack_traces=False)
    try:
        lines = build(app)
        if lines:
            sys.stderr.write("\n".join(lines) + "\n\n")
        app.synth()
    except (PlanningError, ConstructError) as error:
        sys.stderr.write(f"training-storage: {error}\n")
        return 2
    except RuntimeError as error:  # what jsii makes of CDK's own refusals, cdk-nag's among them
        sys.stderr.write(f"training-storage: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
