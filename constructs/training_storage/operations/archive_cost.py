"""What an archive costs: requests, what S3 Express asks for reading, and storage in the lake."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import tariff
from training_storage.planning.catalog.prices import catalog_prices
from training_storage.planning.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What is asked of each object beside the copy itself: its state before and after, at the source and in the lake.
_LOOKS = 2
#: An upload in parts is begun and completed.
_UPLOAD_REQUESTS = 2
#: Marker or manifest, and the pointer.
_RECORDS = 3


@dataclass(frozen=True, kw_only=True)
class ArchiveCost:
    """Money in USD; None where the catalog has no price for the Region.

    Parameters
    ----------
    put_requests, get_requests
        Requests that write into the lake, and that read there or at the source.
    once_usd
        Requests, and reading from S3 Express.
    per_month_usd
        Storage in the lake.
    prices_as_of
        Day of the price list.
    """

    put_requests: int
    get_requests: int
    once_usd: float | None
    per_month_usd: float | None
    prices_as_of: str


def archive_cost(sizes: Iterable[int], *, checkpoints: int, region: str, express: bool, part_mib: int) -> ArchiveCost:
    """Return what copying objects of these `sizes` in bytes costs.

    From Lustre, FSx writes the objects: at least one request each, and reading costs nothing.
    """
    sizes = list(sizes)
    parts = [max(1, math.ceil(size / (part_mib * MIB))) if express else 1 for size in sizes]
    puts = sum(count + (_UPLOAD_REQUESTS if count > 1 else 0) for count in parts) + _RECORDS * checkpoints
    gets = sum(parts) + _LOOKS * len(sizes) if express else 0
    gib = sum(sizes) / GIB
    prices = catalog_prices()
    price = tariff.tariff_of(prices, region, stand_ins=False).price
    terms = [(puts / 1000, price(tariff.S3_PUT))]
    if express:
        terms += [(gets / 1000, price(tariff.EXPRESS_GET)), (gib, price(tariff.EXPRESS_RETRIEVAL))]
    storage = price(tariff.S3_STORAGE)
    known = [amount * unit for amount, unit in terms if unit is not None]
    return ArchiveCost(
        put_requests=puts,
        get_requests=gets,
        once_usd=sum(known) if len(known) == len(terms) else None,
        per_month_usd=None if storage is None else gib * storage,
        prices_as_of=prices.as_of,
    )
