"""Regions: partition, zones, and what of each service exists there."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load_row, row_names
from training_storage.planning.errors import InvalidJobError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "regions.toml"

#: Availability Zone and Local Zone ids of any Region.
ZONE_ID_PATTERN = r"[a-z]+[0-9](-[a-z]{3}[0-9]{1,2})?-az[1-9][0-9]?"
#: What every refusal of a zone name says, so that plan, constructs and check use the same words.
ZONE_ID_ALLOWED = "an Availability Zone id such as 'use1-az4', not a zone name"
ZONE_ID_REMEDY = "'aws ec2 describe-availability-zones' lists ZoneId beside ZoneName"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Region:
    """A Region as ``regions.toml`` describes it.

    `zone_ids` are those the catalog has seen, not all there are. `instance_types` maps a type to the zone ids that
    offered it; an empty tuple means the Region offers the type in zones that the catalog does not know.
    """

    name: str
    partition: str
    dns_suffix: str
    zone_id_prefix: str
    zone_ids: tuple[str, ...]
    express_zone_ids: tuple[str, ...]
    lustre_deployment_types: tuple[str, ...]
    persistent_2_throughputs: tuple[int, ...]
    lustre_efa: bool
    lustre_version: str
    pcs: bool
    instance_types: Mapping[str, tuple[str, ...]]
    source: tuple[str, ...]
    as_of: str

    def offers(self, instance_type: str) -> bool:
        """Whether the catalog has seen `instance_type` here."""
        return instance_type in self.instance_types

    def zone_ids_offering(self, instance_type: str) -> tuple[str, ...]:
        """Return the zone ids that the catalog knows to offer `instance_type`."""
        return self.instance_types.get(instance_type, ())

    def is_well_formed_zone_id(self, zone_id: str) -> bool:
        """Whether `zone_id` looks like an availability or Local Zone id of this Region."""
        return re.fullmatch(rf"{self.zone_id_prefix}(-[a-z]{{3}}[0-9]{{1,2}})?-az[1-9][0-9]?", zone_id) is not None

    def is_zone_name(self, value: str) -> bool:
        """Whether `value` is a zone *name* such as ``us-east-1a``."""
        return re.fullmatch(rf"{self.name}(-[a-z]{{3}}-[0-9]{{1,2}})?[a-z]", value) is not None


@functools.cache
def regions() -> Mapping[str, Region]:
    """Return every Region of the catalog by name."""
    return {name: region(name) for name in row_names(_FILE)}


def region_names() -> tuple[str, ...]:
    """Return the names of the Regions of the catalog without reading their rows."""
    return row_names(_FILE)


@functools.cache
def region(name: str) -> Region:
    """Return the Region called `name`.

    Raises
    ------
    InvalidJobError
        If the catalog does not know it.
    """
    try:
        return _read(name, dict(load_row(_FILE, name)))
    except KeyError:
        raise InvalidJobError(
            f"region must be a Region of the catalog, for example us-east-1, got: {name!r}."
            f"{did_you_mean(name, row_names(_FILE))} Allowed: {', '.join(row_names(_FILE))}."
        ) from None


def _read(name: str, row: dict[str, object]) -> Region:
    for key in ("zone_ids", "express_zone_ids", "lustre_deployment_types", "persistent_2_throughputs", "source"):
        row[key] = tuple(row[key])  # type: ignore[arg-type]
    offered: dict[str, list[str]] = row.pop("instance_types")  # type: ignore[assignment]
    row["as_of"] = str(row["as_of"])
    return Region(
        name=name,
        instance_types={key: tuple(zones) for key, zones in offered.items()},
        **row,  # type: ignore[arg-type]
    )
