"""Reads a user's file of prices, strictly: what is misspelt or no price would turn the ranking over silently."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any, Final

from training_storage.planning.catalog import lustre
from training_storage.planning.catalog.instances import instance_type_names
from training_storage.planning.catalog.prices import Prices, catalog_prices, prices_of
from training_storage.planning.catalog.regions import region_names
from training_storage.planning.errors import InvalidJobError, did_you_mean

#: USD; no hour, GiB or thousand requests costs as much, so a higher number is a slip.
_HIGHEST_PRICE = 1_000_000
#: The longest month has 744 hours; bills use 720 to 744.
_LEAST_HOURS, _MOST_HOURS = 600, 800
#: Bytes; a price file of every Region is a small part of it.
_LARGEST_FILE = 4 * 2**20
#: Every key of a price says usd.
_CURRENCY = "USD"
_REQUIRED = ("as_of", "hours_per_month", "ranking_region", "regions")
_SHOWN = 60

# What a key of the layout holds, where it is no table.
_PRICE, _DATE, _TEXT, _HOURS = "price", "date", "text", "hours"
_Layout = dict[str, Any]
_ROW: Final[_Layout] = {"source": _TEXT, "as_of": _DATE, "note": _TEXT}


def read_prices(path: str) -> Prices:
    """Return the prices of the TOML file at `path`, which has the layout of the catalog's ``prices.toml``.

    Raises
    ------
    InvalidJobError
        If the file is missing, is not TOML, has a key that the layout has not, or a value that the key may not hold.
    """
    try:
        table = tomllib.loads(_text(Path(path)))
    except FileNotFoundError:
        raise InvalidJobError(
            f"prices must name a TOML file of prices, got: {path!r}, file not found. Leave it out for the catalog's."
        ) from None
    except RecursionError:
        raise InvalidJobError(
            f"prices must name a readable TOML file of prices, got: {path!r} (it is nested too deeply). "
            "Leave it out for the catalog's."
        ) from None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidJobError(
            f"prices must name a readable TOML file of prices, got: {path!r} ({reason}). "
            "Leave it out for the catalog's."
        ) from None
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise InvalidJobError(
            f"prices must have the layout of the catalog's prices.toml, got: {path!r} without {', '.join(missing)}."
        )
    _check_table(table, _layout(), where="", path=path)
    _check_head(table, path)
    return prices_of(table)


def _text(path: Path) -> str:
    """Return the text of an ordinary file; a device or a pipe may never end."""
    if not path.is_file() and path.exists():
        raise ValueError("it is no ordinary file")
    if path.exists() and path.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"it is larger than {_LARGEST_FILE // 2**20} MiB")
    return path.read_text(encoding="utf-8")


def _layout() -> _Layout:
    """Return every key that a price file may have."""
    known = catalog_prices().table["capacity_blocks"]
    names = sorted({*instance_type_names(), *(name for name, row in known.items() if isinstance(row, dict))})
    hours = {name: {**_ROW, "per_hour": _PRICE} for name in names}
    requests = dict.fromkeys(("storage_per_gib_month", "put_per_1000", "get_per_1000"), _PRICE)
    storage = {
        name: {str(per_unit): _PRICE for per_unit in kind.throughputs}
        for name, kind in lustre.deployment_types().items()
    }
    region = {
        "s3": {**_ROW, **requests},
        "s3-express": {**_ROW, **requests, "upload_per_gib": _PRICE, "retrieval_per_gib": _PRICE},
        "s3-files": {**_ROW, "storage_per_gib_month": _PRICE, "write_per_gib": _PRICE},
        "fsx-lustre": {**_ROW, "metadata_iops_month": _PRICE, "storage_per_gib_month": storage},
        "instances": {**_ROW, **hours},
    }
    return {
        **_ROW,
        "currency": _TEXT,
        "hours_per_month": _HOURS,
        "ranking_region": _TEXT,
        "regions": dict.fromkeys(region_names(), region),
        "capacity_blocks": {**_ROW, **hours},
    }


def _check_table(table: dict[str, Any], layout: _Layout, *, where: str, path: str) -> None:
    """Refuse keys that `layout` has not and values that it does not allow; never deeper than the layout."""
    for key, value in table.items():
        name = f"{where}{key[:_SHOWN]}"
        allowed = layout.get(key)
        if allowed is None:
            raise InvalidJobError(
                f"prices must have the keys of the catalog's prices.toml only, got: {name!r} in {path!r}."
                f"{did_you_mean(key[:_SHOWN], layout) or ' Leave it out.'}"
            )
        if isinstance(allowed, dict):
            if not isinstance(value, dict):
                raise _refused(f"{name} as a table", value, path)
            _check_table(value, allowed, where=f"{name}.", path=path)
        elif allowed == _PRICE and not _is_number(value, 0, _HIGHEST_PRICE):
            raise _refused(f"numbers from 0 to {_HIGHEST_PRICE:,}", value, path, name)
        elif allowed == _HOURS and not _is_number(value, _LEAST_HOURS, _MOST_HOURS):
            raise _refused(f"{name} from {_LEAST_HOURS} to {_MOST_HOURS}, for example 730", value, path)
        elif allowed == _DATE and (not isinstance(value, dt.date) or isinstance(value, dt.datetime)):
            raise _refused("dates without quotes, for example as_of = 2027-01-31", value, path, name)
        elif allowed == _TEXT and not isinstance(value, str):
            raise _refused(f"{name} as text", value, path)


def _check_head(table: dict[str, Any], path: str) -> None:
    if table.get("currency", _CURRENCY) != _CURRENCY:
        raise _refused(f"currency = {_CURRENCY!r}, because every amount of a plan is in it", table["currency"], path)
    ranking = table["ranking_region"]
    if ranking not in region_names():
        near = did_you_mean(ranking, region_names())
        raise InvalidJobError(
            f"prices must hold ranking_region as a known Region, got: {ranking[:_SHOWN]!r} in {path!r}.{near}"
        )
    if not _has_price(table["regions"].get(ranking, {})):
        raise InvalidJobError(
            f"prices must hold prices of their ranking_region, which stands in for Regions without, got: none of "
            f"{ranking} in {path!r}."
        )


def _refused(allowed: str, value: object, path: str, name: str = "") -> InvalidJobError:
    shown = repr(value)[:_SHOWN]
    return InvalidJobError(f"prices must hold {allowed}, got: {f'{name} = ' if name else ''}{shown} in {path!r}.")


def _is_number(value: object, least: float, most: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and least <= value <= most


def _has_price(table: dict[str, Any]) -> bool:
    """Whether any price stands in a table that was checked."""
    return any(
        _has_price(value) if isinstance(value, dict) else _is_number(value, 0, _HIGHEST_PRICE)
        for value in table.values()
    )
