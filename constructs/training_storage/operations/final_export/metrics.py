"""What CloudWatch knows of a file system: whether clients wrote to it, and whether exports are queued."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .calls import ask
from .refusal import NotNowError, RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAMESPACE = "AWS/FSx"
#: A value is there a few minutes after its minute; older ones say nothing of now.
_RECENT = dt.timedelta(minutes=15)
#: Values of single minutes are kept for 15 days, those of hours for 455 (CloudWatch user guide, metrics retention).
_HOUR = dt.timedelta(hours=1)
#: Without a value from its first hours nobody knows what was written then.
_FIRST_VALUE = dt.timedelta(hours=2)
_KEPT = dt.timedelta(days=455)
_WRITTEN = "DataWriteBytes"
#: Empty files, links and directories are written without a byte.
_OPERATIONS = "MetadataOperations"

Values = dict[dt.datetime, float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of a file system, read in one way."""

    metric: str
    statistic: str
    dimensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Written:
    """What clients wrote to a file system over some time.

    Parameters
    ----------
    size
        Bytes; None where CloudWatch has no value at all, which says nothing.
    known_until
        The start of the newest period with a value, before which no value is missing.
    newest
        The start of the newest period with a value, whatever is missing before it.
    operations
        Metadata operations, where they were asked for; None where CloudWatch does not know them.
    """

    size: float | None
    known_until: dt.datetime | None
    newest: dt.datetime | None = None
    operations: float | None = None


class Metrics:
    """Readings of one account and Region.

    Parameters
    ----------
    cloudwatch
        A boto3 client.
    clock
        Returns the present time, with a time zone.
    period_seconds
        How long one value is of; FSx gives one a minute.
    """

    def __init__(
        self,
        *,
        cloudwatch: Any,  # noqa: ANN401 - boto3 clients have no type
        clock: Callable[[], dt.datetime],
        period_seconds: int,
    ) -> None:
        self._cloudwatch = cloudwatch
        self._clock = clock
        self._period = dt.timedelta(seconds=period_seconds)

    def written_ever(self, file_system_id: str, *, created: dt.datetime) -> Written:
        """Return what clients wrote in the whole life of a file system, as far as CloudWatch keeps values."""
        if self._clock() - created > _KEPT:
            return Written(size=None, known_until=None)
        values, operations = (
            self._values(name, "Sum", file_system_id, since=created - _HOUR, period=_HOUR)
            for name in (_WRITTEN, _OPERATIONS)
        )
        if not values or min(values) > created + _FIRST_VALUE:
            return Written(size=None, known_until=None)
        recent = self._values(_WRITTEN, "Sum", file_system_id, since=self._clock() - _RECENT)
        newest = max(recent, default=None)
        known = operations and min(operations) <= created + _FIRST_VALUE
        return Written(
            size=sum(values.values()),
            known_until=newest,
            newest=newest,
            operations=sum(operations.values()) if known else None,
        )

    def written_since(self, file_system_id: str, start: dt.datetime) -> Written:
        """Return what clients wrote since the beginning of the period in which `start` lies.

        That period counts as a whole: what was written in it may have been written after `start`.
        """
        seconds = int(self._period.total_seconds())
        first = dt.datetime.fromtimestamp(start.timestamp() // seconds * seconds, dt.UTC)
        found = self._values(_WRITTEN, "Sum", file_system_id, since=first)
        values = {at: value for at, value in found.items() if at >= first}
        known_until, at = None, first
        while at in values:
            known_until, at = at, at + self._period
        return Written(
            size=sum(values.values()) if values else None, known_until=known_until, newest=max(values, default=None)
        )

    def export_queue_age(self, file_system_id: str, *, since: dt.datetime | None = None) -> float | None:
        """Return the age of the oldest change that automatic export has not brought over, in seconds; 0 for none.

        None if CloudWatch has no value of the last minutes, or of those before `since`, when it was turned off.
        """
        start = min(since or self._clock(), self._clock()) - _RECENT
        values = self._values(
            "AgeOfOldestQueuedMessage", "Maximum", file_system_id, Publisher="AutoExport", since=start
        )
        return values[max(values)] if values else None

    def _values(
        self,
        metric: str,
        statistic: str,
        file_system_id: str,
        *,
        since: dt.datetime,
        period: dt.timedelta | None = None,
        **dimensions: str,
    ) -> Values:
        length = period or self._period
        [values] = read_series(
            self._cloudwatch,
            file_system_id,
            [Series(metric=metric, statistic=statistic, dimensions=tuple(dimensions.items()))],
            since=since,
            # A value is stamped with the start of its period: ask up to the end of the present one.
            until=self._clock() + length,
            period_seconds=int(length.total_seconds()),
        )
        return values


def read_series(
    cloudwatch: Any,  # noqa: ANN401 - boto3 clients have no type
    file_system_id: str,
    series: Sequence[Series],
    *,
    since: dt.datetime,
    until: dt.datetime,
    period_seconds: int,
) -> list[Values]:
    """Return the values of each series by the start of their period.

    Raises
    ------
    NotNowError
        If CloudWatch has not given all of them: what is missing is not 0.
    RefusalError
        If it may not be asked.
    """
    request: dict[str, Any] = {
        "MetricDataQueries": [
            {
                "Id": f"m{number}",
                "MetricStat": {
                    "Metric": {
                        "Namespace": _NAMESPACE,
                        "MetricName": one.metric,
                        "Dimensions": [
                            {"Name": name, "Value": value}
                            for name, value in (("FileSystemId", file_system_id), *one.dimensions)
                        ],
                    },
                    "Period": period_seconds,
                    "Stat": one.statistic,
                },
            }
            for number, one in enumerate(series)
        ],
        "StartTime": since,
        "EndTime": until,
    }
    found: list[Values] = [{} for _ in series]
    states = ["Complete"] * len(series)
    while True:
        page = ask("cloudwatch:GetMetricData", cloudwatch.get_metric_data, **request)
        for result in page["MetricDataResults"]:
            number = int(result["Id"][1:])
            found[number].update(zip(result["Timestamps"], map(float, result["Values"]), strict=True))
            states[number] = str(result.get("StatusCode", "Complete"))
        if not page.get("NextToken"):
            break
        request["NextToken"] = page["NextToken"]
    for one, state in zip(series, states, strict=True):
        if state == "Forbidden":
            raise RefusalError(
                f"cloudwatch:GetMetricData is denied for {one.metric}",
                way_out="Let the function's role do cloudwatch:GetMetricData and run it again",
            )
        if state != "Complete":
            raise NotNowError(f"cloudwatch:GetMetricData answered {state} for {one.metric}")
    return found
