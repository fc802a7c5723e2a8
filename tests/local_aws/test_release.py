"""`training-storage release` on the local AWS: it frees what is exported, deletes nothing and says what it did."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.cli import main, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.local_aws.conftest import Network
    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

GIB = 2**30


@pytest.fixture(autouse=True)
def surroundings(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in local_aws.settings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(release, "_POLL_SECONDS", 0.05)
    # File systems and links come and go quickly; a task is under way long enough to be seen.
    local_aws.fsx_control(transition_seconds=0.02, task_seconds=0.4)
    yield
    local_aws.fsx_control(task_outcome="SUCCEED", failed_files={}, task_seconds=None)
    fsx = local_aws.client("fsx")
    for task in fsx.describe_data_repository_tasks()["DataRepositoryTasks"]:
        if task["Lifecycle"] in ("PENDING", "EXECUTING"):
            fsx.cancel_data_repository_task(TaskId=task["TaskId"])
    for system in fsx.describe_file_systems()["FileSystems"]:
        settled(lambda: running(fsx) == [])
        fsx.delete_file_system(FileSystemId=system["FileSystemId"])
    settled(lambda: fsx.describe_file_systems()["FileSystems"] == [])
    local_aws.fsx_control(transition_seconds=0.2)


def running(fsx: Any) -> list[str]:
    tasks = fsx.describe_data_repository_tasks()["DataRepositoryTasks"]
    return [task["TaskId"] for task in tasks if task["Lifecycle"] in ("PENDING", "EXECUTING", "CANCELING")]


def settled(condition: Callable[[], bool]) -> None:
    import time  # noqa: PLC0415

    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


class Maker:
    """Makes file systems in the local AWS."""

    def __init__(self, aws: LocalAws, network: Network) -> None:
        self.aws = aws
        self.fsx = aws.client("fsx")
        self.network = network
        aws.client("s3").create_bucket(Bucket="release-lake")

    def file_system(self, *, job: str | None = "default", links: tuple[str, ...] = ("datasets",), **fields: Any) -> str:
        lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250, **fields.pop("lustre", {})}
        tags = [{"Key": "training-storage:job", "Value": job}] if job else []
        created = self.fsx.create_file_system(
            **{
                "FileSystemType": "LUSTRE",
                "FileSystemTypeVersion": "2.15",
                "StorageCapacity": 1200,
                "SubnetIds": [self.network.subnet],
                "SecurityGroupIds": [self.network.open_group],
                "LustreConfiguration": {key: value for key, value in lustre.items() if value is not None},
                **({"Tags": tags} if tags else {}),
                **fields,
            }
        )["FileSystem"]["FileSystemId"]
        settled(lambda: self._lifecycle(created) == "AVAILABLE")
        for folder in links:
            self.fsx.create_data_repository_association(
                FileSystemId=created, FileSystemPath=f"/{folder}/", DataRepositoryPath=f"s3://release-lake/{folder}/"
            )
        settled(lambda: all(link["Lifecycle"] == "AVAILABLE" for link in self._links()))
        return str(created)

    def _lifecycle(self, identifier: str) -> str:
        return str(self.fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"][0]["Lifecycle"])

    def _links(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.fsx.describe_data_repository_associations()["Associations"]
        return links

    def put_free(self, identifier: str, gib: float, *, at: dt.datetime) -> None:
        self.aws.client("cloudwatch").put_metric_data(
            Namespace="AWS/FSx",
            MetricData=[
                {
                    "MetricName": "FreeDataStorageCapacity",
                    "Dimensions": [{"Name": "FileSystemId", "Value": identifier}],
                    "Timestamp": at,
                    "Value": gib * GIB,
                }
            ],
        )


@pytest.fixture
def make(local_aws: LocalAws, network: Network) -> Maker:
    return Maker(local_aws, network)


def tasks(make: Maker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = make.fsx.describe_data_repository_tasks()["DataRepositoryTasks"]
    return sorted(found, key=lambda task: task["CreationTime"])


def test_it_releases_waits_and_says_what_was_freed(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    system = make.file_system()
    now = dt.datetime.now(tz=dt.UTC).replace(second=0, microsecond=0)
    make.put_free(system, 100, at=now - dt.timedelta(minutes=2))
    # Stamped with a minute after the task's end, as CloudWatch will bring it.
    make.aws.fsx_control(files={system: {"/datasets/a": "1", "/datasets/b": "2"}})
    monkey = release_after(make, system, gib=700)

    assert main(["release", "--path", "/fsx/datasets", "--unused-days", "3"]) == 0

    monkey.undo()
    out = capsys.readouterr()
    assert f"{system} of job default in us-east-1: 100 of 1,200 GiB free before" in out.out
    assert "Released under /datasets: 2 of 2 files." in out.out
    assert "700 GiB are free now, +600 GiB." in out.out
    task = tasks(make)[-1]
    assert task["Type"] == "RELEASE_DATA_FROM_FILESYSTEM"
    assert task["Paths"] == ["datasets"]
    assert task["ReleaseConfiguration"] == {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": 3}}
    assert f"{task['TaskId']} EXECUTING" in out.err


def release_after(make: Maker, system: str, *, gib: float) -> pytest.MonkeyPatch:
    """Put a value of after the task into CloudWatch as soon as the task has ended."""
    from training_storage.operations import release as operations  # noqa: PLC0415

    patch, inner = pytest.MonkeyPatch(), operations.freed

    def freed(*arguments: Any, ended: dt.datetime, **options: Any) -> Any:
        make.put_free(system, gib, at=ended + dt.timedelta(seconds=1))
        early = ended.replace(second=0, microsecond=0) - dt.timedelta(minutes=1)
        return inner(*arguments, ended=early, **options)

    patch.setattr(operations, "freed", freed)
    return patch


def test_a_dry_run_starts_nothing_and_says_what_it_would_do(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    system = make.file_system()
    before = len(tasks(make))
    assert main(["release", "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["file_system_id"] == system
    assert answer["dry_run"] is True
    assert answer["task"] is None
    assert answer["unused_days"] == 7
    assert answer["capacity"]["total_gib"] == 1200
    assert "CloudWatch has no value" in answer["capacity"]["unknown"]
    assert len(tasks(make)) == before


def test_started_again_it_adopts_its_own_task(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    make.file_system()
    make.aws.fsx_control(task_outcome="HANG")
    before = len(tasks(make))
    assert main(["release", "--no-wait", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["release", "--no-wait", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert (first["adopted"], second["adopted"]) == (False, True)
    assert first["task"]["id"] == second["task"]["id"]
    assert len(tasks(make)) == before + 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"Type": "EXPORT_TO_REPOSITORY", "Paths": ["datasets"]}, "EXPORT_TO_REPOSITORY"),
        (
            {
                "Type": "RELEASE_DATA_FROM_FILESYSTEM",
                "ReleaseConfiguration": {"DurationSinceLastAccess": {"Unit": "DAYS", "Value": 30}},
            },
            "another release (everything, unused for 30 days)",
        ),
    ],
    ids=["export", "other-release"],
)
def test_another_task_in_the_way_is_named(
    make: Maker, capsys: pytest.CaptureFixture[str], call: dict[str, Any], words: str
) -> None:
    system = make.file_system()
    make.aws.fsx_control(task_outcome="HANG")
    task = make.fsx.create_data_repository_task(FileSystemId=system, Report={"Enabled": False}, **call)
    identifier = task["DataRepositoryTask"]["TaskId"]
    assert main(["release"]) == 1
    error = capsys.readouterr().err
    assert identifier in error
    assert words in error
    assert error.count("\n") == 1


def test_a_failed_task_says_why_and_that_nothing_is_lost(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    system = make.file_system()
    make.aws.fsx_control(task_outcome="FAIL", files={system: {"/datasets/a": "1"}})
    assert main(["release"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "is FAILED: The data repository task failed" in out
    assert "1 failed" in out
    assert "Nothing is lost" in out


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"links": ()}, "has no link to the lake"),
        (
            {
                "links": (),
                "FileSystemTypeVersion": "2.10",
                "lustre": {"DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": None},
            },
            "runs Lustre 2.10, which cannot release; 2.12 and 2.15 can",
        ),
        (
            {
                "links": (),
                "FileSystemTypeVersion": "2.10",
                "lustre": {"DeploymentType": "SCRATCH_1", "PerUnitStorageThroughput": None},
            },
            "is SCRATCH_1, which has no links",
        ),
    ],
    ids=["no-links", "2.10", "scratch-1"],
)
def test_a_file_system_that_cannot_release_is_refused(
    make: Maker, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], words: str
) -> None:
    make.file_system(**fields)
    before = len(tasks(make))
    assert main(["release"]) == 2
    assert words in capsys.readouterr().err
    assert len(tasks(make)) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--path", "/home/me"], "must lie in a linked directory (/datasets), got: '/home/me'"),
        (["--path", "/datasets/*.tar"], "without wildcards"),
        (["--path", "/datasets/../home"], "'..'"),
        (["--unused-days", "-1"], "--unused-days"),
        (["--unused-days", "soon"], "got: 'soon'"),
        (["--job", "nobody"], "jobs there: default"),
        (["--file-system", "fs-0123456789abcdef0"], "must name a Lustre file system"),
        (["--older-than", "3"], "is not an option of training-storage release"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    make: Maker, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    make.file_system()
    assert main(["release", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_of_several_file_systems_one_must_be_named(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    make.file_system(job="alpha")
    second = make.file_system(job="beta", links=("models",))
    make.file_system(job=None, links=())
    assert main(["release", "--dry-run"]) == 2
    assert "which of the 2 is meant" in capsys.readouterr().err
    assert main(["release", "--dry-run", "--job", "beta", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file_system_id"] == second
