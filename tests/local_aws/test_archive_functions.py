"""The functions of the scheduled archive and of the directory bucket's gate, against the local AWS."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.checkpoint_format import DCP_METADATA_NAME, MARKER_NAME, CheckpointFile, Marker
from training_storage.operations import archive_function, express_emptying, express_gate_function
from training_storage.operations.archive import Archive, ArchiveResult
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

LAKE = "archive-functions-lake"
NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
DELETE = {
    "RequestType": "Delete",
    "PhysicalResourceId": "x",
    "Began": dt.datetime.now(tz=dt.UTC).isoformat(),
}


class Context:
    """Lambda's context: the time that is left shrinks with every question."""

    def __init__(self, questions: int = 10**9) -> None:
        self.left = questions

    def get_remaining_time_in_millis(self) -> int:
        self.left -= 1
        return 900_000 if self.left >= 0 else 0


@dataclass(frozen=True, kw_only=True)
class Job:
    s3: Any
    express: str
    name: str = field(default_factory=lambda: f"j{uuid.uuid4().hex[:12]}")

    @property
    def prefix(self) -> str:
        return f"checkpoints/{self.name}/"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "JOB": self.name,
            "AWS_REGION": "us-east-1",
            "SOURCE_URI": f"s3://{self.express}/{self.prefix}",
            "LAKE_URI": f"s3://{LAKE}/{self.prefix}",
            "DURABLE_INTERVAL_MINUTES": "360",
            "DURABLE_KEPT": "4",
            "PRUNE": "true",
            "WAIT_SECONDS": "3300",
        }

    def save(self, step: int, *, minutes: float, marker: bool = True, files: int = 3) -> str:
        name = f"step-{step:010d}"
        paths = [f"rank-{rank}.pt" for rank in range(files)]
        for path in paths:
            self.s3.put_object(Bucket=self.express, Key=f"{self.prefix}{name}/{path}", Body=f"{step} {path}".encode())
        if marker:
            text = Marker(
                step=step,
                finished_at=NOON + dt.timedelta(minutes=minutes),
                files=tuple(CheckpointFile(path=path, bytes=len(f"{step} {path}")) for path in paths),
            ).to_json()
            self.s3.put_object(Bucket=self.express, Key=f"{self.prefix}{name}/{MARKER_NAME}", Body=text.encode())
        return name

    def keys(self, bucket: str) -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def archived(self) -> list[str]:
        keys = [key.removeprefix(self.prefix) for key in self.keys(LAKE) if key.startswith(self.prefix)]
        return sorted(key.split("/")[0] for key in keys if key.endswith(f"/{MANIFEST_NAME}"))

    def run(self, **options: Any) -> dict[str, Any]:
        return archive_function.run(self.environment, out_of_time=options.get("out_of_time", lambda: False))


@pytest.fixture(scope="module")
def express(stacks: Any, local_aws: LocalAws) -> str:
    local_aws.client("s3").create_bucket(Bucket=LAKE)
    bucket = {
        "Type": "AWS::S3Express::DirectoryBucket",
        "Properties": {"LocationName": "use1-az6", "DataRedundancy": "SingleAvailabilityZone"},
    }
    stacks.create("archive-functions", {"Bucket": bucket})
    name: str = stacks.resource("archive-functions", "Bucket")
    return name


@pytest.fixture
def hot(local_aws: LocalAws, express: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    made = Job(s3=local_aws.client("s3"), express=express)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    for key in made.keys(express):
        made.s3.delete_object(Bucket=express, Key=key)


def test_a_run_archives_what_is_due_and_nothing_between(hot: Job) -> None:
    first = hot.save(100, minutes=0)
    assert archive_function.handler({}, Context())["published"] == [first]
    hot.save(200, minutes=5)
    assert hot.run()["published"] == []
    later = hot.save(300, minutes=365)
    assert hot.run()["published"] == [later]
    assert hot.archived() == [first, later]


def test_a_run_out_of_time_says_so_and_the_next_one_goes_on(hot: Job) -> None:
    name = hot.save(100, minutes=0, files=20)
    asked = iter(range(10**6))
    assert hot.run(out_of_time=lambda: next(asked) > 15) == {"published": [], "unfinished": [name], "removed": []}
    assert hot.archived() == []
    begun = [key for key in hot.keys(LAKE) if key.startswith(hot.prefix)]
    assert 0 < len(begun) < 20
    # Training has gone on: what was begun is finished, and nothing else is due.
    assert hot.run()["published"] == [name]


def test_runs_prune_the_lake_and_leave_the_newest_two_and_four_intervals(hot: Job) -> None:
    names = []
    for n in range(9):
        names.append(hot.save(100 * (n + 1), minutes=360 * n))
        removed = hot.run()["removed"]
    assert removed == [names[2]]
    assert hot.archived() == names[3:]


def test_the_lag_is_what_would_be_repeated(hot: Job, capsys: pytest.CaptureFixture[str]) -> None:
    hot.save(100, minutes=0)
    hot.run()
    hot.save(200, minutes=90)
    hot.run()
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["Job"] == hot.name
    assert line["CheckpointArchiveLagMinutes"] == 90
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "TrainingStorage"


def test_a_run_that_fails_says_why_and_how_old_the_lake_is(hot: Job, capsys: pytest.CaptureFixture[str]) -> None:
    name = hot.save(100, minutes=0)
    hot.run()
    hot.save(100, minutes=400)
    with pytest.raises(ArchiveError, match=f"{name} is in the lake already with other content"):
        hot.run()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["CheckpointArchiveLagMinutes"] == 400


def test_nothing_but_a_deletion_makes_the_gate_do_anything(hot: Job) -> None:
    hot.save(100, minutes=0)
    for kind in ("Create", "Update"):
        event = {"RequestType": kind}
        assert express_gate_function.on_event(event, None)["PhysicalResourceId"] == f"express-gate-{hot.name}"
        assert express_gate_function.is_complete(event, Context()) == {"IsComplete": True}
    assert len(hot.keys(hot.express)) == 4


def test_the_gate_brings_the_newest_checkpoint_into_the_lake_and_then_empties(hot: Job) -> None:
    hot.save(100, minutes=0)
    hot.save(150, minutes=3, marker=False)
    newest = hot.save(200, minutes=5)
    for bucket in (hot.express, LAKE):
        hot.s3.put_object(Bucket=bucket, Key="datasets/shard-0.tar", Body=b"1")
    hot.s3.create_multipart_upload(Bucket=hot.express, Key="checkpoints/left")
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
    assert hot.archived() == [newest]
    assert hot.keys(hot.express) == []
    assert hot.s3.list_multipart_uploads(Bucket=hot.express).get("Uploads", []) == []


def test_the_gate_goes_on_where_its_time_ended(hot: Job) -> None:
    newest = hot.save(200, minutes=5, files=20)
    answers: list[dict[str, bool]] = []
    while not answers or not answers[-1]["IsComplete"]:
        before = len(hot.keys(hot.express))
        answers.append(express_gate_function.is_complete(DELETE, Context(questions=25)))
        assert len(answers) < 20
        if newest not in hot.archived():
            assert len(hot.keys(hot.express)) == before
    assert len(answers) > 1
    assert hot.keys(hot.express) == []


def test_the_gate_that_cannot_save_the_newest_leaves_everything_and_says_what_helps(
    hot: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot.save(100, minutes=0)
    monkeypatch.setenv("LAKE_URI", f"s3://no-such-lake/{hot.prefix}")
    with pytest.raises(ArchiveError) as caught:
        express_gate_function.is_complete(DELETE, Context())
    assert f"{hot.express} stands, with everything that the lake lacks" in str(caught.value)
    assert f"training-storage archive --job {hot.name} --region us-east-1" in str(caught.value)
    assert len(hot.keys(hot.express)) == 4
    monkeypatch.setenv("LAKE_URI", hot.environment["LAKE_URI"])
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
    assert hot.keys(hot.express) == []


def test_the_gate_refuses_when_the_lake_has_another_checkpoint_of_that_name(hot: Job) -> None:
    hot.save(100, minutes=0)
    hot.run()
    hot.save(100, minutes=400)
    with pytest.raises(ArchiveError, match="with other content"):
        express_gate_function.is_complete(DELETE, Context())
    assert len(hot.keys(hot.express)) == 4


def refused(hot: Job) -> str:
    """What the gate says when it refuses; nothing of the bucket may be gone then."""
    before = hot.keys(hot.express)
    with pytest.raises(ArchiveError) as caught:
        express_gate_function.is_complete(DELETE, Context())
    assert sorted(hot.keys(hot.express)) == sorted(before)
    return str(caught.value)


@pytest.mark.parametrize("newest", [True, False], ids=["and a complete one is older", "and none is complete"])
def test_the_gate_refuses_checkpoints_that_it_does_not_recognise(hot: Job, newest: bool) -> None:
    if newest:
        hot.save(50, minutes=0)
    for file in ("model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"):
        hot.s3.put_object(Bucket=hot.express, Key=f"{hot.prefix}checkpoint-100/{file}", Body=b"x")
    why = refused(hot)
    assert why.count(f"{hot.prefix}checkpoint-100/") == 4  # three are named, and a command removes one
    assert "checkpoints_disposable=true" in why


@pytest.mark.parametrize(
    "damage", ["marker", "file", "no marker"], ids=["its marker is cut off", "a file is missing", "it has no marker"]
)
def test_the_gate_refuses_a_damaged_newest_checkpoint(hot: Job, damage: str) -> None:
    hot.save(100, minutes=0)
    newest = hot.save(200, minutes=30, marker=damage != "no marker")
    if damage == "marker":
        hot.s3.put_object(Bucket=hot.express, Key=f"{hot.prefix}{newest}/{MARKER_NAME}", Body=b"{trunc")
    if damage == "file":
        hot.s3.delete_object(Bucket=hot.express, Key=f"{hot.prefix}{newest}/rank-1.pt")
    assert f"{hot.prefix}{newest}/" in refused(hot)


def test_the_gate_refuses_a_damaged_one_of_a_lower_step_that_is_newer(hot: Job) -> None:
    hot.save(200, minutes=0)
    again = hot.save(150, minutes=30)
    hot.s3.delete_object(Bucket=hot.express, Key=f"{hot.prefix}{again}/rank-1.pt")
    assert f"{hot.prefix}{again}/" in refused(hot)


@pytest.mark.parametrize(
    "key",
    [
        "datasets/only-here.tar",
        "checkpoints/other-job/step-0000000001/_COMPLETE.json",
        "checkpoints/{job}/.hidden/x",
        "checkpoints/{job}/notes.txt",
        "checkpoints/{job}/evaluations/x",
        "x",
    ],
)
@pytest.mark.parametrize("held", [None, b"other", b"other content"], ids=["not in the lake", "cut off", "of that size"])
def test_the_gate_refuses_what_the_lake_has_not_got(hot: Job, key: str, held: bytes | None) -> None:
    key = key.format(job=hot.name)
    hot.save(100, minutes=0)
    hot.s3.put_object(Bucket=hot.express, Key=key, Body=b"only content!")
    if held is not None:
        hot.s3.put_object(Bucket=LAKE, Key=key, Body=held)
    assert f"it would lose {key} " in refused(hot)
    hot.s3.put_object(Bucket=LAKE, Key=key, Body=b"only content!")
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
    assert hot.keys(hot.express) == []
    hot.s3.delete_object(Bucket=LAKE, Key=key)


def test_the_gate_looks_at_the_whole_bucket_before_it_deletes_anything(
    hot: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(express_emptying, "_ROUND", 2)
    hot.save(100, minutes=0)
    hot.save(200, minutes=9)
    hot.s3.put_object(Bucket=hot.express, Key="zz/only-here", Body=b"x")
    assert "zz/only-here" in refused(hot)


def test_the_gate_refuses_what_is_written_while_it_empties(hot: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express_emptying, "_ROUND", 2)
    hot.save(100, minutes=0)
    newest = hot.save(200, minutes=9)
    delete = express_emptying._delete

    def late(*arguments: Any) -> bool:
        hot.s3.put_object(Bucket=hot.express, Key="datasets/late", Body=b"x")
        return delete(*arguments)

    monkeypatch.setattr(express_emptying, "_delete", late)
    with pytest.raises(ArchiveError, match="it would lose datasets/late"):
        express_gate_function.is_complete(DELETE, Context())
    assert "datasets/late" in hot.keys(hot.express)
    assert hot.archived() == [newest]


def test_the_newest_goes_last_and_a_half_emptied_bucket_is_finished(hot: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express_emptying, "copy_limits", lambda: SimpleNamespace(delete_keys_maximum=2))
    # Training went back: the last by time is the first by name, and 200 is superseded.
    old = hot.save(200, minutes=0, files=5)
    newest = [hot.save(300, minutes=9, files=5), hot.save(100, minutes=20, files=5)]
    hot.run()
    assert set(hot.archived()) == set(newest)
    states = set()
    for _ in range(60):
        # Time for a few deletions.
        done = express_gate_function.is_complete(DELETE, Context(questions=5))["IsComplete"]
        left = [len([key for key in hot.keys(hot.express) if f"/{name}/" in key]) for name in (old, *newest)]
        states.add((left[0] > 0, left[1] + left[2] == 12))
        if done:
            break
    assert hot.keys(hot.express) == []
    assert (True, False) not in states
    assert len(states) > 1
    # As a kill leaves it: some of the newest is gone already.
    again = hot.save(400, minutes=900, files=5)
    hot.run()
    hot.s3.delete_object(Bucket=hot.express, Key=f"{hot.prefix}{again}/{MARKER_NAME}")
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
    assert hot.keys(hot.express) == []


def test_the_gate_deletes_nothing_unless_the_second_look_finds_the_newest_in_the_lake(
    hot: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = hot.save(100, minutes=0)
    # It says that it is done, and nothing is there.
    monkeypatch.setattr(Archive, "run", lambda *_: ArchiveResult())
    assert f"{name} is not whole in the lake (new)" in refused(hot)


def test_the_gate_that_runs_out_of_its_minutes_says_so_and_what_helps(
    hot: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = hot.save(200, minutes=5)
    late = {**DELETE, "Began": (dt.datetime.now(tz=dt.UTC) - dt.timedelta(minutes=56)).isoformat()}
    with pytest.raises(ArchiveError, match=r"is not empty after 55 minutes.*Delete the stack again") as caught:
        express_gate_function.is_complete(late, Context())
    assert f"training-storage archive --job {hot.name} --region us-east-1" in str(caught.value)
    assert len(hot.keys(hot.express)) == 4
    began = express_gate_function.on_event(DELETE, None)["Began"]
    assert express_gate_function.is_complete({**DELETE, "Began": began}, Context()) == {"IsComplete": True}
    assert hot.archived() == [newest]
    # One that gets done in its last second is done.
    monkeypatch.setenv("DISPOSABLE", "true")
    assert express_gate_function.is_complete(late, Context()) == {"IsComplete": True}


def test_a_whole_checkpoint_in_the_lake_is_never_replaced_by_another_of_its_sizes(hot: Job) -> None:
    name = "step-0000000100"

    def put(bucket: str, body: bytes, minutes: float, *, marker: bool = True) -> None:
        hot.s3.put_object(Bucket=bucket, Key=f"{hot.prefix}{name}/rank-0.pt", Body=body)
        file = CheckpointFile(path="rank-0.pt", bytes=len(body))
        text = Marker(step=100, finished_at=NOON + dt.timedelta(minutes=minutes), files=(file,)).to_json()
        end, body = (MARKER_NAME, text.encode()) if marker else (DCP_METADATA_NAME, b"m")
        hot.s3.put_object(Bucket=bucket, Key=f"{hot.prefix}{name}/{end}", Body=body)

    def held() -> bytes:
        return bytes(hot.s3.get_object(Bucket=LAKE, Key=f"{hot.prefix}{name}/rank-0.pt")["Body"].read())

    # Another run of the same step; and one marker, or none, with other bytes.
    for minutes, marker in ((20, True), (10, True), (10, False)):
        put(LAKE, b"OLDOLD", 10, marker=marker)
        put(hot.express, b"NEWNEW", minutes, marker=marker)
        with pytest.raises(ArchiveError, match="in the lake .*with other content"):
            hot.run()
        assert held() == b"OLDOLD"
        for bucket in (LAKE, hot.express):
            for end in (MARKER_NAME, DCP_METADATA_NAME):
                hot.s3.delete_object(Bucket=bucket, Key=f"{hot.prefix}{name}/{end}")
    # The same one, which somebody copied, gets its manifest.
    put(hot.express, b"OLDOLD", 10)
    put(LAKE, b"OLDOLD", 10)
    assert hot.run()["published"] == [name]
    assert hot.archived() == [name]


def test_what_is_no_whole_checkpoint_in_the_lake_is_replaced_whatever_its_sizes(hot: Job) -> None:
    name = hot.save(100, minutes=0)
    hot.s3.put_object(Bucket=LAKE, Key=f"{hot.prefix}{name}/rank-0.pt", Body=b"of another size altogether")
    assert hot.run()["published"] == [name]
    assert hot.s3.get_object(Bucket=LAKE, Key=f"{hot.prefix}{name}/rank-0.pt")["Body"].read() == b"100 rank-0.pt"


def test_the_gate_of_disposable_checkpoints_empties_without_looking(hot: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    hot.save(100, minutes=0)
    monkeypatch.setenv("DISPOSABLE", "true")
    monkeypatch.setenv("LAKE_URI", f"s3://no-such-lake/{hot.prefix}")
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
    assert hot.keys(hot.express) == []


def test_the_gate_of_a_bucket_that_is_gone_is_done(hot: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_URI", f"s3://gone--use1-az6--x-s3/{hot.prefix}")
    assert express_gate_function.is_complete(DELETE, Context()) == {"IsComplete": True}
