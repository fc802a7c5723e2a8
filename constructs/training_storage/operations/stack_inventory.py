"""The stacks of training jobs and of their lake, with what they hold, in whatever state they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from training_storage.planning.job import UNNAMED

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping

LAKE_STACK = "TrainingDataLake"
JOB_STACK = "TrainingStorage"
_KEPT_POLICIES = ("Retain", "RetainExceptOnCreate")


@dataclass(frozen=True, kw_only=True)
class StackResource:
    """A resource of a stack; `physical_id` is empty while it is being made."""

    logical_id: str
    kind: str
    physical_id: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A deployed stack.

    Parameters
    ----------
    resources
        What it holds; None where that could not be read.
    kept
        Logical ids that stay when the stack goes (DeletionPolicy); None where the template could not be read.
    root_id
        Of a nested stack: id of the stack that it goes with.
    """

    name: str
    id: str
    state: str
    reason: str | None
    created: dt.datetime
    outputs: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[StackResource, ...] | None = None
    kept: frozenset[str] | None = None
    root_id: str | None = None

    @property
    def job(self) -> str | None:
        """Name of the job in the stack's name; None for the lake's, for nested ones and for stacks of other apps."""
        if self.root_id is not None:
            return None
        if self.name == JOB_STACK:
            return UNNAMED
        return self.name.removeprefix(f"{JOB_STACK}-") if self.name.startswith(f"{JOB_STACK}-") else None

    def of_kind(self, kind: str) -> tuple[StackResource, ...]:
        """Return the resources of a CloudFormation type that stand."""
        return tuple(
            resource
            for resource in self.resources or ()
            if resource.kind == kind and resource.physical_id and resource.state != "DELETE_COMPLETE"
        )


def read_stacks(cloudformation: Any) -> list[Stack]:  # noqa: ANN401 - boto3 clients have no type
    """Return every stack of the Region that is not gone, without its resources; raises as DescribeStacks."""
    stacks = []
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        stacks += [
            Stack(
                name=record["StackName"],
                id=record.get("StackId", ""),
                state=record["StackStatus"],
                reason=record.get("StackStatusReason"),
                created=record["CreationTime"],
                outputs={row["OutputKey"]: row["OutputValue"] for row in record.get("Outputs") or []},
                root_id=record.get("RootId"),
            )
            for record in page["Stacks"]
            if record["StackStatus"] != "DELETE_COMPLETE"
        ]
    return sorted(stacks, key=lambda stack: stack.name)


def read_resources(cloudformation: Any, stack: Stack) -> tuple[StackResource, ...]:  # noqa: ANN401
    """Return what a stack holds; raises as ListStackResources."""
    found: list[StackResource] = []
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack.id or stack.name):
        found += [
            StackResource(
                logical_id=row["LogicalResourceId"],
                kind=row["ResourceType"],
                physical_id=row.get("PhysicalResourceId") or "",
                state=row["ResourceStatus"],
            )
            for row in page["StackResourceSummaries"]
        ]
    return tuple(found)


def read_kept(cloudformation: Any, stack: Stack) -> frozenset[str] | None:  # noqa: ANN401
    """Return which resources stay when the stack goes; None for a template that is not JSON. Raises as GetTemplate."""
    body = cloudformation.get_template(StackName=stack.id or stack.name, TemplateStage="Processed")["TemplateBody"]
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return None
    return frozenset(_kept(body))


def _kept(template: Mapping[str, Any]) -> Iterator[str]:
    for logical_id, resource in (template.get("Resources") or {}).items():
        if resource.get("DeletionPolicy") in _KEPT_POLICIES:
            yield logical_id


def physical_name(identifier: str) -> str:
    """Return the last part of an ARN, or the identifier itself: some types have an ARN as physical id."""
    return identifier.rsplit("/", 1)[-1]
