"""Parks a job: nodes to zero, everything into the lake, the stack away; for what takes longer than an hour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aws_cdk import Annotations, ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from training_storage.acknowledgements import acknowledge, acknowledge_wildcards
from training_storage.checkpoint_archive import make_log_and_role
from training_storage.operations.park_state import (
    DONE,
    IDLE,
    IDLE_CHECKPOINTS,
    NOT_DUE,
    TIME_TO_LIVE,
    UNDO,
    WAIT,
    WARNING_MINUTES,
    idle_hours_minimum,
    machine_name,
)
from training_storage.operations_code import operations_code
from training_storage.park_rights import allow_cluster, cluster_description
from training_storage.planning.catalog.step_functions import history_events_maximum
from training_storage.planning.units import SECONDS_PER_HOUR
from training_storage.validation import (
    ConstructError,
    claim_name,
    remember,
    require_integer,
    require_job_name,
    require_kinds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_sns as sns

    from training_storage.express_gate import ExpressGate
    from training_storage.final_export import FinalExport
    from training_storage.gpu_cluster import GpuCluster
    from training_storage.lustre_file_system import LustreFileSystem

__all__ = ["Park"]

_POLL = Duration.minutes(3)
_WATCH = Duration.minutes(15)
#: How long an export may take. FSx names no rate; the largest file systems of the catalog export within a day.
_EXPORT_HOURS = 72
#: Events that one turn of a loop leaves in the history: a task of five, a choice of two, a wait of two.
_EVENTS_PER_TURN = 9
#: Events left for everything that is no loop.
_SPARE_EVENTS = 1000
_FUNCTION_TIMEOUT = Duration.minutes(5)
_RETRIES = 4


class Park(Construct):
    """A state machine that ends a job and keeps its data, however long that takes.

    It brings the cluster to zero nodes, waits until nobody uses the file system, exports and verifies with the logic of
    the gate, deletes the file system, empties the directory bucket through its gate, and deletes the stack as its last
    act. It may be stopped at any time; the next start goes on. If anything stands in the way it says so, to the topic
    as well, and leaves storage and stack as they are. `training-storage park` starts it; so do a time to live and a
    time without use, after a warning. Why it is as it is stands in docs/decisions/0011.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    cluster
        The nodes, of one of the library's engines.
    job_name
        Name of the job; one park of a name can stand in a Region.
    file_system, final_export
        The file system and its gate, both or neither.
    express_gate
        The gate of a directory bucket.
    alarm_topic
        Told of warnings and failures; needed for `time_to_live_hours` and `idle_park_hours`, which warn first.
    time_to_live_hours
        Park when the stack is so old; None never does.
    idle_park_hours
        Park when no client has used the file system for so long; None never does.
    checkpoint_interval_minutes
        How often a run writes a checkpoint to the file system. `idle_park_hours` must be three of them at least. None
        where checkpoints go elsewhere: nodes that run are then never taken for idle.
    poll_interval
        Between two looks.
    watch_interval
        Between two looks at age and use.
    warning
        Time between the warning and the park that it announces.
    metric_period
        Length of the periods of FSx's metrics, a minute.

    Attributes
    ----------
    state_machine, functions, watch
        What does it; `watch` is None where neither time is given.
    role, log_group, machine_log_group
        What the functions that stop the nodes may do, their log, and that of the state machine.
    watch_role, watch_log_group, watch_rule
        What the watch may do, its log, and what starts it; None without a watch.

    Raises
    ------
    ConstructError
        For half a file system, a time without a topic or without what it looks at, another kind of cluster, a name that
        another park of the app has, and in a nested stack: the last act of park is to delete its stack.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: GpuCluster,
        job_name: str,
        file_system: LustreFileSystem | None = None,
        final_export: FinalExport | None = None,
        express_gate: ExpressGate | None = None,
        alarm_topic: sns.ITopic | None = None,
        time_to_live_hours: int | None = None,
        idle_park_hours: int | None = None,
        checkpoint_interval_minutes: float | None = None,
        poll_interval: Duration | None = None,
        watch_interval: Duration | None = None,
        warning: Duration | None = None,
        metric_period: Duration | None = None,
    ) -> None:
        require_job_name(job_name)
        require_kinds(needed=("cluster",), cluster=cluster, file_system=file_system)
        if (file_system is None) != (final_export is None):
            raise ConstructError(
                "file_system and final_export must be given together, got: only one of them; without its gate a file"
                " system is not exported"
            )
        _require_times(time_to_live_hours, idle_park_hours, alarm_topic, file_system)
        _require_longer_than_checkpoints(idle_park_hours, checkpoint_interval_minutes)
        refuse_nested(scope)
        claim_name(
            scope,
            id,
            name=job_name,
            what="job_name of a park",
            way_out="its state machine is named after the job: give each job a name of its own",
        )
        poll = poll_interval or _POLL
        super().__init__(scope, id)
        self._warn_of_another()
        self._job = job_name
        self._topic = alarm_topic
        self._poll = sfn.WaitTime.duration(poll)
        self._period_seconds = f"{(metric_period or Duration.minutes(1)).to_seconds():g}"
        stack = Stack.of(self)
        # A fixed name, so that the function which starts it can be allowed to without a circle, and so that two jobs of
        # one name cannot both have one.
        self.machine_arn: str = stack.format_arn(
            service="states",
            resource="stateMachine",
            resource_name=machine_name(job_name),
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self.log_group, self.role = make_log_and_role(self, description=f"Parks training job {job_name}: its nodes")
        self._environment = {
            "JOB": job_name,
            "STACK_ID": stack.stack_id,
            "TOPIC_ARN": alarm_topic.topic_arn if alarm_topic else "",
            "POLL_SECONDS": f"{poll.to_seconds():g}",
            "METRIC_PERIOD_SECONDS": self._period_seconds,
        }
        self._environment["CLUSTER"] = stack.to_json_string(cluster_description(cluster))
        cluster_function = self._make_cluster_function(cluster)
        self.functions: dict[str, lambda_.Function] = {"cluster": cluster_function}
        if file_system and final_export:
            self.functions["export"] = self._make_export_function(file_system, final_export)
        self.watch: lambda_.Function | None = None
        self.watch_role: iam.IRole | None = None
        self.watch_log_group: logs.LogGroup | None = None
        self.watch_rule: events.Rule | None = None
        if time_to_live_hours is not None or idle_park_hours is not None:
            self.watch = self._make_watch(
                file_system,
                time_to_live_hours,
                idle_park_hours,
                checkpoint_interval_minutes,
                warning or Duration.minutes(WARNING_MINUTES),
            )
        self.state_machine = self._make_state_machine(express_gate, warning or Duration.minutes(WARNING_MINUTES))
        if self.watch:
            self.watch_rule = self._schedule(self.watch, watch_interval or _WATCH)

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` start the park of this job, and with it delete the stack."""
        return self.state_machine.grant_start_execution(grantee)

    def _warn_of_another(self) -> None:
        """Say which job goes as well when this one is parked: a stack is deleted as a whole."""
        other = remember(self, f"park of stack {Stack.of(self).node.path}", self.node.path)
        if other != self.node.path:
            Annotations.of(self).add_warning_v2(
                "training-storage:shared-stack",
                f"parking this job deletes the stack, and with it what {other} parks; give each job a stack of its own",
            )

    # ---- functions ----

    def _make_cluster_function(self, cluster: GpuCluster) -> lambda_.Function:
        stack = Stack.of(self)
        grant = self.role.add_to_principal_policy
        grant(
            iam.PolicyStatement(
                sid="OwnStack",
                actions=["cloudformation:DeleteStack", "cloudformation:DescribeStacks"],
                resources=[stack.stack_id],
            )
        )
        allow_cluster(self.role, cluster)
        self._allow_topic(self.role)
        return self._function(
            "Cluster",
            "cluster",
            role=self.role,
            log_group=self.log_group,
            environment=self._environment,
        )

    def _make_export_function(self, file_system: LustreFileSystem, final_export: FinalExport) -> lambda_.Function:
        """Return a function that does what the gate does, with the gate's role: it may do nothing else."""
        return self._function(
            "Export",
            "export",
            role=final_export.role,
            log_group=final_export.log_group,
            environment={
                **self._environment,
                **final_export.environment,
                "POLL_SECONDS": self._environment["POLL_SECONDS"],
                "FILE_SYSTEM_ID": file_system.file_system_id,
                "LINKS": Stack.of(self).to_json_string(final_export.links),
                "EXPORT_SECONDS": f"{_export_seconds(float(self._environment['POLL_SECONDS'])):.0f}",
            },
        )

    def _make_watch(
        self,
        file_system: LustreFileSystem | None,
        time_to_live_hours: int | None,
        idle_park_hours: int | None,
        checkpoint_interval_minutes: float | None,
        warning: Duration,
    ) -> lambda_.Function:
        scope = Construct(self, "Watch")
        self.watch_log_group, self.watch_role = log_group, role = make_log_and_role(
            scope, description=f"Parks training job {self._job} when its time is over"
        )
        grant = role.add_to_principal_policy
        grant(
            iam.PolicyStatement(
                sid="OwnStack", actions=["cloudformation:DescribeStacks"], resources=[Stack.of(self).stack_id]
            )
        )
        grant(
            iam.PolicyStatement(
                sid="OwnMachine",
                actions=["states:ListExecutions", "states:StartExecution"],
                resources=[self.machine_arn],
            )
        )
        if idle_park_hours is not None:
            grant(
                iam.PolicyStatement(
                    sid="MetricsAndNodes",
                    actions=["cloudwatch:GetMetricData", "ec2:DescribeInstances"],
                    resources=["*"],
                )
            )
            acknowledge_wildcards(role, resources=["*"], reason="Metrics and Describe actions take no resource.")
        self._allow_topic(role)
        return self._function(
            "WatchFunction",
            "watch",
            role=role,
            log_group=log_group,
            environment={
                **self._environment,
                "MACHINE_ARN": self.machine_arn,
                "FILE_SYSTEM_ID": file_system.file_system_id if file_system else "",
                "TIME_TO_LIVE_HOURS": str(time_to_live_hours or ""),
                "IDLE_PARK_HOURS": str(idle_park_hours or ""),
                "CHECKPOINT_INTERVAL_MINUTES": f"{checkpoint_interval_minutes:g}"
                if checkpoint_interval_minutes
                else "",
                "WARNING_SECONDS": f"{warning.to_seconds():g}",
            },
        )

    def _function(
        self, id: str, handler: str, *, role: iam.IRole, log_group: logs.ILogGroup, environment: dict[str, str]
    ) -> lambda_.Function:
        function = lambda_.Function(
            self,
            id,
            description=f"Park of training job {self._job}: {handler}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=f"training_storage.operations.park_function.{handler}",
            code=operations_code(final_export=True),
            role=role,
            timeout=_FUNCTION_TIMEOUT,
            memory_size=512,
            log_group=log_group,
            environment=environment,
        )
        acknowledge(function, rule="L1", reason="The version of Python that the library is tested with.")
        return function

    def _allow_topic(self, role: iam.IRole) -> None:
        if self._topic is None:
            return
        role.add_to_principal_policy(
            iam.PolicyStatement(sid="Topic", actions=["sns:Publish"], resources=[self._topic.topic_arn])
        )
        key = getattr(self._topic, "master_key", None)
        if key is not None:
            # What `grant_publish` gives, without its wildcard in an action.
            key.grant(role, "kms:Decrypt", "kms:GenerateDataKey")

    # ---- the state machine ----

    def _make_state_machine(self, express_gate: ExpressGate | None, warning: Duration) -> sfn.StateMachine:
        self.machine_log_group = logs.LogGroup(
            self,
            "MachineLogs",
            # Names that begin so do not use up the account's policies for log delivery.
            log_group_name=f"/aws/vendedlogs/states/{machine_name(self._job)}",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=RemovalPolicy.DESTROY,
        )
        machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_name=machine_name(self._job),
            comment=f"Parks training job {self._job}: its data goes to the lake, everything else goes away",
            definition_body=sfn.DefinitionBody.from_chainable(self._definition(express_gate, warning)),
            logs=sfn.LogOptions(
                destination=self.machine_log_group, level=sfn.LogLevel.ALL, include_execution_data=True
            ),
            tracing_enabled=True,
        )
        acknowledge_wildcards(
            machine.role, resources=["*"], reason="Log delivery and X-Ray take no resource (Step Functions guide)."
        )
        called = [*self.functions.values(), *([self.watch] if self.watch else [])]
        if express_gate:
            called.append(express_gate.functions[1])
        for function in called:
            acknowledge_wildcards(
                machine.role,
                resources=[f"{function.function_arn}:*"],
                reason="Any version of the functions that it calls.",
            )
        return machine

    def _definition(self, express_gate: ExpressGate | None, warning: Duration) -> sfn.IChainable:
        """Return the states, the last first: each names the one after it."""
        cluster, export = self.functions["cluster"], self.functions.get("export")
        # A scope of their own: their ids are what people see.
        self._states = Construct(self, "States")
        self._failed = sfn.Fail(self._states, "Failed", error="ParkRefused", cause_path="$.Answer.Text")
        self._tell = self._task("Tell", cluster, "tell", catch=False)
        self._tell.add_catch(
            sfn.Fail(
                self._states,
                "FailedUntold",
                error="ParkRefused",
                cause="park stopped, and the step that says why broke down: the execution's history has the reason in"
                " the state before Tell. Run it again",
            ),
            errors=["States.ALL"],
            result_path="$.Untold",
        )
        self._tell.next(self._failed)

        following: sfn.IChainable = self._loop("DeleteStack", cluster, "delete", sfn.Succeed(self._states, "Parked"))
        if express_gate:
            following = self._empty_bucket(express_gate, following)
        if export:
            following = self._loop("Export", export, "export", following)
            following = self._loop("Unmount", export, "unmount", following)
        following = self._loop("Drain", cluster, "drain", following)
        following = self._loop("Begin", cluster, "begin", following)

        undo: sfn.IChainable = self._loop("Undo", cluster, "undo", sfn.Succeed(self._states, "Undone"))
        if export:
            undo = self._loop("Restore", export, "restore", undo)
        trigger = sfn.Choice(self._states, "Trigger")
        given = sfn.Condition.is_present("$.Trigger")
        # A step that ran when its execution was stopped runs on, at most until its function times out.
        settle = sfn.Wait(self._states, "Settle", time=sfn.WaitTime.duration(_FUNCTION_TIMEOUT))
        settle.next(undo)
        taken_back = sfn.Condition.and_(given, sfn.Condition.string_equals("$.Trigger", UNDO))
        stopped = sfn.Condition.and_(
            sfn.Condition.is_present("$.Stopped"), sfn.Condition.boolean_equals("$.Stopped", value=True)
        )
        trigger.when(sfn.Condition.and_(taken_back, stopped), settle)
        trigger.when(taken_back, undo)
        if self.watch:
            warned = self._warn(self.watch, warning, following)
            by_itself = [sfn.Condition.string_equals("$.Trigger", name) for name in (TIME_TO_LIVE, IDLE)]
            trigger.when(sfn.Condition.and_(given, sfn.Condition.or_(*by_itself)), warned)
        trigger.otherwise(following)
        return trigger

    def _warn(self, watch: lambda_.Function, warning: Duration, following: sfn.IChainable) -> sfn.IChainable:
        cancelled = sfn.Succeed(self._states, "Cancelled", comment="Somebody uses it again, or the time was extended")
        still = self._loop("StillDue", watch, "still_due", following, otherwise={NOT_DUE: cancelled})
        wait = sfn.Wait(self._states, "Warned", time=sfn.WaitTime.duration(warning))
        wait.next(still)
        return self._loop("Warn", watch, "warn", wait)

    def _empty_bucket(self, express_gate: ExpressGate, following: sfn.IChainable) -> sfn.IChainable:
        """Let the gate of the directory bucket do what it does on deletion, as often as it takes."""
        task = tasks.LambdaInvoke(
            self._states,
            "Express",
            lambda_function=express_gate.functions[1],
            payload=sfn.TaskInput.from_object({"RequestType": "Delete"}),
            payload_response_only=True,
            result_path="$.Express",
            retry_on_service_exceptions=False,
        )
        self._guard(task)
        wait = sfn.Wait(self._states, "ExpressWait", time=self._poll)
        wait.next(task)
        task.next(
            sfn.Choice(self._states, "Express?")
            .when(sfn.Condition.boolean_equals("$.Express.IsComplete", value=True), following)
            .otherwise(wait)
        )
        return task

    def _loop(
        self,
        name: str,
        function: lambda_.Function,
        step: str,
        following: sfn.IChainable,
        *,
        otherwise: Mapping[str, sfn.IChainable] | None = None,
    ) -> tasks.LambdaInvoke:
        """Return a step that is repeated until it is done, and then leads to what follows."""
        task = self._task(name, function, step)
        wait = sfn.Wait(self._states, f"{name}Wait", time=self._poll)
        wait.next(task)
        choice = sfn.Choice(self._states, f"{name}?")
        for outcome, state in {DONE: following, WAIT: wait, **(otherwise or {})}.items():
            choice.when(sfn.Condition.string_equals("$.Answer.Outcome", outcome), state)
        task.next(choice.otherwise(self._tell))
        return task

    def _task(self, name: str, function: lambda_.Function, step: str, *, catch: bool = True) -> tasks.LambdaInvoke:
        task = tasks.LambdaInvoke(
            self._states,
            name,
            lambda_function=function,
            payload=sfn.TaskInput.from_object(
                {
                    "Step": step,
                    "Execution": sfn.JsonPath.string_at("$$.Execution.Name"),
                    "Began": sfn.JsonPath.string_at("$$.Execution.StartTime"),
                    "State": sfn.JsonPath.object_at("$"),
                }
            ),
            payload_response_only=True,
            result_path="$.Answer",
            retry_on_service_exceptions=False,
        )
        self._guard(task, catch=catch)
        return task

    def _guard(self, task: tasks.LambdaInvoke, *, catch: bool = True) -> None:
        """Repeat what broke down, be it a function that was killed: every step may run again."""
        task.add_retry(errors=["States.ALL"], max_attempts=_RETRIES, interval=Duration.seconds(5), backoff_rate=2)
        if catch:
            task.add_catch(self._tell, errors=["States.ALL"], result_path="$.Error")

    def _schedule(self, watch: lambda_.Function, interval: Duration) -> events.Rule:
        rule = events.Rule(
            self,
            "WatchSchedule",
            description=f"Looks whether training job {self._job} is to be parked",
            schedule=events.Schedule.rate(interval),
            targets=[targets.LambdaFunction(watch, retry_attempts=0)],
        )
        rule.node.add_dependency(self.state_machine)
        return rule


def refuse_nested(scope: Construct) -> None:
    """Refuse a nested stack: its root would go on listing what park has deleted, and fail at its next update."""
    stack = Stack.of(scope)
    if stack.nested_stack_parent is not None:
        raise ConstructError(
            f"park must be in a stack that is not nested, got: {stack.node.path}; its last act is to delete its stack,"
            " which for a nested one is for the root stack to do. Give the job a stack of its own"
        )


def _require_times(
    time_to_live_hours: int | None,
    idle_park_hours: int | None,
    topic: sns.ITopic | None,
    file_system: LustreFileSystem | None,
) -> None:
    for name, value in (("time_to_live_hours", time_to_live_hours), ("idle_park_hours", idle_park_hours)):
        if value is None:
            continue
        require_integer(value, what=name, minimum=1)
        if topic is None:
            raise ConstructError(
                f"{name} must be given with an alarm topic (alarm_topic_arn), got: {value} without one; the warning"
                " before the park has to reach somebody"
            )
    if idle_park_hours is not None and file_system is None:
        raise ConstructError(
            f"idle_park_hours must be left out without fsx-lustre, got: {idle_park_hours}; use is read from the metrics"
            " of the file system, and without one nothing costly stands idle. time_to_live_hours works"
        )


def _require_longer_than_checkpoints(idle_park_hours: int | None, interval_minutes: float | None) -> None:
    if idle_park_hours is None or interval_minutes is None:
        return
    least = idle_hours_minimum(interval_minutes)
    if idle_park_hours < least:
        raise ConstructError(
            f"idle_park_hours must be at least {math.ceil(least)}, got: {idle_park_hours}; a checkpoint comes every"
            f" {interval_minutes:g} minutes, and a run that reads from the lake or a cache uses the file system only"
            f" then: {IDLE_CHECKPOINTS} of them must fail to come"
        )


def _export_seconds(poll_seconds: float) -> float:
    """Return how long an export may take: one execution holds so many turns of its loop."""
    turns = (history_events_maximum() - _SPARE_EVENTS) // _EVENTS_PER_TURN
    return min(_EXPORT_HOURS * SECONDS_PER_HOUR, turns * poll_seconds)
