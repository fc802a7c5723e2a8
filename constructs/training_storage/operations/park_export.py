"""Park's part of the last export: the gate's logic without its hour, and an attempt that outlives a restart."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING

from training_storage.operations.final_export import tags
from training_storage.operations.final_export.calls import EXPORT
from training_storage.operations.final_export.refusal import NotFoundError

if TYPE_CHECKING:
    from training_storage.operations.final_export.calls import Calls, Record
    from training_storage.operations.final_export.gate import Gate
    from training_storage.operations.final_export.metrics import Metrics

_PREFIX = "park-"
#: An older one is repeated: it only walks through the names of what is in the lake already.
_JUST_ENDED = dt.timedelta(minutes=30)
_UNDER_WAY = ("PENDING", "EXECUTING")


def fresh_attempt(seed: str) -> str:
    """Return the id of an attempt; the same seed gives the same one, so that a repeated step starts no second task."""
    return _PREFIX + hashlib.sha256(seed.encode()).hexdigest()[:16]


def attempt_to_follow(calls: Calls, metrics: Metrics, file_system_id: str, *, fresh: str, now: dt.datetime) -> str:
    """Return the attempt of an earlier park if its newest export may still prove everything, else `fresh`.

    That is one that runs, or that ended minutes ago and left nothing behind, if CloudWatch knows of no byte written
    since it began and no park was taken back since. So a park that was killed hours into an export does not walk
    through all files again. Whether it proves everything the gate then decides as for its own.
    """
    exports = [task for task in calls.tasks(file_system_id) if task["Type"] == EXPORT]
    system = calls.file_system(file_system_id)
    if not exports or system is None:
        return fresh
    newest = exports[-1]
    attempt = tags.of(newest).get(tags.ATTEMPT, "")
    if not attempt.startswith(_PREFIX) or not (newest["Lifecycle"] in _UNDER_WAY or _is_clean(newest, now)):
        return fresh
    taken_back = tags.of(system).get(tags.TAKEN_BACK)
    if taken_back and newest["CreationTime"] <= dt.datetime.fromisoformat(taken_back):
        return fresh
    written = metrics.written_since(file_system_id, newest["CreationTime"])
    return attempt if written.size == 0 else fresh


def take_back(gate: Gate, calls: Calls, file_system_id: str, *, now: dt.datetime) -> list[str]:
    """Turn automatic export on again and remove the tags of a refusal; return what could not be done.

    What was exported until then proves nothing to a later park: clients may have the file system again.
    """
    found = calls.file_system(file_system_id)
    if found is not None:
        calls.tag(found["ResourceARN"], TAKEN_BACK=now.isoformat())
    left = gate.restore(file_system_id)
    if left:
        return left
    try:
        system = calls.file_system(file_system_id)
        if system is not None and tags.LEFT_STANDING in tags.of(system):
            calls.untag(system["ResourceARN"], tags.LEFT_STANDING, tags.STACK)
    except NotFoundError:
        return []
    return []


def _is_clean(task: Record, now: dt.datetime) -> bool:
    status = task.get("Status") or {}
    total, succeeded = int(status.get("TotalCount") or 0), int(status.get("SucceededCount") or 0)
    ended = task.get("EndTime")
    if ended is None or now - ended > _JUST_ENDED:
        return False
    return task["Lifecycle"] == "SUCCEEDED" and not status.get("FailedCount") and succeeded >= total
