"""What starts the nodes of a job, and the nodes that run: AWS PCS or an Auto Scaling group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from training_storage.operations.stack_inventory import physical_name
from training_storage.operations.status_model import ClusterStatus, Node, NodeGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training_storage.operations.stack_inventory import Stack

_T = TypeVar("_T")
_PCS_CLUSTER = "AWS::PCS::Cluster"
_PCS_NODE_GROUP = "AWS::PCS::ComputeNodeGroup"
_AUTO_SCALING_GROUP = "AWS::AutoScaling::AutoScalingGroup"
#: Tags that the services put on the instances which they start.
_PCS_TAG = "aws:pcs:compute-node-group-id"
_AUTO_SCALING_TAG = "aws:autoscaling:groupName"
#: What costs money, or is about to.
_BILLED = ("pending", "running")


class Ask(Protocol):
    """Calls AWS; None, with the reason noted for `part`, where it refuses."""

    def __call__(self, part: str, action: str, call: Callable[[], _T]) -> _T | None:
        """Return what `call` returns."""


def read_pcs(client: Callable[[str], Any], stack: Stack, *, ask: Ask) -> ClusterStatus | None:
    """Return the PCS cluster of a stack with its node groups and nodes; None if the stack has none."""
    clusters = stack.of_kind(_PCS_CLUSTER)
    if not clusters:
        return None
    identifier = physical_name(clusters[0].physical_id)
    found = ask(
        "cluster",
        "pcs:GetCluster",
        lambda: client("pcs").get_cluster(clusterIdentifier=identifier)["cluster"],
    )
    groups = ask("node_groups", "pcs:ListComputeNodeGroups", lambda: _pcs_groups(client("pcs"), identifier))
    # Without PCS's answer the stack still knows the ids, by which the nodes are found.
    ids = (
        [group.id for group in groups]
        if groups is not None
        else [physical_name(row.physical_id) for row in stack.of_kind(_PCS_NODE_GROUP)]
    )
    errors = [f"{entry.get('code')}: {entry.get('message')}" for entry in (found or {}).get("errorInfo") or []]
    return ClusterStatus(
        engine="pcs",
        id=identifier,
        state=None if found is None else found["status"],
        error="; ".join(errors) or None,
        node_groups=None if groups is None else tuple(groups),
        nodes=_nodes(client, _PCS_TAG, ids, ask=ask),
    )


def read_auto_scaling(client: Callable[[str], Any], stack: Stack, *, ask: Ask) -> ClusterStatus | None:
    """Return the Auto Scaling groups of a stack with their nodes; None if the stack has none."""
    names = [row.physical_id for row in stack.of_kind(_AUTO_SCALING_GROUP)]
    if not names:
        return None
    groups = ask(
        "node_groups", "autoscaling:DescribeAutoScalingGroups", lambda: _scaling_groups(client("autoscaling"), names)
    )
    return ClusterStatus(
        engine="ec2",
        id=names[0],
        state=None,
        error=None,
        node_groups=None if groups is None else tuple(groups),
        nodes=_nodes(client, _AUTO_SCALING_TAG, names, ask=ask),
    )


def _pcs_groups(pcs: Any, cluster: str) -> list[NodeGroup]:  # noqa: ANN401 - boto3 clients have no type
    return [
        NodeGroup(name=row["name"], id=row["id"], state=row["status"])
        for page in pcs.get_paginator("list_compute_node_groups").paginate(clusterIdentifier=cluster)
        for row in page["computeNodeGroups"]
    ]


def _scaling_groups(autoscaling: Any, names: Sequence[str]) -> list[NodeGroup]:  # noqa: ANN401
    pages = autoscaling.get_paginator("describe_auto_scaling_groups").paginate(AutoScalingGroupNames=list(names))
    return [
        NodeGroup(
            name=row["AutoScalingGroupName"],
            id=row["AutoScalingGroupName"],
            # Only a group that is being deleted has a status of its own.
            state=row.get("Status") or f"{row['DesiredCapacity']} of at most {row['MaxSize']} nodes wanted",
        )
        for page in pages
        for row in page["AutoScalingGroups"]
    ]


def _nodes(client: Callable[[str], Any], tag: str, values: Sequence[str], *, ask: Ask) -> tuple[Node, ...] | None:
    if not values:
        return ()
    return ask("nodes", "ec2:DescribeInstances", lambda: _read_nodes(client("ec2"), tag, values))


def _read_nodes(ec2: Any, tag: str, values: Sequence[str]) -> tuple[Node, ...]:  # noqa: ANN401
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{tag}", "Values": list(values)},
            {"Name": "instance-state-name", "Values": list(_BILLED)},
        ]
    )
    return tuple(
        Node(
            id=instance["InstanceId"],
            instance_type=instance["InstanceType"],
            market=instance.get("InstanceLifecycle") or "on-demand",
            launched=instance["LaunchTime"],
        )
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    )
