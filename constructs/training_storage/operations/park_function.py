"""The steps of park as Lambda functions: each is one look and one push, may be killed, and may run again.

A step answers what `park_state.answer` makes: go on, wait, or stop with a reason. What it remembers travels in the
answer; everything else it reads from AWS each time.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from training_storage.operations import park_start
from training_storage.operations.final_export.calls import Calls, ask
from training_storage.operations.final_export.gate import Attempt, Gate, Link
from training_storage.operations.final_export.metrics import Metrics
from training_storage.operations.final_export.refusal import NotFoundError, NotNowError, RefusalError
from training_storage.operations.final_export.report import Reports
from training_storage.operations.park_cluster import Cluster, Description
from training_storage.operations.park_export import attempt_to_follow, fresh_attempt, take_back
from training_storage.operations.park_state import (
    COMMAND,
    DONE,
    HOLD_HOURS,
    NOT_DUE,
    REFUSED,
    TIME_TO_LIVE,
    WAIT,
    Answer,
    answer,
)
from training_storage.operations.park_use import read_use
from training_storage.operations.park_watch import Rule, Watch, is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logging.getLogger().setLevel(logging.INFO)
_log = logging.getLogger(__name__)
_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "max_attempts": 5})
#: Polls after which nodes that did not go by themselves are ended, and after which park gives up on them.
_POLLS_BEFORE_END, _POLLS_BEFORE_GIVING_UP = 3, 20
#: Polls that somebody outside the cluster has to let go of the file system.
_POLLS_TO_UNMOUNT = 5
#: Periods after which CloudWatch, whose values are minutes late, has one if it ever will.
_PERIODS_LATE = 6
_CAUSE_CHARACTERS = 600


class Steps:
    """The steps of one job.

    Parameters
    ----------
    environment
        Of the function; the construct `Park` writes it.
    client
        From a service's name to its boto3 client.
    clock
        Returns the present time, with a time zone.
    """

    def __init__(
        self, environment: Mapping[str, str], *, client: Callable[[str], Any], clock: Callable[[], dt.datetime]
    ) -> None:
        self._environment = environment
        self._client = client
        self._clock = clock
        self._poll = dt.timedelta(seconds=float(environment["POLL_SECONDS"]))

    def run(self, event: Mapping[str, Any]) -> Answer:
        """Do the step that `event` names, and say how it ended."""
        state = event.get("State") or {}
        memory = dict((state.get("Answer") or {}).get("Memory") or {})
        step = getattr(self, f"step_{event['Step']}")
        try:
            found: Answer = step(event, state, memory)
        except NotNowError as error:
            found = answer(WAIT, f"waiting for AWS: {error}", memory)
        except NotFoundError as error:
            found = answer(REFUSED, f"something that park needs is gone: {error}", memory)
        except RefusalError as error:
            # The gate's own reasons are whole; others say what and what helps.
            text = str(error) if step.__name__ == "step_export" else f"{error.what}. {error.way_out}."
            found = answer(REFUSED, text, memory)
        _log.info("%s: %s %s", event["Step"], found["Outcome"], found["Text"])
        return found

    # ---- the cluster ----

    def step_begin(self, _event: Mapping[str, Any], state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Refuse what cannot end well before anything is touched."""
        stack = self._stack()
        status = str(stack["StackStatus"])
        if status.endswith("_IN_PROGRESS") and "CLEANUP" not in status:
            text = f"the stack {stack['StackName']} is {status}. Run it again when that is over"
            return answer(REFUSED, text, memory)
        if stack.get("EnableTerminationProtection"):
            text = (
                f"the stack {stack['StackName']} has termination protection. Take it off: aws cloudformation"
                f" update-termination-protection --no-enable-termination-protection --stack-name {stack['StackName']}"
            )
            return answer(REFUSED, text, memory)
        nodes = self._cluster().nodes(login=False)
        if nodes and state.get("Trigger", COMMAND) == COMMAND and not state.get("StopNodes"):
            text = f"{len(nodes)} nodes run, and park would end them. Say so with --yes, or let them finish"
            return answer(REFUSED, text, memory)
        return answer(DONE, "nothing stands in the way", memory)

    def step_drain(self, _event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Let no node start, then wait until none runs: first those that train, then those that people log in to."""
        cluster = self._cluster()
        memory["Closed"] = True
        for login, kind in ((False, "node"), (True, "login node")):
            if login and not cluster.has_login:
                continue
            if not cluster.close(login=login):
                return answer(WAIT, f"the limit of {kind}s to become 0", memory)
            nodes = cluster.nodes(login=login)
            if nodes:
                return self._wait_for_nodes(cluster, nodes, kind, memory)
        memory["Drained"] = self._clock().isoformat()
        return answer(DONE, "no node runs", memory)

    def _wait_for_nodes(self, cluster: Cluster, nodes: list[str], kind: str, memory: dict[str, Any]) -> Answer:
        since = memory.setdefault("Ending", {}).setdefault(kind, self._clock().isoformat())
        waited = self._clock() - dt.datetime.fromisoformat(since)
        if waited >= _POLLS_BEFORE_GIVING_UP * self._poll:
            named = ", ".join(nodes[:3])
            text = f"{len(nodes)} {kind}s do not end ({named}). End them in EC2, then run it again"
            return answer(REFUSED, text, memory)
        if waited >= _POLLS_BEFORE_END * self._poll:
            cluster.end(nodes)
        return answer(WAIT, f"{len(nodes)} {kind}{'s' if len(nodes) > 1 else ''} to end", memory)

    def step_undo(self, _event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Give the cluster the limits of its template again; no node starts by that alone."""
        if not self._cluster().reopen():
            return answer(WAIT, "the limits of the node groups to come back", memory)
        return answer(DONE, "the cluster may start nodes again", memory)

    def step_delete(self, _event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Delete the stack: the last act, because the state machine goes with it."""
        stack = self._stack()
        name = stack["StackName"]
        if not stack.get("RoleARN"):
            # CloudFormation would use this function's own rights, which are for something else.
            memory["StackStays"] = True
            text = (
                f"everything is in the lake, and no node runs. The stack {name} was deployed without a service role:"
                f" delete it with '{self._command()}'"
            )
            self._publish(f"Training job {self._job} is parked but for its stack", text)
            return answer(DONE, text, memory)
        delete = self._client("cloudformation").delete_stack
        ask("cloudformation:DeleteStack", delete, StackName=self._environment["STACK_ID"])
        text = f"everything is in the lake; the stack {name} is being deleted"
        self._publish(f"Training job {self._job} is parked", text)
        return answer(DONE, text, memory)

    def step_tell(self, _event: Mapping[str, Any], state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Say why park stopped, and what helps."""
        broken = state.get("Error")
        if broken:
            cause = " ".join(str(broken.get("Cause", "")).split())[:_CAUSE_CHARACTERS]
            text = f"a step broke down: {broken.get('Error')} {cause}. Run it again"
        else:
            text = str((state.get("Answer") or {}).get("Text"))
        if memory.get("Closed"):
            text += f". The cluster may start no nodes until '{self._command('--undo')}'"
        self._publish(
            f"Training job {self._job} could not be parked", f"{text}. Once mended, run it again: {self._command()}"
        )
        return answer(REFUSED, text, memory)

    # ---- the file system ----

    def step_unmount(self, _event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Wait until nobody uses the file system: with the nodes their mounts have gone, others have their own."""
        calls, identifier = self._calls(), self._environment["FILE_SYSTEM_ID"]
        system = calls.file_system(identifier)
        if system is None or system["Lifecycle"] == "DELETING":
            return answer(DONE, "nothing is mounted any more", memory)
        now, period = self._clock(), float(self._environment["METRIC_PERIOD_SECONDS"])
        since = dt.datetime.fromisoformat(memory.setdefault("Drained", now.isoformat()))
        use = read_use(self._client("cloudwatch"), identifier, since=since, until=now, period_seconds=int(period))
        # As the gate reads them: FSx publishes a period when it is over, so that one which began since is whole.
        known = [at for at in use if at >= since]
        if not known:
            if now - since < dt.timedelta(seconds=_PERIODS_LATE * period):
                return answer(WAIT, "CloudWatch to say whether anybody still uses the file system", memory)
            return answer(DONE, "nobody is known to use the file system", memory)
        size = use[max(known)].bytes
        if not size:
            return answer(DONE, "nobody uses the file system", memory)
        used = f"{size:,.0f} bytes were read or written"
        if now - since >= _POLLS_TO_UNMOUNT * self._poll + dt.timedelta(seconds=period):
            text = (
                f"something outside the cluster still uses {identifier} ({used} in the last minute). Unmount it there,"
                " then run it again"
            )
            return answer(REFUSED, text, memory)
        return answer(WAIT, f"clients outside the cluster to unmount: {used}", memory)

    def step_export(self, event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Export, compare and delete, as the gate does, and for as long as it takes."""
        identifier = self._environment["FILE_SYSTEM_ID"]
        calls, metrics = self._calls(), self._metrics()
        began = memory.setdefault("ExportBegan", self._clock().isoformat())
        if "Attempt" not in memory:
            fresh = fresh_attempt(f"{event['Execution']} {event['Began']}")
            memory["Attempt"] = attempt_to_follow(calls, metrics, identifier, fresh=fresh, now=self._clock())
        start = dt.datetime.fromisoformat(began)
        attempt = Attempt(
            id=memory["Attempt"],
            began=start,
            deadline=start + dt.timedelta(seconds=float(self._environment["EXPORT_SECONDS"])),
            gate=self._environment["GATE_TAG"],
            stack_name=self._environment["STACK_ID"].split("/")[1],
            links=tuple(
                Link(path=row["Path"], exported=row["Exported"] == "true")
                for row in json.loads(self._environment["LINKS"])
            ),
        )
        waiting = self._gate(calls, metrics).advance(identifier, attempt)
        if waiting is None:
            return answer(DONE, "everything is in the lake, and the file system is gone", memory)
        return answer(WAIT, waiting.what, memory)

    def step_restore(self, _event: Mapping[str, Any], _state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Turn automatic export on again."""
        identifier = self._environment["FILE_SYSTEM_ID"]
        calls, metrics = self._calls(), self._metrics()
        system = calls.file_system(identifier)
        if system is None or system["Lifecycle"] == "DELETING":
            text = (
                f"{identifier} is deleted already, its data is in the lake. Finish with '{self._command()}', then"
                " deploy the same plan again"
            )
            return answer(REFUSED, text, memory)
        left = take_back(self._gate(calls, metrics), calls, identifier, now=self._clock())
        if left:
            return answer(WAIT, " ".join(left), memory)
        return answer(DONE, "the file system exports by itself again", memory)

    # ---- times ----

    def step_warn(self, _event: Mapping[str, Any], state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Say what is going to happen, and how to prevent it."""
        minutes = float(self._environment["WARNING_SECONDS"]) / 60
        extend = (
            "deploy with a longer time_to_live_hours"
            if state["Trigger"] == TIME_TO_LIVE
            else "use the file system, or deploy with a longer idle_park_hours"
        )
        self._publish(
            f"Training job {self._job} is parked in {minutes:.0f} minutes",
            f"Training job {self._job}: {state.get('Words')}. In {minutes:.0f} minutes its nodes end, its data is"
            f" exported to the lake, and its stack is deleted. To prevent that, {extend}; or stop it for {HOLD_HOURS}"
            f" hours: {self._command('--undo')}. To do it now: {self._command('--yes')}",
            must=True,
        )
        return answer(DONE, f"warned: {state.get('Words')}", memory)

    def step_still_due(self, _event: Mapping[str, Any], state: Mapping[str, Any], memory: dict[str, Any]) -> Answer:
        """Look again after the warning: somebody may have come back."""
        watch = self._watch()
        due = watch.time_is_over() if state["Trigger"] == TIME_TO_LIVE else watch.is_unused()
        if due is None:
            self._publish(
                f"Training job {self._job} is not parked",
                "It is used again, or its time was extended: nothing is done.",
            )
            return answer(NOT_DUE, "it is used again, or its time was extended", memory)
        return answer(DONE, due.words, memory)

    def look(self) -> dict[str, Any]:
        """Start a park that is due; called by the schedule."""
        sfn, machine, now = self._client("stepfunctions"), self._environment["MACHINE_ARN"], self._clock()
        executions: list[dict[str, Any]] = ask(
            "states:ListExecutions", sfn.list_executions, stateMachineArn=machine, maxResults=100
        )["executions"]
        if is_held(executions, now=now):
            return {"Started": None}
        due = self._watch().due()
        if due is None:
            return {"Started": None}
        _log.info("%s: %s", self._job, due.words)
        return {"Started": park_start.start(sfn, machine, trigger=due.trigger, now=now, Words=due.words)}

    # ---- parts ----

    @property
    def _job(self) -> str:
        return self._environment["JOB"]

    def _command(self, *options: str) -> str:
        region = self._environment["STACK_ID"].split(":")[3]
        return " ".join(["training-storage park --job", self._job, "--region", region, *options])

    def _stack(self) -> dict[str, Any]:
        describe = self._client("cloudformation").describe_stacks
        found: dict[str, Any] = ask("cloudformation:DescribeStacks", describe, StackName=self._environment["STACK_ID"])[
            "Stacks"
        ][0]
        return found

    def _cluster(self) -> Cluster:
        return Cluster(Description.from_json(self._environment["CLUSTER"]), client=self._client)

    def _calls(self) -> Calls:
        return Calls(fsx=self._client("fsx"), s3=self._client("s3"), cloudformation=self._client("cloudformation"))

    def _metrics(self) -> Metrics:
        return Metrics(
            cloudwatch=self._client("cloudwatch"),
            clock=self._clock,
            period_seconds=int(float(self._environment["METRIC_PERIOD_SECONDS"])),
        )

    def _gate(self, calls: Calls, metrics: Metrics) -> Gate:
        return Gate(
            calls=calls,
            metrics=metrics,
            reports=Reports(calls=calls, uri=self._environment["REPORT_URI"]),
            clock=self._clock,
            pause_seconds=min(10.0, self._poll.total_seconds() / 3),
        )

    def _watch(self) -> Watch:
        def hours(name: str) -> int | None:
            text = self._environment[name]
            return int(text) if text else None

        interval = self._environment["CHECKPOINT_INTERVAL_MINUTES"]
        return Watch(
            Rule(
                time_to_live_hours=hours("TIME_TO_LIVE_HOURS"),
                idle_hours=hours("IDLE_PARK_HOURS"),
                checkpoint_interval_minutes=float(interval) if interval else None,
                warning=dt.timedelta(seconds=float(self._environment["WARNING_SECONDS"])),
            ),
            stack_id=self._environment["STACK_ID"],
            file_system_id=self._environment["FILE_SYSTEM_ID"],
            nodes=lambda: len(self._cluster().nodes(login=False)),
            client=self._client,
            clock=self._clock,
        )

    def _publish(self, subject: str, text: str, *, must: bool = False) -> None:
        """Tell the topic; without `must` a topic that cannot be told changes nothing else."""
        topic = self._environment["TOPIC_ARN"]
        if not topic:
            return
        try:
            # Subjects are ASCII and at most 100 characters (SNS API).
            self._client("sns").publish(TopicArn=topic, Subject=subject[:100], Message=text)
        except (BotoCoreError, ClientError) as error:
            if must:
                raise RefusalError(
                    f"the topic {topic} could not be told ({error})",
                    way_out="Let the function publish to it, and let it use the topic's key (docs/park.md)",
                ) from error
            _log.warning("the topic could not be told: %s", error)


def cluster(event: dict[str, Any], _context: object) -> Answer:
    """Do a step that needs the cluster or the stack."""
    return _steps().run(event)


def export(event: dict[str, Any], _context: object) -> Answer:
    """Do a step that needs the file system, with the rights of its gate."""
    return _steps().run(event)


def watch(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Do a step of the warning; without one, look whether a park is due."""
    steps = _steps()
    return steps.run(event) if "Step" in event else steps.look()


def _steps() -> Steps:
    made: dict[str, Any] = {}

    def client(service: str) -> Any:  # noqa: ANN401 - boto3 clients have no type
        if service not in made:
            made[service] = boto3.client(service, config=_CONFIG)
        return made[service]

    return Steps(os.environ, client=client, clock=lambda: dt.datetime.now(dt.UTC))
