"""AWS PCS: sizes of clusters, versions of Slurm, and what the service takes of a subnet."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Pcs:
    """What AWS PCS accepts.

    `sizes` maps a cluster size to the nodes it may have, login nodes included, smallest first. `idle_seconds` is how
    long a node may be idle before PCS ends it; of `slurm_versions` the PCS-ready images are
    known to have `slurm_image_versions`; `node_groups_maximum` counts the login node's.
    """

    sizes: Mapping[str, int]
    slurm_versions: tuple[str, ...]
    slurm_image_versions: tuple[str, ...]
    name_characters_minimum: int
    name_characters_maximum: int
    idle_seconds: int
    idle_seconds_maximum: int
    login_nodes: int
    login_instance_types: Mapping[str, str]
    network_interfaces_maximum: int
    node_groups_maximum: int

    @property
    def slurm_default_version(self) -> str:
        """The newest version that the API takes and the PCS-ready images are known to have."""
        return max(set(self.slurm_versions) & set(self.slurm_image_versions))

    @property
    def instances_maximum(self) -> int:
        """The most training nodes beside the login node."""
        return max(self.sizes.values()) - self.login_nodes

    def size_for(self, instances: int) -> str | None:
        """Return the smallest cluster size for `instances` training nodes and the login node; None if none is."""
        return next((size for size, nodes in self.sizes.items() if instances + self.login_nodes <= nodes), None)


@functools.cache
def pcs() -> Pcs:
    """Return the limits of AWS PCS."""
    data = load("pcs.toml")
    sizes = {name: nodes for name, nodes in data["sizes"].items() if isinstance(nodes, int)}
    return Pcs(
        sizes=dict(sorted(sizes.items(), key=lambda item: item[1])),
        slurm_versions=tuple(data["slurm"]["versions"]),
        slurm_image_versions=tuple(data["slurm"]["image_versions"]),
        name_characters_minimum=data["names"]["characters_minimum"],
        name_characters_maximum=data["names"]["characters_maximum"],
        idle_seconds=data["idle"]["seconds"],
        idle_seconds_maximum=data["idle"]["seconds_maximum"],
        login_nodes=data["login"]["nodes"],
        login_instance_types=data["login"]["instance_types"],
        network_interfaces_maximum=data["network"]["interfaces_maximum"],
        node_groups_maximum=data["cluster"]["node_groups_maximum"],
    )
