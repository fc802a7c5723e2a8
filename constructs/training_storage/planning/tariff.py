"""The prices of one Region, with or without stand-ins for those it lacks."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from training_storage.planning.catalog.prices import PricePath, Prices

S3_STORAGE: Final = ("s3", "storage_per_gib_month")
S3_PUT: Final = ("s3", "put_per_1000")
S3_GET: Final = ("s3", "get_per_1000")
EXPRESS_STORAGE: Final = ("s3-express", "storage_per_gib_month")
EXPRESS_PUT: Final = ("s3-express", "put_per_1000")
EXPRESS_GET: Final = ("s3-express", "get_per_1000")
EXPRESS_UPLOAD: Final = ("s3-express", "upload_per_gib")
EXPRESS_RETRIEVAL: Final = ("s3-express", "retrieval_per_gib")
METADATA_IOPS: Final = ("fsx-lustre", "metadata_iops_month")
S3_FILES_STORAGE: Final = ("s3-files", "storage_per_gib_month")
S3_FILES_WRITE: Final = ("s3-files", "write_per_gib")


@functools.cache
def lustre_storage(deployment_type: str, per_unit: int) -> PricePath:
    """Return where the price of a GiB-month of an SSD file system stands."""
    return ("fsx-lustre", "storage_per_gib_month", deployment_type, str(per_unit))


@functools.cache
def node_hour(instance_type: str) -> PricePath:
    """Return where the on-demand price of an instance-hour stands."""
    return ("instances", instance_type, "per_hour")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Tariff:
    """Prices in USD of `region`.

    Parameters
    ----------
    prices, region
        The list, and the Region whose prices count.
    stand_ins
        Whether the price of the ranking Region, or of a Capacity Block, stands in for one that `region` lacks.
    """

    prices: Prices
    region: str
    stand_ins: bool
    _known: dict[PricePath, float | None] = field(default_factory=dict, repr=False, compare=False)

    def price(self, path: PricePath) -> float | None:
        """Return the price at `path`, or None where none is known."""
        try:
            return self._known[path]
        except KeyError:
            return self._known.setdefault(path, self._look_up(path))

    def _look_up(self, path: PricePath) -> float | None:
        value = self.prices.item(region=self.region, path=path)
        if value is not None or not self.stand_ins:
            return value
        value = self.prices.item(region=self.prices.ranking_region, path=path)
        if value is None and path[0] == "instances":
            return self.prices.capacity_block_per_hour(path[1])
        return value


@functools.lru_cache(maxsize=64)
def tariff_of(prices: Prices, region: str, *, stand_ins: bool) -> Tariff:
    """Return the tariff of `region`; plans with the same prices share it and what it has looked up."""
    return Tariff(prices=prices, region=region, stand_ins=stand_ins)
