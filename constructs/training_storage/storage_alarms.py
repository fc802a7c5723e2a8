"""Alarms on the storage of one job: each says in a line what is wrong and where docs/alarms.md says what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aws_cdk import Annotations, Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.functions.storage_watch import watch
from training_storage.planning.catalog.metrics import metric
from training_storage.planning.contract import METRIC_NAMESPACE
from training_storage.planning.units import GIB, MB, SECONDS_PER_MINUTE
from training_storage.validation import (
    ConstructError,
    is_token,
    region_of,
    require_integer,
    require_job_name,
    require_kinds,
)

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

    from training_storage.lustre_file_system_base import LustreFileSystemBase
    from training_storage.planning import catalog

__all__ = ["RUNBOOKS", "Runbook", "StorageAlarms"]

#: Published by the node kit when one of its checks fails; dimension Job.
NODE_CHECK_FAILED: Final = "NodeCheckFailed"

_PERCENT = 100
_WATCH_FOLDER = Path(watch.__file__).parent
_MISSING = cloudwatch.TreatMissingData


@dataclass(frozen=True, kw_only=True)
class Runbook:
    """What an alarm means, and the heading of docs/alarms.md under which its runbook stands."""

    heading: str
    meaning: str

    @property
    def anchor(self) -> str:
        """Where the runbook stands."""
        return f"docs/alarms.md#{re.sub(r'[^a-z0-9]+', '-', self.heading.lower())}"

    def description(self, **values: object) -> str:
        """Return the alarm's description: one line with the figures of this file system."""
        return f"{self.meaning.format(**values)} Runbook: {self.anchor}"


#: One for each alarm, by the alarm's id in `StorageAlarms.alarms`.
RUNBOOKS: Final = {
    "Capacity": Runbook(
        heading="The file system is filling up",
        meaning="Storage of job {job}: the Lustre file system is more than {percent} % full; once it is, writes fail.",
    ),
    "Throughput": Runbook(
        heading="Throughput is near its baseline",
        meaning="Storage of job {job}: clients moved more than {percent} % of the {baseline:,.0f} MB/s that the Lustre"
        " file system sustains, for {minutes} minutes; accelerators may be waiting.",
    ),
    "ExportBacklog": Runbook(
        heading="Exports to the lake are behind",
        meaning="Storage of job {job}: a change on the Lustre file system has waited more than {minutes} minutes for"
        " its export to the lake; it is lost if the file system is deleted now.",
    ),
    "LinkMisconfigured": Runbook(
        heading="A link to the lake does not work",
        meaning="Storage of job {job}: a link between the Lustre file system and the lake is MISCONFIGURED or FAILED;"
        " nothing is imported or exported through it.",
    ),
    "NodeCheckFailed": Runbook(
        heading="A node failed its storage checks",
        meaning="Storage of job {job}: a node found its storage not as planned and takes no work.",
    ),
    "WatchFailing": Runbook(
        heading="The storage watch fails",
        meaning="Storage of job {job}: the function that looks at the links fails or does not run; broken links go"
        " unseen.",
    ),
}


class StorageAlarms(Construct):
    """Alarms on a job's file system, its links and its nodes, and the function that watches the links.

    A link's state is no metric of AWS: a small function asks FSx every few minutes and publishes `LinkMisconfigured` in
    the namespace TrainingStorage. Its own alarm says when it does not.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    job_name
        Name of the job, ``default`` without one; the dimension Job.
    file_system
        The file system, with its links already made; None for a job without one, which leaves the alarm of the nodes.
    baseline_mb_per_s
        What the file system sustains in MB/s, from the plan; never its burst. Needed with a file system.
    topic
        Told of each alarm and of its end; None makes alarms without actions. It is in the stack's Region: CloudWatch
        tells no other. The key policy of an encrypted topic must
        let cloudwatch.amazonaws.com use the key (docs/alarms.md).
    capacity_percent
        Full, from which the capacity alarm fires.
    throughput_percent, throughput_minutes
        Share of the baseline, and for how long in a row; the minutes in steps of 5.
    export_age_minutes
        Age of the oldest change that waits for its export.
    watch_minutes
        How often the links are looked at.
    role
        Role of the caller for the watch; one of its own if none is given. It must let lambda.amazonaws.com assume it;
        what the watch needs is granted to it.

    Attributes
    ----------
    alarms
        The alarms by id: `RUNBOOKS` names them.
    watch, watch_role, watch_rule, watch_log_group
        The function that watches, what it may do, what starts it, and its log; None without a file system.

    Raises
    ------
    ConstructError
        For a threshold out of range, a file system without its baseline, and a topic of another Region.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        job_name: str,
        file_system: LustreFileSystemBase | None = None,
        baseline_mb_per_s: float | None = None,
        topic: sns.ITopic | None = None,
        capacity_percent: int = 85,
        throughput_percent: int = 80,
        throughput_minutes: int = 15,
        export_age_minutes: int = 60,
        watch_minutes: int = 5,
        role: iam.IRole | None = None,
    ) -> None:
        require_job_name(job_name)
        require_kinds(file_system=file_system)
        require_integer(capacity_percent, what="capacity_percent", minimum=1, maximum=99)
        require_integer(throughput_percent, what="throughput_percent", minimum=1, maximum=100)
        # CloudWatch evaluates at most a day.
        require_integer(throughput_minutes, what="throughput_minutes", minimum=5, maximum=1440, multiple_of=5)
        require_integer(export_age_minutes, what="export_age_minutes", minimum=1)
        require_integer(watch_minutes, what="watch_minutes", minimum=1, maximum=60)
        if file_system is not None and (baseline_mb_per_s is None or baseline_mb_per_s <= 0):
            raise ConstructError(
                f"baseline_mb_per_s must be more than 0 with a file system, got: {baseline_mb_per_s!r}; a plan says it"
                " as fsx_lustre.baseline_mb_per_s"
            )
        if topic is not None:
            _refuse_topic(topic, region_of(scope))
        super().__init__(scope, id)
        self._job = job_name
        self._action = actions.SnsAction(topic) if topic else None
        self.alarms: dict[str, cloudwatch.Alarm] = {}
        self.watch: lambda_.Function | None = None
        self.watch_role: iam.IRole | None = None
        self.watch_rule: events.Rule | None = None
        self.watch_log_group: logs.LogGroup | None = None
        self._alarm_on_nodes()
        if file_system is None or baseline_mb_per_s is None:
            return
        self._alarm_on_capacity(file_system, percent=capacity_percent)
        self._alarm_on_throughput(
            file_system, baseline_mb_per_s=baseline_mb_per_s, percent=throughput_percent, minutes=throughput_minutes
        )
        # The metric of automatic export exists only where something is exported automatically.
        if any(link.spec.export_events for link in file_system.links):
            self._alarm_on_exports(file_system, minutes=export_age_minutes)
        self.watch = self._make_watch(file_system, minutes=watch_minutes, given=role)
        self._alarm_on_links(file_system, minutes=watch_minutes)
        self._alarm_on_watch(self.watch, minutes=watch_minutes)

    # ---- alarms ----

    def _alarm_on_capacity(self, file_system: LustreFileSystemBase, *, percent: int) -> None:
        capacity_gib = file_system.spec.storage_capacity_gib
        if not isinstance(capacity_gib, int):
            # Intelligent-Tiering has no capacity, and a token says none at synth.
            Annotations.of(self).add_info("no alarm on capacity: the file system's is not known at synth")
            return
        free = metric("free-data-storage")
        self._alarm(
            "Capacity",
            cloudwatch.Metric(
                namespace=free.namespace,
                metric_name=free.name,
                dimensions_map=free.dimension_values(FileSystemId=file_system.file_system_id),
                statistic=free.statistic,
                period=Duration.seconds(free.period_seconds),
            ),
            threshold=capacity_gib * GIB * (_PERCENT - percent) // _PERCENT,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=5,
            # FSx may publish nothing during maintenance, and that empties no file system.
            missing=_MISSING.IGNORE,
            percent=percent,
        )

    def _alarm_on_throughput(
        self, file_system: LustreFileSystemBase, *, baseline_mb_per_s: float, percent: int, minutes: int
    ) -> None:
        moved = {}
        for name, row in (("read", "data-read"), ("written", "data-written")):
            one = metric(row)
            moved[name] = cloudwatch.Metric(
                namespace=one.namespace,
                metric_name=one.name,
                dimensions_map=one.dimension_values(FileSystemId=file_system.file_system_id),
                statistic=one.statistic,
                period=Duration.seconds(one.period_seconds),
            )
        period_seconds = metric("data-read").period_seconds
        self._alarm(
            "Throughput",
            cloudwatch.MathExpression(
                expression="(read + written) / PERIOD(read)",
                using_metrics=dict[str, cloudwatch.IMetric](moved),
                label="Bytes per second of all clients",
                period=Duration.seconds(period_seconds),
            ),
            threshold=baseline_mb_per_s * MB * percent / _PERCENT,
            periods=minutes * SECONDS_PER_MINUTE // period_seconds,
            # What was not measured was no load.
            missing=_MISSING.NOT_BREACHING,
            percent=percent,
            baseline=baseline_mb_per_s,
            minutes=minutes,
        )

    def _alarm_on_exports(self, file_system: LustreFileSystemBase, *, minutes: int) -> None:
        age = metric("oldest-queued-export")
        self._alarm(
            "ExportBacklog",
            cloudwatch.Metric(
                namespace=age.namespace,
                metric_name=age.name,
                dimensions_map=age.dimension_values(FileSystemId=file_system.file_system_id),
                statistic=age.statistic,
                period=Duration.seconds(age.period_seconds),
            ),
            threshold=minutes * SECONDS_PER_MINUTE,
            # The age is a duration already: one look is enough.
            periods=1,
            # A backlog does not go away because nobody reports it.
            missing=_MISSING.IGNORE,
            minutes=minutes,
        )

    def _alarm_on_links(self, file_system: LustreFileSystemBase, *, minutes: int) -> None:
        self._alarm(
            "LinkMisconfigured",
            cloudwatch.Metric(
                namespace=watch.NAMESPACE,
                metric_name=watch.LINK_MISCONFIGURED,
                dimensions_map={"Job": self._job, "FileSystemId": file_system.file_system_id},
                statistic="Maximum",
                period=Duration.minutes(minutes),
            ),
            threshold=0,
            periods=1,
            # A link is as it was last seen; that nobody looks is the business of the alarm on the watch.
            missing=_MISSING.IGNORE,
        )

    def _alarm_on_nodes(self) -> None:
        self._alarm(
            "NodeCheckFailed",
            cloudwatch.Metric(
                namespace=METRIC_NAMESPACE,
                metric_name=NODE_CHECK_FAILED,
                dimensions_map={"Job": self._job},
                statistic="Maximum",
                period=Duration.minutes(5),
            ),
            threshold=0,
            # A node reports every 5 minutes and some seconds: one period may pass without its figure, and an alarm on
            # one would end and begin again all the time. One bad figure of three periods keeps it.
            periods=3,
            of_them=1,
            # No node, no check.
            missing=_MISSING.NOT_BREACHING,
        )

    def _alarm_on_watch(self, function: lambda_.Function, *, minutes: int) -> None:
        errors = metric("function-errors")
        alarm = self._alarm(
            "WatchFailing",
            cloudwatch.Metric(
                namespace=errors.namespace,
                metric_name=errors.name,
                dimensions_map=errors.dimension_values(FunctionName=function.function_name),
                statistic=errors.statistic,
                period=Duration.minutes(minutes),
            ),
            threshold=0,
            # One failed call of an API is no failure of the watch; and one period of four may have no run in it.
            periods=4,
            of_them=3,
            # A function that does not run reports nothing: that shows as insufficient data, and is told as well. To
            # call it a breach would raise the alarm on every new stack, before the first run.
            missing=_MISSING.MISSING,
        )
        if self._action:
            alarm.add_insufficient_data_action(self._action)

    def _alarm(
        self,
        id: str,
        series: cloudwatch.IMetric,
        *,
        threshold: float,
        periods: int,
        missing: cloudwatch.TreatMissingData,
        of_them: int | None = None,
        comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        **values: object,
    ) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=series,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            datapoints_to_alarm=periods if of_them is None else of_them,
            treat_missing_data=missing,
            alarm_description=RUNBOOKS[id].description(job=self._job, **values),
        )
        if self._action:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)
        self.alarms[id] = alarm
        return alarm

    # ---- the watch ----

    def _make_watch(
        self, file_system: LustreFileSystemBase, *, minutes: int, given: iam.IRole | None
    ) -> lambda_.Function:
        log_group = logs.LogGroup(
            self, "WatchLogs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        role: iam.IRole = given or iam.Role(
            self,
            "WatchRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Looks at the links of a file system and publishes their state",
        )
        log_group.grant_write(role)
        role.add_to_principal_policy(
            iam.PolicyStatement(actions=["fsx:DescribeDataRepositoryAssociations"], resources=["*"]),
        )
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": watch.NAMESPACE}},
            )
        )
        acknowledge_wildcards(
            role,
            resources=["*"],
            reason="Neither action takes a resource; PutMetricData is bound to one namespace by a condition.",
        )
        function = lambda_.Function(
            self,
            "Watch",
            description=f"Watches the storage of training job {self._job}",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler="watch.handler",
            code=lambda_.Code.from_asset(str(_WATCH_FOLDER), exclude=["__pycache__", "*.pyc"]),
            environment={"JOB": self._job, "FILE_SYSTEM_ID": file_system.file_system_id},
            log_group=log_group,
            role=role,
            timeout=Duration.minutes(1),
            # The next run comes by itself; a repeated one would count an error thrice.
            retry_attempts=0,
            max_event_age=Duration.minutes(minutes),
        )
        # cdk-nag compares with the newest runtime that the caller's CDK knows, which may be newer than this library.
        acknowledge(
            function, rule="L1", reason="The newest Python runtime that this version of the library was tested with."
        )
        # A function that starts without its grants fails in ways that look like faults of the storage.
        function.node.add_dependency(role)
        self.watch_role, self.watch_log_group = role, log_group
        self.watch_rule = events.Rule(
            self,
            "WatchSchedule",
            description=f"Watches the storage of training job {self._job}",
            schedule=events.Schedule.rate(Duration.minutes(minutes)),
            targets=[targets.LambdaFunction(function, retry_attempts=0)],
        )
        return function


def _refuse_topic(topic: sns.ITopic, region: catalog.Region | None) -> None:
    """Refuse a topic that CloudWatch could never tell: its ARN says Region and partition; the account may be any."""
    arn = topic.topic_arn
    if region is None or is_token(arn):
        return
    _, partition, _, topic_region, *_ = arn.split(":")
    if (partition, topic_region) != (region.partition, region.name):
        raise ConstructError(
            f"alarm_topic_arn must be a topic of {region.name} (partition {region.partition}), where the job runs, got:"
            f" {arn!r}; alarms tell topics of their own Region only"
        )
