"""The gate's logic against an FSx in memory: nothing goes before it is in the lake, and any call may be the last."""

from __future__ import annotations

import datetime as dt
import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from training_storage.operations.final_export.calls import Calls
from training_storage.operations.final_export.gate import Attempt, Gate, Link, Waiting
from training_storage.operations.final_export.lifecycle import Lifecycle
from training_storage.operations.final_export.metrics import Metrics
from training_storage.operations.final_export.refusal import RefusalError
from training_storage.operations.final_export.report import Reports
from training_storage.operations.final_export.tags import (
    EXPORT_EVENTS,
    EXPORT_STOPPED,
    HANDED_OVER,
    LEFT_STANDING,
    STACK,
)
from training_storage.planning.catalog.metrics import metric as catalog_metric

if TYPE_CHECKING:
    from collections.abc import Iterator

FS, OTHER = "fs-0a0a0a0a", "fs-0b0b0b0b"
GATE = "arn:aws:cloudformation:us-east-1:111122223333:stack/Job/1/aa"
STACK_ID = "arn:aws:cloudformation:us-east-1:111122223333:stack/Job/1"
POLICY = ["NEW", "CHANGED"]
LINKS = (
    Link(path="/datasets", exported=False),
    Link(path="/checkpoints/", exported=True),
    Link(path="/logs", exported=True),
)
_EXPORT = "EXPORT_TO_REPOSITORY"
POLL = dt.timedelta(seconds=30)
WAIT = dt.timedelta(minutes=50)


class KilledError(BaseException):
    """The function ends here, whatever it was about to do."""


class World:
    """FSx, S3, CloudWatch and CloudFormation of one account, and the file systems in it."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
        self.systems: dict[str, dict[str, Any]] = {}
        self.associations: dict[str, dict[str, Any]] = {}
        self.all_tasks: list[dict[str, Any]] = []
        self.objects: dict[str, str] = {}
        #: Files by file system: path to whether the present content is in the lake.
        self.files: dict[str, dict[str, bool]] = {}
        self.writes: dict[str, list[tuple[dt.datetime, float]]] = {}
        self.metrics_delay = dt.timedelta(0)
        self.queue_age = 0.0
        self.knows_queue = True
        #: When a link last exported by itself, by file system.
        self.exported_by_itself: dict[str, dt.datetime] = {}
        #: Starts of periods that CloudWatch never gets.
        self.holes: set[dt.datetime] = set()
        self.status_code = "Complete"
        self.stack_status_text = "DELETE_IN_PROGRESS"
        self.task_polls = 1
        self.task_fails = False
        self.failing_files: set[str] = set()
        self.errors: dict[str, str] = {}
        self.calls: list[str] = []
        self.kill_at: tuple[int, bool] | None = None
        #: Promises that were broken. An assertion would not do: the gate takes every error for AWS's.
        self.broken: list[str] = []

    def promise(self, kept: object, what: str) -> None:
        if not kept:
            self.broken.append(what)

    # ---- setting up ----

    def add(self, identifier: str = FS, *, links: bool = True, handed_over: bool = True) -> None:
        arn = f"arn:aws:fsx:us-east-1:111122223333:file-system/{identifier}"
        tags = {"training-storage:gate": GATE} | ({HANDED_OVER: "2026-11-01"} if handed_over else {})
        self.systems[identifier] = {
            "FileSystemId": identifier,
            "Lifecycle": "AVAILABLE",
            "CreationTime": self.now - dt.timedelta(days=10),
            "ResourceARN": arn,
            "_tags": tags,
        }
        self.files[identifier] = {}
        self.exported_by_itself[identifier] = self.now
        # Values flow from the beginning, also where nobody writes.
        self.writes[identifier] = [(self.now - dt.timedelta(days=10), 0.0)]
        for path, imports, exports in (
            ("/datasets", POLICY, []),
            ("/checkpoints/", [], []),
            ("/logs", [], POLICY),
        ):
            if links:
                number = f"dra-{identifier[-2:]}-{path.strip('/')}"
                s3 = {"AutoImportPolicy": {"Events": imports}, "AutoExportPolicy": {"Events": list(exports)}}
                self.associations[number] = {
                    "AssociationId": number,
                    "FileSystemId": identifier,
                    "FileSystemPath": path,
                    "Lifecycle": "AVAILABLE",
                    "ResourceARN": f"{arn}/{number}",
                    "S3": s3,
                    "_tags": {},
                }

    def write(self, path: str, *, identifier: str = FS) -> None:
        self.files[identifier][path] = False
        self.writes[identifier].append((self.now, 100.0))

    def policies(self, identifier: str = FS) -> dict[str, list[str]]:
        return {
            link["FileSystemPath"]: link["S3"]["AutoExportPolicy"]["Events"]
            for link in self.associations.values()
            if link["FileSystemId"] == identifier
        }

    def tags_of(self, identifier: str = FS) -> dict[str, str]:
        tags: dict[str, str] = self.systems[identifier]["_tags"]
        return tags

    def missing(self, identifier: str = FS) -> list[str]:
        """Return what would be lost of what must be in the lake."""
        return [
            path
            for path, in_lake in self.files[identifier].items()
            if not in_lake and path.startswith(("/checkpoints/", "/logs/"))
        ]

    def pass_time(self, length: dt.timedelta = POLL) -> None:
        self.now += length
        for records in (self.systems, self.associations):
            for key, record in list(records.items()):
                if record["Lifecycle"] == "DELETING":
                    del records[key]
                elif record["Lifecycle"] in ("UPDATING", "CREATING"):
                    record["Lifecycle"] = "AVAILABLE"
        for task in self.all_tasks:
            if task["Lifecycle"] in ("PENDING", "EXECUTING"):
                task["Lifecycle"] = "EXECUTING"
                task["_polls"] -= 1
                if task["_polls"] <= 0:
                    self._end(task)
        for identifier in self.systems:
            if any(self.policies(identifier).values()):
                self.exported_by_itself[identifier] = self.now

    def _end(self, task: dict[str, Any]) -> None:
        covered = [
            path
            for path, in_lake in self.files.get(task["FileSystemId"], {}).items()
            if not in_lake
            and any(path.startswith(f"/{wanted}/".replace("//", "/")) for wanted in task["Paths"] or [""])
        ]
        failed = covered if self.task_fails else [path for path in covered if path in self.failing_files]
        for path in covered:
            if path not in failed:
                self.files[task["FileSystemId"]][path] = True
        task["Lifecycle"] = "FAILED" if failed or self.task_fails else "SUCCEEDED"
        task["EndTime"] = self.now
        task["Status"] = {
            "TotalCount": len(covered),
            "SucceededCount": len(covered) - len(failed),
            "FailedCount": len(failed),
        }
        if task["Report"]["Enabled"]:
            key = f"{task['Report']['Path'].removeprefix('s3://lake/')}/{task['TaskId']}/failures.csv"
            self.objects[key] = "".join(f"{path},FAILED,S3AccessDenied\n" for path in failed)

    # ---- what boto3's clients answer ----

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.errors:
            code = self.errors[operation]
            if code == "connection":
                raise EndpointConnectionError(endpoint_url="https://fsx")
            raise ClientError({"Error": {"Code": code, "Message": f"no {operation}"}}, operation)

    def _maybe_killed(self, *, after: bool) -> None:
        if self.kill_at is not None and self.kill_at == (len(self.calls), after):
            self.kill_at = None
            raise KilledError

    def __getattr__(self, operation: str) -> Any:
        answer = object.__getattribute__(self, f"_{operation}")

        def call(**request: Any) -> Any:
            self._maybe_killed(after=False)
            self._called(operation)
            result = answer(**request)
            self._maybe_killed(after=True)
            return result

        return call

    @staticmethod
    def _shown(record: dict[str, Any]) -> dict[str, Any]:
        tags = [{"Key": key, "Value": value} for key, value in record["_tags"].items()]
        return {key: value for key, value in record.items() if not key.startswith("_")} | {"Tags": tags}

    def _describe_file_systems(self, FileSystemIds: list[str] | None = None) -> Any:  # noqa: N803 - as the API
        for wanted in FileSystemIds or []:
            if wanted not in self.systems:
                raise ClientError({"Error": {"Code": "FileSystemNotFound", "Message": wanted}}, "DescribeFileSystems")
        chosen = [s for key, s in self.systems.items() if FileSystemIds is None or key in FileSystemIds]
        return {"FileSystems": [self._shown(system) for system in chosen]}

    def _describe_data_repository_associations(self, Filters: Any, NextToken: str = "") -> Any:  # noqa: N803
        # One on each page.
        [identifier] = Filters[0]["Values"]
        found = [link for link in self.associations.values() if link["FileSystemId"] == identifier]
        number = int(NextToken or 0)
        more = {"NextToken": str(number + 1)} if number + 1 < len(found) else {}
        return {"Associations": [self._shown(link) for link in found[number : number + 1]], **more}

    def _describe_data_repository_tasks(self, Filters: Any) -> Any:  # noqa: N803
        [identifier] = Filters[0]["Values"]
        found = [self._shown(task) for task in self.all_tasks if task["FileSystemId"] == identifier]
        return {"DataRepositoryTasks": found[::-1]}

    def _create_data_repository_task(self, **request: Any) -> Any:
        identifier, token = request["FileSystemId"], request["ClientRequestToken"]
        if any(task["_token"] == token for task in self.all_tasks):
            return {}
        if any(task["Lifecycle"] in ("PENDING", "EXECUTING") for task in self.all_tasks):
            raise ClientError({"Error": {"Code": "DataRepositoryTaskExecuting", "Message": ""}}, "Create")
        self.promise(not any(self.policies(identifier).values()), "FSx runs no export task beside automatic export")
        self.start_task(identifier, request.get("Paths", []), report=request["Report"], token=token)
        self.all_tasks[-1]["_tags"] = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        return {}

    def start_task(
        self,
        identifier: str,
        paths: list[str],
        *,
        report: Any = None,
        token: str = "",
        kind: str = "EXPORT_TO_REPOSITORY",
    ) -> None:
        self.all_tasks.append(
            {
                "TaskId": f"task-{len(self.all_tasks)}",
                "FileSystemId": identifier,
                "Type": kind,
                "Lifecycle": "PENDING",
                "CreationTime": self.now,
                "Paths": paths,
                "Report": report or {"Enabled": False},
                "_polls": self.task_polls,
                "_token": token,
                "_tags": {},
            }
        )

    def _update_data_repository_association(self, AssociationId: str, S3: Any) -> Any:  # noqa: N803
        link = self.associations[AssociationId]
        if link["Lifecycle"] != "AVAILABLE":
            raise ClientError({"Error": {"Code": "BadRequest", "Message": link["Lifecycle"]}}, "Update")
        imports = S3.get("AutoImportPolicy", {"Events": []})
        self.promise(imports == link["S3"]["AutoImportPolicy"], "what is imported stays as it is")
        link["S3"] = {"AutoImportPolicy": imports, "AutoExportPolicy": S3["AutoExportPolicy"]}
        link["Lifecycle"] = "UPDATING"
        return {}

    def _tagged(self, arn: str) -> dict[str, str]:
        for record in (*self.systems.values(), *self.associations.values()):
            if record["ResourceARN"] == arn:
                tags: dict[str, str] = record["_tags"]
                return tags
        raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": arn}}, "Tag")

    def _tag_resource(self, ResourceARN: str, Tags: Any) -> Any:  # noqa: N803
        self._tagged(ResourceARN).update({tag["Key"]: tag["Value"] for tag in Tags})
        return {}

    def _untag_resource(self, ResourceARN: str, TagKeys: list[str]) -> Any:  # noqa: N803
        for key in TagKeys:
            self._tagged(ResourceARN).pop(key, None)
        return {}

    def _delete_file_system(self, FileSystemId: str) -> Any:  # noqa: N803
        running = [t for t in self.all_tasks if t["Lifecycle"] in ("PENDING", "EXECUTING")]
        self.promise(not running, "FSx deletes none that a task is working on")
        links = [link for link in self.associations.values() if link["FileSystemId"] == FileSystemId]
        self.promise(not (links and self.missing(FileSystemId)), "nothing goes that is not in the lake")
        self.promise(self.queue_age == 0 or not self.files[FileSystemId], "nothing goes while changes are queued")
        self.systems[FileSystemId]["Lifecycle"] = "DELETING"
        for link in links:
            link["Lifecycle"] = "DELETING"
        return {}

    def _get_object(self, Bucket: str, Key: str, Range: str) -> Any:  # noqa: N803
        assert Bucket == "lake"
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": Key}}, "GetObject")
        if not self.objects[Key]:
            raise ClientError({"Error": {"Code": "InvalidRange", "Message": Key}}, "GetObject")
        last = int(Range.removeprefix("bytes=0-"))
        return {"Body": io.BytesIO(self.objects[Key].encode()[: last + 1])}

    def _put_object(self, Bucket: str, Key: str, Body: bytes, **_rest: Any) -> Any:  # noqa: N803
        assert Bucket == "lake"
        self.objects[Key] = Body.decode()
        return {}

    def _describe_stacks(self, StackName: str) -> Any:  # noqa: N803
        assert StackName == STACK_ID
        return {"Stacks": [{"StackStatus": self.stack_status_text}]}

    def _get_metric_data(
        self,
        MetricDataQueries: Any,  # noqa: N803
        StartTime: Any,  # noqa: N803
        EndTime: Any,  # noqa: N803
        NextToken: str = "",  # noqa: N803
    ) -> Any:
        """Every other value is on the second page."""
        results: list[Any] = []
        for query in MetricDataQueries:
            metric, period = query["MetricStat"]["Metric"], query["MetricStat"]["Period"]
            named = {entry["Name"]: entry["Value"] for entry in metric["Dimensions"]}
            assert metric["Namespace"] == "AWS/FSx"
            values = self._metric(metric["MetricName"], named, dt.timedelta(seconds=period), StartTime)
            shown = [(at, value) for at, value in values.items() if StartTime <= at < EndTime][int(NextToken or 0) :: 2]
            state = self.status_code if NextToken else "PartialData"
            times, numbers = [at for at, _ in shown], [value for _, value in shown]
            results.append({"Id": query["Id"], "Timestamps": times, "Values": numbers, "StatusCode": state})
        return {"MetricDataResults": results, **({} if NextToken else {"NextToken": "1"})}

    def _metric(
        self, name: str, named: dict[str, str], period: dt.timedelta, start: dt.datetime
    ) -> dict[dt.datetime, float]:
        identifier = named["FileSystemId"]
        if name == "AgeOfOldestQueuedMessage":
            assert named["Publisher"] == "AutoExport"
            # FSx publishes it for what exports by itself, and for what is still queued.
            here = any(self.policies(identifier).values()) or self.queue_age > 0
            at = self.now if here else self.exported_by_itself.get(identifier)
            return {at: self.queue_age} if at and self.knows_queue else {}
        if not self.writes[identifier]:
            return {}

        def slot(at: dt.datetime) -> dt.datetime:
            seconds = period.total_seconds()
            return dt.datetime.fromtimestamp(at.timestamp() // seconds * seconds, dt.UTC)

        last = slot(self.now - self.metrics_delay)
        sums: dict[dt.datetime, float] = {}
        at = slot(max(self.writes[identifier][0][0], start))
        while at <= last:
            # FSx leaves no period out.
            sums[at] = 0.0
            at += period
        for moment, size in self.writes[identifier]:
            if name == "DataWriteBytes" and slot(moment) in sums:
                sums[slot(moment)] += size
        if name == "MetadataOperations" and sums:
            sums[max(sums)] += len(self.files[identifier])
        return {at: value for at, value in sums.items() if at not in self.holes}


def made(world: World) -> tuple[Gate, Lifecycle]:
    calls = Calls(fsx=world, s3=world, cloudformation=world)
    metrics = Metrics(cloudwatch=world, clock=lambda: world.now, period_seconds=60)
    reports = Reports(calls=calls, uri="s3://lake/logs/default/final-export/")
    gate = Gate(
        calls=calls,
        metrics=metrics,
        reports=reports,
        clock=lambda: world.now,
        pause=lambda seconds: world.pass_time(dt.timedelta(seconds=seconds)),
    )
    lifecycle = Lifecycle(gate=gate, calls=calls, metrics=metrics, tag=GATE, wait=WAIT, clock=lambda: world.now)
    return gate, lifecycle


def attempt(world: World, number: int = 1, *, links: tuple[Link, ...] = LINKS, never_used: bool = False) -> Attempt:
    return Attempt(
        id=f"request-{number}",
        began=world.now,
        deadline=world.now + WAIT,
        gate=GATE,
        stack_name="Job",
        links=links,
        never_used=never_used,
    )


def run(world: World, tried: Attempt | None = None, *, polls: int = 400) -> list[Waiting]:
    """Poll until the file system is gone; return what was waited for."""
    gate, _ = made(world)
    tried = tried or attempt(world)
    waited: list[Waiting] = []
    for _ in range(polls):
        waiting = gate.advance(FS, tried)
        if waiting is None:
            return waited
        waited.append(waiting)
        world.pass_time()
    raise TimeoutError(waited[-1].what)


@pytest.fixture
def world() -> Iterator[World]:
    made_world = World()
    made_world.add()
    yield made_world
    assert made_world.broken == []


@pytest.fixture
def used(world: World) -> World:
    world.write("/checkpoints/step-1/rank-0.pt")
    world.write("/logs/train.log")
    world.write("/datasets/tokenized.bin")
    world.pass_time(dt.timedelta(hours=1))
    return world


def refused(world: World, tried: Attempt | None = None) -> str:
    with pytest.raises(RefusalError) as caught:
        run(world, tried)
    assert world.policies() == {"/datasets": [], "/checkpoints/": [], "/logs": POLICY}
    assert world.tags_of()[STACK] == "Job"
    assert world.systems[FS]["Lifecycle"] == "AVAILABLE"
    return str(caught.value)


# ---- what goes ----


def test_it_goes_after_one_export_of_the_writable_links(used: World) -> None:
    run(used)
    assert used.systems == {}
    assert [task["Paths"] for task in used.all_tasks] == [["checkpoints", "logs"]]
    assert used.files[FS] == {
        "/checkpoints/step-1/rank-0.pt": True,
        "/logs/train.log": True,
        "/datasets/tokenized.bin": False,
    }


def test_the_record_in_the_lake_says_what_was_exported_and_what_was_not(used: World) -> None:
    run(used)
    outcome = used.objects[f"logs/default/final-export/{FS}/outcome.json"]
    assert '"TotalCount": 2' in outcome
    assert '"/datasets",\n  "whatever is outside the linked directories"' in outcome


def test_a_link_of_everything_is_exported_without_paths(used: World) -> None:
    for key in [key for key in used.associations if not key.endswith("logs")]:
        del used.associations[key]
    used.associations["dra-0a-logs"]["FileSystemPath"] = "/"
    run(used, attempt(used, links=(Link(path="/", exported=True),)))
    assert [task["Paths"] for task in used.all_tasks] == [[]]
    assert all(used.files[FS].values())


def test_a_link_made_by_hand_is_exported_too_unless_it_only_brings_data_in(used: World) -> None:
    run(used, attempt(used, links=()))
    assert [task["Paths"] for task in used.all_tasks] == [["checkpoints", "logs"]]


def test_what_is_disposable_is_not_exported(world: World) -> None:
    world.write("/logs/train.log")
    world.pass_time(dt.timedelta(hours=1))
    links = (Link(path="/checkpoints", exported=False), *LINKS[::2])
    run(world, attempt(world, links=links))
    assert [task["Paths"] for task in world.all_tasks] == [["logs"]]


def test_without_any_writable_link_nothing_is_exported(used: World) -> None:
    used.files[FS] = {}
    links = tuple(Link(path=link.path, exported=False) for link in LINKS)
    run(used, attempt(used, links=links))
    assert used.all_tasks == []


def test_one_that_was_never_linked_goes_at_once(world: World) -> None:
    world.associations.clear()
    world.write("/scratch/a")
    assert [waiting.deleting for waiting in run(world, attempt(world, links=()))] == [True]


def test_one_that_nobody_ever_wrote_to_goes_at_once(world: World) -> None:
    world.pass_time()
    tried = attempt(world)
    world.pass_time(dt.timedelta(minutes=1))
    assert [waiting.deleting for waiting in run(world, tried)] == [True]
    assert world.all_tasks == []


def test_one_that_is_gone_passes(world: World) -> None:
    world.systems.clear()
    assert run(world) == []


def test_while_metrics_are_behind_an_empty_one_is_exported_and_not_refused(world: World) -> None:
    for _ in range(30):
        world.pass_time()
    world.metrics_delay = dt.timedelta(minutes=3)
    world.associations["dra-0a-checkpoints"]["Lifecycle"] = "MISCONFIGURED"
    waited = run(world)
    assert waited[0].what == "CloudWatch to say whether anything was ever written"
    assert world.systems == {}


def test_metrics_that_say_nothing_never_make_it_empty_and_are_waited_for_before_it_is_refused(used: World) -> None:
    used.writes[FS].clear()
    reason = refused(used)
    assert "CloudWatch has no value of DataWriteBytes that says whether clients wrote since task-0 began" in reason
    assert "aws cloudwatch list-metrics --namespace AWS/FSx" in reason
    assert f"aws fsx delete-file-system --file-system-id {FS}" in reason
    assert used.now - used.all_tasks[0]["EndTime"] >= dt.timedelta(minutes=30)


def test_empty_files_links_and_directories_are_something(world: World) -> None:
    world.files[FS]["/checkpoints/_SUCCESS"] = False
    world.pass_time(dt.timedelta(hours=1))
    run(world)
    assert len(world.all_tasks) == 1


def test_one_older_than_its_metrics_is_never_empty(world: World) -> None:
    world.systems[FS]["CreationTime"] = world.now - dt.timedelta(days=500)
    run(world)
    assert len(world.all_tasks) == 1


def test_what_a_failed_creation_left_goes_although_nothing_can_be_exported(world: World) -> None:
    world.writes[FS].clear()
    world.associations["dra-0a-checkpoints"]["Lifecycle"] = "MISCONFIGURED"
    # The import of names that came with the link.
    world.start_task(FS, [], kind="IMPORT_METADATA_FROM_REPOSITORY")
    waited = run(world, attempt(world, never_used=True))
    assert [waiting.deleting for waiting in waited] == [False, True]


def test_a_failed_creation_into_which_somebody_wrote_is_exported(used: World) -> None:
    run(used, attempt(used, never_used=True))
    assert used.files[FS]["/logs/train.log"] is True


# ---- what CloudWatch says late, or not at all ----


def late_write(world: World, path: str = "/checkpoints/late") -> None:
    """Let a client write at the moment when the first task has passed, and never again."""
    end = world._end

    def ended(task: dict[str, Any]) -> None:
        end(task)
        if path not in world.files[FS]:
            world.write(path)

    world._end = ended  # type: ignore[method-assign]


@pytest.mark.parametrize("second", [0, 1, 29, 35, 59])
@pytest.mark.parametrize("delay", [0, 1, 3, 8])
@pytest.mark.parametrize("polls", [1, 2, 20])
def test_what_is_written_while_a_task_runs_or_in_its_minutes_is_exported_however_late_cloudwatch_is(
    second: int, delay: int, polls: int
) -> None:
    world = World()
    world.now = world.now.replace(second=second)
    world.add()
    world.write("/checkpoints/a")
    world.pass_time(dt.timedelta(hours=1))
    world.metrics_delay, world.task_polls = dt.timedelta(minutes=delay), polls
    late_write(world)
    run(world)
    assert world.broken == []
    assert world.files[FS]["/checkpoints/late"] is True


def test_what_was_written_in_a_minute_that_cloudwatch_never_gets_is_exported(used: World) -> None:
    used.task_polls = 10
    late_write(used)
    end = used.now + 11 * POLL
    used.holes = {(end + minute * dt.timedelta(minutes=1)).replace(second=0) for minute in (-1, 0, 1)}
    run(used)
    assert used.files[FS]["/checkpoints/late"] is True


def test_no_metrics_at_all_are_no_proof_that_nobody_writes(used: World) -> None:
    used.writes[FS].clear()
    late_write(used)

    def write(path: str) -> None:
        used.files[FS][path] = False

    used.write = write  # type: ignore[assignment]
    assert "CloudWatch has no value of DataWriteBytes" in refused(used)


def test_a_queue_that_cloudwatch_does_not_know_is_waited_for_and_then_refused(used: World) -> None:
    used.knows_queue = False
    assert "CloudWatch has no value of AgeOfOldestQueuedMessage" in refused(used)
    used.knows_queue = True
    run(used, attempt(used, 2))


def test_without_automatic_export_there_is_no_queue_to_know(used: World) -> None:
    used.associations["dra-0a-logs"]["S3"]["AutoExportPolicy"] = {"Events": []}
    used.exported_by_itself.clear()
    run(used, attempt(used, links=()))
    assert used.missing() == []


def test_the_queue_counts_as_it_was_before_automatic_export_was_stopped_however_long_ago(used: World) -> None:
    gate, _ = made(used)
    gate.advance(FS, attempt(used))
    assert used.associations["dra-0a-logs"]["_tags"][EXPORT_STOPPED] == used.now.isoformat(timespec="seconds")
    # Killed there, and tried again the next day: no value has come since.
    used.pass_time(dt.timedelta(days=1))
    run(used, attempt(used, 2))


@pytest.mark.parametrize("code", ["InternalError", "PartialData"])
def test_an_answer_of_cloudwatch_that_is_not_complete_is_waited_for(used: World, code: str) -> None:
    used.status_code = code
    assert f"waiting for AWS: cloudwatch:GetMetricData answered {code} for DataWriteBytes" in refused(used)


def test_a_metric_that_may_not_be_read_is_a_refusal(used: World) -> None:
    used.status_code = "Forbidden"
    assert "cloudwatch:GetMetricData is denied for DataWriteBytes" in refused(used)


def test_the_metrics_have_the_names_of_the_catalog() -> None:
    for row, name in (("data-written", "DataWriteBytes"), ("metadata-operations", "MetadataOperations")):
        found = catalog_metric(row)
        assert (found.namespace, found.name, found.statistic) == ("AWS/FSx", name, "Sum")
        assert f'"{name}"' in Path(sys.modules[Metrics.__module__].__file__ or "").read_text(encoding="utf-8")


# ---- what stays ----


def test_one_that_failed_goes_only_if_nobody_had_it(used: World) -> None:
    used.systems[FS].update(Lifecycle="FAILED", FailureDetails={"Message": "A disk."})
    with pytest.raises(RefusalError, match="it is FAILED .A disk., so nothing can be exported, and clients had it"):
        run(used)
    del used.tags_of()[HANDED_OVER]
    with pytest.raises(RefusalError, match="it is FAILED"):
        run(used)
    used.writes[FS].clear()
    used.files[FS] = {}
    run(used)


def test_the_keeper_refuses_to_remove_one_that_failed_in_the_hands_of_clients(used: World) -> None:
    used.systems[FS]["Lifecycle"] = "FAILED"
    with pytest.raises(RefusalError, match=f"{FS} stands"):
        answer(used, event("Delete", kind="keeper"))
    assert used.systems[FS]["Lifecycle"] == "FAILED"


def test_a_task_that_counts_fewer_files_than_it_saw_is_not_believed(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    while not used.all_tasks or used.all_tasks[0]["Lifecycle"] != "SUCCEEDED":
        gate.advance(FS, tried)
        used.pass_time()
    used.all_tasks[0]["Status"] = {"TotalCount": 3, "SucceededCount": 2, "FailedCount": 0}
    with pytest.raises(RefusalError, match="1 of 3 files are not in the lake"):
        gate.advance(FS, tried)


def test_of_a_report_only_the_start_is_read_and_the_count_is_the_tasks_own() -> None:
    class Body(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert 0 < size <= 2**20
            return super().read(size)

    class Store:
        asked = ""

        def get_object(self, *, Range: str, **_: Any) -> Any:  # noqa: N803
            self.asked = Range
            return {"Body": Body("".join(f"/checkpoints/{n},FAILED,S3AccessDenied\n" for n in range(300_000)).encode())}

    store = Store()
    reports = Reports(calls=Calls(fsx=None, s3=store, cloudformation=None), uri="s3://lake/logs/")
    found = reports.failures({"FileSystemId": FS, "TaskId": "task-0"})
    assert store.asked == "bytes=0-65535"
    assert 1000 < len(found) < 3000
    assert found[0].path == "/checkpoints/0"


def test_the_number_of_failed_files_is_the_tasks_own(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    used.failing_files = {"/logs/train.log"}
    while not used.all_tasks or used.all_tasks[0]["Lifecycle"] != "FAILED":
        gate.advance(FS, tried)
        used.pass_time()
    used.all_tasks[0]["Status"] = {"TotalCount": 300_000, "SucceededCount": 1, "FailedCount": 299_999}
    with pytest.raises(RefusalError, match="299999 of 300000 files are not in the lake"):
        gate.advance(FS, tried)


def test_files_that_failed_are_counted_and_named(used: World) -> None:
    used.failing_files = {"/logs/train.log"}
    reason = refused(used)
    assert reason.startswith(f"{FS} and its links stand, nothing is deleted: export task task-0 ended FAILED")
    assert "1 of 2 files are not in the lake (/logs/train.log (S3AccessDenied))" in reason
    assert f"aws s3 cp s3://lake/logs/default/final-export/{FS}/task-0/failures.csv -" in reason
    assert "\n" not in reason
    assert used.tags_of()[LEFT_STANDING] == "export task task-0 ended FAILED"


def test_a_task_that_calls_itself_done_is_not_believed_if_its_report_names_a_failure(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    while not used.all_tasks or used.all_tasks[0]["Lifecycle"] != "SUCCEEDED":
        gate.advance(FS, tried)
        used.pass_time()
    used.objects[f"logs/default/final-export/{FS}/task-0/failures.csv"] = "/logs/a,FAILED,PathSizeTooLong\n"
    with pytest.raises(RefusalError, match="PathSizeTooLong"):
        gate.advance(FS, tried)


def test_a_misconfigured_link_is_named_with_fsx_s_own_reason(used: World) -> None:
    link = used.associations["dra-0a-checkpoints"]
    link.update(Lifecycle="MISCONFIGURED", FailureDetails={"Message": "The bucket denies access."})
    reason = refused(used)
    assert "link /checkpoints/ (dra-0a-checkpoints) is MISCONFIGURED: The bucket denies access. See 'aws fsx" in reason


def test_a_misconfigured_link_that_only_brings_data_in_is_no_obstacle(used: World) -> None:
    used.associations["dra-0a-datasets"]["Lifecycle"] = "MISCONFIGURED"
    run(used)


def test_a_link_that_is_gone_is_an_obstacle(used: World) -> None:
    del used.associations["dra-0a-checkpoints"]
    with pytest.raises(RefusalError, match="the link of /checkpoints/ is gone, so what is in it cannot be exported"):
        run(used)


def test_queued_changes_are_waited_for_and_named_when_time_runs_out(used: World) -> None:
    used.queue_age = 12.0
    assert "time ran out after 50 minutes, waiting for automatic export: its oldest queued change is 12" in refused(
        used
    )


def test_a_client_that_writes_on_is_waited_for_and_named_when_time_runs_out(used: World) -> None:
    passed = used.pass_time

    def pass_time(length: dt.timedelta = POLL) -> None:
        passed(length)
        used.write("/scratch/a")

    used.pass_time = pass_time  # type: ignore[method-assign]
    reason = refused(used)
    assert "clients to stop writing" in reason
    assert "unmount the file system" in reason


def test_what_was_written_behind_the_task_is_exported_by_another_one(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    while not used.all_tasks or used.all_tasks[0]["Lifecycle"] != "SUCCEEDED":
        gate.advance(FS, tried)
        used.pass_time()
    used.pass_time(dt.timedelta(minutes=1))
    used.write("/checkpoints/late.pt")
    run(used, tried)
    assert len(used.all_tasks) > 1
    assert used.files[FS]["/checkpoints/late.pt"] is True


def test_a_task_that_outlasts_the_limit_goes_on_and_is_adopted(used: World) -> None:
    used.task_polls = 150
    reason = refused(used)
    assert "waiting for task-0, which is EXECUTING (0 of 0 files). It goes on; run it again when" in reason
    assert used.all_tasks[0]["Lifecycle"] == "EXECUTING"
    used.task_polls = 1
    run(used, attempt(used, 2))
    assert [task["Lifecycle"] for task in used.all_tasks] == ["SUCCEEDED", "SUCCEEDED"]
    assert used.all_tasks[1]["Status"]["TotalCount"] == 0


def test_a_task_of_an_earlier_try_proves_nothing_about_what_was_written_since(used: World) -> None:
    used.queue_age = 5.0
    refused(used)
    used.write("/logs/mended.log")
    used.pass_time(dt.timedelta(hours=1))
    used.queue_age = 0.0
    run(used, attempt(used, 2))
    assert used.files[FS]["/logs/mended.log"] is True


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("create_data_repository_task", "fsx:CreateDataRepositoryTask"),
        ("delete_file_system", "fsx:DeleteFileSystem"),
        ("get_object", "s3:GetObject"),
        ("put_object", "s3:PutObject"),
        ("get_metric_data", "cloudwatch:GetMetricData"),
        ("describe_data_repository_tasks", "fsx:DescribeDataRepositoryTasks"),
    ],
)
def test_a_missing_permission_is_named(used: World, operation: str, action: str) -> None:
    used.errors = {operation: "AccessDeniedException"}
    assert f"{action} is denied (no {operation}). Let the function's role do {action}" in refused(used)
    used.errors = {}
    run(used, attempt(used, 2))


def test_without_the_right_to_tag_automatic_export_is_never_turned_off(used: World) -> None:
    used.errors = {"tag_resource": "AccessDeniedException"}
    with pytest.raises(RefusalError, match="fsx:TagResource is denied.*It carries no tag that says so"):
        run(used)
    assert "update_data_repository_association" not in used.calls


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError", "ServiceUnavailable", "connection"])
def test_what_may_pass_is_waited_for(used: World, code: str) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    used.errors = {"describe_data_repository_tasks": code}
    for _ in range(3):
        waiting = gate.advance(FS, tried)
        assert waiting is not None
        used.pass_time()
    used.errors = {}
    run(used, tried)


def test_what_does_not_pass_in_time_is_a_refusal(used: World) -> None:
    used.errors = {"create_data_repository_task": "ThrottlingException"}
    assert "waiting for AWS: fsx:CreateDataRepositoryTask answered ThrottlingException" in refused(used)


def test_a_breakdown_of_the_gate_itself_restores_automatic_export(used: World) -> None:
    used.associations["dra-0a-checkpoints"]["FailureDetails"] = None
    gate, _ = made(used)
    tried = attempt(used)
    gate.advance(FS, tried)
    used.pass_time()
    assert used.policies()["/logs"] == []
    del used.systems[FS]["Lifecycle"]
    with pytest.raises(RefusalError, match="the gate broke down .KeyError"):
        gate.advance(FS, tried)
    assert used.policies()["/logs"] == POLICY


def test_a_policy_that_cannot_be_restored_is_told_and_stays_remembered(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    gate.advance(FS, tried)
    used.pass_time()
    used.errors = {
        "create_data_repository_task": "AccessDeniedException",
        "update_data_repository_association": "AccessDeniedException",
    }
    with pytest.raises(RefusalError, match="Automatic export of /logs is still off"):
        gate.advance(FS, tried)
    assert used.associations["dra-0a-logs"]["_tags"][EXPORT_EVENTS] == "NEW CHANGED"
    used.errors = {"create_data_repository_task": "AccessDeniedException"}
    refused(used, attempt(used, 2))


def test_one_that_is_verified_but_not_gone_in_time_is_said_to_be_so(used: World) -> None:
    gate, _ = made(used)
    tried = attempt(used)
    used.systems[FS]["Lifecycle"] = "DELETING"
    used.now += WAIT
    with pytest.raises(RefusalError, match="is exported, verified and being deleted, but not gone after 50 minutes"):
        gate.advance(FS, tried)


def test_reasons_are_one_short_line() -> None:
    error = RefusalError("what " * 500, way_out="so")
    assert len(error.reason(FS)) == 1500
    assert "\n" not in RefusalError("a\nb", way_out="c\nd").reason(FS, also=("e\nf",))


# ---- any call may be the last ----


@settings(max_examples=120, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
class CrashingGate(RuleBasedStateMachine):
    """Obstacles come and go, somebody writes between the tries, and the function is killed at any call.

    That nothing goes before it is in the lake is checked where the file system is deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.tries = 0

    @initialize()
    def begin(self) -> None:
        self.world.add()
        self.world.write("/checkpoints/step-1/rank-0.pt")
        self.world.pass_time(dt.timedelta(hours=1))

    @property
    def there(self) -> bool:
        return FS in self.world.systems and self.world.systems[FS]["Lifecycle"] != "DELETING"

    @precondition(lambda self: self.there)
    @rule(path=st.sampled_from(["/checkpoints/step-2/a", "/logs/b", "/datasets/c", "/scratch/d"]))
    def somebody_writes(self, path: str) -> None:
        self.world.write(path)
        self.world.pass_time(dt.timedelta(minutes=5))

    @rule(fails=st.booleans())
    def tasks_fail(self, fails: bool) -> None:
        self.world.task_fails = fails

    @rule(files=st.sets(st.sampled_from(["/checkpoints/step-2/a", "/logs/b"])))
    def files_fail(self, files: set[str]) -> None:
        self.world.failing_files = files

    @rule(age=st.sampled_from([0.0, 20.0]))
    def changes_queue(self, age: float) -> None:
        self.world.queue_age = age

    @rule(polls=st.sampled_from([1, 3, 150]))
    def tasks_take(self, polls: int) -> None:
        self.world.task_polls = polls

    @rule(
        operation=st.sampled_from(
            ["create_data_repository_task", "delete_file_system", "tag_resource", "get_object", "put_object"]
        ),
        code=st.sampled_from(["AccessDeniedException", "ThrottlingException"]),
    )
    def aws_refuses(self, operation: str, code: str) -> None:
        self.world.errors = {operation: code}

    @rule()
    def aws_lets_it(self) -> None:
        self.world.errors = {}

    @rule(state=st.sampled_from(["AVAILABLE", "MISCONFIGURED"]))
    def a_link_changes(self, state: str) -> None:
        link = self.world.associations.get("dra-0a-checkpoints")
        if link and link["Lifecycle"] in ("AVAILABLE", "MISCONFIGURED"):
            link["Lifecycle"] = state

    @precondition(lambda self: self.there)
    @rule(calls=st.integers(1, 30), after=st.booleans())
    def a_try_is_killed(self, calls: int, after: bool) -> None:
        self.world.kill_at = (len(self.world.calls) + calls, after)
        try:
            self._try()
        except (KilledError, RefusalError):
            self.world.kill_at = None

    @rule()
    def a_try_runs_to_its_end(self) -> None:
        try:
            self._try()
        except RefusalError:
            if "tag_resource" not in self.world.errors:
                assert self.world.policies()["/logs"] == POLICY
                assert not any(EXPORT_EVENTS in link["_tags"] for link in self.world.associations.values())

    def _try(self) -> None:
        self.tries += 1
        run(self.world, attempt(self.world, self.tries))

    @invariant()
    def every_promise_is_kept(self) -> None:
        assert self.world.broken == []

    @invariant()
    def what_automatic_export_did_is_never_forgotten(self) -> None:
        link = self.world.associations.get("dra-0a-logs")
        if link:
            assert link["S3"]["AutoExportPolicy"]["Events"] == POLICY or link["_tags"][EXPORT_EVENTS] == "NEW CHANGED"

    def teardown(self) -> None:
        """With every obstacle gone the next try succeeds, whatever came before."""
        world = self.world
        world.task_fails, world.failing_files, world.errors, world.queue_age = False, set(), {}, 0.0
        world.task_polls, world.kill_at = 1, None
        for task in world.all_tasks:
            task["_polls"] = min(task["_polls"], 1)
        for link in world.associations.values():
            if link["Lifecycle"] == "MISCONFIGURED":
                link["Lifecycle"] = "AVAILABLE"
        if FS in world.systems:
            self._try()
            assert world.missing() == []
        assert world.broken == []
        assert FS not in world.systems


TestCrashingGate = CrashingGate.TestCase


# ---- what CloudFormation asks ----


def event(
    request: str, *, status: str = "", kind: str = "gate", system: str = FS, old: str | None = None
) -> dict[str, Any]:
    links = [{"Path": link.path, "Exported": str(link.exported).lower()} for link in LINKS]
    properties = {"Kind": kind, "FileSystemId": system, "Links": links}
    more = {"OldResourceProperties": {**properties, "FileSystemId": old}} if old else {}
    return {
        "RequestType": request,
        "RequestId": "request-1",
        "StackId": STACK_ID,
        "LogicalResourceId": "Gate",
        "ResourceProperties": properties,
        **more,
    }


def answer(world: World, asked: dict[str, Any], *, polls: int = 300) -> None:
    _, lifecycle = made(world)
    begun = {**asked, **lifecycle.begin(asked)}
    for _ in range(polls):
        if lifecycle.finished(begun):
            return
        world.pass_time()
    raise TimeoutError


def test_creation_notes_that_clients_may_have_it_from_now_on() -> None:
    world = World()
    world.add(handed_over=False)
    answer(world, event("Create"))
    assert HANDED_OVER in world.tags_of()
    assert world.policies()["/logs"] == POLICY


def test_deletion_finishes_the_file_system(used: World) -> None:
    answer(used, event("Delete"))
    assert used.systems == {}


def test_an_update_without_another_file_system_touches_nothing(used: World) -> None:
    answer(used, event("Update", old=FS))
    assert used.policies()["/logs"] == POLICY
    assert used.all_tasks == []


def test_an_update_that_brings_another_file_system_finishes_the_old_one_first(used: World) -> None:
    used.add(OTHER, handed_over=False)
    answer(used, event("Update", system=OTHER, old=FS))
    assert list(used.systems) == [OTHER]
    assert used.missing(FS) == []
    assert HANDED_OVER in used.tags_of(OTHER)


def test_the_physical_id_never_changes_so_that_an_update_never_becomes_a_deletion(used: World) -> None:
    _, lifecycle = made(used)
    first = lifecycle.begin(event("Create"))["PhysicalResourceId"]
    later = {**event("Update", system=OTHER, old=FS), "PhysicalResourceId": first}
    assert lifecycle.begin(later)["PhysicalResourceId"] == first


def test_a_rollback_takes_the_old_one_back_and_deletes_the_new_one_that_nobody_had(used: World) -> None:
    used.stack_status_text = "UPDATE_ROLLBACK_IN_PROGRESS"
    used.add(OTHER, handed_over=False)
    used.tags_of().update({LEFT_STANDING: "x", STACK: "Job"})
    used.associations["dra-0a-logs"]["S3"]["AutoExportPolicy"] = {"Events": []}
    used.associations["dra-0a-logs"]["_tags"][EXPORT_EVENTS] = "NEW CHANGED"
    answer(used, event("Update", system=FS, old=OTHER))
    assert list(used.systems) == [FS]
    assert used.policies()["/logs"] == POLICY
    assert LEFT_STANDING not in used.tags_of()


@pytest.mark.parametrize("trace", ["handed over", "written to"])
def test_a_rollback_leaves_a_new_one_that_somebody_may_have_used_and_does_not_fail(used: World, trace: str) -> None:
    used.stack_status_text = "UPDATE_ROLLBACK_IN_PROGRESS"
    used.add(OTHER, handed_over=trace == "handed over")
    if trace == "written to":
        used.write("/logs/a", identifier=OTHER)
    answer(used, event("Update", system=FS, old=OTHER))
    assert used.tags_of(OTHER)[LEFT_STANDING] == "the update that made it was rolled back"


def test_a_failed_creation_is_known_by_the_state_of_the_stack(world: World) -> None:
    world.stack_status_text = "ROLLBACK_IN_PROGRESS"
    world.writes[FS].clear()
    world.associations["dra-0a-checkpoints"]["Lifecycle"] = "MISCONFIGURED"
    answer(world, event("Delete"))
    assert world.systems == {}


def test_a_stack_that_cannot_be_asked_counts_as_none_that_failed(used: World) -> None:
    used.errors = {"describe_stacks": "AccessDenied"}
    _, lifecycle = made(used)
    assert lifecycle.begin(event("Delete"))["StackStatus"] == ""


def test_the_keeper_does_nothing_until_the_end(used: World) -> None:
    answer(used, event("Create", kind="keeper"))
    answer(used, event("Update", kind="keeper"))
    assert FS in used.systems


def test_the_keeper_removes_what_nobody_ever_had() -> None:
    world = World()
    world.add(handed_over=False)
    world.systems[FS]["Lifecycle"] = "CREATING"
    world.start_task(FS, [], kind="IMPORT_METADATA_FROM_REPOSITORY")
    answer(world, event("Delete", kind="keeper"))
    assert world.systems == {}


@pytest.mark.parametrize("trace", ["handed over", "written to"])
def test_the_keeper_refuses_while_one_stands_that_somebody_may_have_used(trace: str) -> None:
    world = World()
    world.add(handed_over=trace == "handed over")
    if trace == "written to":
        world.write("/logs/a")
    with pytest.raises(RefusalError, match=f"{FS} stands, as its gate left it"):
        answer(world, event("Delete", kind="keeper"))
    assert world.systems[FS]["Lifecycle"] == "AVAILABLE"


def test_the_keeper_waits_for_cloudwatch_and_then_takes_nothing_for_unused() -> None:
    world = World()
    world.add(handed_over=False)
    values = world.writes[FS][:]
    world.writes[FS].clear()
    with pytest.raises(RefusalError, match=f"{FS} stands"):
        answer(world, event("Delete", kind="keeper"))
    assert world.systems[FS]["Lifecycle"] == "AVAILABLE"
    world.writes[FS] = values
    answer(world, event("Delete", kind="keeper"))
    assert world.systems == {}


def test_a_rollback_takes_nothing_for_unused_that_cloudwatch_does_not_know(used: World) -> None:
    used.stack_status_text = "UPDATE_ROLLBACK_IN_PROGRESS"
    used.add(OTHER, handed_over=False)
    used.writes[OTHER].clear()
    answer(used, event("Update", system=FS, old=OTHER))
    assert LEFT_STANDING in used.tags_of(OTHER)


def test_the_keeper_never_touches_a_file_system_of_another_gate() -> None:
    world = World()
    world.add(handed_over=False)
    world.tags_of()["training-storage:gate"] = "another"
    answer(world, event("Delete", kind="keeper"))
    assert world.systems[FS]["Lifecycle"] == "AVAILABLE"


# ---- the folder that is shipped ----


def test_the_folder_runs_alone_as_lambda_runs_it() -> None:
    operations = Path(sys.modules[Gate.__module__].__file__ or "").parents[1]
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import final_export.handler as handler;"
        "print(callable(handler.on_event), callable(handler.is_complete),"
        " [name for name in sys.modules if name.split('.')[0] in ('training_storage', 'aws_cdk')])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(operations)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True []"
