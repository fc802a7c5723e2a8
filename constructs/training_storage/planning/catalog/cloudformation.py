"""Limits of CloudFormation: of custom resources and of templates."""

from __future__ import annotations

from training_storage.planning.catalog._data import load

_FILE = "cloudformation.toml"


def custom_resource_seconds_maximum() -> int:
    """Return after how many seconds CloudFormation gives a custom resource up."""
    return int(load(_FILE)["custom_resources"]["seconds_maximum"])


def template_body_bytes_maximum() -> int:
    """Return how many bytes of a template a request may hold; a larger one goes by ``TemplateURL``."""
    return int(load(_FILE)["templates"]["body_bytes_maximum"])
