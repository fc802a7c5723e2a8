"""The status as JSON, schema_version 1; docs/status.md lists the keys."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import time_text
from training_storage.operations.status_cost import NOT_INCLUDED, cost_of
from training_storage.operations.status_health import finish_command, problems, used_share
from training_storage.operations.status_loss import lake_loss, losses
from training_storage.operations.status_model import SCHEMA_VERSION
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from training_storage.operations.stack_inventory import Stack
    from training_storage.operations.status_model import JobStatus, StandingFileSystem, Status


def status_document(status: Status) -> dict[str, Any]:
    """Return the status as JSON values."""
    found = problems(status)
    return {
        "schema_version": SCHEMA_VERSION,
        "region": status.region,
        "at": time_text(status.at),
        "healthy": not found,
        "problems": list(found),
        "lake": None if status.lake is None else _stack(status.lake),
        "lake_would_be_lost": _plain(lake_loss(status)),
        "jobs": [_job(job, status) for job in status.jobs],
        "unknown": _plain(status.unknown),
    }


def _job(job: JobStatus, status: Status) -> dict[str, Any]:
    cost = cost_of(job, region=status.region, now=status.at)
    return {
        "job": job.name,
        "stack": None if job.stack is None else _stack(job.stack),
        "file_systems": None
        if job.file_systems is None
        else [_file_system(standing, job=job.name, region=status.region) for standing in job.file_systems],
        "directory_buckets": _plain(job.directory_buckets),
        "cluster": _plain(job.cluster),
        "home": _plain(job.home),
        "lake_checkpoints": _plain(job.lake_checkpoints),
        "cost": {
            "currency": cost.currency,
            "prices_as_of": cost.prices_as_of,
            "per_hour_usd": round(cost.per_hour_usd, 2),
            "so_far_usd": round(cost.so_far_usd, 2),
            "lines": _plain(cost.lines),
            "unknown": list(cost.unknown),
            "not_included": NOT_INCLUDED,
        },
        "would_be_lost": _plain(losses(job, region=status.region)),
        "unknown": _plain(job.unknown),
    }


def _stack(stack: Stack) -> dict[str, Any]:
    return {
        "name": stack.name,
        "state": stack.state,
        "reason": stack.reason,
        "created": time_text(stack.created),
        "outputs": dict(stack.outputs),
    }


def _file_system(standing: StandingFileSystem, *, job: str, region: str) -> dict[str, Any]:
    system, metrics, share = standing.system, standing.metrics, used_share(standing)
    return {
        **_plain({name: value for name, value in vars(system).items() if name != "tags"}),
        "stack_name": system.stack_name,
        "in_stack": standing.in_stack,
        "left_standing": system.left_standing,
        "command": finish_command(job, region=region) if standing.is_left else None,
        "used_gib": None if share is None else round(share * system.capacity_gib, 1),
        "free_gib": None if metrics is None or metrics.free_bytes is None else round(metrics.free_bytes.value / GIB, 1),
        "import_age_seconds": _plain(metrics.import_age_seconds) if metrics else None,
        "export_age_seconds": _plain(metrics.export_age_seconds) if metrics else None,
        "links": _plain(standing.links),
        "tasks": _plain(standing.tasks),
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON values have no common type
    if isinstance(value, dt.datetime):
        return time_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(item) for item in value]
    return value
