"""What a configuration costs: storage, requests, the lake's growth, idle and repeated work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from training_storage.planning import bill, tariff
from training_storage.planning.bill import GROWTH, IDLE, LOST, PARTS, STORAGE, Layout, Line
from training_storage.planning.plan import Cost, HourlyCost, LakeGrowth, RunCost
from training_storage.planning.selection import EXPRESS, LUSTRE, S3
from training_storage.planning.units import GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from training_storage.planning.demand import Needs
    from training_storage.planning.lustre import FileSystem
    from training_storage.planning.outcome import Outcome
    from training_storage.planning.resolution import Situation

_CENTS = 2
#: The tier that an amount of storage is paid for, by the first word of its price's path.
_TIERS = {"s3": S3, "fsx-lustre": LUSTRE, "s3-express": EXPRESS}


class RankingUsd(NamedTuple):
    """Money of the run, split by how it moves with the size of the file system.

    `rising` never falls with it (capacity, requests, archived checkpoints), `falling` never rises (waiting
    accelerators, repeated work, metadata above what comes with the capacity).
    """

    rising: float
    falling: float

    @property
    def total(self) -> float:
        """What configurations are ranked by."""
        return self.rising + self.falling


def ranking_usd(
    *, situation: Situation, needs: Needs, layout: Layout, result: Outcome, known: dict[tuple[float, float], float]
) -> RankingUsd:
    """Return what configurations are ranked by: storage, requests, growth, idle and lost, in USD of the run.

    Where the Region has no price the ranking Region's stands in; where even that is missing the amount counts as 0.

    Parameters
    ----------
    known
        The money of requests, growth and object tiers by interval and achieved use, which many sizes of one search
        share; filled in.
    """
    price = situation.ranking_tariff.price
    key = (result.interval_s, result.achieved_use)
    rising = known.get(key)
    if rising is None:
        lines = [*bill.traffic(situation, needs, layout, result), *bill.object_storage(situation, layout)]
        rising = known[key] = sum((price(line.price) or 0.0) * line.amount for line in lines)
    # Both lines of bill.waiting at once: this runs for every size that is weighed.
    node_hours = situation.job.instances * (result.idle_node_s + result.lost_node_s) / SECONDS_PER_HOUR
    falling = (price(tariff.node_hour(situation.instance.name)) or 0.0) * node_hours
    for line in bill.file_system_storage(situation, layout):
        usd = (price(line.price) or 0.0) * line.amount
        if line.price is tariff.METADATA_IOPS:
            falling += usd
        else:
            rising += usd
    return RankingUsd(rising, falling)


def ranking_parts(situation: Situation, lines: Iterable[Line]) -> dict[str, float]:
    """Return the USD of `lines` by part of the run, as configurations are ranked."""
    parts = dict.fromkeys(PARTS, 0.0)
    for line in lines:
        parts[line.part] += (situation.ranking_tariff.price(line.price) or 0.0) * line.amount
    return parts


def stand_ins(situation: Situation, lines: Iterable[Line]) -> tuple[str, ...]:
    """Return whose prices stand in for those that the Region lacks when `lines` are compared; none where none do."""
    ranking, names = situation.prices.ranking_region, set()
    for path in {line.price for line in lines if line.amount}:
        if situation.tariff.price(path) is None and situation.ranking_tariff.price(path) is not None:
            own = situation.prices.item(region=ranking, path=path) is not None
            names.add(ranking if own else "Capacity Blocks")
    return tuple(sorted(names, reverse=True))


def money(*, situation: Situation, lines: Iterable[Line], lake: LakeGrowth | None = None) -> Cost:
    """Return the money of the run's amounts; None where the Region has no price. `lake` is handed through."""
    by_part: dict[str, list[float | None]] = {part: [] for part in PARTS}
    by_tier: dict[str, list[float | None]] = {}
    share = situation.months
    for line in lines:
        usd = _times(situation.tariff.price(line.price), line.amount)
        by_part[line.part].append(usd)
        if line.part in (STORAGE, GROWTH):
            by_tier.setdefault(_TIERS.get(line.price[0], line.price[0]), []).append(_times(usd, 1 / share))
    run = {part: _sum(values) for part, values in by_part.items()}
    tier_months = {tier: _sum(values) for tier, values in by_tier.items()}
    hours = situation.prices.hours_per_month
    node_hour = situation.tariff.price(tariff.node_hour(situation.instance.name))
    cluster_hour = _times(node_hour, situation.job.instances)
    storage_hour = _times(_sum(tier_months.values()), 1 / hours)
    per_month = {**tier_months, "cluster": _times(cluster_hour, hours)}
    return Cost(
        currency=situation.prices.currency,
        prices_as_of=situation.prices.as_of,
        per_month_usd={key: rounded(value) for key, value in per_month.items()},
        per_hour_usd=HourlyCost(
            running=rounded(_sum([storage_hour, cluster_hour])),
            nodes_at_zero=rounded(storage_hour),
            parked=rounded(_times(tier_months[S3], 1 / hours)),
        ),
        run_usd=RunCost(
            storage=rounded(run[STORAGE]),
            lake_growth=rounded(run[GROWTH]),
            requests_and_transfer=rounded(run["requests_and_transfer"]),
            idle_accelerators=rounded(run[IDLE]),
            lost_work=rounded(run[LOST]),
            total=rounded(_sum(run.values())),
        ),
        lake=lake,
    )


def lake_growth(*, situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> LakeGrowth:
    """Return the checkpoints that the run brings into the lake, in bytes and money."""
    count = bill.lake_checkpoints(situation, layout, result)
    # Of all traffic these two lines are the checkpoints' way into the lake: no data set is written to it by the run.
    usd = _sum(
        _times(situation.tariff.price(line.price), line.amount)
        for line in bill.traffic(situation, needs, layout, result)
        if line.part == GROWTH or line.price is tariff.S3_PUT
    )
    return LakeGrowth(
        checkpoints=round(count, _CENTS),
        written_gib=round(count * needs.checkpoint_bytes / GIB, _CENTS),
        held_gib=round(bill.lake_checkpoint_gib(situation, needs, layout, result), _CENTS),
        run_usd=rounded(usd),
        last_export_gib=round(bill.last_export_gib(situation, needs, layout), _CENTS),
    )


def missing_prices(situation: Situation, found: Cost, file_system: FileSystem | None) -> tuple[str, ...]:
    """Return a warning for each price that the Region lacks, with what stood in for it when ranking."""
    region, ranking = situation.region.name, situation.prices.ranking_region
    warnings = []
    if found.per_month_usd["cluster"] is None:
        name = situation.instance.name
        if situation.prices.instance_per_hour(region=ranking, instance_type=name) is not None:
            stand_in = f"ranked with the list price of {ranking}"
        elif situation.prices.capacity_block_per_hour(name) is not None:
            stand_in = "ranked with the effective Capacity Block price"
        else:
            stand_in = "ranked without the cost of waiting accelerators"
        warnings.append(f"No price of {name} in {region} is known: {stand_in}; money that depends on it is null.")
    tiers = [tier for tier, value in found.per_month_usd.items() if value is None and tier != "cluster"]
    if tiers:
        unknown = (
            file_system is not None
            and situation.prices.lustre_storage(
                region=ranking,
                deployment_type=file_system.deployment_type.name,
                per_unit=file_system.tier.per_unit,
            )
            is None
        )
        stand_in = "ranked without them" if unknown else f"ranked with the prices of {ranking}"
        warnings.append(f"No price of {', '.join(tiers)} in {region} is known: {stand_in}; that money is null.")
    elif found.run_usd.requests_and_transfer is None:
        warnings.append(f"No price of requests in {region} is known: that money is null.")
    return tuple(warnings)


def rounded(value: float | None) -> float | None:
    """Return `value` in whole cents."""
    return None if value is None else round(value, _CENTS)


def _times(price: float | None, amount: float) -> float | None:
    return None if price is None else price * amount


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if any part is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
