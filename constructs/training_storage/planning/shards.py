"""How many shards a data set is packed into, and what that saves.

Every reader (a loader process of an accelerator) reads whole shards of its own. So there are at least as many shards as
readers, and a multiple of them, or some readers would wait for others or get nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from training_storage.planning.catalog.prices import Prices, catalog_prices
from training_storage.planning.catalog.s3 import express_limits, s3_limits
from training_storage.planning.catalog.shards import shard_figures
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.resolution import DEFAULT_REGION
from training_storage.planning.shard_uploads import upload_requests
from training_storage.planning.size_words import decimal_size
from training_storage.planning.tariff import EXPRESS_GET, EXPRESS_PUT, S3_GET, S3_PUT
from training_storage.planning.units import GB, MIB

if TYPE_CHECKING:
    from training_storage.planning.sample_survey import DataSummary

SCHEMA_VERSION: Final = 1
_MS_PER_S = 1000
_PER_PRICE = 1000
#: Two zero blocks end a tar file, which is filled up to a record of twenty blocks: half of one on average.
_TAR_END_BYTES = 1024 + 10_240 // 2
_COUNT_MAXIMUM = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Readers:
    """Who reads the shards.

    Parameters
    ----------
    nodes, accelerators_per_node, workers_per_accelerator
        From 1 up.

    Raises
    ------
    InvalidJobError
        For a number that is not allowed.
    """

    nodes: int
    accelerators_per_node: int
    workers_per_accelerator: int

    def __post_init__(self) -> None:
        """Refuse what is no count."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _COUNT_MAXIMUM:
                raise InvalidJobError(
                    f"{field.name} must be a whole number from 1 to {_COUNT_MAXIMUM}, for example 8, got: {value!r}."
                )

    @property
    def ranks(self) -> int:
        """Processes that train, one an accelerator."""
        return self.nodes * self.accelerators_per_node

    @property
    def count(self) -> int:
        """Loader processes of the whole job."""
        return self.ranks * self.workers_per_accelerator


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What reading the whole data set once asks of the store.

    Parameters
    ----------
    gets
        GET requests; of shards also one HEAD each, at the same price.
    usd
        Their price, None where it is not known.
    seconds_at_request_limit
        The least time in which the store answers so many, below one prefix of S3 or in one directory bucket.
    first_byte_seconds_per_reader
        How long each reader waits for first bytes, one object after the other.
    """

    gets: int
    usd: float | None
    seconds_at_request_limit: float
    first_byte_seconds_per_reader: float


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Requests of packing once into a new prefix of the store, and their price in USD or None.

    Parameters
    ----------
    gets
        GET requests of the source, none if it is a folder, and one HEAD for each shard.
    puts
        PUT, POST and LIST requests.
    usd
        Their price.
    """

    gets: int
    puts: int
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """How to pack a data set.

    Parameters
    ----------
    data
        What is packed.
    readers
        Who reads it.
    shards
        Number of shards, a multiple of the readers.
    shard_bytes, samples_per_shard
        Of a shard, mean.
    part_bytes
        Size of one request for a range.
    price_region
        The Region whose prices count.
    before, after
        Reading once from the store: file by file, and from shards. What a node's cache holds costs nothing again.
    packing
        What packing itself asks.
    reasons, warnings
        In sentences.
    """

    schema_version: int = SCHEMA_VERSION
    data: DataSummary
    readers: Readers
    shards: int
    shard_bytes: int
    samples_per_shard: float
    part_bytes: int
    price_region: str
    before: Requests
    after: Requests
    packing: Packing
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def shards_per_reader(self) -> int:
        """Shards that each reader reads in an epoch."""
        return self.shards // self.readers.count

    def values(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        values = dataclasses.asdict(self)
        values["readers"] |= {"ranks": self.readers.ranks, "count": self.readers.count}
        values["shards_per_reader"] = self.shards_per_reader
        return values

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(self.values(), indent=2) + "\n"


def plan_shards(
    *,
    data: DataSummary,
    readers: Readers,
    shards: int | None = None,
    part_bytes: int = 8 * MIB,
    region: str = DEFAULT_REGION,
    express: bool = False,
    stored: bool = True,
    prices: Prices | None = None,
) -> ShardPlan:
    """Plan the shards of a data set.

    Parameters
    ----------
    data
        What is packed, see `sample_survey`.
    readers
        Who reads it.
    shards
        A number of shards to use whatever their size; chosen by default.
    part_bytes
        Size of one request for a range.
    region, express, prices
        Where the data lie, whether in a directory bucket, and the price list; the catalog's by default.
    stored
        Whether packing reads the files from the store, and not from a folder.

    Raises
    ------
    InvalidJobError
        If there is nothing to pack, there are fewer samples than readers, or `shards` is not a multiple of the readers.
    """
    if data.samples == 0:
        raise InvalidJobError("the data set must have at least one sample, got: none.")
    count = readers.count
    if data.samples < count:
        raise InvalidJobError(
            f"the data set must have at least one sample for each of {_readers(readers)}, got: {data.samples} samples."
            f" Use fewer workers or nodes."
        )
    chosen = _forced(shards, readers, data) if shards is not None else _chosen(readers, data)
    shard_bytes = math.ceil(data.tar_bytes / chosen) + _TAR_END_BYTES
    ranges = chosen * math.ceil(shard_bytes / part_bytes)
    bill = _Bill(region=region, express=express, prices=prices or catalog_prices())
    figures = shard_figures()
    listed = data.files + data.hidden + data.unnamed
    pages = math.ceil(listed / figures.objects_per_listing_page) if stored else 0
    gets = (data.files if stored else 0) + chosen
    # The target is listed once and gets an index.
    puts = pages + chosen * upload_requests(shard_bytes) + 2
    return ShardPlan(
        data=data,
        readers=readers,
        shards=chosen,
        shard_bytes=shard_bytes,
        samples_per_shard=data.samples / chosen,
        part_bytes=part_bytes,
        price_region=region,
        before=_requests(bill, gets=data.range_requests, objects=data.files, readers=count),
        # A loader asks for each shard's size before its ranges.
        after=_requests(bill, gets=ranges + chosen, objects=chosen, readers=count),
        packing=Packing(
            gets=gets,
            puts=puts,
            usd=bill.usd(gets=gets, puts=puts),
        ),
        reasons=_reasons(readers, data, chosen, shard_bytes, forced=shards is not None),
        warnings=_warnings(data, chosen, shard_bytes, part_bytes),
    )


def _chosen(readers: Readers, data: DataSummary) -> int:
    """Return the least multiple of the readers whose shards are not too large.

    One multiple less would be above the maximum, so from two shards a reader up the size lies between a half of the
    maximum and the maximum: within the published range. With one shard a reader the data may not allow more.
    """
    most = shard_figures().shard_gb_maximum * GB - _TAR_END_BYTES
    each = max(1, math.ceil(data.tar_bytes / (readers.count * most)))
    # No shard may be empty.
    return readers.count * min(each, data.samples // readers.count)


def _forced(shards: int, readers: Readers, data: DataSummary) -> int:
    count = readers.count
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < count:
        raise InvalidJobError(
            f"shards must be at least {count}, one for each of {_readers(readers)}, got: {shards!r}."
            f" Use {count} or a multiple, or fewer workers."
        )
    if shards % count:
        below, above = shards - shards % count, shards + count - shards % count
        raise InvalidJobError(
            f"shards must be a multiple of {count}, so that {_readers(readers)} read as many each, got: {shards}."
            f" Use {below} or {above}."
        )
    if shards > data.samples:
        raise InvalidJobError(
            f"shards must be at most {data.samples - data.samples % count}, for no shard may be empty, got: {shards}."
        )
    return shards


def _readers(readers: Readers) -> str:
    return (
        f"{readers.count} readers (nodes × accelerators × workers: {readers.nodes} × {readers.accelerators_per_node} × "
        f"{readers.workers_per_accelerator})"
    )


@dataclass(frozen=True, kw_only=True)
class _Bill:
    region: str
    express: bool
    prices: Prices

    def usd(self, *, gets: int, puts: int = 0) -> float | None:
        paths = (EXPRESS_GET, EXPRESS_PUT) if self.express else (S3_GET, S3_PUT)
        total = 0.0
        for requests, path in zip((gets, puts), paths, strict=True):
            price = self.prices.item(region=self.region, path=path)
            if price is None:
                return None
            total += requests * price / _PER_PRICE
        return total

    @property
    def gets_per_s(self) -> int:
        return express_limits().get_per_s if self.express else s3_limits().get_per_s_per_prefix


def _requests(bill: _Bill, *, gets: int, objects: int, readers: int) -> Requests:
    return Requests(
        gets=gets,
        usd=bill.usd(gets=gets),
        seconds_at_request_limit=gets / bill.gets_per_s,
        first_byte_seconds_per_reader=math.ceil(objects / readers) * shard_figures().first_byte_ms / _MS_PER_S,
    )


def _reasons(readers: Readers, data: DataSummary, shards: int, shard_bytes: int, *, forced: bool) -> tuple[str, ...]:
    figures = shard_figures()
    least, most = figures.shard_gb_minimum, figures.shard_gb_maximum
    each, size = shards // readers.count, decimal_size(shard_bytes)
    first = (
        f"{_readers(readers)}: at least so many shards, and a multiple, so that every reader has whole shards of its"
        " own and all have as many."
    )
    if forced:
        return first, f"{shards} shards were asked for: {each} for each reader, of {size}."
    if shard_bytes >= least * GB:
        return first, (
            f"{each} for each reader is the least number with shards of at most {most} GB; they have {size}, within"
            f" the {least} to {most} GB that suit sequential reads."
        )
    return first, (
        f"One for each reader: with {decimal_size(data.tar_bytes)} in all a shard has {size}, less than {least} GB,"
        " because fewer shards would leave readers without any."
    )


def _warnings(data: DataSummary, shards: int, shard_bytes: int, part_bytes: int) -> tuple[str, ...]:
    figures, size = shard_figures(), decimal_size(shard_bytes)
    found = []
    if shard_bytes > figures.shard_gb_maximum * GB:
        found.append(
            f"A shard has {size}, more than {figures.shard_gb_maximum} GB: use more shards, where there are samples"
            " enough."
        )
    if shard_bytes < part_bytes and shards > 1:
        found.append(
            f"A shard has {size}, less than one request of {decimal_size(part_bytes)}: so little data is read faster"
            " by fewer workers."
        )
    if data.mean_bytes >= figures.shard_gb_minimum * GB:
        found.append(f"A file has {decimal_size(data.mean_bytes)} on average: such files need no packing.")
    if data.unnamed:
        found.append(
            f"Files that cannot be part of a sample: {data.unnamed}, the first is {data.first_unnamed}. A name needs"
            " an extension. Packing refuses such files, or leaves them out with --skip-unnamed."
        )
    if data.hidden:
        found.append(f"Hidden files, which are left out: {data.hidden}.")
    return tuple(found)
