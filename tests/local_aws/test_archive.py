"""Archives from a directory bucket and from a Lustre file system into the lake of the local AWS."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import io
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import uuid
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.checkpoint_format import DCP_METADATA_NAME, MARKER_NAME, CheckpointFile, Marker, read_marker
from training_storage.cli import main
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_manifest import MANIFEST_NAME, read_manifest
from training_storage.operations.archive_prune import lake_rule, plan_prune, prune
from training_storage.operations.archive_settings import settings_of
from training_storage.operations.checkpoint_listing import list_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

LAKE = "archive-lake"
NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
MIB = 2**20
# Three parts of 5 MiB, two, and files that are copied at once; one in a folder below, one empty.
CONTENT = {
    "rank-0.pt": random.Random(0).randbytes(11 * MIB),  # noqa: S311 -- test data
    "rank-1.pt": random.Random(1).randbytes(6 * MIB),  # noqa: S311
    "rank-2.pt": random.Random(2).randbytes(70_000),  # noqa: S311
    "optimizer/rank-0.pt": random.Random(3).randbytes(9_000),  # noqa: S311
    "empty": b"",
}
SMALL = {path: CONTENT[path] for path in ("rank-2.pt", "optimizer/rank-0.pt", "empty")}


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A lake and a directory bucket, and the command with a contract of one job."""

    aws: LocalAws
    s3: Any
    express: str
    folder: Path
    job: str = field(default_factory=lambda: f"j{uuid.uuid4().hex[:12]}")

    @property
    def prefix(self) -> str:
        return f"checkpoints/{self.job}/"

    def contract(self, **checkpoints: Any) -> str:
        document = {
            "schema_version": 1,
            "job": {"name": self.job},
            "region": "us-east-1",
            "endpoint": {"url": self.aws.endpoint_url, "addressing_style": "path", "checksums": "when_supported"},
            "lustre": None,
            "checkpoints": {
                "path": None,
                "uri": f"s3://{self.express}/{self.prefix}",
                "durable_uri": f"s3://{LAKE}/{self.prefix}",
                "durable_interval_minutes": 360.0,
                "durable_kept": 4,
                **checkpoints,
            },
        }
        path = self.folder / f"{self.job}.json"
        path.write_text(json.dumps(document))
        return str(path)

    def save(self, step: int, content: Mapping[str, bytes] = SMALL, *, at: dt.datetime = NOON, **missing: Any) -> str:
        """Write a checkpoint with our marker into the directory bucket; `without` names a file that is not written."""
        name = f"step-{step:010d}"
        files = []
        for path, body in content.items():
            if path != missing.get("without"):
                self.put(f"{name}/{path}", body[: missing.get("cut", len(body))] if path == "rank-2.pt" else body)
            files.append(CheckpointFile(path=path, bytes=len(body)))
        self.put(f"{name}/{MARKER_NAME}", Marker(step=step, finished_at=at, files=tuple(files)).to_json().encode())
        return name

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=self.express, Key=self.prefix + key, Body=body)

    def run(self, *options: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["archive", "--contract", str(self.folder / f"{self.job}.json"), *options])
        return code, out.getvalue(), err.getvalue()

    def keys(self) -> dict[str, bytes]:
        """What the lake holds of the job."""
        found = {}
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=self.prefix):
            for entry in page.get("Contents", []):
                body = self.s3.get_object(Bucket=LAKE, Key=entry["Key"])["Body"].read()
                found[entry["Key"].removeprefix(self.prefix)] = body
        return found

    def versions(self) -> Counter[str]:
        """How often each object was written."""
        count: Counter[str] = Counter()
        for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=LAKE, Prefix=self.prefix):
            count.update(entry["Key"].removeprefix(self.prefix) for entry in page.get("Versions", []))
        return count

    def uploads(self) -> list[str]:
        answer = self.s3.list_multipart_uploads(Bucket=LAKE, Prefix=self.prefix)
        return [upload["Key"] for upload in answer.get("Uploads", [])]

    def forget(self) -> None:
        for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=LAKE, Prefix=self.prefix):
            for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                self.s3.delete_object(Bucket=LAKE, Key=entry["Key"], VersionId=entry["VersionId"])


@pytest.fixture(scope="module")
def express(stacks: Any) -> str:
    bucket = {
        "Type": "AWS::S3Express::DirectoryBucket",
        "Properties": {"LocationName": "use1-az6", "DataRedundancy": "SingleAvailabilityZone"},
    }
    stacks.create("archive-express", {"Bucket": bucket})
    name: str = stacks.resource("archive-express", "Bucket")
    return name


@pytest.fixture(scope="module")
def lake_bucket(local_aws: LocalAws) -> str:
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket=LAKE)
    s3.put_bucket_versioning(Bucket=LAKE, VersioningConfiguration={"Status": "Enabled"})
    return LAKE


@pytest.fixture
def lake(
    local_aws: LocalAws, express: str, lake_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    made = Lake(aws=local_aws, s3=local_aws.client("s3"), express=express, folder=tmp_path)
    made.contract()
    yield made
    made.forget()


@functools.cache
def digest(body: bytes) -> str:
    """Return what stands for some bytes in a comparison: the same ones are read a hundred times."""
    return hashlib.sha256(body).hexdigest()


def published(lake: Lake, name: str, content: Mapping[str, bytes]) -> None:
    """Assert that a checkpoint is in the lake: whole, identical, written once, and described."""
    held = lake.keys()
    there = {path.removeprefix(f"{name}/"): body for path, body in held.items() if path.startswith(f"{name}/")}
    manifest = read_manifest(there.pop(MANIFEST_NAME))
    marker = read_marker(there.pop(MARKER_NAME))
    assert {path: digest(body) for path, body in there.items()} == {
        path: digest(body) for path, body in content.items()
    }
    assert {file.path: file.bytes for file in marker.files} == {path: len(body) for path, body in content.items()}
    assert {file.path: file.bytes for file in manifest.files if file.path != MARKER_NAME} == {
        path: len(body) for path, body in content.items()
    }
    assert (manifest.checkpoint, manifest.job) == (name, lake.job)
    assert json.loads(held["latest.json"])["checkpoint"] == name
    assert set(lake.versions().values()) == {1}
    assert lake.uploads() == []


def test_a_checkpoint_arrives_whole_with_a_manifest_and_the_pointer(lake: Lake) -> None:
    name = lake.save(1200, CONTENT)
    code, out, err = lake.run("--part-size-mib", "5")
    assert (code, err) == (0, "")
    assert out == f"{name}: 0.02 GiB in s3://{LAKE}/{lake.prefix}{name}/\nMoved latest.json to {name}.\n"
    published(lake, name, CONTENT)


def test_the_manifest_says_from_where_and_what_was_compared(lake: Lake) -> None:
    name = lake.save(1200, CONTENT)
    lake.run("--part-size-mib", "5")
    manifest = read_manifest(lake.keys()[f"{name}/{MANIFEST_NAME}"])
    assert manifest.source == f"s3://{lake.express}/{lake.prefix}{name}/"
    assert (manifest.step, manifest.end_mark, manifest.finished_at) == (1200, MARKER_NAME, NOON)
    compared = {file.path: (file.compared, file.algorithm) for file in manifest.files}
    assert compared["rank-2.pt"] == ("full-object checksum", "CRC32")
    # The local S3 computes no checksum for parts that are copied.
    assert compared["rank-0.pt"] == ("size", None)


def test_running_it_again_writes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.save(1200, CONTENT)
    lake.run("--part-size-mib", "5")
    requests: Counter[str] = Counter()
    count_requests(monkeypatch, requests)
    code, out, _ = lake.run("--part-size-mib", "5")
    assert code == 0
    assert out == "Nothing to do: 1 of 1 checkpoints worth keeping are in the lake.\n"
    # Opening a session of the directory bucket writes nothing.
    assert set(requests) == {"CreateSession", "ListObjectsV2", "GetObject"}
    assert set(lake.versions().values()) == {1}


def count_requests(monkeypatch: pytest.MonkeyPatch, requests: Counter[str]) -> None:
    from botocore.client import BaseClient  # noqa: PLC0415

    original = BaseClient._make_api_call

    def counted(self: Any, operation_name: str, api_params: Any) -> Any:
        requests[operation_name] += 1
        return original(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)


def test_a_dry_run_names_bytes_and_money_and_writes_nothing(lake: Lake) -> None:
    name = lake.save(1200, CONTENT)
    code, out, _ = lake.run("--dry-run")
    assert code == 0
    assert "nothing was written" in out
    assert f"{name}: 0.02 GiB to copy (the newest complete checkpoint)" in out
    assert "$0.00 per month" in out
    document = json.loads(lake.run("--dry-run", "--json")[1])
    size = sum(map(len, CONTENT.values()))
    assert document["checkpoints"][0]["missing_bytes"] == document["checkpoints"][0]["bytes"] > size
    assert document["cost"]["per_month_usd"] == pytest.approx(document["checkpoints"][0]["bytes"] / 2**30 * 0.023)
    assert lake.keys() == {}


@pytest.mark.parametrize("broken", [{"without": "rank-2.pt"}, {"cut": 5}], ids=["a file is missing", "a file is cut"])
def test_a_truncated_source_is_not_published(lake: Lake, broken: dict[str, Any]) -> None:
    lake.save(1200, **broken)
    code, out, _ = lake.run()
    assert code == 0
    assert "step-0000001200: left out, rank-2.pt" in out
    assert lake.keys() == {}
    code, _, err = lake.run("--step", "1200")
    assert code == 1
    assert "step-0000001200 is not archived: it is no complete checkpoint, rank-2.pt" in err
    assert lake.keys() == {}


def test_the_pointer_never_goes_back(lake: Lake) -> None:
    lake.save(1200, at=NOON)
    lake.run()
    older = lake.save(1100, at=NOON + dt.timedelta(minutes=10))
    code, out, _ = lake.run()
    assert code == 0
    assert out.startswith(older)
    assert "Moved" not in out
    assert json.loads(lake.keys()["latest.json"])["checkpoint"] == "step-0000001200"


def test_a_name_that_is_used_twice_is_left_alone_and_said(lake: Lake) -> None:
    name = lake.save(1200)
    lake.run()
    before = lake.keys()
    lake.save(1200, {**SMALL, "rank-2.pt": SMALL["rank-2.pt"][::-1]}, at=NOON + dt.timedelta(hours=1))
    code, _, err = lake.run()
    assert code == 1
    assert f"{name} is in the lake already with other content" in err
    assert lake.keys() == before


def test_what_somebody_removed_from_the_lake_is_brought_again(lake: Lake) -> None:
    name = lake.save(1200)
    lake.run()
    lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{name}/rank-2.pt")
    assert lake.run()[0] == 0
    assert lake.keys()[f"{name}/rank-2.pt"] == SMALL["rank-2.pt"]


def test_the_end_mark_of_a_framework_is_enough_and_the_lake_gets_our_marker(lake: Lake) -> None:
    lake.put("iter_0001200/model.pt", b"12345")
    lake.put("latest_checkpointed_iteration.txt", b"1200")
    lake.put("iter_0001300/model.pt", b"123")
    code, out, _ = lake.run()
    assert code == 0
    assert "iter_0001300: left out, it has no end mark" in out
    held = lake.keys()
    assert read_marker(held[f"iter_0001200/{MARKER_NAME}"]).files[0].bytes == 5
    assert held["latest_checkpointed_iteration.txt"] == b"1200"
    assert lake.run()[1].startswith("Nothing to do")


def test_only_due_checkpoints_are_archived_when_asked(lake: Lake) -> None:
    lake.save(100, at=NOON)
    assert lake.run("--if-due")[0] == 0
    lake.save(200, at=NOON + dt.timedelta(minutes=5))
    code, out, _ = lake.run("--if-due")
    assert (code, "none is due yet" in out) == (0, True)
    lake.save(300, at=NOON + dt.timedelta(minutes=361))
    assert "step-0000000300" in lake.run("--if-due")[1]


def _child(contract: str) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    os._exit(main(["archive", "--contract", contract, "--part-size-mib", "5", "--concurrency", "4"]))


def test_killed_at_fifty_random_points_and_run_again_every_object_is_whole_and_written_once(lake: Lake) -> None:
    context = multiprocessing.get_context("fork")
    name = lake.save(1200, CONTENT)
    contract = lake.contract()
    # Of a whole run, measured again in every round: the machine may be busier or idler by then.
    began = time.monotonic()
    run = context.Process(target=_child, args=(contract,))
    run.start()
    run.join()
    seconds = time.monotonic() - began
    assert run.exitcode == 0
    published(lake, name, CONTENT)
    lake.forget()
    killed = random.Random(7)  # noqa: S311 -- the same points every time
    states: Counter[str] = Counter()
    for _ in range(50):
        child = context.Process(target=_child, args=(contract,))
        child.start()
        time.sleep(killed.uniform(0, seconds))
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        # A request that was under way when its client died is still answered.
        time.sleep(0.15)
        held = lake.versions()
        states["nothing" if not held else "all" if f"{name}/{MANIFEST_NAME}" in held else "some"] += 1
        began = time.monotonic()
        code, _, err = lake.run("--part-size-mib", "5", "--concurrency", "4")
        if not held:
            seconds = time.monotonic() - began
        assert (code, err) == (0, "")
        published(lake, name, CONTENT)
        lake.forget()
    # The points are spread: some before, some in the midst.
    assert states["some"] >= 10, states


def fill(lake: Lake, count: int = 9) -> list[str]:
    """Archive `count` checkpoints, one for each durable interval."""
    names = [lake.save(100 * n, {"x": b"1"}, at=NOON + dt.timedelta(hours=6 * n)) for n in range(1, count + 1)]
    assert lake.run("--every-steps", "100")[0] == 0
    return names


def folders(lake: Lake) -> list[str]:
    return sorted({key.split("/")[0] for key in lake.keys() if "/" in key})  # noqa: SIM118 -- a method


def test_pruning_shows_first_and_removes_only_when_told(lake: Lake) -> None:
    names = fill(lake)
    code, out, _ = lake.run("--prune")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("Would remove")] == [
        f"Would remove (with --yes): {name}, 0.00 GiB" for name in names[:3]
    ]
    assert folders(lake) == names
    code, out, _ = lake.run("--prune", "--yes")
    assert code == 0
    assert folders(lake) == names[3:]
    # What was removed is still there as noncurrent versions.
    assert lake.versions()[f"{names[0]}/x"] == 1
    assert lake.run("--prune", "--yes")[1].endswith("Nothing in the lake to remove.\n")


def test_pruning_keeps_multiples_of_a_step(lake: Lake) -> None:
    names = fill(lake)
    assert lake.run("--every-steps", "200", "--prune", "--yes")[0] == 0
    assert folders(lake) == [names[1], *names[3:]]


def put_in_lake(lake: Lake, key: str, body: bytes = b"1") -> None:
    lake.s3.put_object(Bucket=LAKE, Key=lake.prefix + key, Body=body)


def export(lake: Lake, step: int, *, at: dt.datetime, end: str = MARKER_NAME, name: str | None = None) -> str:
    """Put a whole checkpoint into the lake as the last export of a file system does: without a manifest."""
    name = name or f"step-{step:010d}"
    put_in_lake(lake, f"{name}/x")
    marker = Marker(step=step, finished_at=at, files=(CheckpointFile(path="x", bytes=1),)).to_json()
    put_in_lake(lake, f"{name}/{end}", marker.encode() if end == MARKER_NAME else b"m")
    return name


def test_pruning_leaves_alone_what_no_archive_or_export_of_this_job_wrote(lake: Lake) -> None:
    names = fill(lake)
    others = ["mine/notes.txt", "checkpoint-100/model.safetensors", "best-step-1/x", "evaluations/x/y"]
    for key in others:
        put_in_lake(lake, key)
    # A folder of a framework's end mark and no step, and another job's.
    export(lake, 0, at=NOON, end=DCP_METADATA_NAME, name="tokenizer")
    other = lake.keys()[f"{names[0]}/{MANIFEST_NAME}"].decode().replace(f'"{lake.job}"', '"other"', 1)
    put_in_lake(lake, f"{names[0]}/{MANIFEST_NAME}", other.encode())
    outside = f"checkpoints/{lake.job}x/step-0000000001/x"
    lake.s3.put_object(Bucket=LAKE, Key=outside, Body=b"1")
    assert lake.run("--prune", "--yes")[0] == 0
    assert folders(lake) == sorted([*{key.split("/")[0] for key in others}, "tokenizer", names[0], *names[3:]])
    assert lake.s3.get_object(Bucket=LAKE, Key=outside)["Body"].read() == b"1"


def test_what_the_last_export_of_a_file_system_brought_is_pruned_by_the_rule(lake: Lake) -> None:
    # Two of one interval, then one an interval: the first is named by nothing.
    first = export(lake, 50, at=NOON)
    kept = [export(lake, 100 * n, at=NOON + dt.timedelta(hours=6 * n)) for n in range(6)]
    half = "step-0000000060"
    put_in_lake(lake, f"{half}/x")
    lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{kept[0]}/x")
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}", durable_kept=1)
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    # The newest two and one interval besides; what is damaged stays, and what was half written is gone.
    assert folders(lake) == [kept[0], *kept[3:]]
    assert first not in folders(lake)


def test_what_is_half_written_stays_while_no_whole_one_is_newer_by_time_and_step(lake: Lake) -> None:
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    whole = export(lake, 200, at=long_ago)
    # Younger than the whole one, by S3's clock, though of a lower step.
    put_in_lake(lake, "step-0000000100/x")
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}", durable_kept=0)
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert folders(lake) == ["step-0000000100", whole]
    # Older, but of a higher step.
    export(lake, 210, at=NOON + dt.timedelta(days=90))
    put_in_lake(lake, "step-0000000300/x")
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert folders(lake) == [whole, "step-0000000210", "step-0000000300"]


def test_without_a_whole_checkpoint_nothing_is_pruned(lake: Lake) -> None:
    for step in (100, 200):
        put_in_lake(lake, f"step-{step:010d}/x")
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}", durable_kept=0)
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert folders(lake) == ["step-0000000100", "step-0000000200"]


def test_an_archived_one_that_is_younger_than_everything_whole_stays_for_a_person(lake: Lake) -> None:
    names = fill(lake)
    for path in (MARKER_NAME, "x"):
        lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{names[-1]}/{path}")
    put_in_lake(lake, "latest.json", json.dumps({"schema_version": 1, "checkpoint": names[7], "step": 800}).encode())
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}", durable_kept=0)
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert folders(lake) == names[6:]


@pytest.mark.parametrize("left", [True, False], ids=["it becomes the newest", "none is whole"])
def test_what_became_the_newest_since_the_plan_is_not_removed(lake: Lake, left: bool) -> None:
    names = fill(lake, 4)
    settings = settings_of(json.loads(Path(lake.contract(durable_kept=0)).read_text()))
    listing = list_prefix(lake.s3, bucket=LAKE, prefix=lake.prefix)
    plan = plan_prune(listing, settings, lake_rule(settings))
    assert [one.name for one in plan.goes] == names[:2]
    for name in names[1:] if left else names:
        lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{name}/{MARKER_NAME}")
        lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{name}/{MANIFEST_NAME}")
    before = lake.keys()
    words = (
        "is the newest complete checkpoint by now, and stays" if left else "nothing in the lake is complete any more"
    )
    with pytest.raises(ArchiveError, match=f"{names[0]}.*{words}"):
        prune(lake.s3, plan, settings)
    assert lake.keys() == before


def test_pruning_never_removes_the_newest_complete_one_nor_what_the_pointer_names(lake: Lake) -> None:
    names = fill(lake)
    # All but the two oldest lose a file, and the pointer is put back by hand.
    for name in names[2:]:
        lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{name}/x")
    lake.s3.put_object(
        Bucket=LAKE,
        Key=f"{lake.prefix}latest.json",
        Body=json.dumps({"schema_version": 1, "checkpoint": names[0], "step": 100}).encode(),
    )
    contract = lake.contract(durable_kept=0, uri=f"s3://{LAKE}/{lake.prefix}")
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert names[0] in folders(lake)
    assert names[1] in folders(lake)
    held = lake.keys()
    assert f"{names[1]}/{MARKER_NAME}" in held
    assert f"{names[1]}/x" in held


def test_a_removal_that_was_killed_is_finished_by_the_next(lake: Lake) -> None:
    names = fill(lake)
    lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{names[0]}/{MARKER_NAME}")
    lake.s3.delete_object(Bucket=LAKE, Key=f"{lake.prefix}{names[0]}/x")
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}")
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 0
    assert folders(lake) == names[3:]


def test_pruning_stops_at_a_pointer_that_cannot_be_read(lake: Lake) -> None:
    names = fill(lake)
    lake.s3.put_object(Bucket=LAKE, Key=f"{lake.prefix}latest.json", Body=b"{")
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}")
    assert main(["archive", "--contract", contract, "--prune", "--yes"]) == 1
    assert folders(lake) == names


def test_checkpoints_that_are_written_to_the_lake_need_no_archive(lake: Lake) -> None:
    contract = lake.contract(uri=f"s3://{LAKE}/{lake.prefix}")
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["archive", "--contract", contract]) == 0
    assert "are written to the lake itself: nothing to copy" in out.getvalue()


def test_the_contract_can_come_from_ssm(lake: Lake) -> None:
    name = lake.save(1200)
    with open(lake.contract()) as file:  # noqa: PTH123
        lake.aws.client("ssm").put_parameter(
            Name=f"/training-storage/{lake.job}/contract", Value=file.read(), Type="String"
        )
    assert main(["archive", "--job", lake.job, "--region", "us-east-1"]) == 0
    published(lake, name, SMALL)
    assert main(["archive", "--job", "nobody", "--region", "us-east-1"]) == 2
