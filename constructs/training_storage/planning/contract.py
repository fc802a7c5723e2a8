"""The storage contract: what a job's nodes and training code need to know, made of the plan and the deployed values.

The document is JSON; ``training_storage/training/storage_contract.schema.json`` is its schema and docs/contract.md says
what each key means. It holds no secret: every value is a name, a path, an address or a figure, and the schema has room
for nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from training_storage.planning import catalog, defaults
from training_storage.planning.catalog.contract import (
    loader_figures,
    longest_names,
    mountpoint_free_share,
    parameter_limits,
)
from training_storage.planning.catalog.limits import express_naming
from training_storage.planning.errors import InvalidJobError, InvalidPlanError
from training_storage.planning.job import UNNAMED
from training_storage.planning.selection import EXPRESS, LUSTRE
from training_storage.planning.units import GB, GIB, MB, MIB

if TYPE_CHECKING:
    from training_storage.planning.catalog import InstanceType
    from training_storage.planning.plan import LustrePlan, StoragePlan

SCHEMA_VERSION: Final = 1
#: The first release of training-storage whose reader knows this schema; an older reader tells its user to install it.
READER_VERSION: Final = "0.1.0"
#: CloudWatch namespace of what nodes and the library's functions publish; dimension Job.
METRIC_NAMESPACE: Final = "TrainingStorage"
#: Below it in Parameter Store stands what belongs to jobs.
PARAMETERS_PATH: Final = "/training-storage"

LUSTRE_MOUNT_PATH: Final = "/fsx"
LAKE_MOUNT_PATH: Final = "/mnt/lake"
SCRATCH_PATH: Final = "/scratch"

#: Of local disks, for Mountpoint's cache: local checkpoints and the loader's cache share the rest.
_CACHE_SHARE = 0.25
#: The cache of a node without local disks, whose scratch is a folder on the root volume.
_CACHE_GIB_WITHOUT_DISKS = 16

_ADDRESSING_STYLES = ("auto", "path", "virtual")
_CHECKSUMS = ("when_supported", "when_required")
# No user, no path and no query: where credentials travel in an address, they travel there.
_ENDPOINT_URL = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?")


def parameter_name(job: str) -> str:
    """Return the name of the SSM parameter that holds a job's storage contract."""
    return f"{PARAMETERS_PATH}/{job}/contract"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where S3 requests go.

    Parameters
    ----------
    url
        Of an S3-compatible store, such as ``https://s3.example.com``; None for AWS.
    addressing_style
        ``auto``, ``path`` or ``virtual``.
    checksums
        ``when_supported`` or ``when_required``; by default the latter with a `url`, because most compatible stores
        reject the trailing checksums that SDKs send to AWS.

    Raises
    ------
    InvalidJobError
        For a value that is not allowed.
    """

    url: str | None = None
    addressing_style: str = "auto"
    checksums: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no plain address."""
        if self.url is not None and not _ENDPOINT_URL.fullmatch(self.url):
            # The value is not repeated: it may hold the secret that has no place in it.
            raise InvalidJobError(
                "endpoint url must be http:// or https://, a host and perhaps a port, got: something else. Leave out "
                "user, password, path and query; credentials come from the environment, never from the contract."
            )
        for name, value, allowed in (
            ("addressing_style", self.addressing_style, _ADDRESSING_STYLES),
            ("checksums", self.checksums, (*_CHECKSUMS, None)),
        ):
            if value not in allowed:
                choices = ", ".join(choice for choice in allowed if choice is not None)
                raise InvalidJobError(f"endpoint {name} must be one of {choices}, got: {value!r}.")

    def values(self) -> dict[str, Any]:
        """Return the endpoint as the contract shows it."""
        usual = "when_required" if self.url else "when_supported"
        return {"url": self.url, "addressing_style": self.addressing_style, "checksums": self.checksums or usual}


@dataclass(frozen=True, kw_only=True)
class DeployedFileSystem:
    """What FSx names by itself."""

    file_system_id: str
    dns_name: str
    mount_name: str


@dataclass(frozen=True, kw_only=True)
class DeployedValues:
    """What is known at deployment only; `file_system` and `directory_bucket` where the plan has them.

    In a CDK app these are tokens.
    """

    bucket: str
    kms_key_arn: str
    file_system: DeployedFileSystem | None = None
    directory_bucket: str | None = None


def storage_contract(
    plan: StoragePlan, *, deployed: DeployedValues, engine: str, endpoint: Endpoint | None = None
) -> dict[str, Any]:
    """Return the contract as JSON values.

    Parameters
    ----------
    plan
        The plan that was deployed.
    deployed
        Names that AWS or the deployment gave.
    engine
        What starts the nodes, such as ``pcs``.
    endpoint
        Where S3 requests go; AWS by default.

    Raises
    ------
    InvalidPlanError
        For a plan without a zone, and for deployed values that are not those of the plan's tiers.
    """
    _check(plan, deployed)
    job = plan.job
    instance = catalog.instance_type(job.instance_type or "")
    checkpoints = f"checkpoints/{_name(plan)}/"
    return {
        "schema_version": SCHEMA_VERSION,
        "reader_version": READER_VERSION,
        "job": {
            "name": _name(plan),
            "instances": job.instances,
            "instance_type": instance.name,
            "accelerators_per_instance": instance.accelerators,
        },
        "region": plan.region,
        "zone_id": plan.zone_id,
        "endpoint": (endpoint or Endpoint()).values(),
        "s3": {
            "bucket": deployed.bucket,
            "kms_key_arn": deployed.kms_key_arn,
            "uris": {folder.split("/")[0]: f"s3://{deployed.bucket}/{folder}" for folder in plan.s3.folders},
        },
        "lustre": _lustre(plan.fsx_lustre, deployed.file_system),
        "s3_express": _express(plan, deployed.directory_bucket, checkpoints),
        "mountpoint": {
            "path": LAKE_MOUNT_PATH,
            "bucket": deployed.bucket,
            "cache_path": f"{SCRATCH_PATH}/mountpoint",
            "cache_gib": _cache_gib(instance, dataset_gib=job.dataset_gib),
            "express_cache_bucket": deployed.directory_bucket,
        },
        "scratch": {"path": SCRATCH_PATH, "local_nvme_gb": instance.local_nvme_gb},
        "loader": _loader(plan, instance),
        "checkpoints": _checkpoints(plan, deployed, checkpoints),
        "cluster": {"engine": engine, "metric_namespace": METRIC_NAMESPACE},
    }


def longest_values(plan: StoragePlan) -> DeployedValues:
    """Return deployed values of the greatest length, for the size that a contract can reach."""
    names, region = longest_names(), catalog.region(plan.region)
    file_system_id = "f" * names.file_system_id
    bucket = "b" * names.bucket
    return DeployedValues(
        bucket=bucket,
        kms_key_arn=f"arn:{region.partition}:kms:{region.name}:{'0' * 12}:key/{'0' * names.key_id}",
        file_system=DeployedFileSystem(
            file_system_id=file_system_id,
            dns_name=f"{file_system_id}.fsx.{region.name}.{region.dns_suffix}",
            mount_name="m" * names.mount_name,
        )
        if plan.fsx_lustre
        else None,
        directory_bucket="b" * express_naming().characters_maximum if plan.s3_express else None,
    )


def parameter_tier(characters: int) -> str:
    """Return the Parameter Store tier, ``Standard`` or ``Advanced``, that holds so many characters.

    An advanced parameter costs money and never becomes a standard one again, so it is taken only where it must be.

    Raises
    ------
    InvalidPlanError
        If none does.
    """
    limits = parameter_limits()
    if characters <= limits.standard_characters_maximum:
        return "Standard"
    if characters <= limits.advanced_characters_maximum:
        return "Advanced"
    raise InvalidPlanError(
        f"the storage contract must have at most {limits.advanced_characters_maximum} characters, which is what a "
        f"parameter holds, got: {characters}. Shorten the name of the job or the endpoint."
    )


def _check(plan: StoragePlan, deployed: DeployedValues) -> None:
    if plan.zone_id is None:
        raise InvalidPlanError("plan.job.zone_id must be resolved, got: null. Plan again with zone_id.")
    for name, planned, given in (
        ("file_system", plan.fsx_lustre, deployed.file_system),
        ("directory_bucket", plan.s3_express, deployed.directory_bucket),
    ):
        if (planned is None) != (given is None):
            has = "has none" if planned is None else "has one"
            raise InvalidPlanError(f"{name} must be given exactly where the plan has one; the plan {has}.")


def _name(plan: StoragePlan) -> str:
    return plan.job.name or UNNAMED


def _lustre(plan: LustrePlan | None, deployed: DeployedFileSystem | None) -> dict[str, Any] | None:
    if plan is None or deployed is None:
        return None
    return {
        "file_system_id": deployed.file_system_id,
        "dns_name": deployed.dns_name,
        "mount_name": deployed.mount_name,
        "mount_path": LUSTRE_MOUNT_PATH,
        "version": plan.file_system_type_version,
        "efa_enabled": plan.efa_enabled,
        "efa_interfaces": plan.efa_interfaces_per_client,
        "storage_capacity_gib": plan.storage_capacity_gib,
        "servers": catalog.lustre_servers(plan),
        "paths": {
            link.file_system_path.strip("/"): LUSTRE_MOUNT_PATH + link.file_system_path
            for link in plan.data_repository_associations
        },
    }


def _express(plan: StoragePlan, bucket: str | None, checkpoints: str) -> dict[str, Any] | None:
    if bucket is None:
        return None
    folders = {"datasets": "datasets/", "checkpoints": checkpoints}
    return {
        "bucket": bucket,
        "zone_id": (plan.s3_express and plan.s3_express.zone_id) or plan.zone_id,
        "uris": {data: f"s3://{bucket}/{folder}" for data, folder in folders.items() if _hot(plan, data) == EXPRESS},
    }


def _hot(plan: StoragePlan, data: str) -> str | None:
    return next((placed.hot for placed in plan.placement if placed.data == data), None)


def _cache_gib(instance: InstanceType, *, dataset_gib: float | None) -> int:
    """Return a bound for Mountpoint's cache: an unbounded one would push checkpoints off the disk.

    More than the data set, where its size was given, is never cached.
    """
    disks = instance.local_nvme_gb * GB / GIB * (1 - mountpoint_free_share())
    bound = math.floor(disks * _CACHE_SHARE) or _CACHE_GIB_WITHOUT_DISKS
    return max(1, min(bound, math.ceil(dataset_gib))) if dataset_gib else bound


def _loader(plan: StoragePlan, instance: InstanceType) -> dict[str, Any]:
    """Return what a data loader starts with.

    One process moves what one request for a range does, so the rate of an accelerator asks for a number of them. More
    processes than cores fight each other, and fewer than the published minimum leave latency uncovered.
    """
    figures = loader_figures()
    accelerators = plan.job.instances * instance.accelerators
    wanted = math.ceil(plan.demand.read_gb_per_s / accelerators * GB / (figures.request_mb_per_s * MB))
    workers = min(max(wanted, figures.workers_minimum), figures.workers_maximum)
    return {
        "workers_per_accelerator": max(1, min(workers, instance.vcpus // instance.accelerators)),
        "prefetch_factor": figures.prefetch_factor,
        "part_size_mib": _part_size_mib(plan, accelerators),
        "cache_path": f"{SCRATCH_PATH}/cache",
    }


def _part_size_mib(plan: StoragePlan, accelerators: int) -> int:
    """Return the usual part, or a greater one: neither a data file nor a rank's checkpoint may have too many parts."""
    rank_gib = plan.demand.slowest_rank_gib or plan.demand.checkpoint_size_gib / accelerators
    largest_mib = max(plan.job.mean_file_size_mib or 0.0, rank_gib * GIB / MIB)
    parts = catalog.s3.s3_limits().parts_maximum
    return max(math.ceil(defaults.number("part_size_mib")), math.ceil(largest_mib / parts))


def _checkpoints(plan: StoragePlan, deployed: DeployedValues, folder: str) -> dict[str, Any]:
    job, hot = plan.job, _hot(plan, "checkpoints")
    durable = f"s3://{deployed.bucket}/{folder}"
    # Without a hot tier checkpoints are written to the lake, where the newest always stay.
    kept = job.checkpoints_kept if hot else math.ceil(defaults.number("newest_durable_checkpoints"))
    uri = f"s3://{deployed.directory_bucket}/{folder}" if hot == EXPRESS else durable
    return {
        "path": f"{LUSTRE_MOUNT_PATH}/checkpoints/" if hot == LUSTRE else None,
        "uri": None if hot == LUSTRE else uri,
        "local_path": f"{SCRATCH_PATH}/checkpoints",
        "mode": job.checkpoint_mode,
        "interval_minutes": _number(plan.demand.checkpoint_interval_minutes),
        "size_gib": _number(plan.demand.checkpoint_size_gib),
        "kept": kept,
        "durable_uri": durable,
        "durable_interval_minutes": _number(job.durable_interval_minutes),
        "durable_kept": job.durable_checkpoints_kept,
    }


def _number(value: float | None) -> float | None:
    """Return a whole number as one: a shell reckons with 360, not with 360.0."""
    return int(value) if value is not None and float(value).is_integer() else value
