"""FSx for Lustre: every legal file system that delivers what is required."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from training_storage.planning import catalog, defaults
from training_storage.planning.units import GB, GIB, GIB_PER_TIB, MB, bytes_per_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.planning.catalog.lustre import DeploymentType, ThroughputTier
    from training_storage.planning.demand import Needs, Required
    from training_storage.planning.resolution import Situation

EFA_PATHS = ("efa", "efa-gds")


class FileSystem(NamedTuple):
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
class Request:
    """What a file system must do, and for whom.

    `path` is the network path of the clients, `capacity_bytes` what is stored, before the fill level. `throughputs` are
    the throughput tiers that the Region has, `client_bytes_per_s` is what one of `nodes` clients moves over `path`,
    without the bound per server, which without EFA is `server_bytes_per_s`.
    """

    required: Required
    capacity_bytes: float
    path: str
    kind: DeploymentType
    throughputs: tuple[ThroughputTier, ...]
    nodes: int
    client_bytes_per_s: float
    server_bytes_per_s: float
    efa_interfaces: int

    @property
    def efa(self) -> bool:
        """Whether the clients use EFA."""
        return self.efa_interfaces > 0

    @property
    def per_client_bytes_per_s(self) -> float:
        """What each node must move."""
        return self.required.total / self.nodes


def request(situation: Situation, *, required: Required, capacity_bytes: float, path: str) -> Request:
    """Return what the file system of the job must do over `path`."""
    kind = deployment_type(situation)
    here = situation.region.persistent_2_throughputs
    return Request(
        required=required,
        capacity_bytes=capacity_bytes,
        path=path,
        kind=kind,
        throughputs=tuple(
            tier for per_unit, tier in kind.throughputs.items() if kind.name != "PERSISTENT_2" or per_unit in here
        ),
        nodes=situation.job.instances,
        client_bytes_per_s=client_bytes_per_s(situation, path),
        server_bytes_per_s=bytes_per_s(catalog.lustre.client_limits().ena_gbps_per_server),
        efa_interfaces=efa_interfaces(situation) if path in EFA_PATHS else 0,
    )


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
        and deployment_type(situation).speaks_efa
        and efa_interfaces(situation) > 0
    )


def client_bytes_per_s(situation: Situation, path: str) -> float:
    """Return the most that one client moves over `path`, without the bound per server."""
    limits, instance = catalog.lustre.client_limits(), situation.instance
    if path in EFA_PATHS:
        value = limits.efa_gds_gbps if path == "efa-gds" else limits.efa_gbps
        interfaces = efa_interfaces(situation) * instance.gbps_per_efa_interface
        return bytes_per_s(min(value, instance.network_gbps, interfaces))
    return bytes_per_s(min(limits.ena_gbps, instance.network_gbps))


def sizes_gib(request: Request, tier: ThroughputTier, *, limit_gib: int) -> Sequence[int]:
    """Return the legal sizes of `tier` that meet `request`, up to `limit_gib`, ascending."""
    least = least_gib(request, tier)
    if least is None or least > limit_gib:
        return ()
    following = request.kind.next_gib(capacity_gib=least, per_unit=tier.per_unit, efa=request.efa)
    step = request.kind.next_gib(capacity_gib=following, per_unit=tier.per_unit, efa=request.efa) - following
    return (least, *range(following, limit_gib + 1, step))


def least_sizes_gib(request: Request, tier: ThroughputTier) -> Sequence[int]:
    """Return the least two sizes of `tier` that meet `request`, whatever the quota.

    Two: the least may be just enough for the reads and leave nothing for asynchronous checkpoints.
    """
    least = least_gib(request, tier)
    if least is None:
        return ()
    return (least, request.kind.next_gib(capacity_gib=least, per_unit=tier.per_unit, efa=request.efa))


def shortfall(situation: Situation, needs: Needs, request: Request, *, limit_gib: int) -> str:
    """Return why no file system within `limit_gib` meets `request`, in numbers."""
    if request.per_client_bytes_per_s > request.client_bytes_per_s:
        return (
            f"each {situation.instance.name} would have to move {request.per_client_bytes_per_s / GB:.3g} GB/s"
            f"{needs.full_use_words(request.required, request.nodes)} to fsx-lustre and moves at most "
            f"{request.client_bytes_per_s / GB:.3g} GB/s over {request.path}"
        )
    least = [gib for tier in request.throughputs if (gib := least_gib(request, tier)) is not None]
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
    return included if needs.files_per_s is None or not reads else max(included, required_metadata_iops(needs))


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


class Bound(NamedTuple):
    """One reason for a size: what asks for it, and the GiB that it asks for before the grid."""

    name: str
    gib: float


def bounds(request: Request, tier: ThroughputTier) -> tuple[Bound, ...]:
    """Return what sets the least size of `tier`: capacity, rates, and the servers that a client without EFA needs."""
    required, read, write = request.required, min(tier.network, tier.disk_read), min(tier.network, tier.disk_write)
    read_tib, write_tib = required.read / MB / read, required.write / MB / write
    found = [
        Bound(name="capacity", gib=capacity_gib(request.capacity_bytes)),
        Bound(
            name="reads and checkpoints" if required.together else "reads or checkpoints",
            gib=(read_tib + write_tib if required.together else max(read_tib, write_tib)) * GIB_PER_TIB,
        ),
        Bound(name="restore", gib=required.restore / MB / read * GIB_PER_TIB),
    ]
    if not request.efa:
        # Without EFA a client is bound per server as well: it needs enough servers to spread over.
        servers = math.ceil(request.per_client_bytes_per_s / request.server_bytes_per_s)
        if servers > 1:
            found.append(Bound(name="servers per client", gib=servers * request.kind.gib_per_server))
    return tuple(found)


def least_gib(request: Request, tier: ThroughputTier) -> int | None:
    """Return the least legal size of `tier` that meets `request`, or None where the clients are the bound."""
    if request.per_client_bytes_per_s > request.client_bytes_per_s:
        return None
    gib = max(bound.gib for bound in bounds(request, tier))
    return request.kind.round_up_gib(capacity_gib=gib, per_unit=tier.per_unit, efa=request.efa)


def file_system(request: Request, tier: ThroughputTier, capacity: int) -> FileSystem:
    """Return what a file system of `capacity` GiB delivers to the clients of `request`."""
    kind, client, interfaces = request.kind, request.client_bytes_per_s, request.efa_interfaces
    if not interfaces:
        servers = -(-capacity // kind.gib_per_server)
        client = min(client, servers * request.server_bytes_per_s)
    clients = client * request.nodes
    read, write = tier.read_mb_per_s(capacity) * MB, tier.write_mb_per_s(capacity) * MB
    return FileSystem(kind, tier, capacity, interfaces, min(clients, read), min(clients, write))
