"""What the services accept, beyond the sizes that the planner chooses from."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_LUSTRE, _EXPRESS = "lustre_limits.toml", "express_limits.toml"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LustreLimits:
    """What CreateFileSystem accepts; capacities in GiB, throughputs in MB/s or MB/s per TiB."""

    deployment_types: tuple[str, ...]
    default_versions: Mapping[str, str]
    versions: tuple[str, ...]
    persistent_2_versions: tuple[str, ...]
    metadata_versions: tuple[str, ...]
    efa_versions: tuple[str, ...]
    tiering_versions: tuple[str, ...]
    link_versions: tuple[str, ...]
    scratch_1_small_gib: tuple[int, ...]
    scratch_1_step_gib: int
    hdd_step_gib: Mapping[int, int]
    drive_caches: tuple[str, ...]
    tiering_throughput_step: int
    tiering_throughput_maximum: int
    tiering_small_throughputs: tuple[int, ...]
    tiering_metadata_iops_default: int
    cache_modes: tuple[str, ...]
    cache_gib_per_1000_minimum: int
    cache_gib_per_1000_maximum: int
    backup_days_maximum: int
    compressions: tuple[str, ...]
    log_levels: tuple[str, ...]
    log_group_prefix: str
    import_policies: tuple[str, ...]
    tags_maximum: int
    file_systems_per_key_maximum: int
    root_squash_id_maximum: int
    no_squash_nids_maximum: int
    efa_prefix_length: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ExpressNaming:
    """Names and options of directory buckets and their access points."""

    characters_maximum: int
    suffix: str
    reserved_prefixes: tuple[str, ...]
    access_point_characters_minimum: int
    access_point_characters_maximum: int
    access_point_suffix: str
    redundancies: tuple[str, ...]
    algorithms: tuple[str, ...]
    missing_properties: tuple[str, ...]
    missing_in_lifecycle: tuple[str, ...]


@functools.cache
def lustre_limits() -> LustreLimits:
    """Return the limits of FSx for Lustre."""
    data = load(_LUSTRE)
    kinds, versions, tiering, options = (
        data[name] for name in ("deployment_types", "versions", "intelligent_tiering", "options")
    )
    return LustreLimits(
        deployment_types=tuple(kinds["names"]),
        default_versions=kinds["default_versions"],
        versions=tuple(versions["names"]),
        persistent_2_versions=tuple(versions["persistent_2"]),
        metadata_versions=tuple(versions["metadata"]),
        efa_versions=tuple(versions["efa"]),
        tiering_versions=tuple(versions["intelligent_tiering"]),
        link_versions=tuple(versions["links"]),
        scratch_1_small_gib=tuple(data["scratch_1"]["small_gib"]),
        scratch_1_step_gib=data["scratch_1"]["step_gib"],
        hdd_step_gib={int(per_unit): step for per_unit, step in data["hdd"]["step_gib"].items()},
        drive_caches=tuple(data["hdd"]["drive_caches"]),
        tiering_throughput_step=tiering["throughput_step"],
        tiering_throughput_maximum=tiering["throughput_maximum"],
        tiering_small_throughputs=tuple(tiering["small_throughputs"]),
        tiering_metadata_iops_default=tiering["metadata_iops_default"],
        cache_modes=tuple(tiering["cache_modes"]),
        cache_gib_per_1000_minimum=tiering["cache_gib_per_1000_minimum"],
        cache_gib_per_1000_maximum=tiering["cache_gib_per_1000_maximum"],
        backup_days_maximum=options["backup_days_maximum"],
        compressions=tuple(options["compressions"]),
        log_levels=tuple(options["log_levels"]),
        log_group_prefix=options["log_group_prefix"],
        import_policies=tuple(options["import_policies"]),
        tags_maximum=options["tags_maximum"],
        file_systems_per_key_maximum=options["file_systems_per_key_maximum"],
        root_squash_id_maximum=options["root_squash_id_maximum"],
        no_squash_nids_maximum=options["no_squash_nids_maximum"],
        efa_prefix_length=options["efa_prefix_length"],
    )


@functools.cache
def express_naming() -> ExpressNaming:
    """Return the naming rules of S3 Express One Zone, and what it lacks."""
    data = load(_EXPRESS)
    names, missing = data["names"], data["missing"]
    return ExpressNaming(
        characters_maximum=names["characters_maximum"],
        suffix=names["suffix"],
        reserved_prefixes=tuple(names["reserved_prefixes"]),
        access_point_characters_minimum=names["access_point_characters_minimum"],
        access_point_characters_maximum=names["access_point_characters_maximum"],
        access_point_suffix=names["access_point_suffix"],
        redundancies=tuple(names["redundancies"]),
        algorithms=tuple(names["algorithms"]),
        missing_properties=tuple(missing["properties"]),
        missing_in_lifecycle=tuple(missing["lifecycle"]),
    )


@functools.cache
def hyperpod_regions() -> tuple[str, ...]:
    """Return the Regions that have SageMaker HyperPod."""
    return tuple(load("engines.toml")["AWS::SageMaker::Cluster"]["regions"])
