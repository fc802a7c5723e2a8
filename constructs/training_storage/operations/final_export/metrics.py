"""What CloudWatch knows of a file system: whether clients wrote to it, and whether exports are queued."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .calls import ask

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMESPACE = "AWS/FSx"
#: A value is there a few minutes after its minute; older ones say nothing of now.
_RECENT = dt.timedelta(minutes=15)
#: Values of single minutes are kept for 15 days, those of hours for 455 (CloudWatch user guide, metrics retention).
_HOUR = dt.timedelta(hours=1)
#: Without a value from its first hours nobody knows what was written then.
_FIRST_VALUE = dt.timedelta(hours=2)
_KEPT = dt.timedelta(days=455)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What clients wrote to a file system over some time.

    Parameters
    ----------
    size
        Bytes; None where CloudWatch has no value at all, which says nothing.
    known_until
        The start of the newest period with a value.
    """

    size: float | None
    known_until: dt.datetime | None


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
        values = self._values("DataWriteBytes", "Sum", file_system_id, since=created - _HOUR, period=_HOUR)
        if not values or min(values) > created + _FIRST_VALUE:
            return Written(size=None, known_until=None)
        recent = self._values("DataWriteBytes", "Sum", file_system_id, since=self._clock() - _RECENT)
        return Written(size=sum(values.values()), known_until=max(recent, default=None))

    def written_since(self, file_system_id: str, start: dt.datetime) -> Written:
        """Return what clients wrote in the whole periods since `start`.

        `known_until` is None as long as no such period has a value, and `size` is None if no period of the last minutes
        has one.
        """
        recent = self._values("DataWriteBytes", "Sum", file_system_id, since=min(start, self._clock() - _RECENT))
        if not recent:
            return Written(size=None, known_until=None)
        values = {at: value for at, value in recent.items() if at >= start}
        return Written(size=sum(values.values()), known_until=max(values, default=None))

    def export_queue_age(self, file_system_id: str) -> float:
        """Return the age of the oldest change that automatic export has not brought over, in seconds; 0 for none."""
        values = self._values(
            "AgeOfOldestQueuedMessage", "Maximum", file_system_id, Publisher="AutoExport", since=self._clock() - _RECENT
        )
        return values[max(values)] if values else 0.0

    def _values(
        self,
        metric: str,
        statistic: str,
        file_system_id: str,
        *,
        since: dt.datetime,
        period: dt.timedelta | None = None,
        **dimensions: str,
    ) -> dict[dt.datetime, float]:
        length = period or self._period
        named = {"FileSystemId": file_system_id, **dimensions}
        request: dict[str, Any] = {
            "MetricDataQueries": [
                {
                    "Id": "value",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": _NAMESPACE,
                            "MetricName": metric,
                            "Dimensions": [{"Name": name, "Value": value} for name, value in named.items()],
                        },
                        "Period": int(length.total_seconds()),
                        "Stat": statistic,
                    },
                }
            ],
            "StartTime": since,
            # A value is stamped with the start of its period: ask up to the end of the present one.
            "EndTime": self._clock() + length,
        }
        found: dict[dt.datetime, float] = {}
        while True:
            page = ask("cloudwatch:GetMetricData", self._cloudwatch.get_metric_data, **request)
            for result in page["MetricDataResults"]:
                found.update(zip(result["Timestamps"], map(float, result["Values"]), strict=True))
            if not page.get("NextToken"):
                return found
            request["NextToken"] = page["NextToken"]
