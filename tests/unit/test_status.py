"""What `status` makes of what AWS answers: it never takes what it cannot see for nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from training_storage.checkpoint_format import CheckpointFile, Marker
from training_storage.cli.park import _the_job as the_job
from training_storage.operations.file_system_metrics import FileSystemMetrics, Reading
from training_storage.operations.lustre_state import FileSystem, Link, Task
from training_storage.operations.stack_inventory import Stack, StackResource
from training_storage.operations.status import read_status
from training_storage.operations.status_checkpoints import Checkpoints, NewestCheckpoint
from training_storage.operations.status_cost import cost_of
from training_storage.operations.status_health import problems
from training_storage.operations.status_json import status_document
from training_storage.operations.status_loss import Loss, lake_loss, losses
from training_storage.operations.status_model import (
    ClusterStatus,
    DirectoryBucketStatus,
    Home,
    JobStatus,
    Node,
    StandingFileSystem,
    Status,
    Unknown,
)
from training_storage.operations.status_text import is_whole, status_lines
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
ID = "fs-0123456789abcdef0"
LAKE = "s3://training-data-lake-000000000000-us-east-1"
GIB = 2**30


def system(**fields: Any) -> FileSystem:
    values: dict[str, Any] = {
        "id": ID,
        "lifecycle": "AVAILABLE",
        "created": NOW - 10 * HOUR,
        "deployment_type": "PERSISTENT_2",
        "storage_type": "SSD",
        "version": "2.15",
        "capacity_gib": 43_200,
        "per_unit_throughput": 1000,
        "metadata_iops": 12_000,
        "metadata_mode": "AUTOMATIC",
        "mount_name": "abcdefgh",
        "tags": {"training-storage:job": "default", "aws:cloudformation:stack-name": "TrainingStorage"},
        "failure": None,
        **fields,
    }
    return FileSystem(**values)


def link(folder: str, *, lifecycle: str = "AVAILABLE", failure: str | None = None, **events: Any) -> Link:
    return Link(
        id="dra-0123456789abcdef0",
        file_system_id=ID,
        file_system_path=f"/{folder}/",
        data_repository_path=f"{LAKE}/{folder}/default/" if folder != "datasets" else f"{LAKE}/datasets/",
        lifecycle=lifecycle,
        import_events=events.get("imports", ()),
        export_events=events.get("exports", ()),
        failure=failure,
    )


LINKS = (
    link("checkpoints"),
    link("datasets", imports=("NEW", "CHANGED", "DELETED")),
    link("logs", exports=("NEW", "CHANGED")),
)


def metrics(
    *, free_gib: float | None = 20_000, export_age: float | None = 0, written: float | None = 0, at: dt.datetime = NOW
) -> FileSystemMetrics:
    return FileSystemMetrics(
        free_bytes=None if free_gib is None else Reading(value=free_gib * GIB, at=NOW),
        written_bytes=None if written is None else Reading(value=written, at=at),
        export_age_seconds=None if export_age is None else Reading(value=export_age, at=NOW),
    )


def standing(**fields: Any) -> StandingFileSystem:
    return StandingFileSystem(
        **{"system": system(), "in_stack": True, "links": LINKS, "tasks": (), "metrics": metrics(), **fields}
    )


def task(kind: str, lifecycle: str, **fields: Any) -> Task:
    return Task(
        **{
            "id": "task-0123456789abcdef0",
            "file_system_id": ID,
            "kind": kind,
            "lifecycle": lifecycle,
            "paths": (),
            "unused_days": None,
            "created": NOW - HOUR,
            "started": NOW - HOUR,
            "ended": NOW,
            "total": 10,
            "succeeded": 10,
            "failed": 0,
            "failure": None,
            **fields,
        }
    )


STACK = Stack(
    name="TrainingStorage",
    id="arn:…",
    state="CREATE_COMPLETE",
    reason=None,
    created=NOW - 10 * HOUR,
    resources=(),
    kept=frozenset(),
)
ARCHIVED = Checkpoints(
    place=f"{LAKE}/checkpoints/default/",
    folders=("step-0000000600", "step-0000001200"),
    complete=(
        NewestCheckpoint(name="step-0000001200", step=1200, finished=NOW - HOUR),
        NewestCheckpoint(name="step-0000000600", step=600, finished=NOW - 2 * HOUR),
    ),
    unmarked=(),
)


def job(**fields: Any) -> JobStatus:
    return JobStatus(
        **{
            "name": "default",
            "stack": STACK,
            "file_systems": (standing(),),
            "directory_buckets": (),
            "cluster": None,
            "home": None,
            "lake_checkpoints": ARCHIVED,
            "unknown": (),
            **fields,
        }
    )


def status(*jobs: JobStatus, **fields: Any) -> Status:
    return Status(**{"region": "us-east-1", "at": NOW, "lake": None, "jobs": jobs, "unknown": (), **fields})


def of(found: tuple[Loss, ...], place: str) -> Loss:
    (loss,) = [loss for loss in found if loss.what.endswith(place)]
    return loss


def lost(place: str, **fields: Any) -> Loss:
    return of(losses(job(**fields), region="us-east-1"), place)


# ---- what would be lost ----


def test_checkpoints_newer_than_the_newest_archived_one_would_be_lost_how_many_only_a_node_knows() -> None:
    loss = lost("/checkpoints")
    assert loss.verdict == "unknown"
    assert loss.because == "only a node sees the files of a Lustre file system"
    assert "newer than step-0000001200 of 2026-11-30 11:00" in loss.words
    assert loss.command == "training-storage archive --job default --region us-east-1"


def test_without_an_archived_checkpoint_each_one_would_be_lost() -> None:
    empty = dataclasses.replace(ARCHIVED, folders=(), complete=())
    assert "each one written here would be lost" in lost("/checkpoints", lake_checkpoints=empty).words


def test_unmarked_folders_in_the_lake_are_no_archived_checkpoints() -> None:
    unmarked = dataclasses.replace(ARCHIVED, complete=(), unmarked=("step-0000001200",))
    loss = lost("/checkpoints", lake_checkpoints=unmarked)
    assert "None of the newest in the lake (step-0000001200) has a completion marker" in loss.words


def test_a_lake_that_cannot_be_listed_leaves_checkpoints_unknown_for_that_reason() -> None:
    reason = Unknown(part="lake_checkpoints", because="the caller is not allowed s3:ListBucket")
    loss = lost("/checkpoints", lake_checkpoints=None, unknown=(reason,))
    assert (loss.verdict, loss.because) == ("unknown", "the caller is not allowed s3:ListBucket")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lifecycle": "SUCCEEDED"}, True),
        ({"lifecycle": "SUCCEEDED", "paths": ("checkpoints",)}, True),
        ({"lifecycle": "SUCCEEDED", "paths": ("/checkpoints/",)}, True),
        ({"lifecycle": "SUCCEEDED", "paths": ("checkpoints/step-0000001200",)}, False),
        ({"lifecycle": "SUCCEEDED", "failed": 1}, False),
        ({"lifecycle": "FAILED"}, False),
        ({"lifecycle": "EXECUTING"}, False),
    ],
)
def test_only_an_export_of_all_of_it_that_succeeded_counts(fields: dict[str, Any], said: bool) -> None:
    export = task("EXPORT_TO_REPOSITORY", **fields)
    loss = lost("/checkpoints", file_systems=(standing(tasks=(export,)),))
    assert ("begun at 2026-11-30 11:00, succeeded" in loss.words) == said


@pytest.mark.parametrize(
    ("age", "verdict", "words"),
    [
        (0, "nothing", "nothing waited at 2026-11-30 12:00"),
        (30, "lost", "changes of up to the last 30 s wait"),
        (300, "lost", "changes of up to the last 5 min wait"),
        (9000, "lost", "changes of up to the last 2.5 h wait"),
    ],
)
def test_the_queue_of_automatic_export_says_what_waits(age: float, verdict: str, words: str) -> None:
    loss = lost("/logs", file_systems=(standing(metrics=metrics(export_age=age)),), cluster=cluster(()))
    assert loss.verdict == verdict
    assert words in loss.words


def test_what_failed_to_export_is_in_no_queue_and_that_is_said() -> None:
    loss = lost("/logs", file_systems=(standing(),), cluster=cluster(()))
    assert "what FSx failed to export is in no queue, only in its log" in loss.words


@pytest.mark.parametrize(
    ("fields", "reading", "because"),
    [
        ({}, {}, "2 nodes run and may have written since"),
        ({"cluster": None}, {"written": 4096.0}, "clients have written since"),
        ({"cluster": None}, {"written": None}, "CloudWatch does not know yet what clients wrote since"),
        (
            {"cluster": None},
            {"at": NOW - dt.timedelta(minutes=1)},
            "CloudWatch does not know yet what clients wrote since",
        ),
    ],
)
def test_an_empty_queue_says_nothing_of_what_was_written_since(
    fields: dict[str, Any], reading: dict[str, Any], because: str
) -> None:
    running = (Node(id="i-1", instance_type="p5.48xlarge", market="on-demand", launched=NOW),) * 2
    given = {"cluster": cluster(running), **fields}
    loss = lost("/logs", file_systems=(standing(metrics=metrics(**reading)),), **given)
    assert (loss.verdict, loss.because) == ("unknown", because)
    assert loss.words == "Exported by itself; nothing waited at 2026-11-30 12:00."


def test_a_queue_without_a_value_is_unknown_and_not_empty() -> None:
    loss = lost("/logs", file_systems=(standing(metrics=metrics(export_age=None)),))
    assert (loss.verdict, loss.because) == ("unknown", "CloudWatch has no value of the last 20 minutes")
    reason = Unknown(part="metrics", because="the caller is not allowed cloudwatch:GetMetricData")
    loss = lost("/logs", file_systems=(standing(metrics=None),), unknown=(reason,))
    assert (loss.verdict, loss.because) == ("unknown", reason.because)


def test_a_misconfigured_link_exports_nothing_whatever_its_queue_says() -> None:
    broken = link(
        "logs", lifecycle="MISCONFIGURED", failure="The bucket policy denies access.", exports=("NEW", "CHANGED")
    )
    loss = lost("/logs", file_systems=(standing(links=(broken,)),))
    assert loss.verdict == "unknown"
    assert "The link is MISCONFIGURED: The bucket policy denies access. What was written since then" in loss.words


def test_files_outside_the_links_are_unknown() -> None:
    assert lost("elsewhere").verdict == "unknown"
    everywhere = losses(job(file_systems=(standing(links=(link(""),)),)), region="us-east-1")
    assert not [loss for loss in everywhere if loss.what.endswith("elsewhere")]


@pytest.mark.parametrize("lifecycle", ["MISCONFIGURED", "FAILED"])
def test_a_broken_link_is_never_said_to_lose_nothing(lifecycle: str) -> None:
    broken = link("logs", lifecycle=lifecycle, exports=("NEW", "CHANGED"))
    loss = lost("/logs", file_systems=(standing(links=(broken,)),), cluster=cluster(()))
    assert loss.verdict == "unknown"
    assert f"The link is {lifecycle}. What was written since then" in loss.words


def test_a_file_system_without_links_exports_nothing() -> None:
    loss = lost("all of it", file_systems=(standing(links=()),))
    assert (loss.verdict, loss.words) == ("unknown", "It has no link: nothing is exported.")


def test_links_that_cannot_be_read_make_the_whole_file_system_unknown() -> None:
    reason = Unknown(part="links", because="the caller is not allowed fsx:DescribeDataRepositoryAssociations")
    loss = lost("all of it", file_systems=(standing(links=None),), unknown=(reason,))
    assert (loss.verdict, loss.because) == ("unknown", reason.because)


BUCKET = "hot--use1-az4--x-s3"


def express(*folders: str) -> DirectoryBucketStatus:
    found = Checkpoints(place=f"s3://{BUCKET}/checkpoints/default/", folders=folders, complete=(), unmarked=())
    return DirectoryBucketStatus(name=BUCKET, is_empty=False, checkpoints=found, unknown=None)


def test_express_checkpoints_that_the_lake_lacks_would_be_lost() -> None:
    loss = lost("checkpoints", file_systems=(), directory_buckets=(express("step-0000001200", "step-0000001300"),))
    assert (loss.verdict, loss.words) == ("lost", "1 not in the lake: step-0000001300")
    assert loss.command is not None


def test_express_checkpoints_that_are_complete_in_the_lake_would_not() -> None:
    loss = lost("checkpoints", file_systems=(), directory_buckets=(express("step-0000001200"),))
    assert loss.verdict == "nothing"


def test_express_checkpoints_with_an_unmarked_folder_in_the_lake_are_unknown() -> None:
    lake = dataclasses.replace(ARCHIVED, complete=ARCHIVED.complete[1:], unmarked=("step-0000001200",))
    buckets = (express("step-0000001200"),)
    loss = lost("checkpoints", file_systems=(), directory_buckets=buckets, lake_checkpoints=lake)
    assert loss.verdict == "unknown"
    assert "step-0000001200 may not be complete there" in loss.words


def test_other_objects_of_a_directory_bucket_are_unknown_and_an_empty_one_is_nothing() -> None:
    assert lost("other objects", file_systems=(), directory_buckets=(express(),)).verdict == "unknown"
    empty = DirectoryBucketStatus(name=BUCKET, is_empty=True, checkpoints=None, unknown=None)
    assert lost(BUCKET, file_systems=(), directory_buckets=(empty,)).verdict == "nothing"
    denied = DirectoryBucketStatus(name=BUCKET, is_empty=None, checkpoints=None, unknown="not allowed")
    assert lost(BUCKET, file_systems=(), directory_buckets=(denied,)).because == "not allowed"


def node(name: str = "p5.48xlarge", **fields: Any) -> Node:
    return Node(**{"id": "i-1", "instance_type": name, "market": "on-demand", "launched": NOW - 2 * HOUR, **fields})


def cluster(nodes: tuple[Node, ...] | None, **fields: Any) -> ClusterStatus:
    return ClusterStatus(
        **{
            "engine": "pcs",
            "id": "pcs_1",
            "state": "ACTIVE",
            "error": None,
            "node_groups": (),
            "nodes": nodes,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("nodes", "verdict"), [((), "nothing"), ((node(),), "lost"), (None, "unknown")], ids=["none", "one", "unreadable"]
)
def test_disks_of_nodes_end_with_the_nodes(nodes: tuple[Node, ...] | None, verdict: str) -> None:
    assert lost("(/scratch, /home)", cluster=cluster(nodes)).verdict == verdict


@pytest.mark.parametrize(("kept", "verdict"), [(True, "kept"), (False, "lost"), (None, "unknown")])
def test_home_is_what_the_stacks_template_says(kept: bool | None, verdict: str) -> None:
    assert lost("/home (fs-home)", home=Home(id="fs-home", is_kept=kept)).verdict == verdict


def test_the_lake_is_kept_only_if_its_template_retains_the_bucket() -> None:
    bucket = StackResource(
        logical_id="DataLakeBucket1", kind="AWS::S3::Bucket", physical_id="lake", state="CREATE_COMPLETE"
    )
    stack = dataclasses.replace(
        STACK, name="TrainingDataLake", resources=(bucket,), kept=frozenset({"DataLakeBucket1"})
    )
    assert lake_loss(status(lake=stack)).verdict == "kept"
    assert lake_loss(status(lake=dataclasses.replace(stack, kept=frozenset()))).verdict == "lost"
    assert lake_loss(status(lake=dataclasses.replace(stack, kept=None))).verdict == "unknown"
    assert lake_loss(status()).verdict == "unknown"


# ---- what it costs ----


def test_cost_is_capacity_and_running_nodes_at_list_prices() -> None:
    cost = cost_of(job(cluster=cluster((node(), node(id="i-2")))), region="us-east-1", now=NOW)
    assert cost.per_hour_usd == pytest.approx(43_200 * 0.600 / 730 + 2 * 55.04)
    assert cost.so_far_usd == pytest.approx(10 * 43_200 * 0.600 / 730 + 2 * 2 * 55.04)
    assert cost.is_whole


def test_metadata_iops_above_the_included_are_charged() -> None:
    own = system(metadata_mode="USER_PROVISIONED", metadata_iops=24_000)
    cost = cost_of(job(file_systems=(standing(system=own),)), region="us-east-1", now=NOW)
    # 12,000 come with 43,200 GiB.
    assert cost.per_hour_usd == pytest.approx((43_200 * 0.600 + 12_000 * 0.055) / 730)


def test_scratch_has_a_price_although_fsx_names_no_throughput() -> None:
    own = system(deployment_type="SCRATCH_2", per_unit_throughput=None, metadata_mode=None, metadata_iops=None)
    cost = cost_of(job(file_systems=(standing(system=own),)), region="us-east-1", now=NOW)
    assert cost.per_hour_usd == pytest.approx(43_200 * 0.140 / 730)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cluster": cluster((node("m7i.large"),))}, "1 x m7i.large"),
        ({"file_systems": (standing(system=system(storage_type="INTELLIGENT_TIERING", capacity_gib=0)),)}, ID),
        ({"cluster": cluster(None)}, "nodes"),
        ({"file_systems": None}, "file systems"),
    ],
)
def test_what_has_no_known_price_is_named_and_the_sum_is_a_least(fields: dict[str, Any], words: str) -> None:
    found = job(**fields)
    assert any(words in text for text in cost_of(found, region="us-east-1", now=NOW).unknown)
    assert "at least $" in "\n".join(status_lines(status(found)))


# ---- what needs attention ----


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"stack": dataclasses.replace(STACK, state="DELETE_FAILED", reason="in use")},
            "TrainingStorage is DELETE_FAILED: in use",
        ),
        ({"stack": dataclasses.replace(STACK, state="ROLLBACK_COMPLETE")}, "TrainingStorage is ROLLBACK_COMPLETE"),
        ({"file_systems": (standing(system=system(lifecycle="FAILED", failure="Disk.")),)}, f"{ID} is FAILED: Disk."),
        (
            {"file_systems": (standing(links=(link("logs", lifecycle="MISCONFIGURED", failure="Denied."),)),)},
            "/logs of ",
        ),
        (
            {"file_systems": (standing(metrics=metrics(free_gib=1000)),)},
            "98% full: training-storage release --job default",
        ),
        ({"file_systems": (standing(tasks=(task("EXPORT_TO_REPOSITORY", "FAILED"),)),)}, "(EXPORT_TO_REPOSITORY)"),
        ({"file_systems": (standing(in_stack=False),)}, "Finish it: training-storage park --job default"),
        (
            {"cluster": cluster((), state="CREATE_FAILED", error="InsufficientIp: none")},
            "CREATE_FAILED: InsufficientIp: none",
        ),
    ],
)
def test_what_is_wrong_is_said_first(fields: dict[str, Any], words: str) -> None:
    found = status(job(**fields))
    (problem,) = problems(found)
    assert words in problem
    lines = status_lines(found)
    assert lines[1].startswith("  attention")


def test_a_file_system_that_a_gate_left_names_the_reason_and_the_command() -> None:
    tags = {**system().tags, "training-storage:left-standing": "2 files failed to export"}
    (problem,) = problems(status(job(file_systems=(standing(system=system(tags=tags)),))))
    assert "(2 files failed to export)" in problem
    assert "training-storage park --job default --region us-east-1" in problem


@pytest.mark.parametrize("state", ["CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"])
def test_what_passes_or_stands_as_before_is_no_problem(state: str) -> None:
    assert problems(status(job(stack=dataclasses.replace(STACK, state=state)))) == ()


def test_a_failed_task_that_was_followed_by_a_good_one_is_no_problem() -> None:
    tasks = (task("EXPORT_TO_REPOSITORY", "SUCCEEDED"), task("EXPORT_TO_REPOSITORY", "FAILED"))
    assert problems(status(job(file_systems=(standing(tasks=tasks),)))) == ()


# ---- how it reads ----


def crowded() -> Status:
    failure = "Amazon FSx is unable to access the S3 bucket because the bucket policy denies the service-linked role."
    links = (*LINKS, link("evaluations", lifecycle="MISCONFIGURED", failure=failure))
    tasks = tuple(task("EXPORT_TO_REPOSITORY", "FAILED", paths=("checkpoints/" + "x" * 150,)) for _ in range(5))
    one = job(
        file_systems=(standing(links=links, tasks=tasks, in_stack=False), standing()),
        directory_buckets=(express(*(f"step-{number:010d}" for number in range(40))),),
        cluster=cluster((node(), node("p5en.48xlarge", market="spot"))),
        home=Home(id="fs-home", is_kept=None),
        unknown=(Unknown(part="kept", because="the caller is not allowed cloudformation:GetTemplate"),),
    )
    return status(one, job(name="beta", stack=None, file_systems=None, lake_checkpoints=None), lake=STACK)


def test_no_line_is_wider_than_a_terminal_and_the_first_ones_say_health_cost_and_loss() -> None:
    lines = status_lines(crowded())
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)
    heads = [line[2:].split("  ")[0] for line in lines[1:12] if line.startswith("  ") and line[2] != " "]
    assert heads[:3] == ["attention", "costs", "destroyed now"]


def test_json_has_a_version_and_says_of_every_job_what_would_be_lost() -> None:
    document = json.loads(json.dumps(status_document(crowded())))
    assert document["schema_version"] == 1
    assert document["healthy"] is False
    assert document["at"] == "2026-11-30T12:00:00Z"
    first, second = document["jobs"]
    assert first["file_systems"][0]["command"] == "training-storage park --job default --region us-east-1"
    assert first["file_systems"][1]["command"] is None
    assert first["file_systems"][0]["used_gib"] == 23_200
    assert {loss["verdict"] for loss in first["would_be_lost"]} >= {"lost", "unknown"}
    assert second["file_systems"] is None
    assert all((loss["verdict"] == "unknown") == (loss["because"] is not None) for loss in first["would_be_lost"])


# ---- what is asked of AWS ----


class FakeAws:
    """Clients whose answers are checked against the services' models; `denied` actions are refused."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.stubs: dict[str, Stubber] = {}

    def __call__(self, service: str) -> Any:
        if service not in self.clients:
            made = boto3.client(service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")  # noqa: S106
            self.clients[service] = made
            self.stubs[service] = Stubber(made)
            self.stubs[service].activate()
        return self.clients[service]

    def answer(self, service: str, operation: str, answer: dict[str, Any] | str) -> None:
        self(service)
        if isinstance(answer, str):
            self.stubs[service].add_client_error(operation, answer, "no", 400)
        else:
            self.stubs[service].add_response(operation, answer)

    def check(self) -> None:
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()


STACK_RECORD = {
    "StackName": "TrainingStorage",
    "StackId": "arn:aws:cloudformation:us-east-1:000000000000:stack/TrainingStorage/1",
    "CreationTime": NOW,
    "StackStatus": "CREATE_COMPLETE",
    "Outputs": [{"OutputKey": "CheckpointsUri", "OutputValue": f"{LAKE}/checkpoints/default/"}],
}


def row(logical_id: str, kind: str, physical_id: str) -> dict[str, Any]:
    return {
        "LogicalResourceId": logical_id,
        "ResourceType": kind,
        "PhysicalResourceId": physical_id,
        "ResourceStatus": "CREATE_COMPLETE",
        "LastUpdatedTimestamp": NOW,
    }


CLUSTER_ARN = "arn:aws:pcs:us-east-1:000000000000:cluster/pcs_abc1234567"
ROWS = [
    row("FileSystem", "AWS::FSx::FileSystem", ID),
    row("Cluster", "AWS::PCS::Cluster", CLUSTER_ARN),
    row("Group", "AWS::PCS::ComputeNodeGroup", f"{CLUSTER_ARN}/computenodegroup/pcs_grp1234567"),
    row("Home", "AWS::EFS::FileSystem", "fs-00000000000000001"),
]
TEMPLATE = {"Resources": {"Home": {"Type": "AWS::EFS::FileSystem", "DeletionPolicy": "RetainExceptOnCreate"}}}
FILE_SYSTEM = {
    "FileSystemId": ID,
    "FileSystemType": "LUSTRE",
    "FileSystemTypeVersion": "2.15",
    "Lifecycle": "AVAILABLE",
    "CreationTime": NOW,
    "StorageCapacity": 1200,
    "StorageType": "SSD",
    "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    "Tags": [
        {"Key": "training-storage:job", "Value": "default"},
        {"Key": "aws:cloudformation:stack-name", "Value": "TrainingStorage"},
    ],
}
GROUP = {
    "name": "train",
    "id": "pcs_grp1234567",
    "arn": "arn",
    "clusterId": "pcs_abc1234567",
    "createdAt": NOW,
    "modifiedAt": NOW,
    "status": "ACTIVE",
}
CLUSTER = {
    "name": "c",
    "id": "pcs_abc1234567",
    "arn": "arn",
    "status": "ACTIVE",
    "createdAt": NOW,
    "modifiedAt": NOW,
    "scheduler": {"type": "SLURM", "version": "25.05"},
    "size": "MEDIUM",
    "networking": {},
}
INSTANCE = {"InstanceId": "i-1", "InstanceType": "p5.48xlarge", "LaunchTime": NOW - HOUR}


def marker(step: int) -> StreamingBody:
    file = CheckpointFile(path="rank-0.pt", bytes=1)
    text = Marker(step=step, finished_at=NOW, files=(file,)).to_json().encode()
    return StreamingBody(io.BytesIO(text), len(text))


#: Service, operation and answer, in the order in which each service is asked.
ANSWERS: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
    ("cloudformation", "describe_stacks", lambda: {"Stacks": [STACK_RECORD]}),
    ("cloudformation", "list_stack_resources", lambda: {"StackResourceSummaries": ROWS}),
    ("cloudformation", "get_template", lambda: {"TemplateBody": json.dumps(TEMPLATE)}),
    ("ssm", "get_parameters_by_path", lambda: {"Parameters": []}),
    ("stepfunctions", "list_state_machines", lambda: {"stateMachines": []}),
    ("fsx", "describe_file_systems", lambda: {"FileSystems": [FILE_SYSTEM]}),
    ("fsx", "describe_data_repository_associations", lambda: {"Associations": []}),
    ("fsx", "describe_data_repository_tasks", lambda: {"DataRepositoryTasks": []}),
    ("cloudwatch", "get_metric_data", lambda: {"MetricDataResults": []}),
    ("pcs", "get_cluster", lambda: {"cluster": CLUSTER}),
    ("pcs", "list_compute_node_groups", lambda: {"computeNodeGroups": [GROUP]}),
    ("ec2", "describe_instances", lambda: {"Reservations": [{"Instances": [INSTANCE]}]}),
    ("s3", "list_objects_v2", lambda: {"CommonPrefixes": [{"Prefix": "checkpoints/default/step-0000000007/"}]}),
    ("s3", "get_object", lambda: {"Body": marker(7)}),
]


def read(denied: str | None = None, code: str = "AccessDeniedException", *, job: str | None = None) -> Status:
    aws = FakeAws()
    for service, operation, answer in ANSWERS:
        aws.answer(service, operation, code if operation == denied else answer())
    return read_status(aws, region="us-east-1", job=job, now=NOW)


def test_everything_of_a_job_is_read_in_fourteen_calls() -> None:
    found = read()
    assert is_whole(found)
    (one,) = found.jobs
    assert one.cluster is not None
    assert (one.cluster.id, one.cluster.state) == ("pcs_abc1234567", "ACTIVE")
    assert [(group.name, group.state) for group in one.cluster.node_groups or ()] == [("train", "ACTIVE")]
    assert [node.instance_type for node in one.cluster.nodes or ()] == ["p5.48xlarge"]
    assert one.home == Home(id="fs-00000000000000001", is_kept=True)
    assert one.lake_checkpoints is not None
    assert one.lake_checkpoints.newest is not None
    assert one.lake_checkpoints.newest.step == 7
    assert one.file_systems is not None
    assert one.file_systems[0].in_stack is True
    assert len(ANSWERS) == 14


@pytest.mark.parametrize(
    ("denied", "action"),
    [
        ("get_template", "cloudformation:GetTemplate"),
        ("get_parameters_by_path", "ssm:GetParametersByPath"),
        ("list_state_machines", "states:ListStateMachines"),
        ("describe_data_repository_associations", "fsx:DescribeDataRepositoryAssociations"),
        ("describe_data_repository_tasks", "fsx:DescribeDataRepositoryTasks"),
        ("get_metric_data", "cloudwatch:GetMetricData"),
        ("get_cluster", "pcs:GetCluster"),
        ("list_compute_node_groups", "pcs:ListComputeNodeGroups"),
        ("describe_instances", "ec2:DescribeInstances"),
        ("list_objects_v2", "s3:ListBucket"),
    ],
)
def test_a_part_that_may_not_be_read_says_so_and_the_rest_is_shown(denied: str, action: str) -> None:
    found = read(denied)
    assert not is_whole(found)
    text = "\n".join(status_lines(found))
    joined = " ".join(text.split())
    assert f"the caller is not allowed {action}" in joined
    assert ID in text
    # What PCS does not tell, the stack does: the nodes are found by the ids in it.
    if denied == "list_compute_node_groups":
        assert [node.id for node in (found.jobs[0].cluster or cluster(None)).nodes or ()] == ["i-1"]


def test_without_the_stacks_the_file_systems_are_shown_and_nothing_is_called_orphaned() -> None:
    aws = FakeAws()
    aws.answer("cloudformation", "describe_stacks", "AccessDenied")
    for service, operation, answer in ANSWERS:
        if service in ("fsx", "cloudwatch"):
            aws.answer(service, operation, answer())
    found = read_status(aws, region="us-east-1", job=None, now=NOW)
    (one,) = found.jobs
    assert one.file_systems is not None
    assert one.file_systems[0].in_stack is None
    assert not one.file_systems[0].is_left
    assert problems(found) == ()
    assert "stack unknown, because the caller is not allowed" in " ".join(" ".join(status_lines(found)).split())


def test_without_the_file_systems_the_stacks_are_shown_and_their_loss_is_unknown() -> None:
    aws = FakeAws()
    for service, operation, answer in ANSWERS:
        if operation == "describe_file_systems":
            aws.answer(service, operation, "AccessDeniedException")
        elif service not in {"fsx", "cloudwatch"}:
            aws.answer(service, operation, answer())
    found = read_status(aws, region="us-east-1", job=None, now=NOW)
    (one,) = found.jobs
    assert one.file_systems is None
    loss = of(losses(one, region="us-east-1"), "file systems")
    assert (loss.verdict, loss.because) == ("unknown", "the caller is not allowed fsx:DescribeFileSystems")


def test_a_file_system_whose_stack_is_gone_is_found_by_its_tag() -> None:
    aws = FakeAws()
    aws.answer("cloudformation", "describe_stacks", {"Stacks": []})
    for service, operation, answer in ANSWERS:
        if service in ("fsx", "cloudwatch"):
            aws.answer(service, operation, answer())
    found = read_status(aws, region="us-east-1", job="default", now=NOW)
    assert found.jobs[0].stack is None
    assert found.jobs[0].file_systems is not None
    assert found.jobs[0].file_systems[0].in_stack is False
    assert "Finish it: training-storage park --job default" in problems(found)[0]
    aws.check()


def test_a_file_system_that_its_stack_no_longer_has_is_found_too() -> None:
    aws = FakeAws()
    for service, operation, answer in ANSWERS:
        rows = {"StackResourceSummaries": ROWS[1:]}
        aws.answer(service, operation, rows if operation == "list_stack_resources" else answer())
    found = read_status(aws, region="us-east-1", job=None, now=NOW)
    assert found.jobs[0].file_systems is not None
    assert found.jobs[0].file_systems[0].in_stack is False


def test_a_stack_that_failed_before_its_outputs_looks_for_checkpoints_in_the_lake_of_the_region() -> None:
    aws = FakeAws()
    failed = {**STACK_RECORD, "StackStatus": "ROLLBACK_COMPLETE", "Outputs": []}
    lake = {
        **STACK_RECORD,
        "StackName": "TrainingDataLake",
        "Outputs": [{"OutputKey": "BucketName", "OutputValue": "lake"}],
    }
    aws.answer("cloudformation", "describe_stacks", {"Stacks": [failed, lake]})
    for _ in range(2):
        aws.answer("cloudformation", "list_stack_resources", {"StackResourceSummaries": []})
        aws.answer("cloudformation", "get_template", {"TemplateBody": "{}"})
    aws.answer("fsx", "describe_file_systems", {"FileSystems": []})
    aws.answer("s3", "list_objects_v2", {})
    (one,) = read_status(aws, region="us-east-1", job=None, now=NOW).jobs
    assert one.lake_checkpoints is not None
    assert one.lake_checkpoints.place == "s3://lake/checkpoints/default/"
    aws.check()


# ---- jobs in stacks of somebody else's name ----


PLATFORM = {**STACK_RECORD, "StackName": "Platform", "StackId": "arn:aws:cloudformation:us-east-1:0:stack/Platform/1"}
ALPHA_MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:training-storage-park-alpha"


def composed(
    *,
    stack: dict[str, Any],
    contract: bool,
    machine: bool,
    holders: list[str | dict[str, Any]],
    job: str | None = None,
) -> Status:
    """Status of a Region with one stack and no file system."""
    aws = FakeAws()
    # Not a contract: what somebody else wrote there hides no job.
    parameters = [{"Name": "/training-storage/alpha/contract", "Value": "{}"}] if contract else []
    machines = [
        {
            "name": ALPHA_MACHINE.rsplit(":", 1)[1],
            "stateMachineArn": ALPHA_MACHINE,
            "type": "STANDARD",
            "creationDate": NOW,
        }
    ]
    aws.answer("cloudformation", "describe_stacks", {"Stacks": [{**stack, "Outputs": []}]})
    aws.answer("fsx", "describe_file_systems", {"FileSystems": []})
    aws.answer("ssm", "get_parameters_by_path", {"Parameters": parameters})
    aws.answer("stepfunctions", "list_state_machines", {"stateMachines": machines if machine else []})
    for answer in holders:
        aws.answer("cloudformation", "describe_stack_resources", answer)
    aws.answer(
        "cloudformation",
        "list_stack_resources",
        {"StackResourceSummaries": [row("Bucket", "AWS::S3Express::DirectoryBucket", "hot--use1-az4--x-s3")]},
    )
    aws.answer("cloudformation", "get_template", {"TemplateBody": "{}"})
    aws.answer("s3", "list_objects_v2", {})
    return read_status(aws, region="us-east-1", job=job, now=NOW)


def holder(stack: dict[str, Any]) -> dict[str, Any]:
    found = {"StackId": stack["StackId"], "LogicalResourceId": "Contract", "ResourceType": "AWS::SSM::Parameter"}
    return {"StackResources": [{**found, "Timestamp": NOW, "ResourceStatus": "CREATE_COMPLETE"}]}


@pytest.mark.parametrize(
    ("contract", "machine", "holders"),
    [
        (True, False, [holder(PLATFORM)]),
        (False, True, [holder(PLATFORM)]),
        # A contract that somebody wrote by hand is in no stack.
        (True, True, ["ValidationError", holder(PLATFORM)]),
    ],
)
def test_a_job_without_lustre_is_found_in_a_stack_of_any_name(
    contract: bool, machine: bool, holders: list[str | dict[str, Any]]
) -> None:
    found = composed(stack=PLATFORM, contract=contract, machine=machine, holders=holders, job="alpha")
    (one,) = found.jobs
    assert (one.name, one.stack and one.stack.name) == ("alpha", "Platform")
    assert [bucket.name for bucket in one.directory_buckets or ()] == ["hot--use1-az4--x-s3"]


def test_a_stack_that_is_named_like_ours_by_chance_is_the_job_that_it_holds() -> None:
    found = composed(stack=STACK_RECORD, contract=True, machine=False, holders=[holder(STACK_RECORD)])
    assert [one.name for one in found.jobs] == ["alpha"]


def test_a_contract_that_no_stack_has_is_no_job() -> None:
    found = composed(stack=PLATFORM, contract=True, machine=False, holders=["ValidationError"])
    assert found.jobs == ()


def test_a_nested_stack_is_no_job_by_its_name_and_knows_its_root() -> None:
    nested = {
        **PLATFORM,
        "StackName": "TrainingStorage-demo-Nested-1A2B",
        "RootId": "arn:aws:cloudformation:us-east-1:0:stack/Root/1",
    }
    found = composed(stack=nested, contract=True, machine=False, holders=[holder(nested)])
    assert [one.name for one in found.jobs] == ["alpha"]
    assert found.jobs[0].stack is not None
    with pytest.raises(InvalidJobError, match="got: alpha in TrainingStorage-demo-Nested-1A2B, .* root stack Root"):
        the_job(found, "us-east-1")


def test_park_deletes_no_stack_of_another_name_that_has_nothing_to_park_it() -> None:
    found = composed(stack=PLATFORM, contract=True, machine=False, holders=[holder(PLATFORM)])
    with pytest.raises(InvalidJobError, match="got: alpha in Platform, which has not and may hold more"):
        the_job(found, "us-east-1")


def test_park_takes_no_job_that_could_not_be_looked_for_as_gone() -> None:
    found = composed(stack=PLATFORM, contract=True, machine=False, holders=["AccessDenied"], job="alpha")
    with pytest.raises(InvalidJobError, match=r"nothing was done: .*not allowed cloudformation:DescribeStackResources"):
        the_job(found, "us-east-1")


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId", "UnrecognizedClientException"])
def test_credentials_that_are_not_accepted_are_bad_input(code: str) -> None:
    with pytest.raises(InvalidJobError, match=f"credentials must be given and valid, got: {code}"):
        read("describe_stacks", code)


def test_a_job_of_which_nothing_stands_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidJobError, match="got: 'nobody'; there are: default"):
        read(job="nobody")
