"""Resources that hold data, and what makes CloudFormation replace them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "stateful.toml"


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A resource type of CloudFormation.

    Parameters
    ----------
    name
        For example ``AWS::FSx::FileSystem``.
    data
        What is lost with a resource; empty for types that hold no data themselves.
    create_only
        Properties whose change replaces, by the registry schema.
    replaced
        Further ones, by the documentation.
    refused
        Properties that change neither in place nor by replacement.
    defaults
        What a property means that is left out: to the service, not to CloudFormation, which compares templates.
    """

    name: str
    data: str
    create_only: tuple[str, ...]
    replaced: tuple[str, ...]
    refused: tuple[str, ...]
    defaults: Mapping[str, object]

    @property
    def stateful(self) -> bool:
        """Whether it holds data."""
        return bool(self.data)


@functools.cache
def resource_types() -> Mapping[str, ResourceType]:
    """Return the types by name."""
    return {
        name: ResourceType(
            name=name,
            data=row["data"],
            create_only=tuple(row["create_only"]),
            replaced=tuple(row["replaced"]),
            refused=tuple(row["refused"]),
            defaults=row.get("defaults", {}),
        )
        for name, row in load(_FILE).items()
    }
