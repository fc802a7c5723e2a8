"""Figures for packed data sets: sizes of shards, and what requests for small objects cost in time."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from training_storage.planning.catalog._data import load


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ShardFigures:
    """Published figures; GB are decimal."""

    shard_gb_minimum: float
    shard_gb_maximum: float
    first_byte_ms: float
    objects_per_listing_page: int
    upload_part_mib_minimum: int
    loading_share_of_time_maximum: float


@functools.cache
def shard_figures() -> ShardFigures:
    """Return the published figures for shards."""
    data = load("shards.toml")
    return ShardFigures(
        shard_gb_minimum=data["shard"]["gb_minimum"],
        shard_gb_maximum=data["shard"]["gb_maximum"],
        first_byte_ms=data["first-byte"]["ms"],
        objects_per_listing_page=data["listing"]["objects_per_page"],
        upload_part_mib_minimum=data["upload"]["part_mib_minimum"],
        loading_share_of_time_maximum=data["loading"]["share_of_time_maximum"],
    )
