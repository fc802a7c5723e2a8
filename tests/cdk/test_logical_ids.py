"""Logical ids of what holds data are for ever: a change of one is a loss in every app that uses the library."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template

from tests.cdk.compositions import everything
from training_storage.planning.guard import compare_templates

#: As they stand in the stacks of users; never to be edited, unless the loss is meant and stands in the upgrade notes.
PINNED = {
    "FirstLakeBucket74EBF2A6": "AWS::S3::Bucket",
    "FirstLakeAccessLogsB0A36E6E": "AWS::S3::Bucket",
    "FirstLakeKey6EC5B972": "AWS::KMS::Key",
    "FirstFileSystemDDD8F619": "AWS::FSx::FileSystem",
    "FirstFileSystemLogs1174687E": "AWS::Logs::LogGroup",
    "FirstDatasets3ECA1715": "AWS::FSx::DataRepositoryAssociation",
    "FirstHot2387AC72": "AWS::S3Express::DirectoryBucket",
    "FirstNetworkFlowLogs7156B2B4": "AWS::Logs::LogGroup",
    # Without data, but what a file system is made in: another one of these replaces it.
    "FirstFileSystemSecurityGroupAA6D1044": "AWS::EC2::SecurityGroup",
    "FirstNetworkVpcC8B9CE7B": "AWS::EC2::VPC",
    "FirstNetworkVpcPrivateSubnet1Subnet83E3411F": "AWS::EC2::Subnet",
}


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    stack = Stack(App(), "Training", env=Environment(region="us-east-1"))
    everything(stack, "First")
    found: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    return found


def cost(resources: dict[str, Any]) -> list[str]:
    """What users would lose by an update to `resources`, one line for each pinned id that is gone."""
    gone = {name: {"Type": kind} for name, kind in PINNED.items() if resources.get(name, {}).get("Type") != kind}
    lost = compare_templates({"Resources": {**resources, **gone}}, {"Resources": resources})
    lines = [f"{loss.logical_id}: {loss.message}" for loss in lost]
    named = {loss.logical_id for loss in lost}
    return lines + [
        f"{name}: gone; the file system that stands in it is replaced by an empty one"
        for name in gone
        if name not in named
    ]


def test_no_user_loses_anything_by_an_update_of_the_library(resources: dict[str, Any]) -> None:
    assert cost(resources) == []


def test_everything_that_holds_data_is_pinned(resources: dict[str, Any]) -> None:
    # A type or construct that comes later is to be written down above.
    for name, resource in resources.items():
        if resource["Type"] in set(PINNED.values()) - {"AWS::EC2::SecurityGroup", "AWS::EC2::Subnet"}:
            assert PINNED.get(name) == resource["Type"], name


def test_a_renamed_resource_fails_with_what_it_would_cost(resources: dict[str, Any]) -> None:
    for name, words in {
        "FirstFileSystemDDD8F619": "FSx::FileSystem would be removed",
        "FirstLakeBucket74EBF2A6": "S3::Bucket would be removed",
        "FirstHot2387AC72": "lost: objects in one zone, without versions",
        "FirstNetworkVpcPrivateSubnet1Subnet83E3411F": "the file system that stands in it is replaced",
    }.items():
        renamed = {f"Other{key}" if key == name else key: value for key, value in resources.items()}
        assert any(words in line for line in cost(renamed)), cost(renamed)
