"""How many addresses of its subnet a job takes: nodes, file servers, and what the engine adds."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.network import subnet_limits
from training_storage.validation import ConstructError, is_token

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

    from training_storage.planning import StoragePlan

__all__ = ["needed_addresses", "refuse_small_subnet", "several_addresses"]


def needed_addresses(plan: StoragePlan, *, further: int, most: int) -> int:
    """Return the addresses that nodes, file servers and the engine (`further`) take, and refuse more than `most`."""
    servers, per_node = _servers(plan), _addresses_per_node(plan)
    instances = (most - servers - further) // per_node
    if instances < 1:
        raise ConstructError(
            f"storage_capacity_gib must leave addresses for nodes in a network made for the job, got: a file system of"
            f" {servers} servers; for more than {most - further}, bring a VPC and subnet of your own"
        )
    if plan.job.instances > instances:
        raise ConstructError(
            f"instances must be at most {instances} in a network made for the job, got: {plan.job.instances};"
            " for more, bring a VPC and subnet of your own (vpc_id and subnet_id)"
        )
    return plan.job.instances * per_node + servers + further


def refuse_small_subnet(subnet: ec2.ISubnet, plan: StoragePlan, *, further: int) -> None:
    """Refuse a subnet of the caller whose range is known and too small; of an imported one nothing is known."""
    try:
        ip_range = subnet.ipv4_cidr_block
    except RuntimeError:  # what CDK says of an imported subnet without a range
        return
    if is_token(ip_range):
        return
    held = ipaddress.IPv4Network(ip_range).num_addresses - subnet_limits().reserved_addresses
    needed = plan.job.instances * _addresses_per_node(plan) + _servers(plan) + further
    if needed > held:
        raise ConstructError(
            f"subnet must hold {needed} addresses for {plan.job.instances} instances, {_servers(plan)} file servers and"
            f" the engine, got: {ip_range}, which holds {held}; give a larger one"
        )


def _servers(plan: StoragePlan) -> int:
    return catalog.lustre_servers(plan.fsx_lustre) if plan.fsx_lustre else 0


def _addresses_per_node(plan: StoragePlan) -> int:
    instance_type = catalog.instance_type(plan.job.instance_type or "")
    return instance_type.address_bearing_interfaces(several_addresses=several_addresses(plan))


def several_addresses(plan: StoragePlan) -> bool:
    """Whether nodes have plain interfaces on further cards, for S3 traffic beyond that of one address."""
    return plan.job.network_path == "ena-multi-ip"
