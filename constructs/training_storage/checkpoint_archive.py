"""The scheduled archive of checkpoints that are written to S3 Express One Zone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.operations_code import operations_code
from training_storage.validation import ConstructError, require_flags, require_job_name, require_kinds

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

    from training_storage.data_lake import DataLakeBase
    from training_storage.directory_bucket import DirectoryBucket

__all__ = ["CheckpointArchive"]

# The longest that Lambda runs; what does not fit, the next run does.
_TIMEOUT = Duration.minutes(15)
# Requests wait for S3 nearly all the time; memory buys the network that goes with it.
_MEMORY_MIB = 1024
#: Names of operations/archive_function.py, which this file must not import: it loads boto3. A test compares them.
NAMESPACE, LAG_METRIC = "TrainingStorage", "CheckpointArchiveLagMinutes"
# The lake may be one interval behind by design, and a run may take as long again.
_LATE = 2


class CheckpointArchive(Construct):
    """Copies checkpoints from a directory bucket into the lake on a schedule, and prunes them there.

    S3 Express keeps objects in one zone: without this, or an archive by hand, they go with the zone.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    directory_bucket
        Where training writes checkpoints, under `checkpoints/<job_name>/`.
    data_lake
        Where they go, under the same prefix.
    job_name
        Name of the job.
    durable_interval_minutes
        One checkpoint is archived for every interval of this length.
    durable_checkpoints_kept
        How many intervals stay in the lake besides the newest two checkpoints.
    prune
        Whether to remove from the lake what is kept no longer; the newest complete checkpoint never is.
    alarm_topic
        Told when a run fails or the lake falls behind; without one the alarms only show in CloudWatch.
    role
        Role of the caller for the function; one of its own if none is given. It must let lambda.amazonaws.com assume
        it; what the function needs is granted to it.

    Attributes
    ----------
    function, schedule, role, schedule_role, dead_letters, log_group
        What does it; `schedule_role` starts the function, and `dead_letters` holds runs that failed.
    failed_alarm, late_alarm
        A run failed; the lake is two intervals behind.

    Raises
    ------
    ConstructError
        For an interval that is no time, or a number below 0.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        directory_bucket: DirectoryBucket,
        data_lake: DataLakeBase,
        job_name: str,
        durable_interval_minutes: float,
        durable_checkpoints_kept: int,
        prune: bool = True,
        alarm_topic: sns.ITopic | None = None,
        role: iam.IRole | None = None,
    ) -> None:
        require_job_name(job_name)
        require_flags(prune=prune)
        require_kinds(needed=("directory_bucket", "data_lake"), directory_bucket=directory_bucket, data_lake=data_lake)
        if not (math.isfinite(durable_interval_minutes) and durable_interval_minutes >= 1):
            raise ConstructError(
                f"durable_interval_minutes must be at least 1, got: {durable_interval_minutes}; 360 is the default"
            )
        if durable_checkpoints_kept < 0:
            raise ConstructError(f"durable_checkpoints_kept must be 0 or more, got: {durable_checkpoints_kept}")
        super().__init__(scope, id)
        prefix = f"checkpoints/{job_name}/"
        self.log_group, self.role = make_log_and_role(
            self, description=f"Archives checkpoints of {job_name}", role=role
        )
        allow_archive(self.role, data_lake, prefix=prefix, prune=prune)
        directory_bucket.grant_read(self.role)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        acknowledge(self.dead_letters, rule="SQS3", reason="It is the dead letter queue itself.")
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"Archives checkpoints of {job_name} into the lake",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler="training_storage.operations.archive_function.handler",
            code=operations_code(),
            role=self.role,
            timeout=_TIMEOUT,
            memory_size=_MEMORY_MIB,
            log_group=self.log_group,
            environment={
                **archive_environment(directory_bucket, data_lake, job_name),
                "DURABLE_INTERVAL_MINUTES": f"{durable_interval_minutes:g}",
                "DURABLE_KEPT": str(durable_checkpoints_kept),
                "PRUNE": str(prune).lower(),
            },
            # The next run does what a failed one did not; a repetition would only come between.
            retry_attempts=0,
            on_failure=destinations.SqsDestination(self.dead_letters),
        )
        acknowledge(self.function, rule="L1", reason="The version of Python that the library is tested with.")
        self.schedule_role = self._make_schedule_role(job_name)
        self.schedule = self._make_schedule(job_name, durable_interval_minutes)
        self.failed_alarm, self.late_alarm = self._make_alarms(job_name, durable_interval_minutes, alarm_topic)

    def _make_schedule_role(self, job_name: str) -> iam.Role:
        caller = iam.Role(
            self,
            "ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
            ),
            description=f"Starts the archive of {job_name}",
        )
        caller.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
        )
        self.dead_letters.grant_send_messages(caller)
        return caller

    def _make_schedule(self, job_name: str, interval_minutes: float) -> scheduler.CfnSchedule:
        # A run that finds nothing due ends at once, and one that ran out of time is taken up soon.
        minutes = max(1, min(math.floor(interval_minutes), math.ceil(_TIMEOUT.to_minutes())))
        schedule = scheduler.CfnSchedule(
            self,
            "Schedule",
            description=f"Archives checkpoints of {job_name} when they are due",
            schedule_expression=f"rate({minutes} minute{'s' if minutes > 1 else ''})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.function.function_arn,
                role_arn=self.schedule_role.role_arn,
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.dead_letters.queue_arn),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(maximum_retry_attempts=0),
            ),
        )
        schedule.node.add_dependency(self.schedule_role)
        return schedule

    def _make_alarms(
        self, job_name: str, interval_minutes: float, topic: sns.ITopic | None
    ) -> tuple[cloudwatch.Alarm, cloudwatch.Alarm]:
        failed = cloudwatch.Alarm(
            self,
            "Failed",
            alarm_description=f"Checkpoints of {job_name} could not be archived; the reason is in the function's log",
            metric=self.function.metric_errors(period=Duration.minutes(15), statistic="Sum"),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        late = cloudwatch.Alarm(
            self,
            "Late",
            alarm_description=f"The newest checkpoint of {job_name} in the lake is more than two durable intervals old",
            metric=cloudwatch.Metric(
                namespace=NAMESPACE,
                metric_name=LAG_METRIC,
                dimensions_map={"Job": job_name},
                period=Duration.minutes(15),
                statistic="Maximum",
            ),
            threshold=_LATE * interval_minutes,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        if topic is not None:
            for alarm in (failed, late):
                alarm.add_alarm_action(actions.SnsAction(topic))
        return failed, late


def make_log_and_role(
    scope: Construct, *, description: str, role: iam.IRole | None = None
) -> tuple[logs.LogGroup, iam.IRole]:
    """Return a log group and a role that may write into it: the caller's, or one that may do nothing else."""
    log_group = logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
    )
    if role is None:
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description)
    role.add_to_principal_policy(
        iam.PolicyStatement(
            sid="OwnLog",
            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
            resources=[log_group.log_group_arn],
        )
    )
    # log_group_arn ends in ":*": its streams.
    acknowledge_wildcards(role, resources=[log_group.log_group_arn], reason="Streams of its own log group.")
    return log_group, role


def archive_environment(directory_bucket: DirectoryBucket, data_lake: DataLakeBase, job_name: str) -> dict[str, str]:
    """Return what tells a function of the archive where to read and write."""
    prefix = f"checkpoints/{job_name}/"
    return {
        "JOB": job_name,
        "SOURCE_URI": f"s3://{directory_bucket.bucket_name}/{prefix}",
        "LAKE_URI": data_lake.s3_uri(prefix),
    }


def allow_archive(role: iam.IRole, data_lake: DataLakeBase, *, prefix: str, prune: bool) -> None:
    """Let `role` write archives below `prefix` of the lake, and remove them there if it prunes; no version of any."""
    bucket_arn, objects = data_lake.bucket.bucket_arn, data_lake.bucket.arn_for_objects(f"{prefix}*")
    grant = role.add_to_principal_policy
    grant(
        iam.PolicyStatement(
            sid="LakeObjects",
            actions=[
                "s3:AbortMultipartUpload",
                "s3:GetObject",
                "s3:ListMultipartUploadParts",
                "s3:PutObject",
                *(["s3:DeleteObject"] if prune else []),
            ],
            resources=[objects],
        )
    )
    grant(
        iam.PolicyStatement(
            sid="LakeList",
            actions=["s3:ListBucket"],
            resources=[bucket_arn],
            conditions={"StringLike": {"s3:prefix": [f"{prefix}*"]}},
        )
    )
    # S3 knows no condition on the prefix for this action; it names keys and writes nothing.
    grant(iam.PolicyStatement(sid="LakeUploads", actions=["s3:ListBucketMultipartUploads"], resources=[bucket_arn]))
    grant(
        iam.PolicyStatement(
            sid="LakeKey",
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=[data_lake.encryption_key.key_arn],
        )
    )
    acknowledge_wildcards(role, resources=[objects], reason="The wildcard ends within the job's checkpoints.")
