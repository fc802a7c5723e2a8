"""CloudWatch metrics of AWS services: names, namespaces and the dimensions with which they are published."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "metrics.toml"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Metric:
    """One published series.

    Parameters
    ----------
    namespace, name, unit
        As the service publishes it.
    dimensions
        The names of all its dimensions; a series with other ones does not exist.
    fixed
        Dimensions whose value is the same for everybody.
    statistic, period_seconds
        How it is read so that the figure means what the unit says.
    """

    namespace: str
    name: str
    dimensions: tuple[str, ...]
    statistic: str
    period_seconds: int
    unit: str
    fixed: Mapping[str, str] = field(default_factory=dict)

    def dimension_values(self, **values: str) -> dict[str, str]:
        """Return the dimensions with the fixed values and `values`, which must name the others exactly."""
        merged = {**self.fixed, **values}
        if set(merged) != set(self.dimensions):
            raise ValueError(f"{self.name} has the dimensions {', '.join(self.dimensions)}, got: {', '.join(merged)}")
        return merged


@functools.cache
def metric(row: str) -> Metric:
    """Return the metric of a row of ``metrics.toml``."""
    values = {key: value for key, value in load(_FILE)[row].items() if key not in ("source", "as_of")}
    return Metric(**{**values, "dimensions": tuple(values["dimensions"])})
