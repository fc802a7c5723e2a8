"""Park's part of the last export: the gate's logic without its hour, and an attempt that outlives a restart."""

from __future__ import annotations

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
_UNDER_WAY = ("PENDING", "EXECUTING")


def fresh_attempt(seed: str) -> str:
    """Return the id of an attempt; the same seed gives the same one, so that a repeated step starts no second task."""
    return _PREFIX + hashlib.sha256(seed.encode()).hexdigest()[:16]


def attempt_to_follow(calls: Calls, metrics: Metrics, file_system_id: str, *, fresh: str) -> str:
    """Return the attempt of an earlier park if its export still proves everything, else `fresh`.

    That holds for the newest export task if it runs or left nothing behind, and CloudWatch knows that no client has
    written since it began. So a park that was killed hours into an export does not walk through all files again.
    """
    exports = [task for task in calls.tasks(file_system_id) if task["Type"] == EXPORT]
    if not exports:
        return fresh
    newest = exports[-1]
    attempt = tags.of(newest).get(tags.ATTEMPT, "")
    if not attempt.startswith(_PREFIX) or not (newest["Lifecycle"] in _UNDER_WAY or _is_clean(newest)):
        return fresh
    written = metrics.written_since(file_system_id, newest["CreationTime"])
    return attempt if written.size == 0 else fresh


def take_back(gate: Gate, calls: Calls, file_system_id: str) -> list[str]:
    """Turn automatic export on again and remove the tags of a refusal; return what could not be done."""
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


def _is_clean(task: Record) -> bool:
    status = task.get("Status") or {}
    total, succeeded = int(status.get("TotalCount") or 0), int(status.get("SucceededCount") or 0)
    return task["Lifecycle"] == "SUCCEEDED" and not status.get("FailedCount") and succeeded >= total
