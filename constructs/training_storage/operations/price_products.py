"""Reads products of the AWS Price List: which of our prices a product is, and how much it costs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from training_storage.planning import tariff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from training_storage.planning.catalog.prices import PricePath

#: Usage types of AmazonS3 without the Region's prefix (``USE2-``; us-east-1 has none), and how many of the list's units
#: one unit of ours holds.
S3_USAGE_TYPES: dict[str, tuple[PricePath, int]] = {
    "TimedStorage-ByteHrs": (tariff.S3_STORAGE, 1),
    "Requests-Tier1": (tariff.S3_PUT, 1000),
    "Requests-Tier2": (tariff.S3_GET, 1000),
    "TimedStorage-XZ-ByteHrs": (tariff.EXPRESS_STORAGE, 1),
    "Requests-XZ-Tier1": (tariff.EXPRESS_PUT, 1000),
    "Requests-XZ-Tier2": (tariff.EXPRESS_GET, 1000),
    "Upload-XZ": (tariff.EXPRESS_UPLOAD, 1),
    "Retrieval-XZ": (tariff.EXPRESS_RETRIEVAL, 1),
}
_REGION_PREFIX = re.compile(r"[A-Z]{2,4}[0-9]?-")
_PER_TIB = re.compile(r"(\d+)\s*mb(?:ps|/s)?\s*(?:/|per)\s*tib")
_PERSISTENT_1, _PERSISTENT_2 = (50, 100, 200), (125, 250, 500, 1000)
#: The throughput that PERSISTENT_1 and SCRATCH_2 share.
_SHARED = 200
#: Words of Lustre products that are not storage on SSD.
_OTHER_STORAGE = ("hdd", "backup", "intelligent", "cache", "snapshot")


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product with its first price on demand, in USD per `unit`."""

    attributes: dict[str, str]
    description: str
    unit: str
    usd: Decimal

    @property
    def words(self) -> str:
        """Everything that the list says of it, in lowercase."""
        return " ".join((*self.attributes.values(), self.description)).lower()


def read_product(text: str) -> Product | None:
    """Return the product in a ``PriceList`` entry, or None where it has no price in USD on demand."""
    entry: dict[str, Any] = json.loads(text)
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        # Prices by volume start at a range of 0; the first one is what the catalog holds.
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("beginRange", "0") not in ("0", ""):
                continue
            try:
                usd = Decimal(dimension["pricePerUnit"]["USD"])
            except (KeyError, InvalidOperation):
                continue
            # The list writes such amounts for what is not sold; a plan could not calculate with them.
            if not usd.is_finite() or usd < 0:
                continue
            return Product(
                attributes=dict(entry.get("product", {}).get("attributes", {})),
                description=dimension.get("description", ""),
                unit=dimension.get("unit", ""),
                usd=usd,
            )
    return None


def s3_price(product: Product) -> tuple[PricePath, Decimal] | None:
    """Return which price of S3 or S3 Express `product` is, and its amount."""
    usage_type = product.attributes.get("usagetype", "")
    prefix = _REGION_PREFIX.match(usage_type)
    row = S3_USAGE_TYPES.get(usage_type[prefix.end() :] if prefix else usage_type)
    return None if row is None else (row[0], product.usd * row[1])


def lustre_price(product: Product) -> tuple[PricePath, Decimal] | None:
    """Return which price of FSx for Lustre `product` is, and its amount.

    The deployment type follows from the throughput per TiB, and where two types share it from the word scratch.
    """
    words = product.words
    if "lustre" not in words or any(word in words for word in _OTHER_STORAGE):
        return None
    unit = product.unit.lower()
    if "iops" in unit and "metadata" in words:
        return tariff.METADATA_IOPS, product.usd
    kind, per_unit = _deployment_type(product)
    if not unit.startswith("gb-mo") or kind is None:
        return None
    return tariff.lustre_storage(deployment_type=kind, per_unit=per_unit), product.usd


def _deployment_type(product: Product) -> tuple[str | None, int]:
    """Return the deployment type, or None if the words do not say it, and its throughput in MB/s per TiB."""
    words = product.words
    if "scratch" in words:
        return "SCRATCH_2", _SHARED
    found = _PER_TIB.search(words)
    given = found.group(1) if found else product.attributes.get("throughputCapacity", "")
    per_unit = int(given) if given.isdecimal() else 0
    if per_unit in _PERSISTENT_2:
        return "PERSISTENT_2", per_unit
    return ("PERSISTENT_1" if per_unit in _PERSISTENT_1 else None), per_unit


def unanimous(found: Iterable[tuple[PricePath, Decimal] | None]) -> Iterator[tuple[PricePath, Decimal | None]]:
    """Yield each price once; None for one that products disagree on."""
    amounts: dict[PricePath, set[Decimal]] = {}
    for row in found:
        if row is not None:
            amounts.setdefault(row[0], set()).add(row[1])
    for path, values in amounts.items():
        yield path, values.pop() if len(values) == 1 else None
