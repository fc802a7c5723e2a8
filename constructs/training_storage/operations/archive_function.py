"""The archive as a Lambda function, for checkpoints on S3 Express One Zone.

A run copies what fits into its time and says what is left; the next run goes on. Its schedule is therefore shorter than
the durable interval: a run that finds nothing due costs a few requests.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from training_storage.operations.archive import Archive
from training_storage.operations.archive_clients import s3_client
from training_storage.operations.archive_prune import archive_rule, lake_rule, plan_prune, prune
from training_storage.operations.archive_settings import ArchiveSettings, place_of
from training_storage.operations.express_copy import DEFAULT_CONCURRENCY
from training_storage.operations.retention import newest_complete

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from training_storage.operations.checkpoint_listing import Listing

NAMESPACE: Final = "TrainingStorage"
LAG_METRIC: Final = "CheckpointArchiveLagMinutes"
#: What is left of a run's time for the part that is under way, comparing, manifest and pointer.
SPARE_MILLISECONDS: Final = 90_000


def handler(_: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401 -- as Lambda calls it
    """Archive what is due, prune if told to, and return what was done; an error fails the run with one line."""
    return run(os.environ, out_of_time=lambda: context.get_remaining_time_in_millis() < SPARE_MILLISECONDS)


def settings_from(environment: Mapping[str, str]) -> ArchiveSettings:
    """Return the settings in a function's environment."""
    return ArchiveSettings(
        job=environment["JOB"],
        region=environment.get("AWS_REGION"),
        source=place_of(environment["SOURCE_URI"], what="SOURCE_URI"),
        lake=place_of(environment["LAKE_URI"], what="LAKE_URI"),
        durable_interval_minutes=float(environment["DURABLE_INTERVAL_MINUTES"]),
        durable_kept=int(environment["DURABLE_KEPT"]),
    )


def run(environment: Mapping[str, str], *, out_of_time: Any) -> dict[str, Any]:  # noqa: ANN401 -- () -> bool
    """Do one run and return what was done."""
    settings = settings_from(environment)
    s3 = s3_client(settings, concurrency=DEFAULT_CONCURRENCY)
    archive = Archive(settings=settings, s3=s3, rule=archive_rule(settings), if_due=True, out_of_time=out_of_time)
    plan = archive.plan()
    try:
        result = archive.run(plan)
    finally:
        # Also of a run that fails: the alarm asks how old the lake is.
        lake = archive.list_lake()
        say_lag(settings, plan.source, lake)
    removed: list[str] = []
    if environment.get("PRUNE") == "true" and not result.unfinished:
        pruned = plan_prune(lake, settings, lake_rule(settings))
        prune(s3, pruned, settings)
        removed = [one.name for one in pruned.goes]
    return {"published": list(result.published), "unfinished": list(result.unfinished), "removed": removed}


def lag_minutes(source: Listing, lake: Listing) -> float:
    """Return by how much the newest complete checkpoint in the lake is older than the source's; 0 if it is not.

    Where the lake has none, the oldest at the source counts: that much training would be repeated.
    """
    newest = newest_complete(one.for_retention() for one in source.complete())
    if newest is None:
        return 0.0
    held = newest_complete(one.for_retention() for one in lake.complete())
    since: dt.datetime = held.finished_at if held else min(one.finished_at for one in source.complete())
    return max(0.0, (newest.finished_at - since).total_seconds() / 60)


def say_lag(settings: ArchiveSettings, source: Listing, lake: Listing) -> None:
    """Write the lag into the log in CloudWatch's embedded metric format, which needs no permission."""
    metric = {
        "Namespace": NAMESPACE,
        "Dimensions": [["Job"]],
        "Metrics": [{"Name": LAG_METRIC, "Unit": "None"}],
    }
    now = max((one.manifest.archived_at for one in lake.complete() if one.manifest), default=None)
    document = {
        "_aws": {"Timestamp": time.time_ns() // 1_000_000, "CloudWatchMetrics": [metric]},
        "Job": settings.job,
        LAG_METRIC: lag_minutes(source, lake),
        "LastArchivedAt": now.isoformat() if now else None,
    }
    print(json.dumps(document), flush=True)  # noqa: T201 -- the log is where CloudWatch reads metrics
