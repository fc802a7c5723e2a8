"""The steps of park against an AWS in memory: any call may be the last, and what was begun is gone on with."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_final_export import FS, GATE, LINKS, POLL, STACK_ID, KilledError, World
from training_storage.operations import park_start
from training_storage.operations.final_export.calls import Calls
from training_storage.operations.final_export.metrics import Metrics
from training_storage.operations.final_export.tags import (
    ATTEMPT,
    EXPORTED_PATHS,
    LEFT_STANDING,
    TAKEN_BACK,
    paths_of,
    paths_value,
)
from training_storage.operations.park_cluster import Cluster, Description, Group
from training_storage.operations.park_command import Parking, Surroundings
from training_storage.operations.park_error import ParkError
from training_storage.operations.park_export import attempt_to_follow
from training_storage.operations.park_finish import Finisher
from training_storage.operations.park_function import Steps
from training_storage.operations.park_state import DONE, NOT_DUE, REFUSED, WAIT
from training_storage.operations.park_use import QUIET_BYTES_PER_HOUR, Use, is_idle
from training_storage.operations.park_watch import is_held

ROLE = "arn:aws:iam::111122223333:role/cfn"
TOPIC = "arn:aws:sns:us-east-1:111122223333:alarms"
#: As the construct chains them (tests/cdk/test_park.py).
STEPS = ("begin", "drain", "unmount", "export", "delete")
HOUR = dt.timedelta(hours=1)


class Account(World):
    """The account of the gate's tests, with nodes that write until they end, and a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, str] = {}
        self.limits = (0, 4)
        self.ends_by_itself = True
        self.never_ends = False
        self.stack: dict[str, Any] = {
            "StackName": "Job",
            "StackStatus": "CREATE_COMPLETE",
            "RoleARN": ROLE,
            "CreationTime": self.now - 5 * HOUR,
        }
        self.stack_deleted = False
        self.published: list[tuple[str, str]] = []
        self.executions: list[dict[str, Any]] = []
        self.add()
        for link in self.associations.values():
            link["DataRepositoryPath"] = f"s3://lake{link['FileSystemPath'].rstrip('/')}/default/"

    def start_nodes(self, count: int) -> None:
        self.nodes = {f"i-{number}": "running" for number in range(count)}

    def alive(self) -> list[str]:
        return [node for node, state in self.nodes.items() if state != "terminated"]

    def pass_time(self, length: dt.timedelta = POLL) -> None:
        if self.alive() and FS in self.systems:
            self.write("/checkpoints/step-2/rank-0.pt")
        super().pass_time(length)
        for node, state in self.nodes.items():
            if state == "shutting-down":
                self.nodes[node] = "terminated"
            elif state == "running" and self.limits[1] == 0 and self.ends_by_itself:
                self.nodes[node] = "shutting-down"

    def _update_auto_scaling_group(self, **request: Any) -> Any:
        self.limits = request["MinSize"], request["MaxSize"]
        return {}

    def _describe_instances(self, Filters: Any) -> Any:  # noqa: N803 - as the API
        assert Filters[0] == {"Name": "tag:aws:autoscaling:groupName", "Values": ["group-1"]}
        found = [node for node, state in self.nodes.items() if state in Filters[1]["Values"]]
        return {"Reservations": [{"Instances": [{"InstanceId": node}]} for node in found]}

    def _terminate_instances(self, InstanceIds: list[str]) -> Any:  # noqa: N803
        for node in InstanceIds:
            self.nodes[node] = "running" if self.never_ends else "shutting-down"
        return {}

    def _describe_stacks(self, StackName: str) -> Any:  # noqa: N803
        assert StackName == STACK_ID
        return {"Stacks": [self.stack]}

    def _delete_stack(self, StackName: str) -> Any:  # noqa: N803
        assert StackName == STACK_ID
        self.promise(not self.systems, "the stack goes after the file system")
        self.promise(not self.alive(), "the stack goes after the nodes")
        self.stack_deleted = True
        return {}

    def _delete_file_system(self, FileSystemId: str) -> Any:  # noqa: N803
        self.promise(not self.alive(), "the file system goes after the nodes")
        return super()._delete_file_system(FileSystemId)

    def _publish(self, TopicArn: str, Subject: str, Message: str) -> Any:  # noqa: N803
        assert TopicArn == TOPIC
        self.published.append((Subject, Message))
        return {}

    def _list_executions(self, **_request: Any) -> Any:
        return {"executions": self.executions}

    def _start_execution(self, **request: Any) -> Any:
        self.executions.append({**request, "status": "RUNNING", "startDate": self.now})
        return {"executionArn": request["name"]}


def environment(**changes: str) -> dict[str, str]:
    group = {"id": "group-1", "minimum": 0, "maximum": 4, "login": False}
    cluster = {"engine": "ec2", "cluster_id": "", "tag": "aws:autoscaling:groupName", "groups": [group]}
    links = [{"Path": link.path, "Exported": str(link.exported).lower()} for link in LINKS]
    return {
        "JOB": "alpha",
        "STACK_ID": STACK_ID,
        "TOPIC_ARN": TOPIC,
        "POLL_SECONDS": "30",
        "METRIC_PERIOD_SECONDS": "60",
        "CLUSTER": json.dumps(cluster),
        "GATE_TAG": GATE,
        "REPORT_URI": "s3://lake/logs/default/final-export/",
        "FILE_SYSTEM_ID": FS,
        "LINKS": json.dumps(links),
        "EXPORT_SECONDS": "86400",
        "MACHINE_ARN": "arn:aws:states:us-east-1:111122223333:stateMachine:training-storage-park-alpha",
        "TIME_TO_LIVE_HOURS": "",
        "IDLE_PARK_HOURS": "",
        "CHECKPOINT_INTERVAL_MINUTES": "30",
        "WARNING_SECONDS": "3600",
        **changes,
    }


def steps(account: Account, **changes: str) -> Steps:
    return Steps(environment(**changes), client=lambda _: account, clock=lambda: account.now)


def execute(account: Account, name: str, *, state: dict[str, Any] | None = None, polls: int = 200) -> dict[str, Any]:
    """Run the state machine as Step Functions does; return the last state.

    `state` is kept as it is when a call kills it, as the input of a step that is repeated.
    """
    given: dict[str, Any] = {"Trigger": "command", "StopNodes": True} if state is None else state
    begin = given.setdefault("_step", 0)
    for number in range(begin, len(STEPS)):
        given["_step"] = number
        for _ in range(polls):
            event = {"Step": STEPS[number], "Execution": name, "Began": "2026-11-30T12:00:00Z", "State": given}
            given["Answer"] = steps(account).run(event)
            if given["Answer"]["Outcome"] != WAIT:
                break
            account.pass_time()
        else:
            raise TimeoutError(given["Answer"]["Text"])
        if given["Answer"]["Outcome"] == REFUSED:
            return given
    return given


def step(account: Account, name: str, state: dict[str, Any] | None = None, **changes: str) -> dict[str, Any]:
    event = {"Step": name, "Execution": "command-1", "Began": "2026-11-30T12:00:00Z", "State": state or {}}
    return steps(account, **changes).run(event)


@pytest.fixture
def account() -> Account:
    made = Account()
    made.write("/checkpoints/step-1/rank-0.pt")
    made.write("/logs/train.log")
    made.pass_time(HOUR)
    return made


# ---- killed ----


@settings(max_examples=150, deadline=None)
@given(
    kills=st.lists(st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), max_size=6),
    nodes=st.integers(0, 3),
    task_polls=st.integers(1, 6),
    by_itself=st.booleans(),
)
def test_killed_at_any_call_and_started_again_ends_the_same(
    kills: list[tuple[int, bool, bool]], nodes: int, task_polls: int, by_itself: bool
) -> None:
    """Kills are before or after a call; the step is then repeated with its input, or a new execution begins."""
    account = Account()
    account.write("/logs/train.log")
    account.pass_time(HOUR)
    account.start_nodes(nodes)
    account.task_polls, account.ends_by_itself = task_polls, by_itself
    state: dict[str, Any] | None = None
    for number, (calls, after, repeated) in enumerate(kills):
        account.kill_at = (len(account.calls) + calls, after)
        state = state if repeated and state is not None else {"Trigger": "command", "StopNodes": True}
        try:
            execute(account, f"command-{number}", state=state)
        except KilledError:
            account.pass_time()
            if account.stack_deleted:
                break
    account.kill_at = None
    if not account.stack_deleted:
        last = execute(account, "command-last")
        assert last["Answer"]["Outcome"] == DONE, last
    assert account.broken == []
    assert account.stack_deleted
    assert account.systems == {}
    assert account.missing() == []
    assert account.alive() == []


def test_an_export_that_another_execution_began_is_not_repeated(account: Account) -> None:
    account.task_polls = 40
    with pytest.raises(TimeoutError):
        execute(account, "command-1", polls=20)
    assert execute(account, "command-2")["Answer"]["Outcome"] == DONE
    assert len(account.all_tasks) == 1


def test_one_that_ended_while_nobody_looked_still_counts(account: Account) -> None:
    account.task_polls = 10
    with pytest.raises(TimeoutError):
        execute(account, "command-1", polls=8)
    for _ in range(12):
        account.pass_time()
    assert execute(account, "command-2")["Answer"]["Outcome"] == DONE
    assert len(account.all_tasks) == 1


def test_one_after_which_somebody_wrote_does_not_count(account: Account) -> None:
    account.task_polls = 10
    with pytest.raises(TimeoutError):
        execute(account, "command-1", polls=8)
    for _ in range(12):
        account.pass_time()
    account.write("/checkpoints/step-9/rank-0.pt")
    account.pass_time(HOUR)
    assert execute(account, "command-2")["Answer"]["Outcome"] == DONE
    assert len(account.all_tasks) == 2
    assert account.missing() == []


@pytest.mark.parametrize("away", [dt.timedelta(hours=3), dt.timedelta(days=17)])
def test_one_that_ended_long_ago_does_not_count(account: Account, away: dt.timedelta) -> None:
    account.task_polls = 10
    with pytest.raises(TimeoutError):
        execute(account, "command-1", polls=8)
    for _ in range(12):
        account.pass_time()
    account.write("/checkpoints/step-9/rank-0.pt")
    account.pass_time(away)
    # What was written is older than what CloudWatch keeps of single minutes, or not written in bytes at all.
    account.writes[FS] = [(account.now - dt.timedelta(days=10), 0.0)]
    assert execute(account, "command-2")["Answer"]["Outcome"] == DONE
    assert account.broken == []
    assert len(account.all_tasks) == 2


def test_one_that_was_taken_back_does_not_count(account: Account) -> None:
    account.task_polls = 10
    with pytest.raises(TimeoutError):
        execute(account, "command-1", polls=8)
    for _ in range(12):
        account.pass_time()
    assert step(account, "restore")["Outcome"] == DONE
    assert account.tags_of()[TAKEN_BACK]
    account.files[FS]["/checkpoints/step-9/_SUCCESS"] = False
    account.pass_time()
    assert execute(account, "command-2")["Answer"]["Outcome"] == DONE
    assert account.broken == []
    assert len(account.all_tasks) == 2


@pytest.mark.parametrize(
    ("change", "followed"),
    [
        ({}, True),
        ({"Lifecycle": "EXECUTING"}, True),
        ({"written": True}, False),
        ({"Lifecycle": "EXECUTING", "written": True}, False),
        ({"minutes": 31}, False),
        ({"Lifecycle": "FAILED"}, False),
        ({"Status": {"TotalCount": 2, "SucceededCount": 1, "FailedCount": 0}}, False),
        ({"taken back": True}, False),
        ({"attempt": "request-1"}, False),
    ],
)
def test_only_a_clean_export_of_just_now_is_followed(account: Account, change: dict[str, Any], followed: bool) -> None:
    account.start_task(FS, ["checkpoints"])
    task = account.all_tasks[-1]
    task["_tags"] = {ATTEMPT: change.get("attempt", "park-1")}
    account.pass_time()
    assert task["Lifecycle"] == "SUCCEEDED"
    task.update({key: value for key, value in change.items() if key in ("Lifecycle", "Status")})
    if change.get("written"):
        account.write("/checkpoints/late")
    if change.get("taken back"):
        account.tags_of()[TAKEN_BACK] = account.now.isoformat()
    task["_polls"] = 99
    account.pass_time(dt.timedelta(minutes=change.get("minutes", 2)))
    calls = Calls(fsx=account, s3=account, cloudformation=account)
    metrics = Metrics(cloudwatch=account, clock=lambda: account.now, period_seconds=60)
    found = attempt_to_follow(calls, metrics, FS, fresh="park-fresh", now=account.now)
    assert found == ("park-1" if followed else "park-fresh")


# ---- refusals ----


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"StackStatus": "UPDATE_IN_PROGRESS"}, "is UPDATE_IN_PROGRESS. Run it again when that is over"),
        ({"EnableTerminationProtection": True}, "update-termination-protection --no-enable-termination-protection"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_touched(
    account: Account, stack: dict[str, Any], words: str
) -> None:
    account.stack.update(stack)
    refused = execute(account, "command-1")
    assert refused["Answer"]["Outcome"] == REFUSED
    assert words in refused["Answer"]["Text"]
    assert account.limits == (0, 4)


def test_nodes_that_run_are_not_ended_unless_somebody_says_so(account: Account) -> None:
    account.start_nodes(2)
    assert "2 nodes run" in step(account, "begin", {"Trigger": "command"})["Text"]
    assert step(account, "begin", {"Trigger": "command", "StopNodes": True})["Outcome"] == DONE
    assert step(account, "begin", {"Trigger": "time-to-live"})["Outcome"] == DONE


def test_a_failing_export_leaves_everything_and_says_how_to_take_it_back(account: Account) -> None:
    account.task_fails = True
    refused = execute(account, "command-1")
    told = step(account, "tell", refused)
    assert "2 of 2 files are not in the lake" in told["Text"]
    assert "training-storage park --job alpha --region us-east-1 --undo" in told["Text"]
    assert account.published == [(f"Training job {'alpha'} could not be parked", account.published[0][1])]
    assert account.policies()["/logs"] == ["NEW", "CHANGED"]
    assert not account.stack_deleted
    account.tags_of()[LEFT_STANDING] = "x"
    assert step(account, "restore")["Outcome"] == DONE
    assert LEFT_STANDING not in account.tags_of()
    assert step(account, "undo")["Outcome"] == DONE
    assert account.limits == (0, 4)


def test_a_refusal_before_anything_was_touched_does_not_speak_of_taking_back(account: Account) -> None:
    account.stack["EnableTerminationProtection"] = True
    assert "--undo" not in step(account, "tell", execute(account, "command-1"))["Text"]


def test_a_topic_that_cannot_be_told_hides_no_reason_but_stops_a_warning(account: Account) -> None:
    account.errors["publish"] = "KMSAccessDenied"
    state = {"Answer": {"Text": "something stands in the way", "Memory": {}}}
    assert step(account, "tell", state)["Text"] == "something stands in the way"
    warned = step(account, "warn", {"Trigger": "idle", "Words": "nobody"})
    assert warned["Outcome"] == REFUSED
    assert "could not be told" in warned["Text"]


def test_a_step_that_broke_down_is_named(account: Account) -> None:
    state = {"Error": {"Error": "States.Timeout", "Cause": "x"}, "Answer": {"Memory": {"Closed": True}}}
    assert "a step broke down: States.Timeout" in step(account, "tell", state)["Text"]


def test_aws_that_cannot_answer_now_is_waited_for_and_a_denial_is_not(account: Account) -> None:
    account.errors["update_auto_scaling_group"] = "Throttling"
    assert step(account, "drain")["Outcome"] == WAIT
    account.errors["update_auto_scaling_group"] = "AccessDenied"
    denied = step(account, "drain")
    assert denied["Outcome"] == REFUSED
    assert "autoscaling:UpdateAutoScalingGroup is denied" in denied["Text"]


def test_without_a_service_role_the_stack_stays_and_somebody_is_told(account: Account) -> None:
    del account.stack["RoleARN"]
    ended = execute(account, "command-1")
    assert ended["Answer"]["Memory"]["StackStays"] is True
    assert not account.stack_deleted
    assert account.published[0][0] == "Training job alpha is parked but for its stack"


# ---- nodes ----


def test_nodes_that_do_not_go_by_themselves_are_ended(account: Account) -> None:
    account.start_nodes(2)
    account.ends_by_itself = False
    assert execute(account, "command-1")["Answer"]["Outcome"] == DONE
    assert "terminate_instances" in account.calls


@pytest.mark.parametrize("state", ["pending", "running", "shutting-down", "stopping"])
def test_a_node_is_waited_for_until_it_is_terminated(account: Account, state: str) -> None:
    account.nodes = {"i-0": state}
    assert step(account, "drain")["Text"] == "1 node to end"
    account.nodes = {"i-0": "terminated"}
    assert step(account, "drain")["Outcome"] == DONE


def test_nodes_that_never_end_are_named(account: Account) -> None:
    account.start_nodes(2)
    account.ends_by_itself, account.never_ends = False, True
    refused = execute(account, "command-1")
    assert "2 nodes do not end (i-0, i-1)" in refused["Answer"]["Text"]
    assert FS in account.systems


class Pcs:
    """Node groups of AWS PCS that take a while to change."""

    def __init__(self) -> None:
        self.groups = {"train": [0, 8], "login": [1, 1]}
        self.status = "ACTIVE"
        self.conflict = False
        self.updated: list[str] = []
        self.nodes = {"train": ["i-1"], "login": ["i-9"]}

    def get_compute_node_group(self, *, computeNodeGroupIdentifier: str, **_: Any) -> Any:  # noqa: N803
        low, high = self.groups[computeNodeGroupIdentifier]
        scaling = {"minInstanceCount": low, "maxInstanceCount": high}
        return {"computeNodeGroup": {"status": self.status, "scalingConfiguration": scaling}}

    def update_compute_node_group(self, *, computeNodeGroupIdentifier: str, **request: Any) -> Any:  # noqa: N803
        if self.conflict:
            raise ClientError({"Error": {"Code": "ConflictException", "Message": "busy"}}, "UpdateComputeNodeGroup")
        scaling = request["scalingConfiguration"]
        self.groups[computeNodeGroupIdentifier] = [scaling["minInstanceCount"], scaling["maxInstanceCount"]]
        self.updated.append(computeNodeGroupIdentifier)

    def describe_instances(self, Filters: Any) -> Any:  # noqa: N803
        found = [node for group in Filters[0]["Values"] for node in self.nodes[group]]
        return {"Reservations": [{"Instances": [{"InstanceId": node} for node in found]}]}


def pcs_environment() -> dict[str, str]:
    groups = [
        {"id": "train", "minimum": 0, "maximum": 8, "login": False},
        {"id": "login", "minimum": 1, "maximum": 1, "login": True},
    ]
    cluster = {"engine": "pcs", "cluster_id": "pcs_1", "tag": "aws:pcs:compute-node-group-id", "groups": groups}
    return environment(CLUSTER=json.dumps(cluster))


def test_the_login_node_goes_after_the_nodes_that_train_and_comes_back_when_it_is_taken_back() -> None:
    pcs, now = Pcs(), dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
    made = Steps(pcs_environment(), client=lambda _: pcs, clock=lambda: now)
    state: dict[str, Any] = {}

    def drain() -> dict[str, Any]:
        state["Answer"] = made.run({"Step": "drain", "State": state})
        return state["Answer"]  # type: ignore[no-any-return]

    assert drain()["Outcome"] == WAIT
    assert "1 node to end" in drain()["Text"]
    assert pcs.updated == ["train"]
    pcs.nodes["train"] = []
    assert drain()["Outcome"] == WAIT
    assert "1 login node to end" in drain()["Text"]
    pcs.nodes["login"] = []
    assert drain()["Outcome"] == DONE
    assert pcs.groups == {"train": [0, 0], "login": [0, 0]}
    assert made.run({"Step": "undo"})["Outcome"] == WAIT
    assert made.run({"Step": "undo"})["Outcome"] == DONE
    assert pcs.groups == {"train": [0, 8], "login": [1, 1]}


@pytest.mark.parametrize("change", [{"status": "UPDATING"}, {"conflict": True}])
def test_a_node_group_that_is_changing_is_waited_for(change: dict[str, Any]) -> None:
    pcs = Pcs()
    vars(pcs).update(change)
    made = Steps(pcs_environment(), client=lambda _: pcs, clock=lambda: dt.datetime.now(dt.UTC))
    assert made.run({"Step": "drain"})["Outcome"] == WAIT
    assert pcs.updated == []


def test_every_group_is_closed_even_if_the_first_is_not_ready() -> None:
    pcs = Pcs()
    groups = tuple(Group(id=name, minimum=0, maximum=8, login=False) for name in pcs.groups)
    cluster = Cluster(Description(engine="pcs", cluster_id="1", tag="t", groups=groups), client=lambda _: pcs)
    assert not cluster.close(login=False)
    assert pcs.updated == ["train", "login"]


# ---- clients outside the cluster ----


def test_somebody_outside_who_goes_on_writing_is_waited_for_and_then_named(account: Account) -> None:
    # FSx publishes a minute when it is over.
    account.metrics_delay = dt.timedelta(minutes=1)
    state: dict[str, Any] = {"Answer": step(account, "drain")}
    for _ in range(20):
        account.write("/logs/other.log")
        account.pass_time()
        state["Answer"] = step(account, "unmount", state)
        if state["Answer"]["Outcome"] == REFUSED:
            break
        assert state["Answer"]["Outcome"] == WAIT
    assert "something outside the cluster still uses" in state["Answer"]["Text"]


def test_metrics_that_never_come_hold_nothing_up_for_long(account: Account) -> None:
    state: dict[str, Any] = {"Answer": step(account, "drain")}
    account.metrics_delay = dt.timedelta(days=1)
    assert step(account, "unmount", state)["Outcome"] == WAIT
    account.pass_time(dt.timedelta(minutes=7))
    assert step(account, "unmount", state)["Outcome"] == DONE


# ---- times ----


def test_a_time_to_live_counts_from_the_stack_s_creation_and_warns_an_hour_before(account: Account) -> None:
    made = {"TIME_TO_LIVE_HOURS": "8"}
    created = account.stack["CreationTime"]
    account.now = created + 7 * HOUR - dt.timedelta(seconds=1)
    assert steps(account, **made).look() == {"Started": None}
    account.now = created + 7 * HOUR
    assert steps(account, **made).look()["Started"] == f"time-to-live-{account.now:%Y%m%dT%H%M}"
    [execution] = account.executions
    assert "its time to live of 8 hours ends at" in json.loads(execution["input"])["Words"]
    # It runs: no second one.
    assert steps(account, **made).look() == {"Started": None}
    assert step(account, "still_due", {"Trigger": "time-to-live"}, **made)["Outcome"] == DONE
    # Somebody has deployed it with a longer time.
    assert step(account, "still_due", {"Trigger": "time-to-live"}, TIME_TO_LIVE_HOURS="80")["Outcome"] == NOT_DUE
    assert account.published[-1][0] == "Training job alpha is not parked"


def test_a_warning_says_when_why_and_how_to_prevent_it(account: Account) -> None:
    state = {"Trigger": "idle", "Words": "no client has used its file system for 6 hours"}
    assert step(account, "warn", state)["Outcome"] == DONE
    [(subject, text)] = account.published
    assert subject == "Training job alpha is parked in 60 minutes"
    assert "no client has used its file system for 6 hours" in text
    assert "longer idle_park_hours" in text
    assert "training-storage park --job alpha --region us-east-1 --undo" in text


def test_no_use_for_so_long_is_due_and_a_sign_of_life_is_not(account: Account) -> None:
    for _ in range(8):
        account.pass_time(HOUR)
    made = {"IDLE_PARK_HOURS": "6"}
    assert steps(account, **made).look()["Started"].startswith("idle-")
    assert step(account, "still_due", {"Trigger": "idle"}, **made)["Outcome"] == DONE
    account.writes[FS].append((account.now, float(QUIET_BYTES_PER_HOUR)))
    assert step(account, "still_due", {"Trigger": "idle"}, **made)["Outcome"] == NOT_DUE


def test_an_hour_that_nobody_measured_is_not_quiet() -> None:
    now = dt.datetime(2026, 11, 30, 12, 20, tzinfo=dt.UTC)
    hours = {dt.datetime(2026, 11, 30, hour, tzinfo=dt.UTC): Use() for hour in range(6, 13)}
    assert is_idle(hours, now=now, idle_hours=6)
    assert not is_idle(hours, now=now, idle_hours=7)
    hours.pop(dt.datetime(2026, 11, 30, 9, tzinfo=dt.UTC))
    assert not is_idle(hours, now=now, idle_hours=6)


def test_an_hour_in_which_one_metric_is_missing_is_not_quiet(account: Account) -> None:
    account.pass_time(8 * HOUR)
    made = {"IDLE_PARK_HOURS": "6"}
    whole = account._metric
    missing = (account.now - 3 * HOUR).replace(minute=0, second=0, microsecond=0)

    def without(name: str, *rest: Any) -> dict[dt.datetime, float]:
        return {at: size for at, size in whole(name, *rest).items() if (name, at) != ("DataReadBytes", missing)}

    assert step(account, "still_due", {"Trigger": "idle"}, **made)["Outcome"] == DONE
    account._metric = without  # type: ignore[assignment,method-assign]
    assert step(account, "still_due", {"Trigger": "idle"}, **made)["Outcome"] == NOT_DUE


@pytest.mark.parametrize(
    ("nodes", "interval", "outcome"),
    [
        (0, "", DONE),
        (0, "600", DONE),
        # Three checkpoints had time to come in the six hours.
        (2, "30", DONE),
        (2, "120", DONE),
        # A run that reads from a cache and writes every three hours, or nowhere in the file system.
        (2, "180", NOT_DUE),
        (2, "", NOT_DUE),
    ],
)
def test_nodes_that_run_are_idle_only_after_several_checkpoints_have_not_come(
    account: Account, nodes: int, interval: str, outcome: str
) -> None:
    account.writes[FS].append((account.now, float(QUIET_BYTES_PER_HOUR)))
    account.pass_time(8 * HOUR)
    account.nodes = {f"i-{number}": "running" for number in range(nodes)}
    made = {"IDLE_PARK_HOURS": "6", "CHECKPOINT_INTERVAL_MINUTES": interval}
    found = step(account, "still_due", {"Trigger": "idle"}, **made)
    assert found["Outcome"] == outcome
    if outcome == DONE and nodes:
        assert found["Text"].endswith("for 6 hours, though 2 nodes run")


@pytest.mark.parametrize("use", [Use(bytes=QUIET_BYTES_PER_HOUR), Use(operations=36_000)])
@pytest.mark.parametrize("hour", range(6, 13))
def test_use_in_any_hour_or_since_is_a_sign_of_life(use: Use, hour: int) -> None:
    now = dt.datetime(2026, 11, 30, 12, 20, tzinfo=dt.UTC)
    hours = {dt.datetime(2026, 11, 30, other, tzinfo=dt.UTC): Use() for other in range(6, 13)}
    hours[dt.datetime(2026, 11, 30, hour, tzinfo=dt.UTC)] = use
    assert not is_idle(hours, now=now, idle_hours=6)


@pytest.mark.parametrize(
    ("execution", "held"),
    [
        ({"name": "idle-1", "status": "RUNNING", "hours": 1}, True),
        ({"name": "idle-1", "status": "FAILED", "hours": 23}, True),
        ({"name": "idle-1", "status": "FAILED", "hours": 25}, False),
        ({"name": "command-1", "status": "ABORTED", "hours": 1}, True),
        ({"name": "undo-1", "status": "SUCCEEDED", "hours": 1}, True),
        ({"name": "idle-1", "status": "SUCCEEDED", "hours": 1}, False),
    ],
)
def test_nothing_starts_by_itself_beside_another_or_soon_after_one_that_failed(
    execution: dict[str, Any], held: bool
) -> None:
    now = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
    at = now - execution.pop("hours") * HOUR
    assert is_held([{**execution, "startDate": at, "stopDate": at}], now=now) == held


# ---- starting ----


class StepFunctions:
    """Remembers names as Step Functions does."""

    def __init__(self, **executions: str) -> None:
        self.executions = executions

    def start_execution(self, *, stateMachineArn: str, name: str, **_: Any) -> Any:  # noqa: N803
        if name in self.executions:
            raise ClientError({"Error": {"Code": "ExecutionAlreadyExists", "Message": name}}, "StartExecution")
        self.executions[name] = "RUNNING"
        return {"executionArn": f"{stateMachineArn.replace(':stateMachine:', ':execution:')}:{name}"}

    def describe_execution(self, *, executionArn: str) -> Any:  # noqa: N803
        return {"status": self.executions[executionArn.rsplit(":", 1)[1]]}


MACHINE = "arn:aws:states:us-east-1:111122223333:stateMachine:training-storage-park-alpha"


def test_two_who_start_at_once_start_one_execution() -> None:
    now, service = dt.datetime(2026, 11, 30, 12, 5, tzinfo=dt.UTC), StepFunctions()
    first = park_start.start(service, MACHINE, trigger="command", now=now, StopNodes=True)
    second = park_start.start(service, MACHINE, trigger="command", now=now, StopNodes=False)
    assert first == second == f"{MACHINE.replace('stateMachine', 'execution')}:command-20261130T1205"
    assert len(service.executions) == 1


def test_one_that_ended_in_the_same_minute_is_followed_by_another() -> None:
    now = dt.datetime(2026, 11, 30, 12, 5, tzinfo=dt.UTC)
    service = StepFunctions(**{"command-20261130T1205": "ABORTED"})
    arn = park_start.start(service, MACHINE, trigger="command", now=now, StopNodes=True)
    assert arn.endswith(":command-20261130T1205-2")


# ---- without a stack ----


def finisher(account: Account) -> Finisher:
    return Finisher(
        client=lambda _: account,
        clock=lambda: account.now,
        pause=account.pass_time,
        say=lambda *_: None,
        metric_period_seconds=60,
    )


def test_what_stands_alone_is_exported_and_goes(account: Account) -> None:
    account.tags_of()[EXPORTED_PATHS] = "/checkpoints /logs"
    finisher(account).finish(FS)
    assert account.systems == {}
    assert account.missing() == []
    assert account.broken == []
    assert [task["Paths"] for task in account.all_tasks] == [["checkpoints", "logs"]]
    finisher(account).finish(FS)


def test_a_link_that_must_be_there_and_is_not_is_named(account: Account) -> None:
    account.tags_of()[EXPORTED_PATHS] = "/checkpoints /logs"
    del account.associations["dra-0a-checkpoints"]
    with pytest.raises(ParkError, match="the link of /checkpoints is gone"):
        finisher(account).finish(FS)
    assert FS in account.systems


@pytest.mark.parametrize("tagged", [True, False])
def test_one_that_lost_all_its_links_is_not_taken_for_empty(account: Account, tagged: bool) -> None:
    account.associations.clear()
    if tagged:
        account.tags_of()[EXPORTED_PATHS] = "/checkpoints /logs"
    with pytest.raises(ParkError, match="link"):
        finisher(account).finish(FS)
    assert account.systems[FS]["Lifecycle"] == "AVAILABLE"


def test_one_without_links_of_which_cloudwatch_knows_nothing_is_not_taken_for_empty(account: Account) -> None:
    account.associations.clear()
    account.files[FS] = {}
    account.writes[FS].clear()
    with pytest.raises(ParkError, match="has no link to the lake"):
        finisher(account).finish(FS)
    assert account.systems[FS]["Lifecycle"] == "AVAILABLE"


def test_without_its_tag_every_link_is_exported(account: Account) -> None:
    account.associations["dra-0a-datasets"]["S3"]["AutoImportPolicy"] = {"Events": ["NEW"]}
    finisher(account).finish(FS)
    assert [task["Paths"] for task in account.all_tasks] == [["checkpoints", "datasets", "logs"]]


@pytest.mark.parametrize(
    "paths",
    [[], ["/checkpoints", "/logs"], ["/my checkpoints", "/logs of mine"], ["/a/b c/d", "/e"], ["/"], ["/checkpoints/"]],
)
def test_the_tag_holds_paths_with_spaces(paths: list[str]) -> None:
    value = paths_value(paths)
    assert value is not None
    assert paths_of(value) == ["/" + path.strip("/") for path in paths]


@pytest.mark.parametrize("paths", [["/a" * 200], ["/a /b"], ["/a(b)"], ["/none"], ["/a "]])
def test_paths_that_a_tag_cannot_hold_are_not_written_wrongly(paths: list[str]) -> None:
    assert paths_value(paths) is None


# ---- the command ----


class Machine:
    """Executions of one machine, and a stack that goes when it is deleted."""

    def __init__(self, *running: str) -> None:
        self.now = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
        self.running = [{"name": name, "executionArn": name, "status": "RUNNING"} for name in running]
        self.aborted: list[dict[str, Any]] = []
        self.last = "Parked"
        self.output: dict[str, Any] = {"Answer": {"Outcome": "DONE"}}
        self.started: list[dict[str, Any]] = []
        self.looks = 0
        self.deleted = False

    def list_executions(self, *, statusFilter: str, **_: Any) -> Any:  # noqa: N803
        return {"executions": list({"RUNNING": self.running, "ABORTED": self.aborted}[statusFilter])}

    def get_execution_history(self, **_: Any) -> Any:
        state = "Drain" if self.looks < 2 else self.last
        return {"events": [{"stateEnteredEventDetails": {"name": state}}]}

    def describe_execution(self, **_: Any) -> Any:
        self.looks += 1
        return {"status": "RUNNING"} if self.looks < 2 else {"status": "SUCCEEDED", "output": json.dumps(self.output)}

    def stop_execution(self, *, executionArn: str, **_: Any) -> Any:  # noqa: N803
        [one] = [one for one in self.running if one["executionArn"] == executionArn]
        self.running.remove(one)
        self.aborted.append({**one, "stopDate": self.now})

    def start_execution(self, *, name: str, input: str, **_: Any) -> Any:  # noqa: A002
        self.started.append(json.loads(input))
        self.running.append({"name": name, "executionArn": name, "status": "RUNNING"})
        return {"executionArn": name}

    def describe_stacks(self, **_: Any) -> Any:
        return {"Stacks": [{"StackStatus": "DELETE_COMPLETE" if self.deleted else "CREATE_COMPLETE"}]}

    def delete_stack(self, **_: Any) -> Any:
        self.deleted = True


def parking(machine: Machine) -> Parking:
    resource = SimpleNamespace(physical_id=MACHINE)
    stack = SimpleNamespace(state="CREATE_COMPLETE", id="1", name="Job", of_kind=lambda _: [resource])
    job: Any = SimpleNamespace(name="alpha", stack=stack, file_systems=())
    around = Surroundings(
        client=lambda _: machine,
        clock=lambda: machine.now,
        pause=lambda: None,
        say=lambda *_: None,
        metric_period_seconds=60,
    )
    return Parking(job, around)


def test_a_park_is_joined_and_its_stack_deleted_when_it_ended_as_parked() -> None:
    machine = Machine("command-1")
    park = parking(machine)
    park.follow(park.start(stop_nodes=True))
    assert machine.started == []
    assert machine.deleted


def test_an_undo_is_never_joined_and_nothing_starts_beside_it() -> None:
    machine = Machine("undo-1")
    with pytest.raises(ParkError, match="being taken back"):
        parking(machine).start(stop_nodes=True)
    assert machine.started == []


@pytest.mark.parametrize("last", ["Undone", "Cancelled", "Drain"])
def test_an_execution_that_ended_otherwise_deletes_no_stack(last: str) -> None:
    machine = Machine("command-1")
    machine.last = last
    with pytest.raises(ParkError, match=f"ended in the state {last}, not in Parked"):
        parking(machine).follow("command-1")
    assert not machine.deleted


def test_taking_back_stops_every_park_and_waits_for_the_step_that_one_was_in() -> None:
    machine = Machine("command-1", "idle-1")
    machine.last = "Undone"
    parking(machine).undo()
    assert [one["name"] for one in machine.aborted] == ["command-1", "idle-1"]
    assert machine.started == [{"Trigger": "undo", "Stopped": True}]


@pytest.mark.parametrize(("minutes", "waits"), [(1, True), (5, True), (30, False)])
def test_taking_back_waits_also_for_one_that_somebody_stopped_just_now(minutes: int, waits: bool) -> None:
    machine = Machine()
    machine.last = "Undone"
    stopped = machine.now - dt.timedelta(minutes=minutes)
    machine.aborted = [{"name": "command-1", "executionArn": "command-1", "stopDate": stopped}]
    parking(machine).undo()
    assert machine.started == [{"Trigger": "undo", "Stopped": waits}]


def test_an_undo_that_runs_is_followed_and_parks_beside_it_are_stopped() -> None:
    machine = Machine("undo-1", "command-1")
    machine.last = "Undone"
    parking(machine).undo()
    assert machine.started == []
    assert [one["name"] for one in machine.aborted] == ["command-1"]
