"""What S3 and S3 Express deliver. Bounds from published rates, not measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning import catalog
from training_storage.planning.units import bytes_per_s

if TYPE_CHECKING:
    from training_storage.planning.demand import Needs, Required
    from training_storage.planning.resolution import Situation


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ObjectStore:
    """What an object tier delivers to the cluster, in bytes per second; `raised` if its default rates are too low."""

    read_bytes_per_s: float
    write_bytes_per_s: float
    restore_bytes_per_s: float
    raised: bool = False


def clients_bytes_per_s(situation: Situation, path: str) -> float:
    """Return the most that all nodes move over IP; only ``ena-multi-ip`` uses several addresses."""
    instance = situation.instance
    gbps = instance.several_addresses_gbps if path == "ena-multi-ip" else instance.single_address_gbps
    return bytes_per_s(gbps) * situation.job.instances


def prefixes(needs: Needs, required: Required, *, put_per_s: float = 0.0) -> int:
    """Return the least number of S3 prefixes that meets the requests of `required` and `put_per_s`."""
    limits = catalog.s3.s3_limits()
    # Prefixes cost nothing, so they are counted for full accelerator use.
    read = needs.read_bytes_per_s if required.read > 0 else 0.0
    gets = max(read / needs.read_request_bytes, required.restore / needs.checkpoint_part_bytes)
    puts = max(required.write / needs.checkpoint_part_bytes, put_per_s)
    return max(1, math.ceil(gets / limits.get_per_s_per_prefix), math.ceil(puts / limits.put_per_s_per_prefix))


def s3(situation: Situation, needs: Needs, required: Required, path: str) -> ObjectStore:
    """Return what S3 delivers with the least number of prefixes that meets `required`."""
    limits, clients = catalog.s3.s3_limits(), clients_bytes_per_s(situation, path)
    count = prefixes(needs, required)
    return ObjectStore(
        read_bytes_per_s=min(clients, count * limits.get_per_s_per_prefix * needs.read_request_bytes),
        write_bytes_per_s=min(clients, count * limits.put_per_s_per_prefix * needs.checkpoint_part_bytes),
        restore_bytes_per_s=min(clients, count * limits.get_per_s_per_prefix * needs.checkpoint_part_bytes),
    )


def express(situation: Situation, needs: Needs, required: Required, path: str) -> ObjectStore:
    """Return what S3 Express delivers: by its default rates, or by those on request where these do not suffice."""
    limits, clients = catalog.s3.express_limits(), clients_bytes_per_s(situation, path)

    def store(gets: int, puts: int, *, raised: bool) -> ObjectStore:
        return ObjectStore(
            read_bytes_per_s=min(clients, gets * needs.read_request_bytes),
            write_bytes_per_s=min(clients, puts * needs.checkpoint_part_bytes),
            restore_bytes_per_s=min(clients, gets * needs.checkpoint_part_bytes),
            raised=raised,
        )

    default = store(limits.get_per_s, limits.put_per_s, raised=False)
    if meets(default, required, clients):
        return default
    return store(limits.get_per_s_on_request, limits.put_per_s_on_request, raised=True)


def meets(store: ObjectStore, required: Required, clients: float) -> bool:
    """Whether `store` delivers `required` and the clients can move it."""
    return (
        required.read <= store.read_bytes_per_s
        and required.write <= store.write_bytes_per_s
        and required.restore <= store.restore_bytes_per_s
        and required.total <= clients
    )
