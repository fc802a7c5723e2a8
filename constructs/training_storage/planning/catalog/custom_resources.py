"""How long CloudFormation waits for a custom resource."""

from __future__ import annotations

from training_storage.planning.catalog._data import load

_FILE = "custom_resources.toml"


def custom_resource_seconds_maximum() -> int:
    """Return after how many seconds CloudFormation gives a custom resource up."""
    return int(load(_FILE)["answers"]["seconds_maximum"])
