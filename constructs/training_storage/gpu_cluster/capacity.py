"""How nodes are bought, and how a cluster is cut into groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.validation import ConstructError, require_match, require_one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.planning.catalog import InstanceType

_RESERVATION_ID_PATTERN = r"cr-[0-9a-f]{8,17}"


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are bought together.

    Parameters
    ----------
    name
        Of the group. It follows the reservation and not its place in the list, so that a list with one block more or
        less, or in another order, leaves the other groups as they are; or the type, because another type replaces the
        group, and the new one stands beside the old for a while.
    instances
        The most that may run.
    reservation_id
        The reservation or Capacity Block that they start in; None without one.
    """

    name: str
    instances: int
    reservation_id: str | None = None


def check_capacity(
    *, instances: int, instance_type: InstanceType, purchase: str, capacity_reservation_ids: Sequence[str]
) -> None:
    """Refuse a way of purchase that does not fit the type, its reservations or the number of instances.

    Raises
    ------
    ConstructError
        Naming what is possible.
    """
    require_one_of(purchase, instance_type.purchase, what=f"purchase for {instance_type.name}")
    for reservation in capacity_reservation_ids:
        require_match(
            reservation,
            _RESERVATION_ID_PATTERN,
            what="capacity_reservation_ids",
            allowed="ids such as cr-0123456789abcdef0",
        )
    if len(set(capacity_reservation_ids)) < len(capacity_reservation_ids):
        raise ConstructError(
            f"capacity_reservation_ids must name each reservation once, got: {', '.join(capacity_reservation_ids)}"
        )
    if len(capacity_reservation_ids) > instances:
        raise ConstructError(
            f"capacity_reservation_ids must name at most as many reservations as instances, {instances}, got:"
            f" {len(capacity_reservation_ids)}; one without a node is of no use"
        )
    if purchase == "spot" and capacity_reservation_ids:
        raise ConstructError(
            f"capacity_reservation_ids must be empty for purchase spot, got: {', '.join(capacity_reservation_ids)};"
            " reservations serve on-demand and capacity-block"
        )
    if purchase != "capacity-block":
        return
    if not capacity_reservation_ids:
        raise ConstructError(
            "capacity_reservation_ids must name the Capacity Blocks for purchase capacity-block, got: none;"
            " for example cr-0123456789abcdef0"
        )
    limits, blocks = capacity_blocks(), len(capacity_reservation_ids)
    if instances > limits.instances_in_all:
        raise ConstructError(
            f"instances must be at most {limits.instances_in_all} for purchase capacity-block, got: {instances};"
            " more need on-demand reservations"
        )
    if instances > limits.instances * blocks:
        raise ConstructError(
            f"capacity_reservation_ids must name at least {-(-instances // limits.instances)} Capacity Blocks for"
            f" {instances} instances ({limits.instances} per block), got: {blocks}"
        )


def node_groups(
    *, instances: int, instance_type: InstanceType, capacity_reservation_ids: Sequence[str]
) -> tuple[NodeGroup, ...]:
    """Return one group for each reservation, or one for all nodes without reservations.

    Reservations are taken to be of one size: how large each is, only the account knows. The first ones get the node
    more that a division leaves.
    """
    if not capacity_reservation_ids:
        return (NodeGroup(name=group_name(instance_type.name), instances=instances),)
    share, rest = divmod(instances, len(capacity_reservation_ids))
    return tuple(
        NodeGroup(
            name=reservation,
            instances=share + (1 if place < rest else 0),
            reservation_id=reservation,
        )
        for place, reservation in enumerate(capacity_reservation_ids)
    )


def group_name(instance_type: str) -> str:
    """Return the name of a group of nodes of `instance_type`, as Slurm spells it."""
    return instance_type.replace(".", "-")
