"""What a configuration costs: storage, requests, the lake's growth, idle and repeated work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog, defaults
from training_storage.planning.plan import Cost, HourlyCost, RunCost
from training_storage.planning.selection import EXPRESS, LUSTRE, S3, Choice
from training_storage.planning.units import GIB, SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from training_storage.planning.catalog.prices import Prices
    from training_storage.planning.demand import Needs
    from training_storage.planning.lustre import FileSystem
    from training_storage.planning.outcome import Outcome
    from training_storage.planning.resolution import Situation

_PER = 1000
_CENTS = 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A configuration to be costed.

    `hot_bytes` is the part of the data set on the tier it is read from, `express_bytes` what the directory bucket
    holds.
    """

    choice: Choice
    file_system: FileSystem | None
    metadata_iops: int | None
    hot_bytes: float
    express_bytes: float


@dataclass(frozen=True, kw_only=True)
class _Traffic:
    """Requests (counts) and bytes of a run, by where they go."""

    s3_puts: float
    s3_gets: float
    express_puts: float
    express_gets: float
    express_upload_bytes: float
    express_retrieval_bytes: float


@dataclass(frozen=True, kw_only=True)
class _PriceView:
    """Prices of one Region; `missing` collects the names of what has none."""

    prices: Prices
    region: str
    fallback: str | None
    instance: str

    def number(self, look_up: Callable[[str], float | None]) -> float | None:
        """Return a price of the Region, or of the fallback Region if one is set."""
        value = look_up(self.region)
        if value is None and self.fallback is not None:
            return look_up(self.fallback)
        return value

    def node_hour(self) -> float | None:
        """Return the price of a node-hour; as a fallback also the Capacity Block's."""
        value = self.number(lambda region: self.prices.instance_per_hour(region=region, instance_type=self.instance))
        if value is None and self.fallback is not None:
            return self.prices.capacity_block_per_hour(self.instance)
        return value


def ranking_total_usd(*, situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> float:
    """Return the total that configurations are ranked by: storage, requests, growth, idle and lost, in USD of the run.

    Where the Region has no price the ranking Region's stands in; where even that is missing the part counts as 0.
    """
    view = _view(situation, fallback=situation.prices.ranking_region)
    return sum(value or 0.0 for value in _run(situation, needs, layout, result, view).values())


def cost(*, situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> Cost:
    """Return the money of a configuration; None where the Region has no price."""
    view = _view(situation, fallback=None)
    hours_per_month = situation.prices.hours_per_month
    months = _months(situation, layout, needs, result, view)
    node_hour = view.node_hour()
    cluster_hour = None if node_hour is None else node_hour * situation.job.instances
    per_month: dict[str, float | None] = {**months, "cluster": _times(cluster_hour, hours_per_month)}
    storage_hour = _times(_sum(months.values()), 1 / hours_per_month)
    run = _run(situation, needs, layout, result, view)
    return Cost(
        currency=str(situation.prices.table.get("currency", "USD")),
        prices_as_of=situation.prices.as_of,
        per_month_usd={key: _money(value) for key, value in per_month.items()},
        per_hour_usd=HourlyCost(
            running=_money(_sum([storage_hour, cluster_hour])),
            nodes_at_zero=_money(storage_hour),
            parked=_money(_times(months[S3], 1 / hours_per_month)),
        ),
        run_usd=RunCost(
            **{key: _money(value) for key, value in run.items()},
            total=_money(_sum(run.values())),
        ),
    )


def missing_prices(situation: Situation, money: Cost, file_system: FileSystem | None) -> tuple[str, ...]:
    """Return a warning for each price that the Region lacks, with what stood in for it when ranking."""
    region, ranking = situation.region.name, situation.prices.ranking_region
    warnings = []
    if money.per_month_usd["cluster"] is None:
        name = situation.instance.name
        if situation.prices.instance_per_hour(region=ranking, instance_type=name) is not None:
            stand_in = f"ranked with the list price of {ranking}"
        elif situation.prices.capacity_block_per_hour(name) is not None:
            stand_in = "ranked with the effective Capacity Block price"
        else:
            stand_in = "ranked without the cost of waiting accelerators"
        warnings.append(f"No price of {name} in {region} is known: {stand_in}; money that depends on it is null.")
    tiers = [tier for tier, value in money.per_month_usd.items() if value is None and tier != "cluster"]
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
    return tuple(warnings)


def _view(situation: Situation, *, fallback: str | None) -> _PriceView:
    return _PriceView(
        prices=situation.prices, region=situation.region.name, fallback=fallback, instance=situation.instance.name
    )


def _run(
    situation: Situation, needs: Needs, layout: Layout, result: Outcome, view: _PriceView
) -> Mapping[str, float | None]:
    """Return the run's money by the names of RunCost, without the total."""
    share = situation.number("run_hours") / situation.prices.hours_per_month
    hot = _hot_months(layout, view)
    dataset = _s3_month(situation.number("dataset_gib"), view)
    growth = _s3_month(_lake_checkpoint_gib(situation, needs, layout, result), view)
    node_hour = view.node_hour()
    node_second = None if node_hour is None else node_hour * situation.job.instances / SECONDS_PER_HOUR
    return {
        "storage": _times(_sum([*hot.values(), dataset]), share),
        "lake_growth": _times(growth, share),
        "requests_and_transfer": _requests_usd(situation, needs, layout, result, view),
        "idle_accelerators": _times(node_second, result.idle_node_s),
        "lost_work": _times(node_second, result.lost_node_s),
    }


def _months(
    situation: Situation, layout: Layout, needs: Needs, result: Outcome, view: _PriceView
) -> dict[str, float | None]:
    lake_gib = situation.number("dataset_gib") + _lake_checkpoint_gib(situation, needs, layout, result)
    return {S3: _s3_month(lake_gib, view), **_hot_months(layout, view)}


def _s3_month(gib: float, view: _PriceView) -> float | None:
    price = view.number(lambda region: view.prices.s3(region=region, item="storage_per_gib_month"))
    return _times(price, gib)


def _hot_months(layout: Layout, view: _PriceView) -> dict[str, float | None]:
    months: dict[str, float | None] = {}
    if layout.file_system is not None:
        months[LUSTRE] = _lustre_month(layout.file_system, layout.metadata_iops, view)
    if EXPRESS in layout.choice.tiers:
        price = view.number(lambda region: view.prices.express(region=region, item="storage_per_gib_month"))
        months[EXPRESS] = _times(price, layout.express_bytes / GIB)
    return months


def _lustre_month(file_system: FileSystem, iops: int | None, view: _PriceView) -> float | None:
    price = view.number(
        lambda region: view.prices.lustre_storage(
            region=region,
            deployment_type=file_system.deployment_type.name,
            per_unit=file_system.tier.per_unit,
        )
    )
    storage = _times(price, file_system.capacity_gib)
    extra = max(0, (iops or 0) - catalog.lustre.automatic_metadata_iops(file_system.capacity_gib))
    if extra == 0:
        return storage
    return _sum([storage, _times(view.number(view.prices.lustre_metadata_iops), extra)])


def _lake_checkpoint_s(situation: Situation, layout: Layout, result: Outcome) -> float:
    """Return the seconds between checkpoints that reach the lake: all of them without a hot tier, else the archived."""
    if layout.choice.checkpoint_tier == S3:
        return result.interval_s
    return max(result.interval_s, situation.number("durable_interval_minutes") * SECONDS_PER_MINUTE)


def _lake_checkpoint_gib(situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> float:
    """Return the GiB of checkpoints in the lake: those kept, and replaced ones until their versions expire."""
    every_s = _lake_checkpoint_s(situation, layout, result)
    written = situation.number("run_hours") * SECONDS_PER_HOUR / every_s
    kept = min(written, situation.number("durable_checkpoints_kept") + defaults.number("newest_durable_checkpoints"))
    noncurrent = min(written - kept, defaults.number("noncurrent_version_days") * SECONDS_PER_DAY / every_s)
    return (kept + noncurrent) * needs.checkpoint_bytes / GIB


def _traffic(situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> _Traffic:
    run_s = situation.number("run_hours") * SECONDS_PER_HOUR
    parts = math.ceil(needs.checkpoint_bytes / needs.checkpoint_part_bytes)
    to_lake = run_s / _lake_checkpoint_s(situation, layout, result)
    read_bytes = run_s * needs.read_bytes_per_s * result.achieved_use
    reads, checkpoints = layout.choice.read_tier, layout.choice.checkpoint_tier
    express_saves = result.checkpoints if checkpoints == EXPRESS else 0.0
    express_restores = result.failures if checkpoints == EXPRESS else 0.0
    express_reads = read_bytes if reads == EXPRESS else 0.0
    # A hot tier loads the data set from the lake once; what does not fit comes again on use and is not counted.
    s3_reads = read_bytes if reads == S3 else layout.hot_bytes
    copied = layout.hot_bytes if reads == EXPRESS else 0.0
    return _Traffic(
        s3_puts=to_lake * parts,
        s3_gets=s3_reads / needs.read_request_bytes + (result.failures * parts if checkpoints == S3 else 0.0),
        express_puts=express_saves * parts + copied / needs.read_request_bytes,
        express_gets=express_restores * parts
        + express_reads / needs.read_request_bytes
        + (to_lake * parts if checkpoints == EXPRESS else 0.0),
        express_upload_bytes=express_saves * needs.checkpoint_bytes + copied,
        express_retrieval_bytes=express_restores * needs.checkpoint_bytes
        + express_reads
        + (to_lake * needs.checkpoint_bytes if checkpoints == EXPRESS else 0.0),
    )


def _requests_usd(
    situation: Situation, needs: Needs, layout: Layout, result: Outcome, view: _PriceView
) -> float | None:
    traffic = _traffic(situation, needs, layout, result)

    def s3(item: str) -> float | None:
        return view.number(lambda region: view.prices.s3(region=region, item=item))

    def express(item: str) -> float | None:
        return view.number(lambda region: view.prices.express(region=region, item=item))

    parts = [_times(s3("put_per_1000"), traffic.s3_puts / _PER), _times(s3("get_per_1000"), traffic.s3_gets / _PER)]
    if EXPRESS in layout.choice.tiers:
        parts += [
            _times(express("put_per_1000"), traffic.express_puts / _PER),
            _times(express("get_per_1000"), traffic.express_gets / _PER),
            _times(express("upload_per_gib"), traffic.express_upload_bytes / GIB),
            _times(express("retrieval_per_gib"), traffic.express_retrieval_bytes / GIB),
        ]
    return _sum(parts)


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


def _money(value: float | None) -> float | None:
    return None if value is None else round(value, _CENTS)
