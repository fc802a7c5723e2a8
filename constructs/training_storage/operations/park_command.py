"""What `training-storage park` does: start or join the state machine, follow it, and finish what it cannot reach."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from training_storage.operations import park_start
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, no_credentials, why
from training_storage.operations.park_error import ParkError
from training_storage.operations.park_finish import Finisher
from training_storage.operations.park_state import COMMAND, NOT_DUE, UNDO, WARNING_STATES, machine_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from training_storage.operations.stack_inventory import Stack
    from training_storage.operations.status_model import ClusterStatus, JobStatus

_MACHINE = "AWS::StepFunctions::StateMachine"
_GONE = ("ExecutionDoesNotExist", "StateMachineDoesNotExist")
_NODE_TAGS = {"pcs": "aws:pcs:compute-node-group-id", "ec2": "aws:autoscaling:groupName"}
#: How the engine pcs names the group of its login nodes.
_LOGIN = "login-"
_ALIVE = ["pending", "running"]
#: What Step Functions has of an execution's end, from the newest: enough to hold the last state and its answer.
_HISTORY = 20
_REASONS = 3
#: States in which an execution ends well, and the one with which its machine goes away.
_PARKED, _UNDONE, _DELETING = "Parked", "Undone", "DeleteStack"
#: How long a step may run on after its execution was stopped: the timeout of its function, and some reserve.
_STEP_AT_MOST = dt.timedelta(minutes=6)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the command works with.

    Parameters
    ----------
    client
        From a service's name to its boto3 client.
    clock
        Returns the present time, with a time zone.
    pause
        Waits until the next look.
    say
        Shows the state of the machine and what it waits for.
    metric_period_seconds
        Length of the periods of FSx's metrics.
    """

    client: Callable[[str], Any]
    clock: Callable[[], dt.datetime]
    pause: Callable[[], None]
    say: Callable[[str, str], None]
    metric_period_seconds: int


def _is_undo(execution: Mapping[str, Any]) -> bool:
    return str(execution["name"]).startswith(UNDO)


def running_nodes(client: Callable[[str], Any], cluster: ClusterStatus | None) -> int:
    """Return how many nodes with accelerators run or are about to; raises as ``ec2:DescribeInstances``."""
    if cluster is None:
        return 0
    if cluster.node_groups is None:
        return len(cluster.nodes or ())
    groups = [group.id for group in cluster.node_groups if not group.name.startswith(_LOGIN)]
    if not groups:
        return 0
    filters = [
        {"Name": f"tag:{_NODE_TAGS[cluster.engine]}", "Values": groups},
        {"Name": "instance-state-name", "Values": _ALIVE},
    ]
    pages = client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return sum(len(row["Instances"]) for page in pages for row in page["Reservations"])


def machine_of(job: JobStatus) -> str | None:
    """Return the ARN of a job's state machine; None if its stack has none, or is being deleted."""
    stack = job.stack
    if stack is None or stack.state.startswith("DELETE_"):
        return None
    ending = f":{machine_name(job.name)}"
    return next((row.physical_id for row in stack.of_kind(_MACHINE) if row.physical_id.endswith(ending)), None)


class Parking:
    """One job, on its way into the lake.

    Parameters
    ----------
    job
        What stands of it.
    surroundings
        What to work with.
    """

    def __init__(self, job: JobStatus, surroundings: Surroundings) -> None:
        self._job = job
        self._around = surroundings
        self._cloudformation = surroundings.client("cloudformation")
        self._sfn = surroundings.client("stepfunctions")

    @property
    def machine(self) -> str | None:
        """ARN of the job's state machine; None if its stack has none, or is being deleted."""
        return machine_of(self._job)

    def start(self, *, stop_nodes: bool) -> str | None:
        """Start or join an execution, and return its ARN; None if nothing of the job needs one.

        One that has only warned so far is stopped: whoever asks does not want to wait for what it announced.
        """
        machine = self.machine
        if machine is None:
            return None
        present = self._executions(machine, "RUNNING")
        if any(_is_undo(one) for one in present):
            raise ParkError("a park of it is being taken back (--undo). Run it again when that is over")
        for one in present:
            if self._state_of(one["executionArn"])[0] not in WARNING_STATES:
                return str(one["executionArn"])
        for one in present:
            self._stop(one["executionArn"], "started at once by training-storage park")
        now = self._around.clock()
        return str(
            self._ask(
                "states:StartExecution",
                lambda: park_start.start(self._sfn, machine, trigger=COMMAND, now=now, StopNodes=stop_nodes),
            )
        )

    def follow(self, execution: str | None) -> None:
        """Return when nothing of the job stands any more.

        Raises
        ------
        ParkError
            With the reason; what stands then goes on standing.
        """
        if execution is not None:
            self._follow_execution(execution, to=_PARKED)
        stack = self._job.stack
        # What a stack with a state machine still holds, the machine has dealt with.
        alone = execution is None and (stack is None or stack.state != "DELETE_IN_PROGRESS")
        standing = [one.system.id for one in self._job.file_systems or () if alone or one.in_stack is False]
        if not alone and stack is not None:
            self._delete_stack(stack)
        if standing:
            finisher = Finisher(
                client=self._around.client,
                clock=self._around.clock,
                pause=self._around.pause,
                say=self._around.say,
                metric_period_seconds=self._around.metric_period_seconds,
            )
            for identifier in standing:
                finisher.finish(identifier)
        if alone and stack is not None:
            self._delete_stack(stack)

    def undo(self) -> None:
        """Stop an execution that runs, then give file system and cluster back what park took from them.

        Raises
        ------
        ParkError
            If there is no state machine, or it could not.
        """
        machine = self.machine
        if machine is None:
            raise ParkError(
                f"nothing of job {self._job.name} can be taken back: its stack is gone, is being deleted, or never had"
                " what parks it. Deploy the same plan again"
            )
        undo = next((one["executionArn"] for one in self._executions(machine, "RUNNING") if _is_undo(one)), None)
        self._stop_parks(machine)
        if undo is None:
            now = self._around.clock()
            # Also one that an interrupted --undo stopped just now may still be at work.
            stopped = any(now - one["stopDate"] < _STEP_AT_MOST for one in self._executions(machine, "ABORTED"))
            undo = self._ask(
                "states:StartExecution",
                lambda: park_start.start(self._sfn, machine, trigger=UNDO, now=now, Stopped=stopped),
            )
            # One may have started in between.
            self._stop_parks(machine)
        self._follow_execution(undo, to=_UNDONE)

    def _stop_parks(self, machine: str) -> None:
        for one in self._executions(machine, "RUNNING"):
            if not _is_undo(one):
                self._stop(one["executionArn"], "taken back by training-storage park --undo")

    # ---- executions ----

    def _executions(self, machine: str, status: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask(
            "states:ListExecutions", lambda: park_start.executions(self._sfn, machine, status=status)
        )
        return found

    def _follow_execution(self, execution: str, *, to: str) -> None:
        """Return when an execution has ended in the state `to`, or its machine is gone with the stack."""
        while True:
            try:
                found = self._ask(
                    "states:DescribeExecution",
                    lambda: self._sfn.describe_execution(executionArn=execution),
                    passing=_GONE,
                )
            except ClientError:
                # The machine goes with its stack; that the stack goes means that all else was done.
                return
            if found["status"] != "RUNNING":
                break
            self._around.say(*self._state_of(execution))
            self._around.pause()
        if found["status"] == "SUCCEEDED":
            output = json.loads(found.get("output") or "{}")
            if (output.get("Answer") or {}).get("Outcome") == NOT_DUE:
                raise ParkError("the park that was announced is no longer due. Run it again to park all the same")
            last = self._state_of(execution)[0]
            if last not in (to, _DELETING):
                raise ParkError(f"the execution ended in the state {last}, not in {to}. Run it again")
            return
        if found["status"] == "ABORTED":
            raise ParkError("the park was stopped by somebody. Run it again to go on, or --undo to take it back")
        raise ParkError(str(found.get("cause") or found.get("error") or f"the execution is {found['status']}"))

    def _state_of(self, execution: str) -> tuple[str, str]:
        """Return the state that an execution is in, and what its last step answered."""
        try:
            events = self._ask(
                "states:GetExecutionHistory",
                lambda: self._sfn.get_execution_history(
                    executionArn=execution, reverseOrder=True, maxResults=_HISTORY, includeExecutionData=True
                ),
                passing=_GONE,
            )["events"]
        except ClientError:
            return _DELETING, ""
        names = [row["stateEnteredEventDetails"]["name"] for row in events if "stateEnteredEventDetails" in row]
        outputs = [row["stateExitedEventDetails"].get("output") for row in events if "stateExitedEventDetails" in row]
        answer = json.loads(next((text for text in outputs if text), "{}")).get("Answer") or {}
        return (names[0] if names else "Trigger"), str(answer.get("Text", ""))

    def _stop(self, execution: str, cause: str) -> None:
        self._ask(
            "states:StopExecution",
            lambda: self._sfn.stop_execution(executionArn=execution, cause=cause),
            passing=(*_GONE, "ValidationException"),
            ignored=True,
        )

    # ---- the stack ----

    def _delete_stack(self, stack: Stack) -> None:
        """Delete a stack that does not go already, and wait for it."""
        if self._stack_state(stack) not in ("", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"):
            self._ask("cloudformation:DeleteStack", lambda: self._cloudformation.delete_stack(StackName=stack.id))
        while (state := self._stack_state(stack)) not in ("", "DELETE_COMPLETE"):
            if state == "DELETE_FAILED":
                raise ParkError(f"the stack {stack.name} could not be deleted: {self._reasons(stack)}")
            self._around.say("DeleteStack", f"the stack {stack.name} is {state}")
            self._around.pause()

    def _stack_state(self, stack: Stack) -> str:
        try:
            found = self._ask(
                "cloudformation:DescribeStacks",
                lambda: self._cloudformation.describe_stacks(StackName=stack.id),
                passing=("ValidationError",),
            )
        except ClientError:
            return ""
        return str(found["Stacks"][0]["StackStatus"])

    def _reasons(self, stack: Stack) -> str:
        events = self._ask(
            "cloudformation:DescribeStackEvents",
            lambda: self._cloudformation.describe_stack_events(StackName=stack.id),
        )["StackEvents"]
        failed = [
            f"{row['LogicalResourceId']}: {' '.join(row.get('ResourceStatusReason', '').split())}"
            for row in events
            if row["ResourceStatus"] == "DELETE_FAILED" and row.get("ResourceType") != "AWS::CloudFormation::Stack"
        ]
        return "; ".join(failed[:_REASONS]) or "CloudFormation gives no reason"

    # ---- calls ----

    def _ask(
        self, action: str, call: Callable[[], Any], *, passing: tuple[str, ...] = (), ignored: bool = False
    ) -> Any:  # noqa: ANN401 - of any service
        """Call; wait where there is no connection, as when a laptop wakes up.

        Parameters
        ----------
        passing
            Codes of errors that are raised as they are.
        ignored
            Whether those are no error at all.
        """
        while True:
            try:
                return call()
            except AWS_ERRORS as error:
                if code_of(error) in passing:
                    if ignored:
                        return None
                    raise
                if no_credentials(error):
                    raise ParkError(
                        f"AWS credentials are missing or have expired ({code_of(error) or 'none'}). What was started"
                        " goes on; sign in and run it again to watch it"
                    ) from None
                if not isinstance(error, BotoCoreError):
                    raise ParkError(f"{why(error, action=action)}. What was started goes on") from None
                self._around.say("Connection", f"{why(error, action=action)}; trying again")
                self._around.pause()
