"""What CloudWatch knows of Lustre file systems: free capacity, and how far import and export are behind."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NAMESPACE = "AWS/FSx"
#: Metrics come every minute, a few minutes late.
_PERIOD_SECONDS = 60
_LOOK_BACK = dt.timedelta(minutes=20)
#: Queries of one GetMetricData (CloudWatch API reference).
_QUERIES = 500
#: Name here: metric, statistic, further dimensions. The sum over a minute is over all disks of the file system (FSx for
#: Lustre guide, fs-metrics: each disk gives one value a minute).
_METRICS: Mapping[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "free_bytes": ("FreeDataStorageCapacity", "Sum", ()),
    "import_age_seconds": ("AgeOfOldestQueuedMessage", "Maximum", (("Publisher", "AutoImport"),)),
    "written_bytes": ("DataWriteBytes", "Sum", ()),
    "export_age_seconds": ("AgeOfOldestQueuedMessage", "Maximum", (("Publisher", "AutoExport"),)),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A value and when it was measured."""

    value: float
    at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class FileSystemMetrics:
    """The newest values of one file system; None where CloudWatch has none of the last 20 minutes.

    Parameters
    ----------
    free_bytes
        Free capacity of all disks.
    import_age_seconds, export_age_seconds
        Age of the oldest change that automatic import, or export, has not yet brought over; of all links together.
    written_bytes
        What clients wrote in its minute.
    """

    free_bytes: Reading | None = None
    written_bytes: Reading | None = None
    import_age_seconds: Reading | None = None
    export_age_seconds: Reading | None = None


@dataclass
class _Query:
    file_system_id: str
    name: str
    id: str = field(default="")


def read_metrics(
    cloudwatch: Any,  # noqa: ANN401 - boto3 clients have no type
    file_system_ids: Iterable[str],
    *,
    now: dt.datetime,
) -> dict[str, FileSystemMetrics]:
    """Return the newest metrics by file system id: one call for 166 file systems.

    Raises
    ------
    botocore.exceptions.ClientError, BotoCoreError
        As the call does (``cloudwatch:GetMetricData``).
    """
    queries = [_Query(identifier, name) for identifier in file_system_ids for name in _METRICS]
    for number, query in enumerate(queries):
        query.id = f"m{number}"
    found: dict[str, dict[str, Reading]] = {query.file_system_id: {} for query in queries}
    by_id = {query.id: query for query in queries}
    for start in range(0, len(queries), _QUERIES):
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[_data_query(query) for query in queries[start : start + _QUERIES]],
            StartTime=now - _LOOK_BACK,
            # A value is stamped with the start of its minute: ask up to the end of the present one.
            EndTime=now + dt.timedelta(seconds=_PERIOD_SECONDS),
            ScanBy="TimestampDescending",
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                query = by_id[result["Id"]]
                _keep_newest(found[query.file_system_id], query.name, result["Timestamps"], result["Values"])
    return {identifier: FileSystemMetrics(**values) for identifier, values in found.items()}


def _data_query(query: _Query) -> dict[str, Any]:
    metric, statistic, dimensions = _METRICS[query.name]
    return {
        "Id": query.id,
        "MetricStat": {
            "Metric": {
                "Namespace": _NAMESPACE,
                "MetricName": metric,
                "Dimensions": [
                    {"Name": name, "Value": value}
                    for name, value in (("FileSystemId", query.file_system_id), *dimensions)
                ],
            },
            "Period": _PERIOD_SECONDS,
            "Stat": statistic,
        },
    }


def _keep_newest(kept: dict[str, Reading], name: str, times: Sequence[dt.datetime], values: Sequence[float]) -> None:
    for at, value in zip(times, values, strict=True):
        if name not in kept or at > kept[name].at:
            kept[name] = Reading(value=float(value), at=at)
