"""Accelerated instance types and their network layout."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from training_storage.planning.catalog import prices
from training_storage.planning.catalog._data import load_row, row_names
from training_storage.planning.errors import InvalidJobError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "instance_types.toml"

Purchase = Literal["on-demand", "spot", "capacity-block"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class NetworkInterface:
    """One entry of a launch template's network interfaces.

    Parameters
    ----------
    network_card_index, device_index
        Where the interface sits.
    interface_type
        ``interface`` (ENA, has addresses), or ``efa-only`` (EFA without addresses).
    """

    network_card_index: int
    device_index: int
    interface_type: Literal["interface", "efa", "efa-only"]

    @property
    def bears_addresses(self) -> bool:
        """Whether the interface takes an address of its subnet; ``efa-only`` ones do not."""
        return self.interface_type != "efa-only"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class InstanceType:
    """An accelerated instance type as ``instance_types.toml`` describes it.

    Bandwidths are Gbps (bits), memory is GiB, NVMe is GB. `single_address_gbps` and `several_addresses_gbps` bound IP
    traffic (S3) with one private address and with several, which sit on card 0 and `further_address_cards`.
    `efa_for_lustre` says whether FSx for Lustre speaks EFA with it (Nitro v4 or newer, Trainium 2 excluded);
    `lustre_efa_interfaces_default` is what AWS's client script configures.
    """

    name: str
    accelerators: int
    accelerator_name: str
    accelerator_memory_gib: float
    vcpus: int
    memory_gib: int
    local_nvme_gb: int
    architecture: Literal["x86_64", "arm64"]
    network_gbps: float
    network_cards: int
    interfaces_per_card_maximum: int
    efa_interfaces_maximum: int
    efa_network_cards: tuple[int, ...]
    further_address_cards: tuple[int, ...]
    single_address_gbps: float
    several_addresses_gbps: float
    efa_for_lustre: bool
    gds: bool
    lustre_efa_interfaces_default: int
    purchase: tuple[Purchase, ...]
    source: tuple[str, ...]
    as_of: str
    note: str | None = None

    @property
    def efa_first_card(self) -> int | None:
        """First network card with EFA (1 where card 0 is ENA only), or None without EFA."""
        return self.efa_network_cards[0] if self.efa_network_cards else None

    @property
    def gbps_per_efa_interface(self) -> float:
        """Bandwidth of one EFA interface in Gbps; 0 without EFA."""
        return self.network_gbps / len(self.efa_network_cards) if self.efa_network_cards else 0.0

    def network_interfaces(self, *, several_addresses: bool = False) -> tuple[NetworkInterface, ...]:
        """Return the interfaces of a launch template in AWS's current pattern.

        The primary interface is plain ENA, because it must not be ``efa-only``. A card that holds it takes its EFA on
        device 1, every other card on device 0. Types without EFA get the primary alone.

        Parameters
        ----------
        several_addresses
            Add plain ENA interfaces on device 1 of `further_address_cards`, for IP traffic beyond one address.
        """
        primary = NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")
        efa = (
            NetworkInterface(network_card_index=card, device_index=1 if card == 0 else 0, interface_type="efa-only")
            for card in self.efa_network_cards
        )
        further = (
            NetworkInterface(network_card_index=card, device_index=1, interface_type="interface")
            for card in self.further_address_cards
        )
        return (primary, *efa, *(further if several_addresses else ()))

    def address_bearing_interfaces(self, *, several_addresses: bool = False) -> int:
        """Return how many interfaces of `network_interfaces` take a subnet address."""
        return sum(
            interface.bears_addresses for interface in self.network_interfaces(several_addresses=several_addresses)
        )

    def on_demand_price_per_hour(self, region: str) -> float | None:
        """Return the on-demand price in USD per hour, or None where `region` has no known one."""
        return prices.catalog_prices().instance_per_hour(region=region, instance_type=self.name)


@functools.cache
def instance_types() -> Mapping[str, InstanceType]:
    """Return every type of the catalog by name."""
    return {name: instance_type(name) for name in instance_type_names()}


def instance_type_names() -> tuple[str, ...]:
    """Return the names of all types, without reading the types."""
    return row_names(_FILE)


@functools.cache
def instance_type(name: str) -> InstanceType:
    """Return the type called `name`.

    Raises
    ------
    InvalidJobError
        If the catalog does not know it.
    """
    try:
        return _read(name, dict(load_row(_FILE, name)))
    except KeyError:
        known = ", ".join(instance_type_names())
        raise InvalidJobError(
            f"instance_type must be one of the catalog's types, got: {name!r}."
            f"{did_you_mean(name, instance_type_names())} Allowed: {known}."
        ) from None


def _read(name: str, row: dict[str, object]) -> InstanceType:
    row.setdefault("further_address_cards", [])
    for key in ("efa_network_cards", "further_address_cards", "purchase", "source"):
        row[key] = tuple(row[key])  # type: ignore[arg-type]
    row["as_of"] = str(row["as_of"])
    return InstanceType(name=name, **row)  # type: ignore[arg-type]
