"""Figures of the storage contract: parameter sizes, longest names, loaders and mounts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from training_storage.planning.catalog._data import load

_FILE = "contract.toml"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ParameterLimits:
    """The longest value of a Parameter Store parameter, by tier, in characters."""

    standard_characters_maximum: int
    advanced_characters_maximum: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LongestNames:
    """The longest identifiers that a deployment brings in, in characters."""

    bucket: int
    key_id: int
    file_system_id: int
    mount_name: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoaderFigures:
    """Processes for each accelerator, batches ahead of each, and MB/s that one request for a range moves."""

    workers_minimum: int
    workers_maximum: int
    prefetch_factor: int
    request_mb_per_s: int


@functools.cache
def parameter_limits() -> ParameterLimits:
    """Return the sizes of Parameter Store parameters."""
    row = load(_FILE)["parameter"]
    return ParameterLimits(
        standard_characters_maximum=row["standard_characters_maximum"],
        advanced_characters_maximum=row["advanced_characters_maximum"],
    )


@functools.cache
def longest_names() -> LongestNames:
    """Return the longest names that a contract may have to hold."""
    data = load(_FILE)
    return LongestNames(
        bucket=data["bucket"]["name_characters_maximum"],
        key_id=data["key"]["id_characters_maximum"],
        file_system_id=data["file-system"]["id_characters"],
        mount_name=data["file-system"]["mount_name_characters_maximum"],
    )


@functools.cache
def loader_figures() -> LoaderFigures:
    """Return the published figures for data loaders."""
    data = load(_FILE)
    loader = data["loader"]
    return LoaderFigures(
        workers_minimum=loader["workers_minimum"],
        workers_maximum=loader["workers_maximum"],
        prefetch_factor=loader["prefetch_factor"],
        request_mb_per_s=data["request"]["mb_per_s"],
    )


@functools.cache
def mountpoint_free_share() -> float:
    """Return the share of its disk that the cache of Mountpoint for Amazon S3 leaves free by itself."""
    return float(load(_FILE)["mountpoint"]["free_share"])
