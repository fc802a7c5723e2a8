"""Archives from a Lustre file system: export tasks on the paths of checkpoints, on a node that mounts it."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.checkpoint_format import DCP_METADATA_NAME, MARKER_NAME, CheckpointFile, Marker
from training_storage.cli import main
from training_storage.operations import lustre_export
from training_storage.operations.archive_manifest import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

LAKE = "archive-lustre-lake"
JOB = "default"
PREFIX = f"checkpoints/{JOB}/"
NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
CONTENT = {"rank-0.pt": "zero", "rank-1.pt": "one", "optimizer/rank-0.pt": "state"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node with the file system mounted; what is written there FSx knows as well."""

    aws: LocalAws
    fsx: Any
    s3: Any
    file_system: str
    mount: Path

    def contract(self) -> str:
        document = {
            "schema_version": 1,
            "job": {"name": JOB},
            "region": "us-east-1",
            "endpoint": {"url": self.aws.endpoint_url, "addressing_style": "path", "checksums": "when_supported"},
            "lustre": {"file_system_id": self.file_system, "mount_path": str(self.mount)},
            "checkpoints": {
                "path": f"{self.mount}/checkpoints/",
                "uri": None,
                "durable_uri": f"s3://{LAKE}/{PREFIX}",
                "durable_interval_minutes": 360.0,
                "durable_kept": 4,
            },
        }
        path = self.mount.parent / "storage.json"
        path.write_text(json.dumps(document))
        return str(path)

    def write(self, path: str, text: str, *, known: str | None = None) -> None:
        file = self.mount / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.aws.fsx_control(files={self.file_system: {f"/{path}": text if known is None else known}})

    def save(self, step: int, content: Mapping[str, str] = CONTENT, *, at: dt.datetime = NOON) -> str:
        name = f"step-{step:010d}"
        files = tuple(CheckpointFile(path=path, bytes=len(text)) for path, text in content.items())
        for path, text in content.items():
            self.write(f"checkpoints/{name}/{path}", text)
        self.write(f"checkpoints/{name}/{MARKER_NAME}", Marker(step=step, finished_at=at, files=files).to_json())
        return name

    def run(self, *options: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["archive", "--contract", self.contract(), *options])
        return code, out.getvalue(), err.getvalue()

    def held(self) -> dict[str, str]:
        answer = self.s3.list_objects_v2(Bucket=LAKE, Prefix=PREFIX)
        keys = [entry["Key"] for entry in answer.get("Contents", [])]
        bodies = {key: self.s3.get_object(Bucket=LAKE, Key=key)["Body"].read().decode() for key in keys}
        return {key.removeprefix(PREFIX): body for key, body in bodies.items() if "/.archive-reports/" not in key}

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.fsx.describe_data_repository_tasks(
            Filters=[{"Name": "file-system-id", "Values": [self.file_system]}]
        )["DataRepositoryTasks"]
        return sorted(found, key=lambda task: task["CreationTime"])


@pytest.fixture
def node(local_aws: LocalAws, network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(lustre_export, "FIRST_POLL_SECONDS", 0.05)
    local_aws.fsx_control(transition_seconds=0.02, task_outcome="SUCCEED", failed_files={})
    fsx, s3 = local_aws.client("fsx"), local_aws.client("s3")
    s3.create_bucket(Bucket=LAKE)
    file_system = fsx.create_file_system(
        FileSystemType="LUSTRE",
        FileSystemTypeVersion="2.15",
        StorageCapacity=1200,
        SubnetIds=[network.subnet],
        SecurityGroupIds=[network.open_group],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    )["FileSystem"]["FileSystemId"]
    wait(lambda: fsx.describe_file_systems(FileSystemIds=[file_system])["FileSystems"][0]["Lifecycle"])
    link = fsx.create_data_repository_association(
        FileSystemId=file_system, FileSystemPath="/checkpoints/", DataRepositoryPath=f"s3://{LAKE}/{PREFIX}"
    )["Association"]["AssociationId"]
    wait(lambda: fsx.describe_data_repository_associations(AssociationIds=[link])["Associations"][0]["Lifecycle"])
    made = Node(aws=local_aws, fsx=fsx, s3=s3, file_system=file_system, mount=tmp_path / "fsx")
    (made.mount / "checkpoints").mkdir(parents=True)
    yield made
    local_aws.fsx_control(transition_seconds=0.2, task_outcome="SUCCEED", failed_files={})
    for task in made.tasks():
        if task["Lifecycle"] in ("PENDING", "EXECUTING"):
            fsx.cancel_data_repository_task(TaskId=task["TaskId"])
    for entry in s3.list_objects_v2(Bucket=LAKE).get("Contents", []):
        s3.delete_object(Bucket=LAKE, Key=entry["Key"])
    fsx.delete_data_repository_association(AssociationId=link)


def wait(lifecycle: Any) -> None:
    deadline = time.monotonic() + 20
    while lifecycle() != "AVAILABLE":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_checkpoint_is_exported_on_its_paths_and_published(node: Node) -> None:
    name = node.save(1200)
    code, out, err = node.run()
    assert code == 0, err
    assert out.startswith(f"{name}: ")
    held = node.held()
    assert {path: held[f"{name}/{path}"] for path in CONTENT} == CONTENT
    manifest = read_manifest(held[f"{name}/{MANIFEST_NAME}"])
    assert manifest.source == f"fsx://{node.file_system}/checkpoints/{name}"
    assert {file.compared for file in manifest.files} == {"size"}
    assert json.loads(held["latest.json"])["checkpoint"] == name
    data, marks = node.tasks()
    assert data["Paths"] == [f"checkpoints/{name}/{entry}" for entry in ("optimizer", "rank-0.pt", "rank-1.pt")]
    assert marks["Paths"] == [f"checkpoints/{name}"]
    assert data["Report"]["Path"] == f"s3://{LAKE}/{PREFIX}.archive-reports"


def test_running_it_again_starts_no_task(node: Node) -> None:
    node.save(1200)
    node.run()
    before = node.tasks(), node.held()
    assert node.run() == (0, "Nothing to do: 1 of 1 checkpoints worth keeping are in the lake.\n", "")
    assert (node.tasks(), node.held()) == before


def test_a_folder_of_more_files_than_a_task_takes_paths_is_exported_as_a_whole(node: Node) -> None:
    name = node.save(1200, {f"rank-{rank}.pt": "x" for rank in range(101)})
    assert node.run()[0] == 0
    assert [task["Paths"] for task in node.tasks()] == [[f"checkpoints/{name}"]]


def test_files_that_fail_are_named_with_the_report(node: Node) -> None:
    name = node.save(1200)
    node.aws.fsx_control(failed_files={f"/checkpoints/{name}/rank-1.pt": "S3AccessDenied"})
    code, _, err = node.run()
    assert code == 1
    last = err.splitlines()[-1]
    assert f"/checkpoints/{name}/rank-1.pt (S3AccessDenied)" in last
    assert re.search(rf"Report: s3://{LAKE}/{PREFIX}\.archive-reports/task-\w+/failures\.csv", last)
    assert f"{name}/{MANIFEST_NAME}" not in node.held()
    assert "latest.json" not in node.held()
    node.aws.fsx_control(failed_files={})
    assert node.run()[0] == 0
    assert f"{name}/{MANIFEST_NAME}" in node.held()


def test_what_the_lake_has_in_another_size_is_not_published(node: Node) -> None:
    name = node.save(1200)
    # FSx exports a file that it has not got whole.
    node.write(f"checkpoints/{name}/rank-1.pt", "one", known="on")
    code, _, err = node.run()
    assert code == 1
    assert "rank-1.pt in the lake is 2 bytes, at the source 3 bytes: not published" in err
    assert f"{name}/{MANIFEST_NAME}" not in node.held()


def test_a_truncated_source_starts_no_task(node: Node) -> None:
    name = node.save(1200)
    node.write(f"checkpoints/{name}/rank-1.pt", "o")
    code, out, _ = node.run()
    assert code == 0
    assert f"{name}: left out, rank-1.pt has 1 bytes, {MARKER_NAME} says 3" in out
    assert (node.tasks(), node.held()) == ([], {})


def test_a_task_that_does_the_same_is_waited_for(node: Node) -> None:
    name = node.save(1200, {"rank-0.pt": "zero"})
    node.aws.fsx_control(transition_seconds=0.6)
    started = node.fsx.create_data_repository_task(
        FileSystemId=node.file_system,
        Type="EXPORT_TO_REPOSITORY",
        Paths=[f"checkpoints/{name}/rank-0.pt"],
        Report={"Enabled": False},
    )["DataRepositoryTask"]["TaskId"]
    code, _, err = node.run()
    assert code == 0
    assert f"{started} exports this already; waiting for it" in err
    assert [task["Paths"] for task in node.tasks()] == [[f"checkpoints/{name}/rank-0.pt"], [f"checkpoints/{name}"]]


def test_another_task_is_waited_for(node: Node) -> None:
    node.save(1200)
    node.aws.fsx_control(transition_seconds=0.4)
    other = node.fsx.create_data_repository_task(
        FileSystemId=node.file_system, Type="IMPORT_METADATA_FROM_REPOSITORY", Report={"Enabled": False}
    )["DataRepositoryTask"]["TaskId"]
    code, _, err = node.run()
    assert code == 0
    assert f"{other} (IMPORT_METADATA_FROM_REPOSITORY) is" in err
    assert len(node.tasks()) == 3


def test_a_task_that_takes_too_long_goes_on_and_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    name = node.save(1200)
    node.aws.fsx_control(task_outcome="HANG")
    # 360 minutes are half a second.
    monkeypatch.setattr(lustre_export, "SECONDS_PER_MINUTE", 0.5 / 360)
    code, _, err = node.run()
    assert code == 1
    assert "it goes on, and the same command takes it up again" in err
    assert [task["Lifecycle"] for task in node.tasks()] == ["EXECUTING"]
    assert f"{name}/{MANIFEST_NAME}" not in node.held()


def test_a_link_that_exports_by_itself_is_refused_with_the_command(node: Node) -> None:
    node.save(1200)
    link = node.fsx.describe_data_repository_associations(
        Filters=[{"Name": "file-system-id", "Values": [node.file_system]}]
    )["Associations"][0]["AssociationId"]
    node.fsx.update_data_repository_association(AssociationId=link, S3={"AutoExportPolicy": {"Events": ["NEW"]}})
    code, _, err = node.run()
    assert code == 1
    assert f"update-data-repository-association --association-id {link}" in err
    assert node.tasks() == []


def test_a_file_system_that_is_not_mounted_here_is_said(node: Node) -> None:
    (node.mount / "checkpoints").rmdir()
    code, _, err = node.run()
    assert code == 1
    assert "is not mounted on this machine, and FSx lists no files: run this on a node (archive.sbatch does)" in err


def test_torch_checkpoints_are_archived_with_our_marker_in_the_lake(node: Node) -> None:
    node.write("checkpoints/step-7/__0_0.distcp", "data")
    node.write(f"checkpoints/step-7/{DCP_METADATA_NAME}", "meta")
    assert node.run()[0] == 0
    held = node.held()
    assert held[f"step-7/{DCP_METADATA_NAME}"] == "meta"
    assert json.loads(held[f"step-7/{MARKER_NAME}"])["step"] == 7
    assert node.run()[1].startswith("Nothing to do")


def put_whole(node: Node, name: str, content: Mapping[str, str], *, at: dt.datetime) -> None:
    """Put a whole checkpoint into the lake, as an export of everything does: without a manifest."""
    files = tuple(CheckpointFile(path=path, bytes=len(text)) for path, text in content.items())
    marker = Marker(step=1200, finished_at=at, files=files).to_json()
    for path, text in {**content, MARKER_NAME: marker}.items():
        node.s3.put_object(Bucket=LAKE, Key=f"{PREFIX}{name}/{path}", Body=text.encode())


def test_another_whole_checkpoint_of_that_name_is_never_exported_over(node: Node) -> None:
    name = node.save(1200, at=NOON + dt.timedelta(hours=1))
    put_whole(node, name, {path: text[::-1] for path, text in CONTENT.items()}, at=NOON)
    before = node.held()
    code, _, err = node.run()
    assert code == 1
    assert f"{name} is in the lake already with other content" in err
    assert (node.tasks(), node.held()) == ([], before)


def test_one_that_comes_after_the_plan_is_seen_before_a_task_starts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = node.save(1200, at=NOON + dt.timedelta(hours=1))
    check = lustre_export.LustreExport.check_link

    def late(export: lustre_export.LustreExport) -> Any:
        put_whole(node, name, {path: text[::-1] for path, text in CONTENT.items()}, at=NOON)
        return check(export)

    monkeypatch.setattr(lustre_export.LustreExport, "check_link", late)
    code, _, err = node.run()
    assert code == 1
    assert f"{name}: it is in the lake already with other content" in err
    assert node.tasks() == []


def test_what_was_exported_with_everything_gets_its_manifest(node: Node) -> None:
    name = node.save(1200)
    put_whole(node, name, CONTENT, at=NOON)
    assert node.run()[0] == 0
    assert f"{name}/{MANIFEST_NAME}" in node.held()


def test_a_torch_checkpoint_that_was_written_again_since_is_another_one(node: Node) -> None:
    for path, text in {"__0_0.distcp": "data", DCP_METADATA_NAME: "meta"}.items():
        node.s3.put_object(Bucket=LAKE, Key=f"{PREFIX}step-7/{path}", Body=text[::-1].encode())
    later = time.time() + 5
    for path, text in {"__0_0.distcp": "data", DCP_METADATA_NAME: "meta"}.items():
        node.write(f"checkpoints/step-7/{path}", text)
        os.utime(node.mount / f"checkpoints/step-7/{path}", (later, later))
    code, _, err = node.run()
    assert (code, node.tasks()) == (1, [])
    assert "step-7 is in the lake already with other content" in err
    assert node.held()["step-7/__0_0.distcp"] == "atad"


def test_a_report_of_any_length_is_read_at_its_beginning_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    name = node.save(1200)
    failed = {f"/checkpoints/{name}/{path}": "S3AccessDenied" for path in CONTENT}
    node.aws.fsx_control(failed_files=failed)
    monkeypatch.setattr(lustre_export, "_REPORT_BYTES", 80)
    code, _, err = node.run()
    assert code == 1
    last = err.splitlines()[-1]
    # Of the report's first 80 bytes only whole lines count; how many failed, the task says.
    assert last.count("(S3AccessDenied)") == 1
    assert "and 2 more; " in last
