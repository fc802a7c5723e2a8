"""What S3 Files would cost: an alternative that this version cannot deploy.

Reads of a MiB and more stream from the bucket; what is written lies in the fast layer and is exported to the bucket.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from training_storage.planning import catalog, objects, tariff
from training_storage.planning.bill import REQUESTS, STORAGE, Layout, Line, bill
from training_storage.planning.lustre import stored_bytes
from training_storage.planning.outcome import Delivery, outcome
from training_storage.planning.selection import S3
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from training_storage.planning.solution import Solution

_PATH = "ena"


def lines(solution: Solution) -> list[Line] | None:
    """Return the amounts of the run on S3 Files, or None if checkpoints would never be complete."""
    situation, needs, limits = solution.situation, solution.needs, catalog.s3.files_limits()
    nodes, clients = situation.job.instances, objects.clients_bytes_per_s(situation, _PATH)
    read = min(clients, nodes * limits.read_gib_per_s_per_client * GIB)
    write = min(clients, limits.write_gib_per_s * GIB)
    result = outcome(
        needs=needs,
        delivery=Delivery(
            read_bytes_per_s=read,
            write_bytes_per_s=write,
            restore_bytes_per_s=read,
            write_beside_reads_bytes_per_s=min(write, clients - needs.read_bytes_per_s * needs.accelerator_use),
            rank_bytes_per_s=write / situation.accelerators,
        ),
        run_s=situation.run_s,
    )
    if result is None:
        return None
    layout = Layout(
        choice=replace(solution.found.choice, tiers=(S3,), read_tier=S3, checkpoint_tier=S3),
        file_system=None,
        metadata_iops=None,
        hot_bytes=0.0,
        express_bytes=0.0,
    )
    kept = stored_bytes(
        needs, hot_bytes=0.0, checkpoints_kept=int(situation.number("checkpoints_kept")), checkpoints=True
    )
    written = result.checkpoints * needs.checkpoint_bytes
    return [
        *bill(situation, needs, layout, result),
        Line(STORAGE, tariff.S3_FILES_STORAGE, kept / GIB * situation.months),
        Line(REQUESTS, tariff.S3_FILES_WRITE, written / GIB),
    ]
