"""Dated prices, from the catalog or from a file of the same layout."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from training_storage.planning.catalog._data import load
from training_storage.planning.errors import InvalidJobError

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
    return _prices(load(_FILE))


#: Entries of a price file that are no prices.
_WORDS = ("as_of", "currency", "note", "ranking_region", "source")
#: USD; no hour, GiB or thousand requests costs as much, so a higher number is a slip.
_HIGHEST_PRICE = 1_000_000
#: Bytes; a price file of every Region is a small part of it.
_LARGEST_FILE = 4 * 2**20


def read_prices(path: str) -> Prices:
    """Return the prices of the TOML file at `path`, which has the layout of the catalog's ``prices.toml``.

    Raises
    ------
    InvalidJobError
        If the file is missing, is not TOML, or lacks the head of the layout.
    """
    try:
        table = tomllib.loads(_text(Path(path)))
    except FileNotFoundError:
        raise InvalidJobError(
            f"prices must name a TOML file of prices, got: {path!r}, file not found. Leave it out for the catalog's."
        ) from None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidJobError(
            f"prices must name a readable TOML file of prices, got: {path!r} ({reason}). "
            "Leave it out for the catalog's."
        ) from None
    missing = [key for key in ("as_of", "hours_per_month", "ranking_region", "regions") if key not in table]
    if missing:
        raise InvalidJobError(
            f"prices must have the layout of the catalog's prices.toml, got: {path!r} without {', '.join(missing)}."
        )
    _refuse_bad_numbers(path, table)
    hours = table["hours_per_month"]
    if not isinstance(hours, (int, float)) or not hours > 0:
        raise InvalidJobError(f"prices must hold hours_per_month above 0, got: {hours!r} in {path!r}.")
    return _prices(table)


def _text(path: Path) -> str:
    """Return the text of an ordinary file; a device or a pipe may never end."""
    if not path.is_file() and path.exists():
        raise ValueError("it is no ordinary file")
    if path.exists() and path.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"it is larger than {_LARGEST_FILE // 2**20} MiB")
    return path.read_text(encoding="utf-8")


def _refuse_bad_numbers(path: str, node: dict[str, Any], where: str = "") -> None:
    """Refuse a price that is negative, no number or not finite: it would turn the ranking over silently."""
    for key, value in node.items():
        name = f"{where}{key}"
        if isinstance(value, dict):
            _refuse_bad_numbers(path, value, f"{name}.")
        elif key in _WORDS:
            continue
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _HIGHEST_PRICE:
            raise InvalidJobError(
                f"prices must hold numbers from 0 to {_HIGHEST_PRICE:,}, got: {name} = {value!r} in {path!r}."
            )


def _prices(table: dict[str, Any]) -> Prices:
    return Prices(
        as_of=str(table["as_of"]),
        hours_per_month=float(table["hours_per_month"]),
        currency=str(table.get("currency", "USD")),
        ranking_region=str(table["ranking_region"]),
        table=table,
    )
