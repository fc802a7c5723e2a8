"""Two of every construct in one stack and a job nested there, deployed through CloudFormation, and gone again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, NestedStack, Stack, Stage

from tests.cdk.job_compositions import HERE, archived, job
from training_storage import DataLake
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.local_aws


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    # The gates look every half minute.
    with LocalAws.start(quick=True) as started:
        yield started


def test_jobs_stand_side_by_side_and_nested_in_the_stack_of_a_stage_and_go_again(aws: LocalAws, tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stage = Stage(app, "Prod", env=HERE)
    lakes, stack = Stack(stage, "Lakes"), Stack(stage, "Training")
    lake = DataLake(lakes, "Lake")
    for name in ("One", "Two"):
        job(stack, name, lake=lake)
        archived(stack, f"{name}More", lake=lake)
    # No job on AWS PCS: the local AWS gives an instance profile of a nested stack a name that is longer than AWS's.
    archived(NestedStack(stack, "Inner"), "Three", lake=lake)
    deployment = aws.deploy(app)
    assert {deployment.status(name) for name in deployment.stack_names} == {"CREATE_COMPLETE"}
    assert standing(aws) == {"file systems": 2, "clusters": 2, "groups": 3, "parks": 4, "contracts": 5}

    cloudformation: Any = aws.client("cloudformation")
    cloudformation.delete_stack(StackName="Prod-Training")
    cloudformation.get_waiter("stack_delete_complete").wait(
        StackName="Prod-Training", WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    assert standing(aws) == {"file systems": 0, "clusters": 0, "groups": 0, "parks": 0, "contracts": 0}


def standing(aws: LocalAws) -> dict[str, int]:
    """How many stand of what each job has one of."""
    machines = aws.client("stepfunctions").list_state_machines()["stateMachines"]
    parks = [machine for machine in machines if machine["name"].startswith("training-storage-park-")]
    parameters = aws.client("ssm").get_parameters_by_path(Path="/training-storage", Recursive=True)["Parameters"]
    found = Counter(
        {
            "file systems": len(aws.client("fsx").describe_file_systems()["FileSystems"]),
            "clusters": len(aws.client("pcs").list_clusters()["clusters"]),
            "groups": len(aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]),
            "parks": len(parks),
            "contracts": len(parameters),
        }
    )
    return dict(found)
