"""What an execution of AWS Step Functions may be."""

from __future__ import annotations

from training_storage.planning.catalog._data import load

_FILE = "step_functions.toml"


def history_events_maximum() -> int:
    """Return how many events the history of one execution holds."""
    return int(load(_FILE)["execution"]["history_events_maximum"])
