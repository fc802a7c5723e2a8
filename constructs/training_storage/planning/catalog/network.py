"""Limits of VPC subnets and of what an instance is told at launch."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from training_storage.planning.catalog._data import load


@dataclass(frozen=True, kw_only=True)
class SubnetLimits:
    """Prefix lengths of the largest and the smallest subnet, and the addresses that AWS keeps of each."""

    largest_prefix_length: int
    smallest_prefix_length: int
    reserved_addresses: int


@functools.cache
def subnet_limits() -> SubnetLimits:
    """Return the limits of subnets."""
    row = load("network.toml")["subnets"]
    return SubnetLimits(**{key: value for key, value in row.items() if key not in ("source", "as_of")})


@functools.cache
def user_data_bytes_maximum() -> int:
    """Return how many bytes of user data an instance takes, before they are encoded."""
    return int(load("network.toml")["user_data"]["bytes_maximum"])
