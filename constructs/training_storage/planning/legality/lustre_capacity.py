"""Rules: deployment type, storage type, capacity and throughput of a file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, Unknown, Words, is_whole, listed, rule
from training_storage.planning.legality.lustre_spec import PERSISTENT, SCRATCH, TIERING, FileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

_API = "FSx API, CreateFileSystemRequest"
_CONFIGURATION = "FSx API, CreateFileSystemLustreConfiguration"


@dataclass(frozen=True, kw_only=True)
class CapacityGrid:
    """The legal capacities in GiB: a few small ones, then every multiple of `step`."""

    small: tuple[int, ...]
    step: int
    context: str

    def is_legal(self, capacity: object) -> bool:
        """Whether `capacity` is on the grid."""
        return is_whole(capacity) and (capacity in self.small or (capacity > 0 and capacity % self.step == 0))

    def next_gib(self, capacity: int) -> int:
        """Return the least legal capacity of at least `capacity`."""
        multiple = max(-(-capacity // self.step), 1) * self.step
        return min([value for value in (*self.small, multiple) if value >= capacity])

    @property
    def allowed(self) -> str:
        """The grid in words."""
        least = " or ".join(str(value) for value in self.small)
        return f"be {least + ' or ' if least else ''}a multiple of {self.step} GiB {self.context}"


def storage_types(deployment_type: str) -> tuple[str, ...]:
    """Return the storage types of a deployment type."""
    return {"PERSISTENT_1": ("SSD", "HDD"), "PERSISTENT_2": ("SSD", TIERING)}.get(deployment_type, ("SSD",))


def per_unit_throughputs(deployment_type: str, storage_type: str) -> tuple[int, ...]:
    """Return the throughput tiers in MB/s per TiB; empty where the API takes none."""
    if storage_type == "HDD":
        return tuple(lustre_limits().hdd_step_gib)
    if storage_type == TIERING or deployment_type in SCRATCH:
        return ()
    return tuple(catalog.lustre.deployment_types()[deployment_type].throughputs)


def capacity_grid(*, deployment_type: str, storage_type: str, per_unit: object, efa: bool) -> CapacityGrid | None:
    """Return the grid of legal capacities, or None where it depends on a throughput that is illegal itself."""
    limits = lustre_limits()
    if storage_type == "HDD":
        step = limits.hdd_step_gib.get(per_unit) if is_whole(per_unit) else None
        context = f"on HDD at {per_unit} MB/s per TiB"
        return None if step is None else CapacityGrid(small=(), step=step, context=context)
    if deployment_type == "SCRATCH_1":
        return CapacityGrid(small=limits.scratch_1_small_gib, step=limits.scratch_1_step_gib, context="for SCRATCH_1")
    kind = catalog.lustre.deployment_types()[deployment_type]
    if not efa:
        return CapacityGrid(
            small=(kind.capacity_minimum_gib,), step=kind.capacity_increment_gib, context=f"for {deployment_type}"
        )
    tier = kind.throughputs.get(per_unit) if is_whole(per_unit) else None
    if tier is None or tier.efa_increment_gib is None:
        return None
    return CapacityGrid(small=(), step=tier.efa_increment_gib, context=f"with EFA at {per_unit} MB/s per TiB")


@rule("lustre-deployment-type", source=f"{_CONFIGURATION}.DeploymentType")
def deployment_type(system: FileSystem) -> Iterator[Problem]:
    """Require that the deployment type exists."""
    allowed = lustre_limits().deployment_types
    if not isinstance(system.deployment_type, Unknown) and system.deployment_type not in allowed:
        yield Problem(
            what="deployment_type",
            allowed=f"be one of {listed(allowed)}",
            got=system.deployment_type,
            remedy="use PERSISTENT_2 where the Region has it",
            location="LustreConfiguration.DeploymentType",
        )


@rule("lustre-storage-type", source=f"{_API}.StorageType; FSx guide, using-fsx-lustre")
def storage_type(system: FileSystem) -> Iterator[Problem]:
    """Require that the deployment type has the storage type: HDD is PERSISTENT_1, Intelligent-Tiering PERSISTENT_2."""
    kind, storage = system.deployment_type, system.storage_type
    if kind not in lustre_limits().deployment_types or isinstance(storage, Unknown):
        return
    allowed = storage_types(str(kind))
    if storage not in allowed:
        way_out = {"HDD": "HDD needs PERSISTENT_1", TIERING: "Intelligent-Tiering needs PERSISTENT_2"}
        yield Problem(
            what="storage_type",
            allowed=f"be one of {listed(allowed)} for {kind}",
            got=storage,
            remedy=way_out.get(storage, "SSD is the default"),
            location="StorageType",
        )


@rule("lustre-capacity", source=f"{_API}.StorageCapacity; FSx guide, increase-storage-capacity")
def capacity(system: FileSystem) -> Iterator[Problem]:
    """Require that the capacity is on the grid of deployment type, storage type, throughput and EFA."""
    grid, got = _grid(system), system.storage_capacity_gib
    if grid is None or isinstance(got, Unknown) or grid.is_legal(got):
        return
    remedy = f"the least is {min(*grid.small, grid.step) if grid.small else grid.step}"
    if is_whole(got) and got > 0:
        remedy = f"the next is {grid.next_gib(got)}"
    price = _price(system, grid)
    yield Problem(
        what="storage_capacity_gib", allowed=grid.allowed + price, got=got, remedy=remedy, location="StorageCapacity"
    )


@rule("lustre-capacity-elastic", source=f"{_API}.StorageCapacity")
def capacity_elastic(system: FileSystem) -> Iterator[Problem]:
    """Require that Intelligent-Tiering takes no capacity: it is elastic."""
    if system.tiering and system.storage_capacity_gib is not None:
        yield Problem(
            what="storage_capacity_gib",
            allowed=f"be left out with {TIERING}, which is elastic",
            got=system.storage_capacity_gib,
            remedy="give throughput_capacity",
            location="StorageCapacity",
        )


@rule("lustre-throughput", source=f"{_CONFIGURATION}.PerUnitStorageThroughput; FSx guide, ssd-storage")
def throughput(system: FileSystem) -> Iterator[Problem]:
    """Require that the throughput per TiB is one of the tiers; scratch and Intelligent-Tiering take none."""
    kind, storage, got = system.deployment_type, system.storage_type, system.per_unit_storage_throughput
    if isinstance(kind, Unknown) or isinstance(storage, Unknown) or isinstance(got, Unknown):
        return
    if kind not in lustre_limits().deployment_types or storage not in storage_types(kind):
        return
    tiers = per_unit_throughputs(kind, storage)
    location = "LustreConfiguration.PerUnitStorageThroughput"
    if not tiers:
        if got is not None:
            yield Problem(
                what="per_unit_storage_throughput",
                allowed=f"be left out with {storage if system.tiering else kind}",
                got=got,
                remedy="give throughput_capacity" if system.tiering else "scratch has 200 MB/s per TiB",
                location=location,
            )
        return
    if not is_whole(got) or got not in tiers:
        context = f" for {kind} HDD" if storage == "HDD" else ""
        nearest = min(tiers, key=lambda tier: abs(tier - got)) if is_whole(got) else tiers[0]
        yield Problem(
            what=f"per_unit_storage_throughput (MB/s per TiB){context}",
            allowed=f"be one of {listed(tiers)}",
            got=got,
            remedy=f"the nearest is {nearest}",
            location=location,
        )


@rule("lustre-throughput-capacity", source=f"{_CONFIGURATION}.ThroughputCapacity; docs/decisions/0005")
def throughput_capacity(system: FileSystem) -> Iterator[Problem]:
    """Require that Intelligent-Tiering has a throughput capacity in steps of 4,000 MB/s; nothing else has one."""
    got, limits, storage = system.throughput_capacity, lustre_limits(), system.storage_type
    if isinstance(got, Unknown) or isinstance(storage, Unknown):
        return
    location = "LustreConfiguration.ThroughputCapacity"
    if not system.tiering:
        if got is not None:
            yield Problem(
                what="throughput_capacity",
                allowed=f"be left out with {storage}",
                got=got,
                remedy=f"it belongs to {TIERING}; give per_unit_storage_throughput",
                location=location,
            )
        return
    step, most = limits.tiering_throughput_step, limits.tiering_throughput_maximum
    if is_whole(got) and 0 < got <= most and got % step == 0:
        return
    if system.small_tiering_throughput and got in limits.tiering_small_throughputs:
        return
    small = " (1000 and 2000 only with small_tiering_throughput)" if got in limits.tiering_small_throughputs else ""
    next_step = step if not is_whole(got) else min(max(-(-got // step), 1) * step, most)
    yield Problem(
        what="throughput_capacity",
        allowed=f"be a multiple of {step} MB/s up to {most}{small}",
        got=got,
        remedy=f"the next is {next_step}",
        location=location,
    )


def _grid(system: FileSystem) -> CapacityGrid | None:
    kind, storage = system.deployment_type, system.storage_type
    if isinstance(kind, Unknown) or isinstance(storage, Unknown) or storage == TIERING:
        return None
    if kind not in (*SCRATCH, *PERSISTENT) or storage not in storage_types(kind):
        return None
    if isinstance(system.efa_enabled, Unknown):
        return None
    # EFA elsewhere is refused by a rule of its own; its capacity is still checked without.
    efa = system.efa_enabled is True and kind == "PERSISTENT_2"
    grid = capacity_grid(
        deployment_type=kind, storage_type=storage, per_unit=system.per_unit_storage_throughput, efa=efa
    )
    if grid is None and efa and not isinstance(system.per_unit_storage_throughput, Unknown):
        # The tier is illegal, so its EFA step is not known; what no tier allows is said all the same.
        return capacity_grid(deployment_type=kind, storage_type=storage, per_unit=None, efa=False)
    return grid


def _price(system: FileSystem, grid: CapacityGrid) -> str:
    """Return what the least EFA file system costs, where the price is known."""
    per_unit = system.per_unit_storage_throughput
    if grid.small or system.storage_type != "SSD" or system.region is None or not isinstance(per_unit, int):
        return ""
    price = catalog.prices.catalog_prices().lustre_storage(
        region=system.region.name, deployment_type="PERSISTENT_2", per_unit=per_unit
    )
    return "" if price is None else f" ({grid.step} cost ${price * grid.step:,.0f} a month)"


@rule("lustre-from-backup", source="FSx guide, using-backups; CloudFormation, AWS::FSx::FileSystem BackupId")
def from_backup(system: FileSystem) -> Iterator[Problem]:
    """Require that only persistent file systems are made from backups."""
    if system.from_backup and system.deployment_type in SCRATCH:
        yield Problem(
            what="backup_id",
            allowed=f"be left out for {system.deployment_type}",
            got=Words("a backup"),
            remedy="backups are of persistent file systems, and restore to the same type",
            location="BackupId",
        )


RULES = (from_backup, deployment_type, storage_type, throughput, capacity, capacity_elastic, throughput_capacity)
