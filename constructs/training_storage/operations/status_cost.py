"""What stands costs now, and what it has cost: list prices of the catalog times what runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog, tariff

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from training_storage.operations.lustre_state import FileSystem
    from training_storage.operations.status_model import JobStatus, Node
    from training_storage.planning.catalog.prices import Prices

_SECONDS_PER_HOUR = 3600
#: What no list price here covers.
NOT_INCLUDED = (
    "requests, objects in S3 and S3 Express, /home, NAT gateway and endpoints, node volumes, the fee of AWS PCS, taxes "
    "and discounts"
)


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """What one thing costs.

    Parameters
    ----------
    what
        In words.
    per_hour_usd
        Now; None where no price is known.
    so_far_usd
        Since it was made or started, at today's size and price; None where no price is known.
    note
        What to know of it; None if nothing.
    """

    what: str
    per_hour_usd: float | None
    so_far_usd: float | None
    note: str | None


@dataclass(frozen=True, kw_only=True)
class JobCost:
    """The cost of a job; `unknown` names what could not be priced, so that the sums are at least so much."""

    currency: str
    prices_as_of: str
    lines: tuple[CostLine, ...]
    unknown: tuple[str, ...]

    @property
    def per_hour_usd(self) -> float:
        """The sum of the known lines."""
        return sum(line.per_hour_usd or 0.0 for line in self.lines)

    @property
    def so_far_usd(self) -> float:
        """The sum of the known lines."""
        return sum(line.so_far_usd or 0.0 for line in self.lines)

    @property
    def is_whole(self) -> bool:
        """Whether every part is known."""
        return not self.unknown


def cost_of(job: JobStatus, *, region: str, now: dt.datetime, prices: Prices | None = None) -> JobCost:
    """Return the cost of a job at the catalog's list prices."""
    found = prices or catalog.prices.catalog_prices()
    rates = tariff.tariff_of(found, region, stand_ins=False)
    unknown = []
    if job.file_systems is None:
        unknown.append(f"file systems ({job.why_unknown('file_systems')})")
    lines = [
        _file_system(standing.system, rates, hours_per_month=found.hours_per_month, now=now)
        for standing in job.file_systems or ()
    ]
    if job.cluster is not None:
        if job.cluster.nodes is None:
            unknown.append(f"nodes ({job.why_unknown('nodes')})")
        lines += _nodes(job.cluster.nodes or (), rates, now=now)
    elif job.stack is not None and job.stack.resources is None:
        unknown.append(f"nodes ({job.why_unknown('resources')})")
    unknown += [f"{line.what} (no price known in {region})" for line in lines if line.per_hour_usd is None]
    return JobCost(currency=found.currency, prices_as_of=found.as_of, lines=tuple(lines), unknown=tuple(unknown))


def _file_system(system: FileSystem, rates: tariff.Tariff, *, hours_per_month: float, now: dt.datetime) -> CostLine:
    what = f"{system.id}, {system.capacity_gib:,} GiB"
    price = None
    if system.storage_type == "SSD" and system.deployment_type:
        shared = catalog.lustre.deployment_types().get(system.deployment_type)
        # Scratch has one throughput, which FSx does not name.
        per_unit = system.per_unit_throughput or (next(iter(shared.throughputs)) if shared else 0)
        price = rates.price(tariff.lustre_storage(system.deployment_type, per_unit))
    if price is None:
        return CostLine(what=what, per_hour_usd=None, so_far_usd=None, note=None)
    month = price * system.capacity_gib
    extra = _extra_metadata_iops(system)
    if extra:
        iops = rates.price(tariff.METADATA_IOPS)
        if iops is None:
            return CostLine(what=f"{what} and {extra:,} metadata IOPS", per_hour_usd=None, so_far_usd=None, note=None)
        month += iops * extra
    hour = month / hours_per_month
    return CostLine(
        what=what,
        per_hour_usd=hour,
        so_far_usd=hour * _hours(system.created, now),
        note=f"since {system.created:%Y-%m-%d %H:%M}, at today's size",
    )


def _extra_metadata_iops(system: FileSystem) -> int:
    """Return the metadata IOPS above those that come with the capacity."""
    if system.metadata_mode != "USER_PROVISIONED" or system.metadata_iops is None:
        return 0
    return max(0, system.metadata_iops - catalog.lustre.automatic_metadata_iops(system.capacity_gib))


def _nodes(nodes: tuple[Node, ...], rates: tariff.Tariff, *, now: dt.datetime) -> Iterator[CostLine]:
    counts = Counter((node.instance_type, node.market) for node in nodes)
    for (name, market), count in sorted(counts.items()):
        price = rates.price(tariff.node_hour(name))
        hours = sum(_hours(node.launched, now) for node in nodes if (node.instance_type, node.market) == (name, market))
        notes = ["nodes that have ended are not counted"]
        if market != "on-demand":
            notes.insert(0, f"{market}, shown at the on-demand price")
        yield CostLine(
            what=f"{count:,} x {name}",
            per_hour_usd=None if price is None else price * count,
            so_far_usd=None if price is None else price * hours,
            note="; ".join(notes),
        )


def _hours(since: dt.datetime, now: dt.datetime) -> float:
    return max(0.0, (now - since).total_seconds() / _SECONDS_PER_HOUR)
