"""A daily release: frees the space of exported files that nobody has used for some days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsii
from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IValidation

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.validation import require_integer, require_kinds

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

    from training_storage.lustre_file_system_base import LustreFileSystemBase

__all__ = ["ScheduledRelease"]

# While another task runs, FSx refuses this one, and Scheduler tries again, ever more slowly: for most of the day, and
# no longer than until the next turn.
_RETRY_HOURS = 20
_RETRIES = 100
_WINDOW_MINUTES = 60
_FAILURES_KEPT_DAYS = 14


class ScheduledRelease(Construct):
    """Starts a release task on a linked file system once a day.

    The task takes the data of files off the file system that are in the lake and that were neither read nor changed for
    `unused_days` days. Their names stay, the first read brings the data back, and nothing is deleted.

    A turn that could not be started is a message in `failures`, which `alarm` watches: a missing permission, a file
    system that is gone, or another task that ran all day. The next turn tries again. Whether a task that was started
    ended well, `training-storage status` shows: FSx sends no event of it.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    file_system
        A file system with at least one link.
    unused_days
        Whole days, at least 1: with 0 each turn would empty what jobs are reading.
    alarm_topic
        Is told when the alarm goes off or ends.

    Raises
    ------
    ConstructError
        For `unused_days` below 1; at synth for a file system without links.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        file_system: LustreFileSystemBase,
        unused_days: int,
        alarm_topic: sns.ITopic | None = None,
    ) -> None:
        require_kinds(needed=("file_system",), file_system=file_system)
        require_integer(unused_days, what="unused_days", minimum=1)
        super().__init__(scope, id)
        self.file_system = file_system
        self.unused_days = unused_days
        self.failures = sqs.Queue(
            self,
            "Failures",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(_FAILURES_KEPT_DAYS),
        )
        acknowledge(self.failures, rule="SQS3", reason="It is the dead-letter queue of the schedule.")
        # A group of its own: the role's trust then names this schedule and no other of the account.
        self.schedule_group = scheduler.CfnScheduleGroup(self, "Group")
        self.role = self._make_role()
        self.schedule = self._make_schedule()
        self.alarm = cloudwatch.Alarm(
            self,
            "Alarm",
            alarm_description=(
                "A daily release of unused file data could not be started; the message in the queue says why"
            ),
            metric=self.failures.metric_approximate_number_of_messages_visible(statistic="Maximum"),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if alarm_topic is not None:
            self.alarm.add_alarm_action(actions.SnsAction(alarm_topic))
            self.alarm.add_ok_action(actions.SnsAction(alarm_topic))
        self.node.add_validation(_HasLinks(file_system))

    def _make_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            description="Starts the daily release of unused file data",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {
                        "aws:SourceAccount": Aws.ACCOUNT_ID,
                        "aws:SourceArn": self.schedule_group.attr_arn,
                    }
                },
            ),
        )
        # The request names the file system, and IAM asks for the task as well, which has no id before it starts.
        tasks = Stack.of(self).format_arn(service="fsx", resource="task", resource_name="*")
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["fsx:CreateDataRepositoryTask"], resources=[self.file_system.resource_arn, tasks]
            )
        )
        acknowledge_wildcards(role, resources=[tasks], reason="A task gets its id when it starts.")
        role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.failures.queue_arn]))
        return role

    def _make_schedule(self) -> scheduler.CfnSchedule:
        properties = scheduler.CfnSchedule
        unused = {"Unit": "DAYS", "Value": self.unused_days}
        schedule = scheduler.CfnSchedule(
            self,
            "Schedule",
            description=f"Release exported files that nobody has used for {self.unused_days} days",
            group_name=self.schedule_group.ref,
            schedule_expression="rate(1 day)",
            flexible_time_window=properties.FlexibleTimeWindowProperty(
                mode="FLEXIBLE", maximum_window_in_minutes=_WINDOW_MINUTES
            ),
            target=properties.TargetProperty(
                arn=f"arn:{Aws.PARTITION}:scheduler:::aws-sdk:fsx:createDataRepositoryTask",
                role_arn=self.role.role_arn,
                input=Stack.of(self).to_json_string(
                    {
                        "FileSystemId": self.file_system.file_system_id,
                        "Type": "RELEASE_DATA_FROM_FILESYSTEM",
                        "ReleaseConfiguration": {"DurationSinceLastAccess": unused},
                        "Report": {"Enabled": False},
                        # The same for every attempt of one turn: a repeated attempt starts no second task.
                        "ClientRequestToken": "<aws.scheduler.execution-id>",
                    }
                ),
                retry_policy=properties.RetryPolicyProperty(
                    maximum_event_age_in_seconds=_RETRY_HOURS * 3600, maximum_retry_attempts=_RETRIES
                ),
                dead_letter_config=properties.DeadLetterConfigProperty(arn=self.failures.queue_arn),
            ),
        )
        # A turn before the grant would be lost.
        schedule.node.add_dependency(self.role)
        return schedule


@jsii.implements(IValidation)
class _HasLinks:
    """Runs at synth, when every link of the file system is known."""

    def __init__(self, file_system: LustreFileSystemBase) -> None:
        self._file_system = file_system

    def validate(self) -> list[str]:
        # Links of an imported one may be in another app.
        if self._file_system.links or self._file_system.is_imported:
            return []
        return [
            (
                f"file_system must be linked to the lake, got: {self._file_system.node.path} without a link;"
                " nothing on it is exported, so nothing can be released"
            )
        ]
