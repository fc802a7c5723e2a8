"""The watch against the local AWS: as code, and as the function that is deployed."""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.functions.storage_watch import watch as module
from training_storage.functions.storage_watch.watch import Watched, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

_SECONDS = 20


@pytest.fixture(scope="module")
def linked(local_aws: LocalAws, network: Any) -> Iterator[str]:
    """A file system with two links."""
    bucket = f"watched-{uuid.uuid4().hex[:8]}"
    local_aws.client("s3").create_bucket(Bucket=bucket)
    fsx = local_aws.client("fsx")
    identifier: str = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[network.subnet],
        SecurityGroupIds=[network.open_group],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    )["FileSystem"]["FileSystemId"]
    _until(lambda: fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"][0]["Lifecycle"] == "AVAILABLE")
    for folder in ("datasets", "logs"):
        fsx.create_data_repository_association(
            FileSystemId=identifier, FileSystemPath=f"/{folder}", DataRepositoryPath=f"s3://{bucket}/{folder}"
        )
    yield identifier
    fsx.delete_file_system(FileSystemId=identifier)


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def _latest(local_aws: LocalAws, job: str, file_system_id: str, path: str | None) -> float | None:
    """The greatest figure of the last minutes; None where there is none."""
    now = datetime.now(tz=UTC)
    dimensions = {"Job": job, "FileSystemId": file_system_id, **({"LinkPath": path} if path else {})}
    points = local_aws.client("cloudwatch").get_metric_statistics(
        Namespace="TrainingStorage",
        MetricName="LinkMisconfigured",
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=5),
        Period=60,
        Statistics=["Maximum"],
    )["Datapoints"]
    return max((float(point["Maximum"]) for point in points), default=None)


def test_each_link_of_the_file_system_and_no_other_is_published(local_aws: LocalAws, linked: str) -> None:
    assert watch(Watched(job="watched", file_system_id=linked), local_aws.client) == 3
    assert {path: _latest(local_aws, "watched", linked, path) for path in ("/datasets", "/logs", None)} == {
        "/datasets": 0,
        "/logs": 0,
        None: 0,
    }


def test_a_broken_link_shows_in_its_own_figure_and_in_the_alarms(local_aws: LocalAws, linked: str) -> None:
    fsx = local_aws.client("fsx")

    class Breaking:
        """FSx as it answers here, but for one link; the local AWS has no way to break one."""

        def describe_data_repository_associations(self, **request: Any) -> Any:
            answer = fsx.describe_data_repository_associations(**request)
            for link in answer["Associations"]:
                if link["FileSystemPath"].startswith("/logs"):
                    link.update(Lifecycle="MISCONFIGURED", FailureDetails={"Message": "no notification named FSx"})
            return answer

    def client(service: str) -> Any:
        return Breaking() if service == "fsx" else local_aws.client(service)

    watch(Watched(job="broken", file_system_id=linked), client)
    assert _latest(local_aws, "broken", linked, "/logs") == 1
    assert _latest(local_aws, "broken", linked, "/datasets") == 0
    assert _latest(local_aws, "broken", linked, None) == 1


def test_the_function_runs_as_deployed(local_aws: LocalAws, linked: str) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        for path in Path(module.__file__).parent.glob("*.py"):
            files.write(path, path.name)
    name = f"watch-{uuid.uuid4().hex[:8]}"
    functions = local_aws.client("lambda")
    functions.create_function(
        FunctionName=name,
        Runtime="python3.14",
        Role="arn:aws:iam::000000000000:role/watch",
        Handler="watch.handler",
        Code={"ZipFile": archive.getvalue()},
        Environment={"Variables": {"JOB": "deployed", "FILE_SYSTEM_ID": linked}},
        Timeout=60,
    )
    answer = functions.invoke(FunctionName=name, Payload=b"{}")
    payload = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, payload
    assert payload == {"published": 3}
    assert _latest(local_aws, "deployed", linked, None) == 0
