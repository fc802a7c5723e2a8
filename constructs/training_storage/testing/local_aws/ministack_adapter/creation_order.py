"""Create resources in an order that shows a forgotten dependency.

CloudFormation creates what does not depend on each other at the same time, so a file system races security-group rules
that it does not name. One after the other, a lucky order would hide that. Here what others need silently (rules,
policies) comes last, unless a dependency asks for it.
"""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import heapq
from typing import Any

from ministack.services.cloudformation import engine, stacks

_LAST = frozenset(
    {
        "AWS::EC2::Route",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::IAM::Policy",
        "AWS::S3::BucketPolicy",
        "AWS::S3Express::BucketPolicy",
    }
)


def install() -> None:
    """Replace ministack's order of creation."""
    engine._topological_sort = creation_order
    stacks._topological_sort = creation_order


def creation_order(resources: dict[str, Any], conditions: dict[str, bool]) -> list[str]:
    """Return the logical ids, each after its dependencies and the silent helpers as late as possible.

    Raises
    ------
    ValueError
        For a circle of dependencies.
    """
    active = {
        name
        for name, definition in resources.items()
        if not definition.get("Condition") or conditions.get(definition["Condition"], True)
    }
    waits_for = {name: engine._extract_deps(resources[name], active) - {name} for name in active}
    wanted_by: dict[str, list[str]] = {name: [] for name in active}
    for name, dependencies in waits_for.items():
        for dependency in dependencies:
            wanted_by[dependency].append(name)
    ready = [_rank(resources, name) for name in active if not waits_for[name]]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for dependent in wanted_by[name]:
            waits_for[dependent].discard(name)
            if not waits_for[dependent]:
                heapq.heappush(ready, _rank(resources, dependent))
    if len(order) != len(active):
        circle = ", ".join(sorted(active - set(order)))
        message = f"Circular dependency between resources: [{circle}]"
        raise ValueError(message)
    return order


def _rank(resources: dict[str, Any], name: str) -> tuple[int, str]:
    return (1 if resources[name].get("Type") in _LAST else 0, name)
