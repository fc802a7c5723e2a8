"""Writes a prices file: the refreshed Region, and what plans need of the catalog beside it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from training_storage.planning import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from decimal import Decimal

    from training_storage.planning.catalog.prices import PricePath

_SOURCE = "AWS Price List"


def prices_text(*, region: str, found: Mapping[PricePath, Decimal], today: dt.date) -> str:
    """Return the TOML text of a prices file.

    The rows of `region` are those of `found` and no others. The ranking Region's rows and the Capacity Blocks come from
    the catalog with their own dates, so that a price that `region` lacks still has a stand-in.
    """
    old = catalog.prices.catalog_prices()
    regions: dict[str, Any] = {old.ranking_region: old.table["regions"].get(old.ranking_region, {})}
    regions[region] = _rows(found, today)
    table = {
        "as_of": today,
        "currency": old.currency,
        "hours_per_month": old.hours_per_month,
        "ranking_region": old.ranking_region,
        "regions": regions,
        "capacity_blocks": old.table["capacity_blocks"],
    }
    head = f"# Prices of {region}, read from the AWS Price List on {today}. Rows with another date are the catalog's.\n"
    return head + "\n".join(_toml(table)) + "\n"


def _rows(found: Mapping[PricePath, Decimal], today: dt.date) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for path, usd in found.items():
        node = rows.setdefault(path[0], {"source": _SOURCE, "as_of": today})
        for key in path[1:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = usd
    return rows


def _toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of `table`: its values first, then its tables."""
    if path:
        yield f"\n[{'.'.join(_key(part) for part in path)}]"
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, (*path, key))


def _key(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() and text.isascii() else f'"{text}"'


def _value(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (dt.date, int, float)):
        return str(value)
    return f"{value:f}"
