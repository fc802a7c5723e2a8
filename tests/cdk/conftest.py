"""One CDK process for all template tests; every test gets a stack of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stack() -> Stack:
    """A stack in us-east-1 without account, with the feature flags of cdk.json."""
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return Stack(App(context=flags), "Test", env=Environment(region="us-east-1"))


@pytest.fixture
def vpc(stack: Stack) -> ec2.Vpc:
    """A small VPC of the caller."""
    return ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)


class Resources:
    """The resources of a synthesized template."""

    def __init__(self, template: dict[str, Any]) -> None:
        self.template = template
        self.by_id: dict[str, Any] = template.get("Resources", {})

    def of_type(self, kind: str) -> dict[str, Any]:
        return {name: resource for name, resource in self.by_id.items() if resource["Type"] == kind}

    def one(self, kind: str) -> Any:
        found = list(self.of_type(kind).values())
        assert len(found) == 1, f"{len(found)} resources of type {kind}"
        return found[0]

    def statements(self, kind: str = "AWS::IAM::Policy") -> list[dict[str, Any]]:
        return [
            statement
            for resource in self.of_type(kind).values()
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        ]


@pytest.fixture
def resources() -> Callable[[Stack], Resources]:
    """Return a function that synthesizes a stack."""
    return lambda stack: Resources(dict(Template.from_stack(stack).to_json()))
