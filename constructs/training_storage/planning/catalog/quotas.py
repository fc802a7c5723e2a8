"""Default quotas of an account in a Region."""

from __future__ import annotations

from dataclasses import dataclass

from training_storage.planning.catalog._data import load


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Quota:
    """A quota: its name, its Service Quotas code (None if none is published) and the default limit."""

    key: str
    name: str
    code: str | None
    limit: int


def quota(key: str) -> Quota:
    """Return the quota with the catalog key `key`, for example ``persistent-2-storage``."""
    row = load("quotas.toml")[key]
    return Quota(key=key, name=row["name"], code=row.get("code"), limit=row["limit"])
