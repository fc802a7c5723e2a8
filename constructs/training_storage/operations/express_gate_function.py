"""The gate of a directory bucket as a custom resource: what it does when its stack is deleted."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any, Final

from training_storage.operations.archive_clients import s3_client
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_function import settings_from
from training_storage.operations.archive_settings import S3Place
from training_storage.operations.express_copy import DEFAULT_CONCURRENCY
from training_storage.operations.express_emptying import empty
from training_storage.planning.units import SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What is left of a run's time for what is under way; the framework asks again.
SPARE_MILLISECONDS: Final = 90_000


def on_event(event: Mapping[str, Any], _: Any) -> dict[str, Any]:  # noqa: ANN401 -- as CDK's provider framework calls it
    """Name the resource and say when it began, for `is_complete`, which does the work.

    The name never changes: an update never deletes, and a bucket that is replaced stays as it is.
    """
    return {
        "PhysicalResourceId": event.get("PhysicalResourceId") or f"express-gate-{os.environ['JOB']}",
        "Began": _now().isoformat(),
    }


def is_complete(event: Mapping[str, Any], context: Any) -> dict[str, bool]:  # noqa: ANN401
    """On Delete, empty the bucket as far as time allows; say whether it is done.

    Raises
    ------
    ArchiveError
        With the reason and the command that helps. Bucket and gate stand.
    """
    if event["RequestType"] != "Delete":
        return {"IsComplete": True}
    settings = settings_from(os.environ)
    if not isinstance(settings.source, S3Place):
        raise TypeError("SOURCE_URI is a prefix of a bucket")
    client = s3_client(settings, concurrency=DEFAULT_CONCURRENCY)
    wait = dt.timedelta(seconds=float(os.environ["WAIT_SECONDS"]))
    deadline = dt.datetime.fromisoformat(event["Began"]) + wait
    archive = f"training-storage archive --job {settings.job} --region {settings.region}"

    def out_of_time() -> bool:
        return context.get_remaining_time_in_millis() < SPARE_MILLISECONDS or _now() >= deadline

    try:
        done = empty(
            client,
            settings,
            settings.source,
            disposable=os.environ.get("DISPOSABLE") == "true",
            out_of_time=out_of_time,
        )
    except ArchiveError as error:
        raise ArchiveError(
            f"{settings.source.bucket} stands, with everything that the lake lacks: {error}. When that is mended: "
            f"{archive}, then delete the stack again."
        ) from error
    if not done and _now() >= deadline:
        # CloudFormation ends the gate soon, and would say nothing of this.
        raise ArchiveError(
            f"{settings.source.bucket} is not empty after {wait.total_seconds() / SECONDS_PER_MINUTE:g} minutes, and "
            f"stands; what was copied stays in the lake, and nothing that it lacks was deleted. Delete the stack "
            f"again: it goes on where it stopped. Or first, without a limit: {archive}"
        )
    return {"IsComplete": done}


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)
