"""What a configuration consumes in a run: each amount beside the price that it is charged at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from training_storage.planning import catalog, defaults, tariff
from training_storage.planning.selection import EXPRESS, LUSTRE, S3, Choice
from training_storage.planning.units import GIB, SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from training_storage.planning.catalog.prices import PricePath
    from training_storage.planning.demand import Needs
    from training_storage.planning.lustre import FileSystem
    from training_storage.planning.outcome import Outcome
    from training_storage.planning.resolution import Situation

_PER = 1000
STORAGE, GROWTH, REQUESTS, IDLE, LOST = PARTS = (
    "storage",
    "lake_growth",
    "requests_and_transfer",
    "idle_accelerators",
    "lost_work",
)
"""The parts of the run's money, by the names of ``RunCost``."""


class Layout(NamedTuple):
    """A configuration to be costed.

    `hot_bytes` is the part of the data set on the tier it is read from, `express_bytes` what the directory bucket
    holds.
    """

    choice: Choice
    file_system: FileSystem | None
    metadata_iops: int | None
    hot_bytes: float
    express_bytes: float


class Line(NamedTuple):
    """An amount of the run, the part of the money that it belongs to, and where its price stands."""

    part: str
    price: PricePath
    amount: float


def bill(situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> list[Line]:
    """Return the run's amounts: GiB-months, thousands of requests, GiB moved, node-hours."""
    return [
        *storage(situation, layout),
        *traffic(situation, needs, layout, result),
        *waiting(situation, result),
    ]


def lake_checkpoint_s(situation: Situation, layout: Layout, result: Outcome) -> float:
    """Return the seconds between checkpoints that reach the lake: all of them without a hot tier, else the archived."""
    if layout.choice.checkpoint_tier == S3:
        return result.interval_s
    return max(result.interval_s, situation.durable_s)


def lake_checkpoints(situation: Situation, layout: Layout, result: Outcome) -> float:
    """Return how many checkpoints reach the lake in the run."""
    return situation.run_s / lake_checkpoint_s(situation, layout, result)


def lake_checkpoint_gib(situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> float:
    """Return the GiB of checkpoints in the lake: those kept, and replaced ones until their versions expire.

    Those kept are those of the retention rule: the archive prunes the others when it has archived (``--prune --yes``).
    """
    every_s = lake_checkpoint_s(situation, layout, result)
    written = lake_checkpoints(situation, layout, result)
    kept = min(written, situation.number("durable_checkpoints_kept") + defaults.number("newest_durable_checkpoints"))
    noncurrent = min(written - kept, defaults.number("noncurrent_version_days") * SECONDS_PER_DAY / every_s)
    return (kept + noncurrent) * needs.checkpoint_bytes / GIB


def last_export_gib(situation: Situation, needs: Needs, layout: Layout) -> float:
    """Return the most that comes into the lake when a file system goes, in GiB; 0 without checkpoints on one.

    The gate exports all of its checkpoints: those kept there, and one that may be half written.
    """
    if layout.choice.checkpoint_tier != LUSTRE:
        return 0.0
    return (situation.number("checkpoints_kept") + 1) * needs.checkpoint_bytes / GIB


def extra_metadata_iops(layout: Layout) -> int:
    """Return the metadata IOPS above those that come with the capacity."""
    if layout.file_system is None or layout.metadata_iops is None:
        return 0
    return max(0, layout.metadata_iops - catalog.lustre.automatic_metadata_iops(layout.file_system.capacity_gib))


def storage(situation: Situation, layout: Layout) -> list[Line]:
    """Return what lies on the tiers during the run, archived checkpoints aside."""
    return [*object_storage(situation, layout), *file_system_storage(situation, layout)]


def file_system_storage(situation: Situation, layout: Layout) -> list[Line]:
    """Return what the file system holds, and the metadata IOPS above those that come with it."""
    share, system = situation.months, layout.file_system
    if system is None:
        return []
    lines = [
        Line(
            STORAGE,
            tariff.lustre_storage(system.deployment_type.name, system.tier.per_unit),
            system.capacity_gib * share,
        )
    ]
    extra = extra_metadata_iops(layout)
    if extra:
        lines.append(Line(STORAGE, tariff.METADATA_IOPS, extra * share))
    return lines


def object_storage(situation: Situation, layout: Layout) -> list[Line]:
    """Return what lies on the object tiers, whatever the size of the file system."""
    share = situation.months
    lines = [Line(STORAGE, tariff.S3_STORAGE, situation.number("dataset_gib") * share)]
    if EXPRESS in layout.choice.tiers:
        lines.append(Line(STORAGE, tariff.EXPRESS_STORAGE, layout.express_bytes / GIB * share))
    return lines


def traffic(situation: Situation, needs: Needs, layout: Layout, result: Outcome) -> list[Line]:
    """Return the lake's growth and the requests.

    Of `result` they depend on the interval and the achieved accelerator use alone.
    """
    growth = lake_checkpoint_gib(situation, needs, layout, result)
    run_s = situation.run_s
    parts = math.ceil(needs.checkpoint_bytes / needs.checkpoint_part_bytes)
    to_lake = lake_checkpoints(situation, layout, result)
    read_bytes = run_s * needs.read_bytes_per_s * result.achieved_use
    reads, checkpoints = layout.choice.read_tier, layout.choice.checkpoint_tier
    # A hot tier loads the data set from the lake once; what does not fit comes again on use and is not counted.
    s3_reads = read_bytes if reads == S3 else layout.hot_bytes
    s3_gets = s3_reads / needs.read_request_bytes + (result.failures * parts if checkpoints == S3 else 0.0)
    lines = [
        Line(GROWTH, tariff.S3_STORAGE, growth * situation.months),
        Line(REQUESTS, tariff.S3_PUT, to_lake * parts / _PER),
        Line(REQUESTS, tariff.S3_GET, s3_gets / _PER),
    ]
    if EXPRESS not in layout.choice.tiers:
        return lines
    saves = result.checkpoints if checkpoints == EXPRESS else 0.0
    # Restores, and copies to the lake, are read from the bucket.
    loads = result.failures + to_lake if checkpoints == EXPRESS else 0.0
    express_reads = read_bytes if reads == EXPRESS else 0.0
    copied = layout.hot_bytes if reads == EXPRESS else 0.0
    return [
        *lines,
        Line(REQUESTS, tariff.EXPRESS_PUT, (saves * parts + copied / needs.read_request_bytes) / _PER),
        Line(REQUESTS, tariff.EXPRESS_GET, (loads * parts + express_reads / needs.read_request_bytes) / _PER),
        Line(REQUESTS, tariff.EXPRESS_UPLOAD, (saves * needs.checkpoint_bytes + copied) / GIB),
        Line(REQUESTS, tariff.EXPRESS_RETRIEVAL, (loads * needs.checkpoint_bytes + express_reads) / GIB),
    ]


def waiting(situation: Situation, result: Outcome) -> tuple[Line, Line]:
    """Return the node-hours that wait, and those whose work is done again."""
    price, nodes = tariff.node_hour(situation.instance.name), situation.job.instances
    return (
        Line(IDLE, price, nodes * result.idle_node_s / SECONDS_PER_HOUR),
        Line(LOST, price, nodes * result.lost_node_s / SECONDS_PER_HOUR),
    )
