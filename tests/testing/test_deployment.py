"""A synthesized app stands in the local AWS, with its assets and in order, and a failure says why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, CfnOutput, CfnParameter, CfnResource, Environment, NestedStack, RemovalPolicy, Stack, Stage
from aws_cdk import aws_ecr_assets as images
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from training_storage.testing import Deployment, DeploymentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from constructs import Construct

    from training_storage.testing import LocalAws

pytestmark = pytest.mark.local_aws

WEST = Environment(region="us-west-2")


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path / "cdk.out"))


def bucket(scope: Construct, id: str = "Bucket") -> s3.Bucket:
    return s3.Bucket(scope, id, removal_policy=RemovalPolicy.DESTROY)


def test_a_stack_stands_with_its_assets_after_what_it_depends_on_and_goes_in_the_end(
    local_aws: LocalAws, app: App, asset: Path
) -> None:
    job, lake = Stack(app, "Job", env=WEST, tags={"team": "a"}), Stack(app, "Lake", env=WEST)
    name = bucket(lake).bucket_name
    Stack(app, "Unrelated", env=WEST)
    nested = bucket(NestedStack(job, "Tier"))
    function = lambda_.Function(
        job,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_asset(str(asset)),
        environment={"LAKE": name},
    )
    CfnOutput(job, "FunctionName", value=function.function_name)
    CfnOutput(job, "Nested", value=nested.bucket_name)
    with local_aws.deploy(job) as deployment:
        assert deployment.stack_names == ("Lake", "Job")
        assert deployment.status() == deployment.status("Lake") == "CREATE_COMPLETE"
        (stands,) = deployment.resources("AWS::S3::Bucket", stack="Lake")
        outputs = deployment.outputs()
        buckets = {entry["Name"] for entry in deployment.client("s3").list_buckets()["Buckets"]}
        assert {stands.physical_id, outputs["Nested"]} <= buckets
        answer = deployment.client("lambda").invoke(FunctionName=outputs["FunctionName"], Payload=b'{"asked": 1}')
        assert json.loads(answer["Payload"].read()) == {"asked": 1}
        (described,) = deployment.client("cloudformation").describe_stacks(StackName="Job")["Stacks"]
        assert described["Tags"] == [{"Key": "team", "Value": "a"}]
    assert deployment.status() == deployment.status("Lake") == ""
    assert deployment.outputs() == {}


def with_topic(folder: Path, name: str, *, size: int = 0) -> Stack:
    """A stack with a topic that is called after a parameter; `size` bytes make its template large."""
    stack = Stack(App(outdir=str(folder)), "Job", env=WEST)
    topic = sns.CfnTopic(stack, "Topic", display_name=CfnParameter(stack, "Name", default="none").value_as_string)
    topic.add_metadata("filler", "x" * size)
    CfnOutput(stack, "Wanted", value=f"{name} {topic.display_name}")
    return stack


def test_an_update_changes_what_is_new_keeps_parameters_and_leaves_alone_what_is_the_same(
    local_aws: LocalAws, tmp_path: Path
) -> None:
    with local_aws.deploy(with_topic(tmp_path / "1", "one"), parameters={"Name": "given"}) as deployment:
        assert deployment.outputs() == {"Wanted": "one given"}
        deployment.update(with_topic(tmp_path / "2", "two"))
        assert deployment.outputs() == {"Wanted": "two given"}
        before = deployment.client("cloudformation").describe_stack_events(StackName="Job")["StackEvents"]
        deployment.update(tmp_path / "2")
        assert deployment.client("cloudformation").describe_stack_events(StackName="Job")["StackEvents"] == before
        # One that no request can hold goes over a bucket.
        deployment.update(with_topic(tmp_path / "3", "three", size=60_000), parameters={"Job:Name": "anew"})
        assert deployment.outputs() == {"Wanted": "three anew"}
        assert deployment.status() == "UPDATE_COMPLETE"


def broken(folder: Path) -> Stack:
    stack = Stack(App(outdir=str(folder)), "Broken", env=WEST)
    good = sns.CfnTopic(stack, "Topic")
    CfnResource(stack, "Queue", type="AWS::SQS::Queue", properties={"NoSuchProperty": 1}).add_dependency(good)
    return stack


def test_a_failure_names_the_resource_and_the_reason_and_can_be_looked_at(local_aws: LocalAws, tmp_path: Path) -> None:
    message = r"^Broken ended ROLLBACK_COMPLETE\nQueue \(AWS::SQS::Queue\): .*NoSuchProperty[^\n]*$"
    # A second time, too: what a failed creation leaves is removed first.
    for attempt in ("first", "second"):
        with pytest.raises(DeploymentError, match=message):
            local_aws.deploy(broken(tmp_path / attempt))
    deployment = local_aws.deploy(broken(tmp_path / "third"), check=False)
    assert deployment.status() == "ROLLBACK_COMPLETE"
    assert len(deployment.failures()) == 1
    deployment.destroy()
    assert deployment.status() == ""


def test_what_is_refused_before_anything_is_made_is_named_too(local_aws: LocalAws, tmp_path: Path) -> None:
    def named(folder: str, name: str) -> Stack:
        stack = Stack(App(outdir=str(tmp_path / folder)), name, env=WEST)
        s3.CfnBucket(stack, "Bucket", bucket_name="one-name-for-two-stacks")
        return stack

    with local_aws.deploy(named("1", "First")):
        message = r"^Second ended ROLLBACK_COMPLETE\nBucket \(AWS::S3::Bucket\): .*one-name-for-two-stacks[^\n]*$"
        with pytest.raises(DeploymentError, match=message):
            local_aws.deploy(named("2", "Second"))
        local_aws.deploy(named("3", "Second"), check=False).destroy()


def test_protection_is_set_as_the_app_says_and_lifted_only_on_request(local_aws: LocalAws, app: App) -> None:
    sns.CfnTopic(Stack(app, "Kept", env=WEST, termination_protection=True), "Topic")
    deployment = local_aws.deploy(app)
    with pytest.raises(DeploymentError, match=r"^Kept: .*TerminationProtection[^\n]*$"):
        deployment.destroy()
    assert deployment.status() == "CREATE_COMPLETE"
    deployment.destroy(unprotect=True)
    assert deployment.status() == ""


def test_one_stack_goes_and_the_others_stay(local_aws: LocalAws, app: App) -> None:
    for name in ("Lake", "Job"):
        sns.CfnTopic(Stack(app, name, env=WEST), "Topic")
    with local_aws.deploy(app) as deployment:
        deployment.destroy("Job")
        assert (deployment.status("Job"), deployment.status("Lake")) == ("", "CREATE_COMPLETE")
        with pytest.raises(ValueError, match="stack must be one of Lake, Job, got: 'Other'"):
            deployment.destroy("Other")


def test_what_cannot_be_deleted_is_named(local_aws: LocalAws, app: App) -> None:
    bucket(Stack(app, "Full", env=WEST))
    deployment = local_aws.deploy(app)
    (found,) = deployment.resources("AWS::S3::Bucket")
    deployment.client("s3").put_object(Bucket=found.physical_id, Key="data", Body=b"1")
    with pytest.raises(DeploymentError, match=r"^Full ended DELETE_FAILED\nBucket\w+ \(AWS::S3::Bucket\): .*not empty"):
        deployment.destroy()
    deployment.client("s3").delete_object(Bucket=found.physical_id, Key="data")
    deployment.destroy()
    assert deployment.status() == ""


def test_stacks_of_stages_stand_too_and_must_be_named(local_aws: LocalAws, app: App) -> None:
    stage = Stage(app, "Prod", env=WEST)
    for stack in (Stack(app, "One", env=WEST), Stack(stage, "Two", env=WEST)):
        CfnOutput(stack, "Called", value=stack.node.id)
        sns.CfnTopic(stack, "Topic")
    with local_aws.deploy(app) as deployment:
        assert deployment.outputs("Prod-Two") == {"Called": "Two"}
        with pytest.raises(ValueError, match=r"^stack must be one of One, Prod-Two, got: None$"):
            deployment.outputs()
    with local_aws.deploy(stage) as deployment:
        assert deployment.stack_names == ("Prod-Two",)
        assert deployment.outputs() == {"Called": "Two"}


def test_an_image_is_not_built_and_said_so(local_aws: LocalAws, app: App, asset: Path) -> None:
    (asset / "Dockerfile").write_text("FROM scratch\n", encoding="utf-8")
    stack = Stack(app, "Image", env=WEST)
    sns.CfnTopic(stack, "Topic", display_name=images.DockerImageAsset(stack, "Asset", directory=str(asset)).asset_hash)
    with local_aws.deploy(stack) as deployment:
        (line,) = deployment.not_published
        assert line.startswith("image Asset")
        assert line.endswith("not built, so what runs it cannot start")


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (Template.from_stack, TypeError, "source must be a Stack, .*got: Template, whose assets"),
        (lambda _stack: {"Resources": {}}, TypeError, "got: dict, whose assets are not known"),
        (lambda _stack: "nowhere", ValueError, "source must be a cloud assembly, got: 'nowhere'"),
        (lambda stack: stack.node.find_child("Tier"), ValueError, "deployed by itself, got: the nested stack"),
        (lambda _stack: 7, TypeError, "source must be .*got: int"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_one_line(
    local_aws: LocalAws, app: App, make: Callable[[Stack], Any], kind: type[Exception], message: str
) -> None:
    stack = Stack(app, "Job", env=WEST)
    bucket(NestedStack(stack, "Tier"))
    with pytest.raises(kind, match=message) as refused:
        local_aws.deploy(make(stack))
    assert "\n" not in str(refused.value)


def test_a_parameter_that_no_template_declares_is_refused(local_aws: LocalAws, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^parameters must be those of the templates, got: 'Nmae'"):
        local_aws.deploy(with_topic(tmp_path, "one"), parameters={"Nmae": "x"})


def test_a_stack_that_takes_too_long_is_said_to(
    local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, *[{"StackStatus": "CREATE_IN_PROGRESS"}] * 2])
    with monkeypatch.context() as slow:
        slow.setattr(Deployment, "_describe", lambda *_arguments: next(answers))
        with pytest.raises(TimeoutError, match=r"^Job must settle within 0 s, got: CREATE_IN_PROGRESS; a larger"):
            local_aws.deploy(with_topic(tmp_path / "1", "one"), timeout_seconds=0)
    local_aws.deploy(with_topic(tmp_path / "2", "one"), check=False).destroy()
