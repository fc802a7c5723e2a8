"""Capacity Blocks: how long they last, and when their instances end."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from training_storage.planning.catalog import quotas
from training_storage.planning.catalog._data import load


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CapacityBlocks:
    """What a Capacity Block is.

    `end_minutes` before the end of a block EC2 terminates its instances (`ultraserver_end_minutes` in UltraServers),
    and warns on EventBridge `warning_minutes` before that.
    """

    instances: int
    instances_in_all: int
    days_maximum: int
    days_in_weeks_maximum: int
    end_minutes: int
    ultraserver_end_minutes: int
    ultraserver_types: tuple[str, ...]
    warning_minutes: int

    def end_minutes_of(self, instance_type: str) -> int:
        """Return how many minutes before the end of a block EC2 terminates its instances of `instance_type`."""
        return self.ultraserver_end_minutes if instance_type in self.ultraserver_types else self.end_minutes


@functools.cache
def capacity_blocks() -> CapacityBlocks:
    """Return the limits of Capacity Blocks."""
    data = load("capacity_blocks.toml")
    return CapacityBlocks(
        instances=quotas.quota("capacity-block-instances").limit,
        instances_in_all=quotas.quota("capacity-block-instances-in-all").limit,
        days_maximum=data["duration"]["days_maximum"],
        days_in_weeks_maximum=data["duration"]["days_in_weeks_maximum"],
        end_minutes=data["end"]["minutes"],
        ultraserver_end_minutes=data["end"]["ultraserver_minutes"],
        ultraserver_types=tuple(data["end"]["ultraserver_types"]),
        warning_minutes=data["end"]["warning_minutes"],
    )
