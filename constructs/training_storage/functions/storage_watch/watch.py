"""Looks at the storage of one job every few minutes and publishes what AWS has no metric for.

Runs in Lambda with the standard library and the runtime's boto3. Each thing watched is one function of `OBSERVATIONS`;
one that fails keeps no other from being published, and fails the run at its end.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    #: Gives the boto3 client of a service.
    Client = Callable[[str], Any]
    #: Looks at one thing and gives its figures.
    Observation = Callable[["Watched", Client], Iterator["Observed"]]

NAMESPACE: Final = "TrainingStorage"
LINK_MISCONFIGURED: Final = "LinkMisconfigured"

#: States in which a link carries nothing (FSx API, DataRepositoryLifecycle).
_BROKEN: Final = ("MISCONFIGURED", "FAILED")


class WatchError(Exception):
    """Something could not be observed; the rest was published."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched, from the function's environment."""

    job: str
    file_system_id: str

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Watched:
        """Read JOB and FILE_SYSTEM_ID."""
        return cls(job=variables["JOB"], file_system_id=variables["FILE_SYSTEM_ID"])


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One figure, with the dimensions that it has beside Job and FileSystemId."""

    metric: str
    value: float
    unit: str = "Count"
    dimensions: tuple[tuple[str, str], ...] = ()


def links(watched: Watched, client: Client) -> Iterator[Observed]:
    """Observe whether the links to the lake work: 1 for each that does not, 0 for each that does.

    The figure without a path is the worst of all, for an alarm; it is published also where there is no link.
    """
    worst = 0
    for link in _associations(watched.file_system_id, client("fsx")):
        broken = int(link["Lifecycle"] in _BROKEN)
        worst = max(worst, broken)
        path = str(link["FileSystemPath"])
        if broken:
            _log(
                "a link to the lake does not work",
                job=watched.job,
                file_system_id=watched.file_system_id,
                path=path,
                association_id=link["AssociationId"],
                state=link["Lifecycle"],
                reason=(link.get("FailureDetails") or {}).get("Message", "none given"),
            )
        yield Observed(metric=LINK_MISCONFIGURED, value=broken, dimensions=(("LinkPath", path),))
    yield Observed(metric=LINK_MISCONFIGURED, value=worst)


#: What a run looks at.
OBSERVATIONS: Final[tuple[Observation, ...]] = (links,)


def watch(
    watched: Watched,
    client: Client,
    observations: tuple[Observation, ...] = OBSERVATIONS,
) -> int:
    """Observe everything, publish it, and return the number of figures.

    Parameters
    ----------
    watched
        What to look at.
    client
        Gives the boto3 client of a service.
    observations
        What to observe.

    Raises
    ------
    WatchError
        If an observation failed, after the others were published; it names each.
    """
    seen: list[Observed] = []
    failures: list[str] = []
    for observe in observations:
        try:
            seen.extend(observe(watched, client))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the others must be published
            failures.append(f"{observe.__name__}: {type(error).__name__}: {error}")
    if seen:
        client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=[_datum(watched, one) for one in seen])
    if failures:
        raise WatchError("; ".join(failures))
    return len(seen)


def handler(_event: object, _context: object) -> dict[str, int]:
    """Run once; called by the schedule."""
    import boto3  # noqa: PLC0415 -- the runtime has it; the logic is tested without

    return {"published": watch(Watched.from_environment(os.environ), boto3.client)}


def _associations(file_system_id: str, fsx: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 -- a boto3 client
    request: dict[str, Any] = {"Filters": [{"Name": "file-system-id", "Values": [file_system_id]}]}
    while True:
        page = fsx.describe_data_repository_associations(**request)
        yield from page["Associations"]
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def _datum(watched: Watched, one: Observed) -> dict[str, Any]:
    dimensions = (("Job", watched.job), ("FileSystemId", watched.file_system_id), *one.dimensions)
    return {
        "MetricName": one.metric,
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions],
        "Value": float(one.value),
        "Unit": one.unit,
    }


def _log(message: str, **details: str) -> None:
    print(json.dumps({"message": message, **details}))  # noqa: T201 -- Lambda's log
