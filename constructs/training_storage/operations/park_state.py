"""What the parts of park agree on: names, tags, what a step answers. Standard library only."""

from __future__ import annotations

from typing import Any, Final

#: What started an execution: a person, a time, or a person who takes it back.
COMMAND: Final = "command"
TIME_TO_LIVE: Final = "time-to-live"
IDLE: Final = "idle"
UNDO: Final = "undo"

#: What a step answers: go on, look again later, stop and say why; and of a park that is no longer due.
DONE: Final = "DONE"
WAIT: Final = "WAIT"
REFUSED: Final = "REFUSED"
NOT_DUE: Final = "NOT_DUE"

#: Minutes between the warning and the park that it announces.
WARNING_MINUTES: Final = 60
#: Checkpoints that must have failed to come before nodes that run count as idle.
IDLE_CHECKPOINTS: Final = 3
#: Hours after an execution that failed or was stopped in which none starts by itself: somebody has to look first.
HOLD_HOURS: Final = 24

#: States in which nothing has been stopped or exported yet.
WARNING_STATES: Final = (
    "Trigger",
    "Warn",
    "Warn?",
    "WarnWait",
    "Warned",
    "StillDue",
    "StillDue?",
    "StillDueWait",
)

MINUTES_PER_HOUR: Final = 60

Answer = dict[str, Any]


def machine_name(job: str) -> str:
    """Return the name of the state machine of a job."""
    return f"training-storage-park-{job}"


def idle_hours_minimum(checkpoint_interval_minutes: float) -> float:
    """Return the hours without use below which a run between two checkpoints would count as ended."""
    return IDLE_CHECKPOINTS * checkpoint_interval_minutes / MINUTES_PER_HOUR


def answer(outcome: str, text: str, memory: dict[str, Any] | None = None) -> Answer:
    """Return what a step answers; `memory` is what later steps get."""
    return {"Outcome": outcome, "Text": text, "Memory": memory or {}}
