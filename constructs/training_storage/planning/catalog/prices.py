"""Dated prices; ``price_files`` reads them from a user's file of the same layout."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

from training_storage.planning.catalog._data import load

_FILE = "prices.toml"

#: Where a price stands below its Region.
PricePath: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices:
    """Prices in USD. Every lookup returns None where no price is known. Two lists are never the same one.

    Parameters
    ----------
    as_of
        Day of the price list.
    hours_per_month
        Hours that a monthly price covers.
    currency
        Currency of the list.
    ranking_region
        Region whose list price stands in for a missing one when configurations are compared.
    table
        The parsed rows.
    """

    as_of: str
    hours_per_month: float
    currency: str
    ranking_region: str
    table: dict[str, Any]

    def instance_per_hour(self, *, region: str, instance_type: str) -> float | None:
        """Return the on-demand price of an instance in USD per hour."""
        return self.item(region=region, path=("instances", instance_type, "per_hour"))

    def capacity_block_per_hour(self, instance_type: str) -> float | None:
        """Return the effective price of an instance in a Capacity Block in USD per hour."""
        return self._number("capacity_blocks", instance_type, "per_hour")

    def lustre_storage(self, *, region: str, deployment_type: str, per_unit: int) -> float | None:
        """Return USD per GiB-month of an SSD file system."""
        return self.item(region=region, path=("fsx-lustre", "storage_per_gib_month", deployment_type, str(per_unit)))

    def item(self, *, region: str, path: PricePath) -> float | None:
        """Return the price at `path` of `region`, for example ``("s3", "put_per_1000")``."""
        return self._number("regions", region, *path)

    def _number(self, *path: str) -> float | None:
        node: Any = self.table
        for key in path:
            if not isinstance(node, dict) or key not in node:
                return None
            node = node[key]
        return float(node) if isinstance(node, (int, float)) else None


@functools.cache
def catalog_prices() -> Prices:
    """Return the prices that ship with the package."""
    return prices_of(load(_FILE))


def prices_of(table: dict[str, Any]) -> Prices:
    """Return the prices in a parsed and checked table."""
    return Prices(
        as_of=str(table["as_of"]),
        hours_per_month=float(table["hours_per_month"]),
        currency=str(table.get("currency", "USD")),
        ranking_region=str(table["ranking_region"]),
        table=table,
    )
