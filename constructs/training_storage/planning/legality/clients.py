"""Rules: the clients of a file system that speaks EFA."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = "FSx guide, efa-file-systems"


@dataclass(frozen=True, kw_only=True)
class EfaClients:
    """The clients of an EFA-enabled file system. None is not known.

    Parameters
    ----------
    instance_type
        EC2 type of the clients.
    instances
        How many there are.
    interfaces_per_client
        EFA interfaces that each configures for Lustre; None takes what AWS's client script configures.
    zone_id, file_system_zone_id
        Zones of clients and file system.
    subnet_cidr, file_system_subnet_cidr
        Their subnets.
    gds
        Whether GPUDirect Storage is wanted.
    """

    instance_type: str
    instances: int = 1
    interfaces_per_client: int | None = None
    zone_id: str | None = None
    file_system_zone_id: str | None = None
    subnet_cidr: str | None = None
    file_system_subnet_cidr: str | None = None
    gds: bool = False

    @property
    def interfaces(self) -> int:
        """EFA interfaces of each client."""
        if self.interfaces_per_client is not None:
            return self.interfaces_per_client
        kind = catalog.instance_types().get(self.instance_type)
        return 0 if kind is None else kind.lustre_efa_interfaces_default


@rule("client-generation", source=_SOURCE)
def generation(clients: EfaClients) -> Iterator[Problem]:
    """Require that clients are Nitro v4 or newer with EFA, Trainium 2 excepted; GDS needs P5, P5e, P5en or P6."""
    kind = catalog.instance_types().get(clients.instance_type)
    if kind is None:
        return
    able = [
        name for name, other in catalog.instance_types().items() if (other.gds if clients.gds else other.efa_for_lustre)
    ]
    if clients.instance_type not in able:
        yield Problem(
            what="instance_type",
            allowed=f"speak {'GPUDirect Storage' if clients.gds else 'EFA'} with Lustre: {', '.join(able)}",
            got=clients.instance_type,
            remedy="use ENA",
        )


@rule("client-connections", source=_SOURCE + "; configure-efa-fsx-lustre-client")
def connections(clients: EfaClients) -> Iterator[Problem]:
    """Require that a file system has 1,024 EFA connections, one for each configured interface of each client."""
    most = catalog.lustre.client_limits().efa_connections
    if clients.instances * clients.interfaces > most:
        share = most // clients.instances
        yield Problem(
            what="efa_interfaces_per_client",
            allowed=f"be at most {share} with {clients.instances} clients: a file system has {most} connections",
            got=clients.interfaces,
            remedy=f"configure {share}" if share else "use ENA, or several file systems",
        )


@rule("client-zone", source=_SOURCE)
def zone(clients: EfaClients) -> Iterator[Problem]:
    """Require that clients over EFA stand in the file system's zone."""
    if clients.zone_id and clients.file_system_zone_id and clients.zone_id != clients.file_system_zone_id:
        yield Problem(
            what="zone_id",
            allowed=f"be the file system's, {clients.file_system_zone_id}, for clients over EFA",
            got=clients.zone_id,
            remedy="move the clients, or use ENA",
        )


@rule("client-network", source=_SOURCE)
def network(clients: EfaClients) -> Iterator[Problem]:
    """Require that clients over EFA stand in the same /16 as the file system."""
    if clients.subnet_cidr is None or clients.file_system_subnet_cidr is None:
        return
    length = lustre_limits().efa_prefix_length
    ours, theirs = (
        ipaddress.ip_network(f"{ipaddress.ip_network(cidr, strict=False).network_address}/{length}", strict=False)
        for cidr in (clients.subnet_cidr, clients.file_system_subnet_cidr)
    )
    if ours != theirs:
        yield Problem(
            what="subnet_cidr",
            allowed=f"lie in the file system's /{length}, {theirs}, for clients over EFA",
            got=clients.subnet_cidr,
            remedy="choose a subnet of that block, or use ENA",
        )


RULES = (generation, connections, zone, network)
