"""From the storage contract to the settings of a data loader, as data. Standard library only."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_storage.planning import catalog
from training_storage.planning.catalog.contract import loader_figures
from training_storage.planning.catalog.shards import shard_figures
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.units import GIB, MIB
from training_storage.training.endpoint import endpoint_of, is_aws

if TYPE_CHECKING:
    from training_storage.training.contract import StorageContract

__all__ = ["LoaderSettings", "loader_processes", "loader_settings"]

#: Of the scratch disk, for packed shards: Mountpoint's cache and local checkpoints need the rest.
_CACHE_SHARE = 0.5
#: Parts that a process fetches ahead in one step: their requests go out together.
_PARTS_AHEAD = 4
#: The least that a part may have in the connector, and what it takes for an instance type that the catalog lacks.
_PART_MIB_MINIMUM = 5
_GBPS_UNKNOWN = 10.0
#: Long enough for the client's own attempts, and less than what collectives of other ranks wait (torch: 600 s on GPUs).
_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """What a data loader of one accelerator runs with.

    Parameters
    ----------
    workers
        Loader processes. Each has a client and a connection pool of its own.
    prefetch_factor
        Batches that each process prepares ahead.
    region, endpoint_url, addressing_style, checksums
        Where requests go; `endpoint_url` is None for AWS, `checksums` is boto3's word.
    force_path_style
        Whether the bucket stands in the path of an address instead of its host.
    part_bytes
        Size of one request for a range.
    read_ahead_bytes
        What a process fetches ahead in one step.
    throughput_target_gbps
        Share of the node's network of one process; the client opens as many connections as it needs.
    cache_path, cache_bytes
        Where shards are kept on the node's disks, and the most that they may take.
    timeout_seconds
        For what a process fetches ahead in one step. Then the store counts as silent, and the loop gets an error.
    loading_share_maximum
        Of the time, that loading should take at most; `ShardLoader.loading_share` is what it takes.
    reasons
        In sentences.
    """

    workers: int
    prefetch_factor: int
    region: str
    endpoint_url: str | None
    addressing_style: str
    checksums: str
    force_path_style: bool
    part_bytes: int
    read_ahead_bytes: int
    throughput_target_gbps: float
    cache_path: str
    cache_bytes: int
    loading_share_maximum: float
    reasons: tuple[str, ...]
    timeout_seconds: float = _TIMEOUT_SECONDS

    def data_loader_arguments(self) -> dict[str, Any]:
        """Return arguments of ``torch.utils.data.DataLoader``.

        Processes are kept between epochs, with their connections. They come from a fork server and not from the
        training process, whose threads and device contexts do not survive a fork.
        """
        return {
            "num_workers": self.workers,
            "prefetch_factor": self.prefetch_factor,
            "persistent_workers": True,
            "multiprocessing_context": "forkserver",
        }

    def s3_client_arguments(self) -> dict[str, Any]:
        """Return arguments of ``s3torchconnector.S3ClientConfig``."""
        return {
            "throughput_target_gbps": self.throughput_target_gbps,
            "part_size": self.part_bytes,
            "force_path_style": self.force_path_style,
        }

    def environment(self) -> dict[str, str]:
        """Return variables that give the AWS SDKs the same rules."""
        variables = {
            "AWS_REGION": self.region,
            "AWS_REQUEST_CHECKSUM_CALCULATION": self.checksums,
            "AWS_RESPONSE_CHECKSUM_VALIDATION": self.checksums,
        }
        return variables if self.endpoint_url is None else {**variables, "AWS_ENDPOINT_URL_S3": self.endpoint_url}


def loader_settings(
    contract: StorageContract,
    *,
    cores: int | None = None,
    read_mb_per_s: float | None = None,
    cache_gib: float | None = None,
) -> LoaderSettings:
    """Return what a loader of one accelerator should run with on this node.

    Parameters
    ----------
    contract
        Of the job.
    cores
        Of the node; those that this process may use by default.
    read_mb_per_s
        What one accelerator reads, in MB/s; by default what the plan was made for.
    cache_gib
        Most that shards may take on the node's disks; half of the disk that they lie on by default.

    Raises
    ------
    InvalidJobError
        For a number that is not allowed.
    """
    _check(cores=cores, read_mb_per_s=read_mb_per_s, cache_gib=cache_gib)
    loader, figures = contract.loader, loader_figures()
    endpoint = contract.endpoint if contract.endpoint.url else endpoint_of()
    style = contract.endpoint.addressing_style
    accelerators = contract.job.accelerators_per_instance
    workers, why = _workers(contract, cores=cores or len(os.sched_getaffinity(0)), read_mb_per_s=read_mb_per_s)
    part_bytes = max(loader.part_size_mib, _PART_MIB_MINIMUM) * MIB
    cache_bytes = math.floor(cache_gib * GIB) if cache_gib is not None else _disk_share(loader.cache_path)
    return LoaderSettings(
        workers=workers,
        prefetch_factor=max(loader.prefetch_factor, figures.prefetch_factor),
        region=contract.region,
        endpoint_url=endpoint.url,
        addressing_style=style,
        checksums=endpoint.checksums,
        force_path_style=style == "path" or (style == "auto" and not is_aws(endpoint)),
        part_bytes=part_bytes,
        read_ahead_bytes=_PARTS_AHEAD * part_bytes,
        throughput_target_gbps=_network_gbps(contract) / (accelerators * workers),
        cache_path=loader.cache_path,
        cache_bytes=cache_bytes,
        loading_share_maximum=shard_figures().loading_share_of_time_maximum,
        reasons=(why, _ahead_words(part_bytes), _cache_words(loader.cache_path, cache_bytes)),
    )


def _ahead_words(part_bytes: int) -> str:
    return (
        f"Each process fetches {_PARTS_AHEAD} parts of {part_bytes // MIB} MiB at once while the ones before are used,"
        " over connections of its own."
    )


def _cache_words(path: str, size: int) -> str:
    return f"Shards stay in {path}, up to {size / GIB:.1f} GiB: what fits is read from the store once."


def loader_processes(*, shards: int, ranks: int, workers: int) -> int:
    """Return how many processes of a rank read its shards: as fast as `workers` could, and no more than that needs.

    All ranks read as many shards. The processes of a rank may differ by one: what counts is the one that has most.

    Raises
    ------
    InvalidJobError
        If there are fewer shards than ranks, or the ranks cannot read as many each.
    """
    if shards < ranks or shards % ranks:
        least = math.ceil(shards / ranks) * ranks
        raise InvalidJobError(
            f"shards must be a multiple of the {ranks} ranks, so that all read as many, got: {shards}. Pack again with"
            f" --shards {least} or another multiple, or train with another number of ranks."
        )
    each = shards // ranks
    return math.ceil(each / math.ceil(each / workers))


def _workers(contract: StorageContract, *, cores: int, read_mb_per_s: float | None) -> tuple[int, str]:
    figures, accelerators = loader_figures(), contract.job.accelerators_per_instance
    wanted = contract.loader.workers_per_accelerator
    for_what = "planned for this job"
    if read_mb_per_s is not None:
        wanted = math.ceil(read_mb_per_s / figures.request_mb_per_s)
        for_what = f"{read_mb_per_s:g} MB/s at {figures.request_mb_per_s} MB/s of one request"
    within = min(max(wanted, figures.workers_minimum), figures.workers_maximum)
    workers = max(1, min(within, cores // accelerators))
    why = f"{workers} processes an accelerator: {wanted} are {for_what}, {figures.workers_minimum} to"
    why += f" {figures.workers_maximum} are usual"
    if workers < within:
        why += f", and {cores} cores for {accelerators} accelerators allow no more"
    return workers, f"{why}."


def _network_gbps(contract: StorageContract) -> float:
    try:
        return catalog.instance_type(contract.job.instance_type).single_address_gbps
    except InvalidJobError:
        return _GBPS_UNKNOWN * contract.job.accelerators_per_instance


def _disk_share(path: str) -> int:
    """Return the share of the disk that holds `path`, or would."""
    folder = Path(path)
    while not folder.exists():
        folder = folder.parent
    return math.floor(shutil.disk_usage(folder).total * _CACHE_SHARE)


def _check(*, cores: int | None, read_mb_per_s: float | None, cache_gib: float | None) -> None:
    if cores is not None and (isinstance(cores, bool) or not isinstance(cores, int) or cores < 1):
        raise InvalidJobError(f"cores must be a whole number from 1, for example 192, got: {cores!r}.")
    for name, value, example in (("read_mb_per_s", read_mb_per_s, 200), ("cache_gib", cache_gib, 500)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise InvalidJobError(f"{name} must be a number from 0, for example {example}, got: {value!r}.")
