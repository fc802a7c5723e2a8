"""Finds the configuration of the chosen tiers with the least total cost, and applies the rule ``demand``.

The rule's order, when the narrow way does not do: a wider network path; reads stay on S3 over several addresses and the
hot tier takes checkpoints only; a file system over the quota, with a warning; refusal. A bigger file system up to the
quota is part of every step; beyond it only the least size that serves counts. Given budgets for a save's stall hold
in every step, and so does the rule that a save ends before the next begins. Assumed budgets are targets: they are
dropped, with a warning, before any of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from training_storage.planning import catalog, cost, lustre, objects
from training_storage.planning.bill import Layout
from training_storage.planning.errors import NoTierError
from training_storage.planning.grid_search import least_total
from training_storage.planning.outcome import Delivery, Outcome, outcome
from training_storage.planning.selection import EXPRESS, LUSTRE, S3, Choice
from training_storage.planning.units import GB, GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from training_storage.planning.demand import Needs, Required
    from training_storage.planning.resolution import Situation

#: A stall at exactly the target may come out a hair above it.
_ROUNDING = 1 + 1e-9
#: From this share of a given interval on, waiting for saves is warned of.
_STALL_SHARE_WARNING = 0.1
_OBJECT_PATHS = ("ena", "ena-multi-ip")
_LUSTRE_PATHS = ("ena", "efa", "efa-gds")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Attempt:
    """One step of the search: where data is read from, over which path, with or without targets and quota."""

    choice: Choice
    path: str
    targets: bool
    within_quota: bool
    demand_reason: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Configuration:
    """The chosen tiers with their sizes, what they deliver, and what they make of the run.

    `request` is what the file system was asked for, `stores` what the object tiers in use deliver.
    """

    attempt: Attempt
    layout: Layout
    stores: Mapping[str, objects.ObjectStore]
    request: lustre.Request | None
    delivery: Delivery
    result: Outcome
    prefixes_required: Required
    total_usd: float
    warnings: tuple[str, ...] = ()

    @property
    def choice(self) -> Choice:
        """The tiers and rules, the rule ``demand`` included."""
        return self.layout.choice

    @property
    def path(self) -> str:
        """The network path of the nodes."""
        return self.attempt.path


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _Arrangement:
    """An attempt whose object tiers meet the demand; a file system is still to be found."""

    situation: Situation
    needs: Needs
    attempt: Attempt
    stores: Mapping[str, objects.ObjectStore]
    hot_bytes: float
    express_bytes: float
    request: lustre.Request | None
    traffic_usd: dict[tuple[float, float], float] = field(default_factory=dict)

    @cached_property
    def objects_rate(self) -> float:
        """What all nodes move over IP, in bytes per second."""
        return objects.clients_bytes_per_s(self.situation, self.attempt.path)

    @cached_property
    def rank_rate(self) -> float:
        """The most that one rank writes, in bytes per second."""
        return _rank_bytes_per_s(self.situation, self.attempt)

    def outcome(self, delivery: Delivery) -> Outcome | None:
        """Return what the run comes to, or None if checkpoints would never be complete."""
        return outcome(needs=self.needs, delivery=delivery, run_s=self.situation.run_s)

    def layout(self, file_system: lustre.FileSystem | None) -> Layout:
        """Return what is to be costed."""
        choice = self.attempt.choice
        return Layout(
            choice=choice,
            file_system=file_system,
            metadata_iops=None
            if file_system is None
            else lustre.metadata_iops(self.needs, file_system=file_system, reads=choice.read_tier == LUSTRE),
            hot_bytes=self.hot_bytes,
            express_bytes=self.express_bytes,
        )

    def weigh(self, file_system: lustre.FileSystem) -> cost.RankingUsd:
        """Return the money that `file_system` is ranked by; infinite where checkpoints would never be complete."""
        result = self.outcome(_delivery(self, file_system))
        if result is None:
            return cost.RankingUsd(0.0, math.inf)
        return self.money(self.layout(file_system), result)

    def money(self, layout: Layout, result: Outcome) -> cost.RankingUsd:
        """Return what `layout` is ranked by."""
        return cost.ranking_usd(
            situation=self.situation, needs=self.needs, layout=layout, result=result, known=self.traffic_usd
        )


def configure(situation: Situation, needs: Needs, choice: Choice) -> Configuration:
    """Return the least costly configuration of the first step that meets the demand.

    Raises
    ------
    NoTierError
        If no step does; says the shortfall of the first and of the widest step.
    """
    shortfalls: list[str] = []
    for attempt in _attempts(situation, needs, choice):
        found = _try(situation, needs, attempt)
        if isinstance(found, Configuration):
            return found
        if found not in shortfalls:
            shortfalls.append(found)
    raise NoTierError(
        f"No tier of {', '.join(choice.tiers)} serves the job: {'; '.join(shortfalls)}. "
        "Use more instances or another instance_type, or ask for less."
    )


def _attempts(situation: Situation, needs: Needs, choice: Choice) -> Iterator[Attempt]:
    """Yield the steps of the rule ``demand`` in order."""
    paths = _paths(situation, choice)
    narrow, wider = paths[0], paths[1:]
    yield from _with_and_without_targets(needs, Attempt(choice=choice, path=narrow, targets=True, within_quota=True))
    for path in wider:
        reason = f"{narrow} does not carry what each node needs: the network path is {path}."
        yield from _with_and_without_targets(
            needs, Attempt(choice=choice, path=path, targets=True, within_quota=True, demand_reason=reason)
        )
    moved = _reads_on_s3(situation, choice)
    if moved is not None:
        for path in _object_paths(situation):
            yield from _with_and_without_targets(
                needs,
                Attempt(
                    choice=moved,
                    path=path,
                    targets=True,
                    within_quota=True,
                    demand_reason=f"{choice.read_tier} cannot deliver the reads: they stay on s3, over {path}.",
                ),
            )
    if LUSTRE not in choice.tiers:
        return
    for path in paths:
        over = "" if path == narrow else f"{narrow} does not carry what each node needs: the network path is {path}. "
        yield Attempt(
            choice=choice,
            path=path,
            targets=False,
            within_quota=False,
            demand_reason=f"{over}The file system is over quota.",
        )
    if moved is not None:
        for path in _object_paths(situation):
            yield Attempt(
                choice=moved,
                path=path,
                targets=False,
                within_quota=False,
                demand_reason=f"Reads stay on s3, over {path}, and the file system is over quota.",
            )


def _with_and_without_targets(needs: Needs, attempt: Attempt) -> Iterator[Attempt]:
    yield attempt
    if needs.has_targets:
        yield replace(attempt, targets=False)


def _paths(situation: Situation, choice: Choice) -> tuple[str, ...]:
    """Return the network paths to try, narrowest first; only the given one if it was given."""
    given = situation.job.network_path
    if given is not None:
        return (given,)
    if choice.tiers == (S3,) or LUSTRE not in choice.tiers:
        return _OBJECT_PATHS
    possible = tuple(path for path in _LUSTRE_PATHS if path == "ena" or lustre.efa_possible(situation, path))
    return ("ena", "ena-multi-ip", *possible[1:]) if EXPRESS in choice.tiers else possible


def _object_paths(situation: Situation) -> tuple[str, ...]:
    given = situation.job.network_path
    return _OBJECT_PATHS if given is None else (given,)


def _reads_on_s3(situation: Situation, choice: Choice) -> Choice | None:
    """Return the choice with reads from the lake, or None.

    None where the hot tier would have nothing left to do, and where the user says how much data it must hold.
    """
    if choice.read_tier == S3 or choice.checkpoint_tier != choice.read_tier or "hot_dataset_gib" in situation.given:
        return None
    return replace(choice, read_tier=S3)


def _try(situation: Situation, needs: Needs, attempt: Attempt) -> Configuration | str:
    """Return the best configuration of one step, or the shortfall in numbers."""
    arrangement = _arrange(situation, needs, attempt)
    if isinstance(arrangement, str):
        return arrangement
    if arrangement.request is None:
        return _configuration(arrangement, None) or _never_complete(needs)
    found = _best_file_system(arrangement, arrangement.request.throughputs)
    if found is None:
        return lustre.shortfall(situation, needs, arrangement.request, limit_gib=quota_gib(situation))
    return _configuration(arrangement, found) or _never_complete(needs)


def best_of_tier(situation: Situation, needs: Needs, attempt: Attempt, per_unit: int) -> Configuration | None:
    """Return the least costly configuration of `attempt` with the throughput tier `per_unit`, or None."""
    arrangement = _arrange(situation, needs, attempt)
    if isinstance(arrangement, str) or arrangement.request is None:
        return None
    tiers = [tier for tier in arrangement.request.throughputs if tier.per_unit == per_unit]
    found = _best_file_system(arrangement, tiers)
    return None if found is None else _configuration(arrangement, found)


def neighbour(
    situation: Situation, needs: Needs, attempt: Attempt, *, file_system: lustre.FileSystem, step: int
) -> Configuration | None:
    """Return the configuration with the size `step` legal sizes away from `file_system`'s, or None if it cannot do."""
    arrangement = _arrange(situation, needs, attempt)
    if isinstance(arrangement, str) or arrangement.request is None:
        return None
    limit = max(quota_gib(situation), file_system.capacity_gib)
    sizes = lustre.sizes_gib(arrangement.request, file_system.tier, limit_gib=limit)
    index = sizes.index(file_system.capacity_gib) + step
    if not 0 <= index < len(sizes):
        return None
    return _configuration(arrangement, lustre.file_system(arrangement.request, file_system.tier, sizes[index]))


def _arrange(situation: Situation, needs: Needs, attempt: Attempt) -> _Arrangement | str:
    """Return the attempt with its object tiers, or the shortfall of one of them in numbers."""
    choice = attempt.choice
    stall = _stall_shortfall(situation, needs, attempt)
    if stall is not None:
        return stall
    stores: dict[str, objects.ObjectStore] = {}
    for tier in (S3, EXPRESS):
        if tier in (choice.read_tier, choice.checkpoint_tier):
            store = _object_store(situation, needs, attempt, tier)
            if isinstance(store, str):
                return store
            stores[tier] = store
    hot = hot_bytes(situation, needs, choice)
    request = None
    if LUSTRE in choice.tiers:
        if choice.read_tier == LUSTRE and not lustre.metadata_suffices(situation, needs):
            return (
                f"opening {needs.files_per_s or 0:,.0f} files/s is more than the "
                f"{catalog.lustre.metadata_iops_steps()[-1]:,} metadata IOPS of fsx-lustre: pack the files into shards"
            )
        request = lustre.request(
            situation,
            required=_required(needs, attempt, LUSTRE),
            capacity_bytes=_stored_bytes(situation, needs, choice, LUSTRE, hot),
            path=attempt.path,
        )
    return _Arrangement(
        situation=situation,
        needs=needs,
        attempt=attempt,
        stores=stores,
        hot_bytes=hot,
        express_bytes=_stored_bytes(situation, needs, choice, EXPRESS, hot),
        request=request,
    )


def _rank_bytes_per_s(situation: Situation, attempt: Attempt) -> float:
    """Return the most that one rank writes: its share of what its node moves, without the bound per server."""
    if attempt.choice.checkpoint_tier == LUSTRE:
        client = lustre.client_bytes_per_s(situation, attempt.path)
    else:
        client = objects.clients_bytes_per_s(situation, attempt.path) / situation.job.instances
    return client / situation.instance.accelerators


def _stall_shortfall(situation: Situation, needs: Needs, attempt: Attempt) -> str | None:
    """Return why no size keeps the given stall budget or interval over this path, in numbers, or None."""
    rank = _rank_bytes_per_s(situation, attempt)
    stall_s = needs.least_stall_s(rank)
    if needs.synchronous:
        slowest = (needs.slowest_rank_bytes or 0.0) / GIB
        rate = f"{rank / GB:,.3g} GB/s over {attempt.path}"
        why = f"the slowest rank writes {slowest:,.3g} GiB at {rate}, {stall_s:,.3g} s"
    else:
        why = (
            f"copying {needs.checkpoint_bytes / GB:,.4g} GB from {situation.accelerators:,} accelerators to their "
            f"hosts takes {stall_s:,.3g} s"
        )
    if needs.stall_is_limit and stall_s > needs.stall_target_s:
        return f"{why} a save, more than the given stall budget of {needs.stall_target_s:g} s"
    if needs.interval_s is not None and stall_s >= needs.interval_s:
        return f"{why} a save, not less than the given interval of {needs.interval_s:g} s"
    return None


def _stored_bytes(situation: Situation, needs: Needs, choice: Choice, tier: str, hot: float) -> float:
    return lustre.stored_bytes(
        needs,
        hot_bytes=hot if choice.read_tier == tier else 0.0,
        checkpoints_kept=int(situation.number("checkpoints_kept")),
        checkpoints=choice.checkpoint_tier == tier,
    )


def _best_file_system(
    arrangement: _Arrangement, tiers: Iterable[catalog.lustre.ThroughputTier]
) -> lustre.FileSystem | None:
    """Return the file system with the least total among all legal ones of `tiers`."""
    request, best, best_usd = arrangement.request, None, math.inf
    if request is None:
        return None
    if not arrangement.attempt.within_quota:
        return _least_over_quota(arrangement, request, tiers)
    limit = quota_gib(arrangement.situation)
    # The highest throughput first: it wins most often, and what is found early spares looking further.
    for tier in sorted(tiers, key=lambda tier: -tier.per_unit):
        sizes = lustre.sizes_gib(request, tier, limit_gib=limit)
        systems: dict[int, lustre.FileSystem] = {}

        def weigh(
            index: int,
            tier: catalog.lustre.ThroughputTier = tier,
            sizes: Sequence[int] = sizes,
            systems: dict[int, lustre.FileSystem] = systems,
        ) -> cost.RankingUsd:
            systems[index] = lustre.file_system(request, tier, sizes[index])
            return arrangement.weigh(systems[index])

        found = least_total(len(sizes), weigh, below=best_usd)
        if found is not None:
            best, best_usd = systems[found[0]], found[1]
    return best


def _least_over_quota(
    arrangement: _Arrangement, request: lustre.Request, tiers: Iterable[catalog.lustre.ThroughputTier]
) -> lustre.FileSystem | None:
    """Return the smallest file system that serves; of several throughput tiers of that size the least total.

    Over the quota a plan asks for no more than it must.
    """
    found = []
    for tier in tiers:
        # The least may be just enough for the reads and leave nothing for checkpoints: then the next does.
        for gib in lustre.least_sizes_gib(request, tier):
            system = lustre.file_system(request, tier, gib)
            usd = arrangement.weigh(system).total
            if math.isfinite(usd):
                found.append((gib, usd, system))
                break
    return min(found, key=lambda row: row[:2])[2] if found else None


def quota_gib(situation: Situation) -> int:
    """Return the default storage quota of the job's Lustre deployment type in GiB."""
    return catalog.quotas.quota(lustre.deployment_type(situation).storage_quota).limit


def hot_bytes(situation: Situation, needs: Needs, choice: Choice) -> float:
    """Return the part of the data set on the tier it is read from.

    Given, or the whole data set; on a file system never more than fits the quota beside the checkpoints.
    """
    if choice.read_tier == S3:
        return 0.0
    if situation.job.hot_dataset_gib is not None:
        return situation.job.hot_dataset_gib * GIB
    dataset = situation.number("dataset_gib") * GIB
    if choice.read_tier != LUSTRE:
        return dataset
    checkpoints = lustre.stored_bytes(
        needs,
        hot_bytes=0.0,
        checkpoints_kept=int(situation.number("checkpoints_kept")),
        checkpoints=choice.checkpoint_tier == LUSTRE,
    )
    share = lustre.capacity_gib(GIB)
    return max(0.0, min(dataset, quota_gib(situation) / share * GIB - checkpoints))


def _required(needs: Needs, attempt: Attempt, tier: str) -> Required:
    return needs.required(
        reads=attempt.choice.read_tier == tier,
        checkpoints=attempt.choice.checkpoint_tier == tier,
        targets=attempt.targets,
    )


def _object_store(situation: Situation, needs: Needs, attempt: Attempt, tier: str) -> objects.ObjectStore | str:
    required = _required(needs, attempt, tier)
    clients = objects.clients_bytes_per_s(situation, attempt.path)
    deliver = objects.s3 if tier == S3 else objects.express
    store = deliver(situation, needs, required, attempt.path)
    if objects.meets(store, required, clients):
        return store
    if required.total > clients:
        nodes = situation.job.instances
        return (
            f"each {situation.instance.name} would have to move {required.total / nodes / GB:.3g} GB/s"
            f"{needs.full_use_words(required, nodes)} to {tier} and "
            f"moves at most {clients / nodes / GB:.3g} GB/s over {attempt.path}"
        )
    return (
        f"{tier} delivers at most {store.read_bytes_per_s / GB:.3g} GB/s of reads, "
        f"{store.write_bytes_per_s / GB:.3g} GB/s of writes and {store.restore_bytes_per_s / GB:.3g} GB/s of restores, "
        f"and the job needs {required.read / GB:.3g}, {required.write / GB:.3g} and {required.restore / GB:.3g}"
    )


def _never_complete(needs: Needs) -> str:
    if needs.synchronous and needs.interval_s is not None:
        return f"a save takes as long as the given interval of {needs.interval_s:g} s"
    return (
        f"reading {needs.read_bytes_per_s / GB:.3g} GB/s leaves nothing of the tier's rate, so no "
        "checkpoint would ever be complete"
    )


def _configuration(arrangement: _Arrangement, file_system: lustre.FileSystem | None) -> Configuration | None:
    """Return the configuration with what it makes of the run, or None if checkpoints would never be complete."""
    needs, attempt = arrangement.needs, arrangement.attempt
    delivery = _delivery(arrangement, file_system)
    result = arrangement.outcome(delivery)
    if result is None:
        return None
    layout = arrangement.layout(file_system)
    usd = arrangement.money(layout, result)
    if attempt.demand_reason is not None:
        layout = layout._replace(choice=attempt.choice.because("demand", attempt.demand_reason))
    return Configuration(
        attempt=attempt,
        layout=layout,
        stores=arrangement.stores,
        request=arrangement.request,
        delivery=delivery,
        result=result,
        prefixes_required=needs.required(reads=True, checkpoints=True, targets=attempt.targets),
        total_usd=usd.total,
        warnings=_warnings(needs, attempt, arrangement.stores, result),
    )


def _delivery(arrangement: _Arrangement, file_system: lustre.FileSystem | None) -> Delivery:
    needs, stores, choice = arrangement.needs, arrangement.stores, arrangement.attempt.choice
    reading = needs.read_bytes_per_s * needs.accelerator_use
    on_lustre = file_system if choice.read_tier == LUSTRE else None
    read = on_lustre.read_bytes_per_s if on_lustre is not None else stores[choice.read_tier].read_bytes_per_s
    if file_system is not None and arrangement.request is not None and choice.checkpoint_tier == LUSTRE:
        write, restore = file_system.write_bytes_per_s, file_system.read_bytes_per_s
        # Reading takes its share of the servers' time; where reads and writes are equally fast that is D - R.
        beside = write * (1 - reading / read) if on_lustre is not None else write
    else:
        store = stores[choice.checkpoint_tier]
        write, restore = store.write_bytes_per_s, store.restore_bytes_per_s
        # Requests of reads and writes do not share a limit, but the nodes' network carries both.
        beside = write if on_lustre is not None else min(write, arrangement.objects_rate - reading)
    return Delivery(
        read_bytes_per_s=read,
        write_bytes_per_s=write,
        restore_bytes_per_s=restore,
        write_beside_reads_bytes_per_s=beside,
        rank_bytes_per_s=arrangement.rank_rate,
    )


def _warnings(
    needs: Needs, attempt: Attempt, stores: Mapping[str, objects.ObjectStore], result: Outcome
) -> tuple[str, ...]:
    warnings = []
    if not attempt.targets and not needs.restore_is_limit and result.restore_s > needs.restore_target_s:
        warnings.append(
            f"A restore takes {result.restore_s:,.0f} s, longer than the assumed target of "
            f"{needs.restore_target_s:,.0f} s."
        )
    # A larger tier does not shorten every stall, so that a kept target may be missed as well.
    if not needs.stall_is_limit and result.stall_s > needs.stall_target_s * _ROUNDING:
        warnings.append(
            f"A checkpoint stalls training for {result.stall_s:,.0f} s, longer than the assumed target of "
            f"{needs.stall_target_s:,.0f} s."
        )
    if needs.interval_s is not None and result.stall_s > _STALL_SHARE_WARNING * needs.interval_s:
        warnings.append(
            f"Each save stalls training for {result.stall_s:,.3g} s of the given interval of {needs.interval_s:g} s: "
            f"accelerators wait {result.stall_s / needs.interval_s:.0%} of the time. Save less often."
        )
    if any(store.raised for store in stores.values()):
        limits = catalog.s3.express_limits()
        warnings.append(
            f"The job needs more than the default {limits.get_per_s:,} reads/s and {limits.put_per_s:,} writes/s of a "
            f"directory bucket: ask AWS for up to {limits.get_per_s_on_request:,} and {limits.put_per_s_on_request:,}."
        )
    if stores:
        warnings.append(f"Rates of {', '.join(stores)} are bounds from published figures, not measurements.")
    return tuple(warnings)
