"""The daily release: one action on one file system, one task for each turn, and a failure that somebody sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns
from botocore.stub import Stubber

from training_storage import ConstructError, DataLake, DataRepositoryAssociation, LustreFileSystem
from training_storage.scheduled_release import ScheduledRelease
from training_storage.testing import assert_compliant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Synthesize = Callable[[Stack], Any]


def file_system(stack: Stack, vpc: ec2.Vpc, *, linked: bool = True) -> LustreFileSystem:
    made = LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
    )
    if linked:
        DataRepositoryAssociation(
            stack,
            "Link",
            file_system=made,
            file_system_path="/datasets",
            data_lake=DataLake(stack, "Lake"),
            prefix="datasets/",
        )
    return made


@pytest.fixture
def template(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> Any:
    ScheduledRelease(stack, "Release", file_system=file_system(stack, vpc), unused_days=14)
    return resources(stack)


def test_once_a_day_a_task_is_asked_for_that_the_api_accepts(template: Any) -> None:
    schedule = template.one("AWS::Scheduler::Schedule")["Properties"]
    assert schedule["ScheduleExpression"] == "rate(1 day)"
    target = schedule["Target"]
    assert target["Arn"] == {
        "Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":scheduler:::aws-sdk:fsx:createDataRepositoryTask"]]
    }
    (system,) = template.of_type("AWS::FSx::FileSystem")
    delimiter, parts = target["Input"]["Fn::Join"]
    text = delimiter.join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in parts)
    call = json.loads(text)
    assert call.pop("FileSystemId") == f"<{system}>"
    # Scheduler puts the turn's id there: the same for every attempt.
    assert call["ClientRequestToken"] == "<aws.scheduler.execution-id>"
    call["ClientRequestToken"] = "d32c5kddcf5bb8c3"
    assert call["ReleaseConfiguration"] == {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": 14}}

    fsx = boto3.client("fsx", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")  # noqa: S106
    with Stubber(fsx) as stub:
        task = {"TaskId": "task-0123456789abcdef0", "Lifecycle": "PENDING", "Type": call["Type"], "CreationTime": 0}
        # boto3 checks names and types of the request against the service's model before the stub answers.
        stub.add_response("create_data_repository_task", {"DataRepositoryTask": task})
        fsx.create_data_repository_task(FileSystemId="fs-0123456789abcdef0", **call)


def test_the_role_may_start_tasks_of_this_file_system_and_report_failures_and_nothing_else(template: Any) -> None:
    (system,) = template.of_type("AWS::FSx::FileSystem")
    (queue,) = template.of_type("AWS::SQS::Queue")
    statements = {tuple_of(statement["Action"]): statement["Resource"] for statement in template.statements()}
    assert set(statements) == {("fsx:CreateDataRepositoryTask",), ("sqs:SendMessage",)}
    system_arn, tasks = statements[("fsx:CreateDataRepositoryTask",)]
    assert system_arn == {"Fn::GetAtt": [system, "ResourceARN"]}
    assert json.dumps(tasks).count("*") == 1
    assert ":task/*" in json.dumps(tasks)
    assert statements[("sqs:SendMessage",)] == {"Fn::GetAtt": [queue, "Arn"]}


def tuple_of(actions: Any) -> tuple[str, ...]:
    return (actions,) if isinstance(actions, str) else tuple(actions)


def test_only_its_own_schedule_may_use_the_role(template: Any) -> None:
    (group,) = template.of_type("AWS::Scheduler::ScheduleGroup")
    (trust,) = template.one("AWS::IAM::Role")["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"},
        "aws:SourceArn": {"Fn::GetAtt": [group, "Arn"]},
    }
    assert template.one("AWS::Scheduler::Schedule")["Properties"]["GroupName"] == {"Ref": group}


def test_a_turn_that_meets_another_task_is_tried_again_until_shortly_before_the_next(template: Any) -> None:
    retry = template.one("AWS::Scheduler::Schedule")["Properties"]["Target"]["RetryPolicy"]
    window = template.one("AWS::Scheduler::Schedule")["Properties"]["FlexibleTimeWindow"]["MaximumWindowInMinutes"]
    assert 12 * 3600 <= retry["MaximumEventAgeInSeconds"] <= 24 * 3600 - window * 60
    # The API takes up to 185 attempts.
    assert 24 <= retry["MaximumRetryAttempts"] <= 185


def test_a_turn_that_failed_is_kept_and_sets_off_an_alarm(stack: Stack, vpc: ec2.Vpc, resources: Synthesize) -> None:
    topic = sns.Topic(stack, "Topic")
    ScheduledRelease(stack, "Release", file_system=file_system(stack, vpc), unused_days=14, alarm_topic=topic)
    template = resources(stack)
    (queue,) = template.of_type("AWS::SQS::Queue")
    (topic_id,) = template.of_type("AWS::SNS::Topic")
    schedule = template.one("AWS::Scheduler::Schedule")["Properties"]
    assert schedule["Target"]["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    alarm = template.one("AWS::CloudWatch::Alarm")["Properties"]
    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
    assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic_id}]


def test_the_queue_takes_messages_over_tls_only_and_keeps_them_encrypted(template: Any) -> None:
    queue = template.one("AWS::SQS::Queue")["Properties"]
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
    (denied,) = template.one("AWS::SQS::QueuePolicy")["Properties"]["PolicyDocument"]["Statement"]
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


@pytest.mark.parametrize("days", [0, -1, 1.5, True, "7"])
def test_days_that_would_empty_what_is_being_read_are_refused(stack: Stack, vpc: ec2.Vpc, days: Any) -> None:
    with pytest.raises(ConstructError, match="unused_days must be a whole number, at least 1"):
        ScheduledRelease(stack, "Release", file_system=file_system(stack, vpc), unused_days=days)


def test_a_file_system_without_links_is_refused_at_synth(stack: Stack, vpc: ec2.Vpc) -> None:
    ScheduledRelease(stack, "Release", file_system=file_system(stack, vpc, linked=False), unused_days=7)
    with pytest.raises(RuntimeError, match="must be linked to the lake"):
        stack.node.root.synth()  # type: ignore[attr-defined] # the root is the app


@pytest.mark.slow
def test_cdk_nag_finds_nothing_that_is_not_acknowledged(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Test", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, flow_logs={"all": ec2.FlowLogOptions()})
    ScheduledRelease(stack, "Release", file_system=file_system(stack, vpc), unused_days=14)
    assert_compliant(app, linter=False)
