"""How much clients use a file system, by CloudWatch, and whether that means that training has ended."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from training_storage.operations.final_export.metrics import Series, read_series
from training_storage.planning.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

_BYTES = ("DataReadBytes", "DataWriteBytes")
_OPERATIONS = "MetadataOperations"
_HOUR = dt.timedelta(hours=1)
#: An hour below both is one without use: health checks of a node that idles, its prolog and its prompt stay far below,
#: and training that reads or saves anything goes far beyond.
QUIET_BYTES_PER_HOUR: Final = 16 * MIB
QUIET_OPERATIONS_PER_HOUR: Final = 36_000


@dataclass(frozen=True, kw_only=True)
class Use:
    """What clients did in one period; `is_whole` is False where CloudWatch has not every metric of it."""

    bytes: float = 0.0
    operations: float = 0.0
    is_whole: bool = True

    @property
    def is_quiet(self) -> bool:
        """Whether an hour with it is one without use."""
        return self.bytes < QUIET_BYTES_PER_HOUR and self.operations < QUIET_OPERATIONS_PER_HOUR


def read_use(
    cloudwatch: Any,  # noqa: ANN401 - boto3 clients have no type
    file_system_id: str,
    *,
    since: dt.datetime,
    until: dt.datetime,
    period_seconds: int,
) -> dict[dt.datetime, Use]:
    """Return the use by the start of each period for which CloudWatch has a value; errors as `ask`."""
    names = (*_BYTES, _OPERATIONS)
    # A value is stamped with the start of its period: ask up to the end of the present one.
    end = until + dt.timedelta(seconds=period_seconds)
    asked = [Series(metric=name, statistic="Sum") for name in names]
    series = read_series(cloudwatch, file_system_id, asked, since=since, until=end, period_seconds=period_seconds)
    found: dict[dt.datetime, dict[str, float]] = {}
    for name, values in zip(names, series, strict=True):
        for at, value in values.items():
            found.setdefault(at, {})[name] = value
    return {
        at: Use(
            bytes=sum(row.get(name, 0.0) for name in _BYTES),
            operations=row.get(_OPERATIONS, 0.0),
            is_whole=len(row) == len(names),
        )
        for at, row in found.items()
    }


def is_idle(hours: Mapping[dt.datetime, Use], *, now: dt.datetime, idle_hours: int) -> bool:
    """Whether nobody used the file system in the last `idle_hours` whole hours, nor since.

    An hour in which a metric has no value is not known to be quiet.
    """
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    asked = [this_hour - number * _HOUR for number in range(1, idle_hours + 1)]
    quiet = all(at in hours and hours[at].is_whole and hours[at].is_quiet for at in asked)
    return quiet and hours.get(this_hour, Use()).is_quiet
