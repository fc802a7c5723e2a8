"""When a job is to be parked by itself: it is too old, or nobody uses it."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.operations.final_export.calls import ask
from training_storage.operations.park_state import HOLD_HOURS, IDLE, TIME_TO_LIVE, UNDO, idle_hours_minimum
from training_storage.operations.park_use import is_idle, read_use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SECONDS_PER_HOUR = 3600
_UNHAPPY = ("ABORTED", "FAILED", "TIMED_OUT")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When to park.

    Parameters
    ----------
    time_to_live_hours, idle_hours
        None never does.
    checkpoint_interval_minutes
        How often a run writes a checkpoint to the file system; None where it does not.
    warning
        How long before the end of the time to live the warning comes.
    """

    time_to_live_hours: int | None
    idle_hours: int | None
    checkpoint_interval_minutes: float | None
    warning: dt.timedelta


@dataclass(frozen=True, kw_only=True)
class Due:
    """What is due, and why in words."""

    trigger: str
    words: str


class Watch:
    """Looks at age and use of one job.

    Parameters
    ----------
    rule
        When to park.
    stack_id, file_system_id
        What is looked at.
    nodes
        Returns how many nodes run that train.
    client
        From a service's name to its boto3 client.
    clock
        Returns the present time, with a time zone.
    """

    def __init__(
        self,
        rule: Rule,
        *,
        stack_id: str,
        file_system_id: str,
        nodes: Callable[[], int],
        client: Callable[[str], Any],
        clock: Callable[[], dt.datetime],
    ) -> None:
        self._rule = rule
        self._stack_id = stack_id
        self._file_system_id = file_system_id
        self._nodes = nodes
        self._client = client
        self._clock = clock

    def due(self) -> Due | None:
        """Return what is due now: a time to live counts from its warning on."""
        return self.time_is_over() or self.is_unused()

    def time_is_over(self) -> Due | None:
        """Return whether the stack is so old that the warning is due; counted from the stack's creation."""
        hours = self._rule.time_to_live_hours
        if hours is None:
            return None
        describe = self._client("cloudformation").describe_stacks
        stack = ask("cloudformation:DescribeStacks", describe, StackName=self._stack_id)["Stacks"][0]
        ends: dt.datetime = stack["CreationTime"] + dt.timedelta(hours=hours)
        if self._clock() < ends - self._rule.warning:
            return None
        words = f"its time to live of {hours} hours ends at {ends:%Y-%m-%d %H:%M} UTC"
        return Due(trigger=TIME_TO_LIVE, words=words)

    def is_unused(self) -> Due | None:
        """Return whether nobody has used the file system for the time given.

        A run that reads from the lake or a cache uses it only when it writes a checkpoint. So while nodes run that
        train, several checkpoints must have failed to come; where none comes, those nodes are never idle.
        """
        hours = self._rule.idle_hours
        if hours is None:
            return None
        nodes = self._nodes()
        if nodes:
            interval = self._rule.checkpoint_interval_minutes
            if interval is None:
                return None
            hours = max(hours, math.ceil(idle_hours_minimum(interval)))
        now = self._clock()
        use = read_use(
            self._client("cloudwatch"),
            self._file_system_id,
            since=now.replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=hours),
            until=now,
            period_seconds=_SECONDS_PER_HOUR,
        )
        if not is_idle(use, now=now, idle_hours=hours):
            return None
        running = f", though {nodes} node{'s run' if nodes > 1 else ' runs'}" if nodes else ""
        return Due(trigger=IDLE, words=f"no client has used its file system for {hours} hours{running}")


def is_held(executions: Sequence[Mapping[str, Any]], *, now: dt.datetime) -> bool:
    """Whether no park may start by itself: one runs, or one that failed, was stopped or taken back is recent.

    Parameters
    ----------
    executions
        As ListExecutions returns them.
    """
    for execution in executions:
        if execution["status"] == "RUNNING":
            return True
        unhappy = execution["status"] in _UNHAPPY or str(execution["name"]).startswith(UNDO)
        ended = execution.get("stopDate") or execution["startDate"]
        if unhappy and now - ended < dt.timedelta(hours=HOLD_HOURS):
            return True
    return False
