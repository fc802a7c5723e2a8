"""One local AWS for the tests of this folder that need it, with a bucket for each test."""

from __future__ import annotations

import uuid
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark every test that starts the local AWS, by a fixture or by the place that it is run for, and the example's."""
    for item in items:
        if item.path.parent != FOLDER:
            continue
        place = item.callspec.id.split("-")[0] if hasattr(item, "callspec") else ""
        if place == "s3" or "training_aws" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.local_aws)
        if item.path.name == "test_train_tiny.py":
            item.add_marker(pytest.mark.training)


@pytest.fixture(scope="session")
def training_aws() -> Iterator[LocalAws]:
    pytest.importorskip("ministack", reason="pip install 'training-storage[local-aws]'")
    with LocalAws.start() as aws:
        yield aws


@pytest.fixture
def aws_environment(training_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> LocalAws:
    """The local AWS, which this process's SDKs reach by their environment."""
    for name, value in training_aws.settings().items():
        monkeypatch.setenv(name, value)
    return training_aws


@pytest.fixture
def bucket(aws_environment: LocalAws) -> str:
    name = f"training-{uuid.uuid4().hex[:12]}"
    aws_environment.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def warm_processes() -> Any:
    """A server that forks processes which have loaded everything."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pytest", "training_storage.training.shard_pack"])
    return context


@pytest.fixture
def quick_processes(request: pytest.FixtureRequest, warm_processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start packing processes warm, but in the slow tests."""
    if request.node.get_closest_marker("training") is None:
        monkeypatch.setattr("training_storage.training.shard_pack.get_context", lambda _: warm_processes)
