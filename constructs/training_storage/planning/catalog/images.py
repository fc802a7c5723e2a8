"""Machine images of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from training_storage.planning.catalog.instances import InstanceType

_FILE = "images.toml"


def default_parameter(instance_type: InstanceType) -> str:
    """Return the SSM parameter with the id of the base image for the type's accelerator and architecture."""
    family = "neuron" if instance_type.accelerator_name.startswith("Trainium") else "nvidia"
    return str(load(_FILE)[family][instance_type.architecture])


def root_device_name(parameter: str) -> str:
    """Return the root device of the image that `parameter` names, told by the system in its name."""
    devices = load(_FILE)["root_device"]
    return str(devices["ubuntu"] if "ubuntu" in parameter.lower() else devices["default"])
