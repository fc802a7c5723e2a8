"""FSx for Lustre: every legal file system that delivers what is required."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog, defaults
from training_storage.planning.units import GB, GIB, GIB_PER_TIB, MB, bytes_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.catalog.lustre import DeploymentType, ThroughputTier
    from training_storage.planning.demand import Needs, Required
    from training_storage.planning.resolution import Situation


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A legal file system with what it delivers to the cluster, in bytes per second."""

    deployment_type: DeploymentType
    tier: ThroughputTier
    capacity_gib: int
    efa_interfaces: int
    read_bytes_per_s: float
    write_bytes_per_s: float

    @property
    def efa(self) -> bool:
        """Whether the file system speaks EFA."""
        return self.efa_interfaces > 0

    @property
    def baseline_mb_per_s(self) -> float:
        """Uncached read baseline of the file system, without the clients' bounds."""
        return self.tier.read_mb_per_s(self.capacity_gib)


@dataclass(frozen=True, kw_only=True)
class NotPossible:
    """Why no file system fits; `shortfall` carries the numbers."""

    shortfall: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a file system must do.

    `path` is the network path of the clients, `capacity_bytes` what is stored, before the fill level.
    """

    required: Required
    capacity_bytes: float
    path: str


def deployment_type(situation: Situation) -> DeploymentType:
    """Return the given deployment type, else PERSISTENT_2 where it exists, else PERSISTENT_1."""
    kinds = catalog.lustre.deployment_types()
    if situation.job.lustre_deployment_type is not None:
        return kinds[situation.job.lustre_deployment_type]
    automatic = [name for name in situation.region.lustre_deployment_types if name.startswith("PERSISTENT")]
    return kinds[automatic[0]]


def stored_bytes(needs: Needs, *, hot_bytes: float, checkpoints_kept: int, checkpoints: bool) -> float:
    """Return the bytes on a hot tier: the hot data, and the checkpoints kept plus the one being written."""
    return hot_bytes + (needs.checkpoint_bytes * (checkpoints_kept + 1) if checkpoints else 0.0)


def capacity_gib(stored: float) -> float:
    """Return the GiB that hold `stored` bytes at the fill level."""
    return stored / defaults.number("fill_level") / GIB


def efa_interfaces(situation: Situation) -> int:
    """Return the EFA interfaces that each client uses for Lustre; all share the file system's connections."""
    share = catalog.lustre.client_limits().efa_connections // situation.job.instances
    return min(situation.instance.lustre_efa_interfaces_default, share)


def efa_possible(situation: Situation, path: str) -> bool:
    """Whether the job's clients can reach a file system of this Region over `path`."""
    return (
        situation.region.lustre_efa
        and situation.instance.efa_for_lustre
        and (path != "efa-gds" or situation.instance.gds)
        and deployment_type(situation).throughputs[max(deployment_type(situation).throughputs)].efa_increment_gib
        is not None
        and efa_interfaces(situation) > 0
    )


def client_bytes_per_s(situation: Situation, path: str) -> float:
    """Return the most that one client moves over `path`, without the bound per server."""
    limits, instance = catalog.lustre.client_limits(), situation.instance
    if path in ("efa", "efa-gds"):
        value = limits.efa_gds_gbps if path == "efa-gds" else limits.efa_gbps
        interfaces = efa_interfaces(situation) * instance.gbps_per_efa_interface
        return bytes_per_s(min(value, instance.network_gbps, interfaces))
    return bytes_per_s(min(limits.ena_gbps, instance.network_gbps))


def candidates(situation: Situation, request: Request, *, limit_gib: int) -> Iterator[FileSystem]:
    """Yield every legal file system that meets `request`, up to `limit_gib`.

    A throughput tier whose least size is over the limit yields nothing.
    """
    for tier in _tiers(situation):
        least = _least_gib(situation, request, tier)
        while least is not None and least <= limit_gib:
            yield _file_system(situation, request, tier, least)
            least = deployment_type(situation).next_gib(
                capacity_gib=least, per_unit=tier.per_unit, efa=_is_efa(request.path)
            )


def least_candidates(situation: Situation, request: Request) -> Iterator[FileSystem]:
    """Yield the least file systems of each throughput tier that meet `request`, whatever the quota.

    Two of each: the least may be just enough for the reads and leave nothing for asynchronous checkpoints.
    """
    for tier in _tiers(situation):
        least = _least_gib(situation, request, tier)
        if least is not None:
            following = deployment_type(situation).next_gib(
                capacity_gib=least, per_unit=tier.per_unit, efa=_is_efa(request.path)
            )
            yield _file_system(situation, request, tier, least)
            yield _file_system(situation, request, tier, following)


def shortfall(situation: Situation, request: Request, *, limit_gib: int) -> str:
    """Return why no file system within `limit_gib` meets `request`, in numbers."""
    nodes = situation.job.instances
    client = client_bytes_per_s(situation, request.path)
    per_client = request.required.total / nodes
    if per_client > client:
        return (
            f"each {situation.instance.name} would have to move {per_client / GB:.3g} GB/s to fsx-lustre and moves at "
            f"most {client / GB:.3g} GB/s over {request.path}"
        )
    least = [file_system.capacity_gib for file_system in least_candidates(situation, request)]
    return (
        f"{request.required.total / GB:.3g} GB/s and {capacity_gib(request.capacity_bytes):,.0f} GiB need "
        f"{min(least, default=0):,} GiB of fsx-lustre, more than the {limit_gib:,} GiB of the quota"
    )


def metadata_iops(needs: Needs, *, file_system: FileSystem, reads: bool) -> int | None:
    """Return the metadata IOPS: what opening and closing files needs, at least what comes with the capacity.

    Opens and closes count half each, so files per second are IOPS. None without a metadata configuration.
    """
    if not file_system.deployment_type.metadata_configuration:
        return None
    included = catalog.lustre.automatic_metadata_iops(file_system.capacity_gib)
    return max(included, required_metadata_iops(needs) if reads else 0)


def required_metadata_iops(needs: Needs) -> int:
    """Return the least legal metadata IOPS for the job's files, or the highest where none is enough."""
    steps = catalog.lustre.metadata_iops_steps()
    return next((step for step in steps if step >= (needs.files_per_s or 0.0)), steps[-1])


def metadata_suffices(situation: Situation, needs: Needs) -> bool:
    """Whether the metadata servers can open the job's files as fast as it reads them."""
    if not deployment_type(situation).metadata_configuration:
        return True
    files = (needs.files_per_s or 0.0) * needs.accelerator_use
    return files <= catalog.lustre.metadata_iops_steps()[-1]


def _tiers(situation: Situation) -> Iterator[ThroughputTier]:
    kind = deployment_type(situation)
    for per_unit, tier in kind.throughputs.items():
        if kind.name != "PERSISTENT_2" or per_unit in situation.region.persistent_2_throughputs:
            yield tier


def _is_efa(path: str) -> bool:
    return path in ("efa", "efa-gds")


def _least_gib(situation: Situation, request: Request, tier: ThroughputTier) -> int | None:
    """Return the least legal size of `tier` that meets `request`, or None where the clients are the bound."""
    kind, efa = deployment_type(situation), _is_efa(request.path)
    required = request.required
    per_client = required.total / situation.job.instances
    if per_client > client_bytes_per_s(situation, request.path):
        return None
    read_tib = required.read / MB / min(tier.network, tier.disk_read)
    write_tib = required.write / MB / min(tier.network, tier.disk_write)
    busy_tib = read_tib + write_tib if required.together else max(read_tib, write_tib)
    restore_tib = required.restore / MB / min(tier.network, tier.disk_read)
    gib = max(capacity_gib(request.capacity_bytes), max(busy_tib, restore_tib) * GIB_PER_TIB)
    least = kind.round_up_gib(capacity_gib=gib, per_unit=tier.per_unit, efa=efa)
    if efa:
        return least
    # Without EFA a client is bound per server as well: it needs enough servers to spread over.
    per_server = bytes_per_s(catalog.lustre.client_limits().ena_gbps_per_server)
    servers = math.ceil(per_client / per_server)
    if servers <= 1:
        return least
    return max(least, kind.round_up_gib(capacity_gib=servers * kind.gib_per_server, per_unit=tier.per_unit))


def _file_system(situation: Situation, request: Request, tier: ThroughputTier, capacity: int) -> FileSystem:
    kind, efa = deployment_type(situation), _is_efa(request.path)
    client = client_bytes_per_s(situation, request.path)
    if not efa:
        servers = catalog.lustre.object_servers(
            deployment_type=kind.name, capacity_gib=capacity, per_unit=tier.per_unit, efa=False
        )
        client = min(client, servers * bytes_per_s(catalog.lustre.client_limits().ena_gbps_per_server))
    clients = client * situation.job.instances
    return FileSystem(
        deployment_type=kind,
        tier=tier,
        capacity_gib=capacity,
        efa_interfaces=efa_interfaces(situation) if efa else 0,
        read_bytes_per_s=min(clients, tier.read_mb_per_s(capacity) * MB),
        write_bytes_per_s=min(clients, tier.write_mb_per_s(capacity) * MB),
    )
