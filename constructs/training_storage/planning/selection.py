"""Which tiers a job gets, and the rule that decided.

The source calls its sizes reference values, not limits: every threshold below is named with its origin, every selection
prints its reason, and the user can overrule it with `tiers`. The rule ``demand`` needs sizes and stands in `planner`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from training_storage.planning.errors import InvalidJobError, NoTierError
from training_storage.planning.job import TIERS
from training_storage.planning.units import MIB, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from training_storage.planning.demand import Needs
    from training_storage.planning.resolution import Situation

S3, LUSTRE, EXPRESS = TIERS
#: An alternative only: no rule chooses it, and this version cannot deploy it.
S3_FILES = "s3-files"

#: Largest small cluster. Source: "1 to 16 instances"; that 16 itself belongs here is our reading.
SMALL_CLUSTER_INSTANCES = 16
#: Up to here Lustre comes first. Source: "16 to 500 instances"; that 500 itself belongs here is our reading.
MULTI_NODE_INSTANCES = 500
#: From here on the cluster is huge. Source: "1000 instances and more".
HUGE_INSTANCES = 1000
#: Beyond this the source gives no range for Lustre. Source: "about 16 to 2000 training instances".
LUSTRE_RANGE_INSTANCES = 2000
#: S3 Express as an alternative below MULTI_NODE_INSTANCES. Source: "1000 GPUs and more", said beside the instances.
EXPRESS_ACCELERATORS = 1000
#: Checkpoints at least this often are frequent. Ours: the source says "frequent" without a figure.
FREQUENT_INTERVAL_S = 60 * SECONDS_PER_MINUTE
#: Files below this mean size are small. Ours: the source says "many small files" without a figure.
SMALL_FILE_BYTES = 1 * MIB

#: The rules in the order in which a selection lists them.
RULES = (
    "lake",
    "small-cluster",
    "small-cluster-posix",
    "small-cluster-checkpoints",
    "small-cluster-small-files",
    "small-cluster-shards",
    "multi-node",
    "large-posix",
    "large-object",
    "huge-object",
    "huge-posix",
    "mixed",
    "demand",
    "region",
    "override",
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Offer:
    """An alternative that a rule names, to be costed: its tiers, how it differs besides, and why it is not chosen."""

    tiers: tuple[str, ...]
    why_not: str
    packed_shards: bool = False


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Choice:
    """The tiers by rule, what each serves, and the words for it.

    `read_tier` and `checkpoint_tier` say where the data set is read and where checkpoints are written first.
    """

    tiers: tuple[str, ...]
    read_tier: str
    checkpoint_tier: str
    reasons: Mapping[str, str]
    zone_id: str | None
    offers: tuple[Offer, ...] = ()
    warnings: tuple[str, ...] = ()

    def because(self, rule: str, reason: str) -> Choice:
        """Return the choice with one more rule and its reason."""
        return replace(self, reasons={**self.reasons, rule: reason})

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that decided, in the order of RULES."""
        return tuple(rule for rule in RULES if rule in self.reasons)


@dataclass(kw_only=True)
class _Draft:
    """Collects rules while a selection is made."""

    hot: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)

    def add(self, rule: str, reason: str, *tiers: str) -> None:
        self.reasons[rule] = reason
        self.hot.update(tiers)

    def offer(self, tiers: Iterable[str], why_not: str, *, packed_shards: bool = False) -> None:
        self.offers.append(Offer(tiers=tuple(tiers), why_not=why_not, packed_shards=packed_shards))


def choose_tiers(situation: Situation, needs: Needs) -> Choice:
    """Return the tiers of the job by every rule but ``demand``.

    Raises
    ------
    InvalidJobError
        If `tiers` names one that the Region or zone lacks.
    NoTierError
        If a rule wants a file system where the Region has none.
    """
    draft = _Draft()
    draft.add("lake", "The data lake is always there: raw and cleaned data, weights, logs, checkpoint archive.")
    if situation.job.tiers is not None:
        _override(situation, draft, situation.job.tiers)
    elif situation.job.instances <= SMALL_CLUSTER_INSTANCES:
        _small_cluster(situation, needs, draft)
    elif situation.job.instances <= MULTI_NODE_INSTANCES:
        _multi_node(situation, draft)
    else:
        _large_and_huge(situation, needs, draft)
    _check_region(situation, draft)
    tiers = tuple(tier for tier in TIERS if tier == S3 or tier in draft.hot)
    read_tier, checkpoint_tier = _roles(situation, tiers)
    _say_what_interfaces_mean(situation, tiers, read_tier, draft)
    return Choice(
        tiers=tiers,
        read_tier=read_tier,
        checkpoint_tier=checkpoint_tier,
        reasons=draft.reasons,
        zone_id=_zone(situation, express=EXPRESS in tiers, draft=draft),
        offers=tuple(draft.offers),
        warnings=tuple(draft.warnings),
    )


def is_frequent(needs: Needs) -> bool:
    """Whether checkpoints are frequent: by the given interval, else by Young's interval for the stall budget."""
    return (needs.young_s if needs.interval_s is None else needs.interval_s) <= FREQUENT_INTERVAL_S


def is_object_only(situation: Situation) -> bool:
    """Whether objects were given for reading, and given or following for checkpoints."""
    given, job = situation.given, situation.job
    return "interface" in given and job.interface == "object" and job.checkpoint_interface == "object"


def is_posix_needed(situation: Situation) -> bool:
    """Whether either interface was given as POSIX."""
    given, job = situation.given, situation.job
    return ("interface" in given and job.interface == "posix") or (
        "checkpoint_interface" in given and job.checkpoint_interface == "posix"
    )


def _small_files(situation: Situation) -> bool:
    size = situation.job.mean_file_size_mib
    return size is not None and size * MIB < SMALL_FILE_BYTES


def _interval_words(needs: Needs) -> str:
    if needs.interval_s is not None:
        return f"every {needs.interval_s / SECONDS_PER_MINUTE:.3g} minutes as given"
    return f"every {needs.young_s / SECONDS_PER_MINUTE:.3g} minutes by Young's interval"


def _small_cluster(situation: Situation, needs: Needs, draft: _Draft) -> None:
    nodes = _nodes(situation)
    object_only = is_object_only(situation)
    small_files = _small_files(situation)
    if is_posix_needed(situation):
        draft.add("small-cluster-posix", f"{nodes}, but the code needs POSIX: a file system is needed.", LUSTRE)
        draft.offer((S3, S3_FILES), "This version cannot deploy s3-files.")
    if is_frequent(needs) and not object_only:
        words = _interval_words(needs)
        draft.add(
            "small-cluster-checkpoints",
            f"{nodes}, but checkpoints are frequent ({words}): Lustre is the fast write layer.",
            LUSTRE,
        )
    if small_files and not object_only:
        draft.add(
            "small-cluster-small-files",
            f"{nodes}, but files have {situation.job.mean_file_size_mib:g} MiB on average: "
            "the object interface becomes the bottleneck.",
            LUSTRE,
        )
        draft.offer((S3,), "Wants the data set packed into shards first.", packed_shards=True)
    if small_files and object_only:
        draft.add(
            "small-cluster-shards",
            f"{nodes} on objects with files of {situation.job.mean_file_size_mib:g} MiB on average: "
            "pack small files into large shards.",
        )
        draft.warnings.append("Pack the small files into shards before training, or requests become the bottleneck.")
    if len(draft.reasons) == 1:
        draft.add("small-cluster", f"{nodes}: tuning, LoRA/QLoRA and streaming reads work on S3.")


def _multi_node(situation: Situation, draft: _Draft) -> None:
    middle = f"above {SMALL_CLUSTER_INSTANCES} and up to {MULTI_NODE_INSTANCES}"
    reason = f"{_nodes(situation)}: Lustre comes first {middle}."
    if is_object_only(situation):
        reason += " Object code reads the mounted paths; tiers=s3,s3-express keeps the API."
    draft.add("multi-node", reason, LUSTRE)
    if is_object_only(situation) and situation.accelerators >= EXPRESS_ACCELERATORS:
        draft.offer(
            (S3, EXPRESS),
            f"The rule counts instances; by its {situation.accelerators} accelerators the cluster could use it. "
            "Choose it with tiers=s3,s3-express.",
        )


def _large_and_huge(situation: Situation, needs: Needs, draft: _Draft) -> None:
    job, nodes = situation.job, _nodes(situation)
    if job.interface != job.checkpoint_interface:
        draft.add(
            "mixed",
            f"{nodes}, reads by {job.interface}, checkpoints by {job.checkpoint_interface}: "
            "the object side on S3 Express, the POSIX side on Lustre.",
            LUSTRE,
            EXPRESS,
        )
    elif is_object_only(situation):
        if job.instances < HUGE_INSTANCES:
            reason = f"{nodes} and objects only: interface and the team's preference decide for S3 Express."
            if is_frequent(needs):
                reason += f" Frequent checkpoints ({_interval_words(needs)}) go to S3 Express, then to the lake."
            draft.add("large-object", reason, EXPRESS)
        else:
            draft.add("huge-object", f"{nodes}: thousands of readers, no POSIX.", EXPRESS)
    elif job.instances < HUGE_INSTANCES:
        draft.add("large-posix", f"{nodes}: POSIX decides for Lustre.", LUSTRE)
    else:
        draft.add("huge-posix", f"{nodes} with POSIX: size alone is no reason for S3 Express.", LUSTRE)
    if LUSTRE in draft.hot and job.instances > LUSTRE_RANGE_INSTANCES:
        draft.warnings.append(
            f"{job.instances} instances are beyond the range of about {SMALL_CLUSTER_INSTANCES} to "
            f"{LUSTRE_RANGE_INSTANCES} that the source gives for FSx for Lustre: test before you rely on it."
        )


def _override(situation: Situation, draft: _Draft, tiers: tuple[str, ...]) -> None:
    region = situation.region
    if EXPRESS in tiers and not _has_express(situation):
        place = situation.job.zone_id if region.express_zone_ids else region.name
        raise InvalidJobError(
            f"tiers must exist in {place}, which has no s3-express, got: {','.join(tiers)!r}. "
            f"Zones of {region.name} with it: {', '.join(region.express_zone_ids) or 'none'}."
        )
    if LUSTRE in tiers and not region.lustre_deployment_types:
        raise InvalidJobError(
            f"tiers must exist in {region.name}, which has no fsx-lustre, got: {','.join(tiers)!r}. "
            "Choose another Region, or tiers=s3."
        )
    draft.add("override", f"tiers={','.join(tiers)} was given.", *tiers)


def _has_express(situation: Situation) -> bool:
    """Whether the Region has S3 Express in the given zone, or in one that offers the instance type."""
    express = situation.region.express_zone_ids
    if situation.job.zone_id is not None:
        return situation.job.zone_id in express
    offering = situation.region.zone_ids_offering(situation.instance.name)
    return bool(express) and (not offering or any(zone in express for zone in offering))


def _check_region(situation: Situation, draft: _Draft) -> None:
    """Replace tiers that do not exist here. What `tiers` names was checked before."""
    region = situation.region
    if LUSTRE in draft.hot and not region.lustre_deployment_types:
        wanted = ", ".join(rule for rule in draft.reasons if rule != "lake")
        raise NoTierError(
            f"No tier serves the job in {region.name}: the rule {wanted} wants fsx-lustre, which does not exist there. "
            "Choose another Region, or say tiers=s3 to do without."
        )
    if EXPRESS not in draft.hot or _has_express(situation):
        return
    place = situation.job.zone_id or region.name
    substitute = LUSTRE if region.lustre_deployment_types else S3
    draft.hot.discard(EXPRESS)
    draft.hot.add(substitute)
    zones = f" (zones with it: {', '.join(region.express_zone_ids)})" if region.express_zone_ids else ""
    reason = f"S3 Express does not exist for {situation.instance.name} in {place}{zones}: {substitute} takes its place."
    draft.add("region", reason)
    draft.warnings.append(reason)


def _roles(situation: Situation, tiers: tuple[str, ...]) -> tuple[str, str]:
    """Return the tier that the data set is read from, and the one that checkpoints are written to first."""
    job = situation.job
    if LUSTRE in tiers and EXPRESS in tiers:
        read = EXPRESS if job.interface == "object" else LUSTRE
        # Where Lustre is chosen checkpoints go there first, except on the object side of a mixed job.
        checkpoint = EXPRESS if job.checkpoint_interface == "object" and read == LUSTRE else LUSTRE
        return read, checkpoint
    hot = tiers[-1]
    return hot, hot


def _say_what_interfaces_mean(situation: Situation, tiers: tuple[str, ...], read_tier: str, draft: _Draft) -> None:
    job = situation.job
    if LUSTRE not in tiers and "posix" in (job.interface, job.checkpoint_interface):
        draft.warnings.append(
            "Without a file system POSIX code reads through Mountpoint (read-only) and writes checkpoints to local "
            "NVMe, from where they are uploaded."
        )
    if LUSTRE in tiers and EXPRESS in tiers and read_tier == LUSTRE and job.checkpoint_interface == "posix":
        draft.warnings.append("s3-express stays empty: reads and checkpoints are both POSIX and go to fsx-lustre.")


def _zone(situation: Situation, *, express: bool, draft: _Draft) -> str | None:
    """Return the given zone, else the first that offers the type and, if needed, S3 Express."""
    if situation.job.zone_id is not None:
        return situation.job.zone_id
    region = situation.region
    for zone in region.zone_ids_offering(situation.instance.name):
        if not express or zone in region.express_zone_ids:
            return zone
    draft.warnings.append(
        f"The catalog knows no zone of {region.name} that offers {situation.instance.name}"
        f"{' and S3 Express' if express else ''}: give zone_id before deploying."
    )
    return None


def _nodes(situation: Situation) -> str:
    count = situation.job.instances
    return f"{count} instance{'' if count == 1 else 's'}"
