"""What `training-storage status` knows. Nothing is guessed: what could not be read is None, and `unknown` says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from training_storage.operations.file_system_metrics import FileSystemMetrics
    from training_storage.operations.lustre_state import FileSystem, Link, Task
    from training_storage.operations.stack_inventory import Stack
    from training_storage.operations.status_checkpoints import Checkpoints

SCHEMA_VERSION = 1

NOTHING, LOST, UNKNOWN, KEPT = "nothing", "lost", "unknown", "kept"
"""What would become of a thing if everything were destroyed now."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A part that could not be read, and why; `part` is a key of `JobStatus` or `Status`."""

    part: str
    because: str


@dataclass(frozen=True, kw_only=True)
class StandingFileSystem:
    """A Lustre file system with what belongs to it.

    Parameters
    ----------
    in_stack
        Whether it belongs to a stack that stands; None where that could not be found out.
    links, tasks
        None where they could not be read; tasks are the newest first.
    metrics
        None where CloudWatch could not be asked.
    """

    system: FileSystem
    in_stack: bool | None
    links: tuple[Link, ...] | None
    tasks: tuple[Task, ...] | None
    metrics: FileSystemMetrics | None

    @property
    def is_left(self) -> bool:
        """Whether it stands although no stack has it any more, or although a gate gave up on it."""
        return self.in_stack is False or self.system.left_standing is not None


@dataclass(frozen=True, kw_only=True)
class DirectoryBucketStatus:
    """An S3 Express bucket; `is_empty` and `checkpoints` are None where they could not be read."""

    name: str
    is_empty: bool | None
    checkpoints: Checkpoints | None
    unknown: str | None


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """A node group of AWS PCS, or an Auto Scaling group."""

    name: str
    id: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """An EC2 instance that runs or is about to; `market` is on-demand, spot or capacity-block."""

    id: str
    instance_type: str
    market: str
    launched: dt.datetime


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """What starts the nodes.

    Parameters
    ----------
    engine
        pcs or ec2.
    state
        Of the PCS cluster; None where it could not be read and for ec2.
    error
        What PCS says of a cluster that failed.
    node_groups, nodes
        None where they could not be read.
    """

    engine: str
    id: str
    state: str | None
    error: str | None
    node_groups: tuple[NodeGroup, ...] | None
    nodes: tuple[Node, ...] | None


@dataclass(frozen=True, kw_only=True)
class Home:
    """A shared /home; `is_kept` is None where the stack's template could not be read."""

    id: str
    is_kept: bool | None


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """All that stands of one job; a part is None where it could not be read.

    Parameters
    ----------
    stack
        None if it is gone.
    lake_checkpoints
        What the lake holds of the job's checkpoints.
    """

    name: str
    stack: Stack | None
    file_systems: tuple[StandingFileSystem, ...] | None
    directory_buckets: tuple[DirectoryBucketStatus, ...] | None
    cluster: ClusterStatus | None
    home: Home | None
    lake_checkpoints: Checkpoints | None
    unknown: tuple[Unknown, ...]

    def why_unknown(self, part: str) -> str | None:
        """Return why a part could not be read; None if nothing hindered that."""
        return next((entry.because for entry in self.unknown if entry.part == part), None)


@dataclass(frozen=True, kw_only=True)
class Status:
    """All that stands in a Region."""

    region: str
    at: dt.datetime
    lake: Stack | None
    jobs: tuple[JobStatus, ...]
    unknown: tuple[Unknown, ...]
