"""FSx for Lustre: legal sizes, throughput, clients, addresses, ports."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "lustre.toml"
_DEPLOYMENT_TYPES = ("PERSISTENT_2", "PERSISTENT_1", "SCRATCH_2")
_GIB_PER_TIB = 1024
#: Share of a step that counts as rounding error of a division, not as demand for another step.
_ROUNDING = 1e-9


class FileSystemShape(Protocol):
    """What `lustre_servers` needs to know of a file system; a plan's ``fsx_lustre`` has it."""

    @property
    def deployment_type(self) -> str: ...  # noqa: D102
    @property
    def storage_capacity_gib(self) -> int: ...  # noqa: D102
    @property
    def per_unit_storage_throughput(self) -> int: ...  # noqa: D102
    @property
    def metadata_iops(self) -> int | None: ...  # noqa: D102
    @property
    def efa_enabled(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ThroughputTier:
    """Baselines of one throughput tier in MB/s per TiB, and the size step with EFA in GiB (None: no EFA)."""

    per_unit: int
    network: int
    disk_read: int
    disk_write: int
    efa_increment_gib: int | None = None

    def mb_per_s(self, *, capacity_gib: int, baseline: int) -> float:
        """Return what `baseline` (MB/s per TiB) gives on `capacity_gib`."""
        return capacity_gib / _GIB_PER_TIB * baseline

    def read_mb_per_s(self, capacity_gib: int) -> float:
        """Return the uncached read baseline, bound by network and disk."""
        return self.mb_per_s(capacity_gib=capacity_gib, baseline=min(self.network, self.disk_read))

    def write_mb_per_s(self, capacity_gib: int) -> float:
        """Return the write baseline, bound by network and disk."""
        return self.mb_per_s(capacity_gib=capacity_gib, baseline=min(self.network, self.disk_write))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DeploymentType:
    """A deployment type on SSD with its size grid and throughput tiers."""

    name: str
    capacity_minimum_gib: int
    capacity_increment_gib: int
    gib_per_server: int
    metadata_configuration: bool
    storage_quota: str
    file_systems_quota: str
    throughputs: Mapping[int, ThroughputTier]
    fixed_throughput: bool

    @property
    def speaks_efa(self) -> bool:
        """Whether file systems of this type may have EFA."""
        return any(tier.efa_increment_gib is not None for tier in self.throughputs.values())

    def round_up_gib(self, *, capacity_gib: float, per_unit: int, efa: bool = False) -> int:
        """Return the least legal size of at least `capacity_gib`.

        Without EFA that is the minimum (1,200 GiB) or a multiple of the increment (2,400 GiB); with EFA a multiple of
        the tier's EFA increment.
        """
        step = self._step_gib(per_unit=per_unit, efa=efa)
        if not efa and capacity_gib <= self.capacity_minimum_gib:
            return self.capacity_minimum_gib
        return max(1, math.ceil(capacity_gib / step - _ROUNDING)) * step

    def next_gib(self, *, capacity_gib: int, per_unit: int, efa: bool = False) -> int:
        """Return the legal size after the legal size `capacity_gib`."""
        step = self._step_gib(per_unit=per_unit, efa=efa)
        return (capacity_gib // step + 1) * step

    def is_legal(self, *, capacity_gib: int, per_unit: int, efa: bool = False) -> bool:
        """Whether such a file system may be created."""
        if per_unit not in self.throughputs or (efa and self.throughputs[per_unit].efa_increment_gib is None):
            return False
        return self.round_up_gib(capacity_gib=capacity_gib, per_unit=per_unit, efa=efa) == capacity_gib

    def _step_gib(self, *, per_unit: int, efa: bool) -> int:
        if not efa:
            return self.capacity_increment_gib
        step = self.throughputs[per_unit].efa_increment_gib
        if step is None:
            raise ValueError(f"EFA needs PERSISTENT_2, got: {self.name}.")
        return step


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ClientLimits:
    """What one client can move, in Gbps, and the EFA connections of a file system."""

    ena_gbps: int
    efa_gbps: int
    efa_gds_gbps: int
    ena_gbps_per_server: int
    efa_connections: int


@functools.cache
def deployment_types() -> Mapping[str, DeploymentType]:
    """Return the deployment types by name."""
    return {name: _read(name) for name in _DEPLOYMENT_TYPES}


@functools.cache
def client_limits() -> ClientLimits:
    """Return the limits of one client."""
    row = load(_FILE)["clients"]
    return ClientLimits(**{key: value for key, value in row.items() if key not in ("source", "as_of")})


@functools.cache
def metadata_iops_steps() -> tuple[int, ...]:
    """Return the legal values of the metadata IOPS, ascending."""
    return tuple(load(_FILE)["metadata"]["iops_steps"])


@functools.cache
def automatic_metadata_iops(capacity_gib: int) -> int:
    """Return what the mode AUTOMATIC gives an SSD file system, at most the highest legal value."""
    row = load(_FILE)["metadata"]
    if capacity_gib >= row["automatic_steps_from_gib"]:
        steps: int = capacity_gib // row["automatic_capacity_step_gib"]
        return min(steps * int(row["automatic_iops_step"]), metadata_iops_steps()[-1])
    # The smallest file system's value also stands for what is too small to exist: that is refused by capacity.
    reached = [iops for capacity, iops in row["automatic"] if capacity <= capacity_gib] or [row["automatic"][0][1]]
    return int(reached[-1])


def ports() -> tuple[tuple[int, int], ...]:
    """Return the TCP port ranges (first, last) between clients and servers, both directions."""
    row = load(_FILE)["ports"]
    return ((row["lnet"][0], row["lnet"][1]), (row["reserved"][0], row["reserved"][1]))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AssociationLimits:
    """What FSx accepts of data repository associations and their tasks; chunk sizes in MiB."""

    per_file_system_maximum: int
    events: tuple[str, ...]
    chunk_size_mib_default: int
    chunk_size_mib_maximum: int
    task_paths_maximum: int


@functools.cache
def association_limits() -> AssociationLimits:
    """Return the limits of data repository associations."""
    row = load(_FILE)["associations"]
    return AssociationLimits(
        per_file_system_maximum=row["per_file_system_maximum"],
        events=tuple(row["events"]),
        chunk_size_mib_default=row["chunk_size_mib_default"],
        chunk_size_mib_maximum=row["chunk_size_mib_maximum"],
        task_paths_maximum=row["task_paths_maximum"],
    )


def associations_maximum() -> int:
    """Return how many data repository associations one file system may have."""
    return association_limits().per_file_system_maximum


def object_servers(*, deployment_type: str, capacity_gib: int, per_unit: int, efa: bool) -> int:
    """Return the object storage servers, each with one address."""
    kind = deployment_types()[deployment_type]
    gib = kind.throughputs[per_unit].efa_increment_gib if efa else kind.gib_per_server
    return math.ceil(capacity_gib / (gib or kind.gib_per_server))


def lustre_servers(plan: FileSystemShape) -> int:
    """Return how many subnet addresses the planned file system takes: object servers and metadata servers."""
    objects = object_servers(
        deployment_type=plan.deployment_type,
        capacity_gib=plan.storage_capacity_gib,
        per_unit=plan.per_unit_storage_throughput,
        efa=plan.efa_enabled,
    )
    return objects + math.ceil((plan.metadata_iops or 1) / int(load(_FILE)["metadata"]["iops_per_server"]))


def _read(name: str) -> DeploymentType:
    row = load(_FILE)[name]
    throughputs = {int(key): ThroughputTier(per_unit=int(key), **value) for key, value in row["throughputs"].items()}
    return DeploymentType(
        name=name,
        capacity_minimum_gib=row["capacity_minimum_gib"],
        capacity_increment_gib=row["capacity_increment_gib"],
        gib_per_server=row["gib_per_server"],
        metadata_configuration=row["metadata_configuration"],
        storage_quota=row["storage_quota"],
        file_systems_quota=row["file_systems_quota"],
        throughputs=throughputs,
        fixed_throughput=row.get("fixed_throughput", False),
    )
