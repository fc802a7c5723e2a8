"""Templates that have what normalisation leaves out, and CDK apps that have it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import syrupy

# Here, because pytester moves HOME, where jsii unpacks CDK once for all sessions.
from aws_cdk import App, Environment, NestedStack, Stack
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_lambda as lambda_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HASH = "0e2e63ac9ca14fedbaf3dcbbe0560b578106e3ebd8bf6d453d51f47e12eff480"

LUSTRE: dict[str, Any] = {
    "Type": "AWS::FSx::FileSystem",
    "UpdateReplacePolicy": "Retain",
    "DeletionPolicy": "Retain",
    "Properties": {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 4800,
        "SubnetIds": ["subnet-1"],
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
    },
}


@pytest.fixture(autouse=True)
def _syrupy_of_this_session() -> Iterator[None]:
    """Syrupy keeps its session in a global, which a session within a test replaces."""
    outer = syrupy._syrupy
    yield
    syrupy._syrupy = outer


@pytest.fixture
def asset(tmp_path: Path) -> Path:
    """The code of a function."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "index.py").write_text("def handler(event, context):\n    return event\n", encoding="utf-8")
    return folder


def nested_app(folder: Path, asset: Path, *, capacity: int = 4800) -> App:
    """An app whose stack has a function with a version, and a nested stack with a file system."""
    app = App(outdir=str(folder))
    stack = Stack(app, "Job", env=Environment(region="us-east-1"))
    function = lambda_.Function(
        stack,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_asset(str(asset)),
    )
    lambda_.Alias(stack, "Alias", alias_name="live", version=function.current_version)
    fsx.CfnFileSystem(
        NestedStack(stack, "Tier"),
        "Lustre",
        file_system_type="LUSTRE",
        file_system_type_version="2.15",
        storage_capacity=capacity,
        subnet_ids=["subnet-1"],
        lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
            deployment_type="PERSISTENT_2", per_unit_storage_throughput=125
        ),
    )
    return app
