"""What is assumed where the user says nothing: every default in one table.

``docs/planning.md`` shows the same table; a test compares the two.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Default:
    """A default and the reason for it; `value` may be text where it is a rule rather than a figure."""

    value: float | str
    why: str


#: Defaults of TrainingJob's fields that are plain values. Rules (interface, zone_id …) stand in `resolution`.
FIELDS: Final[dict[str, Default]] = {
    "instance_type": Default(value="p5.48xlarge", why="the common training node"),
    "region": Default(value="us-east-1", why="the caller's Region comes first"),
    "bytes_per_parameter": Default(value=14.0, why="fp16 weights and fp32 master, m and v (MLPerf Storage v2)"),
    "fine_tuning": Default(value="full", why="the larger checkpoint"),
    "checkpoint_mode": Default(value="async", why="write locally, upload in the background"),
    "checkpoint_stall_budget_seconds": Default(value=60.0, why="a target, not a limit, unless given"),
    "restore_budget_seconds": Default(value=300.0, why="a target, not a limit, unless given"),
    "checkpoints_kept": Default(value=2, why="complete checkpoints on the hot tier"),
    "durable_interval_minutes": Default(value=360.0, why="key checkpoints are archived, not all"),
    "durable_checkpoints_kept": Default(value=4, why="in the lake, besides the newest two"),
    "read_gb_per_s_per_accelerator": Default(value=0.001, why="tokens are small; images are not: give it"),
    "dataset_gib": Default(value=0.0, why="nothing is known of the data set"),
    "run_hours": Default(value=720.0, why="a month"),
    "failures_per_1000_node_days": Default(value=6.5, why="Meta RSC-1, arXiv 2410.21680"),
}

#: Assumptions that no field of the job changes.
ASSUMPTIONS: Final[dict[str, Default]] = {
    "parameters_per_accelerator": Default(value=10**9, why="MLPerf Storage's pairs: 8B on 8, 70B on 64, 405B on 512"),
    "parameters_maximum": Default(value=405 * 10**9, why="the largest published checkpoint of the pairs"),
    "lora_parameter_share": Default(value=0.01, why="the adapter only"),
    "checkpoint_interval_minimum_minutes": Default(value=5.0, why="a chosen interval is never shorter"),
    "restart_seconds": Default(value=300.0, why="detect, schedule and start, without the restore"),
    "device_to_host_gb_per_s": Default(value=20.0, why="per accelerator, for asynchronous checkpoints"),
    "part_size_mib": Default(value=8.0, why="what Mountpoint and the SDKs use"),
    "fill_level": Default(value=0.85, why="a file system is not filled to the brim"),
    "newest_durable_checkpoints": Default(value=2, why="always in the lake, besides those kept"),
    "noncurrent_version_days": Default(value=1.0, why="life of replaced and deleted checkpoints in the lake"),
}


@functools.cache
def number(name: str) -> float:
    """Return the default or assumption `name`, which is a figure."""
    value = (FIELDS.get(name) or ASSUMPTIONS[name]).value
    if isinstance(value, str):
        raise TypeError(f"{name} is text, not a figure")
    return value
