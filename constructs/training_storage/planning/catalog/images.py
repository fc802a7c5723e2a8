"""Machine images of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from training_storage.planning.catalog.instances import InstanceType

_FILE = "images.toml"


def default_parameter(instance_type: InstanceType) -> str:
    """Return the SSM parameter with the id of the base image for the type's accelerator and architecture."""
    return str(load(_FILE)["neuron" if _is_neuron(instance_type) else "nvidia"][instance_type.architecture])


def pcs_parameter(instance_type: InstanceType) -> str | None:
    """Return the SSM parameter with the id of the PCS-ready image; None if none is published for the accelerator."""
    return None if _is_neuron(instance_type) else str(load(_FILE)["pcs"][instance_type.architecture])


def lacks_pcs_agent(parameter: str) -> bool:
    """Whether the image that `parameter` names is known to lack the agent of AWS PCS; of others nothing is known."""
    return parameter.startswith(tuple(load(_FILE)["without_pcs_agent"]["prefixes"]))


def lacks_packages(parameter: str) -> bool:
    """Whether AWS's image that `parameter` names lacks storage clients that an isolated network does not bring.

    Nothing is known of an image of the caller's.
    """
    systems = load(_FILE)["without_packages"]["systems"]
    return parameter.startswith("/aws/service/") and any(system in parameter.lower() for system in systems)


def root_device_name(parameter: str) -> str:
    """Return the root device of the image that `parameter` names, told by the system in its name."""
    return _by_system("root_device", parameter)


def user_name(parameter: str) -> str:
    """Return the user of the image that `parameter` names, told by the system in its name."""
    return _by_system("user", parameter)


def _by_system(table: str, parameter: str) -> str:
    return str(load(_FILE)[table]["ubuntu" if "ubuntu" in parameter.lower() else "default"])


def _is_neuron(instance_type: InstanceType) -> bool:
    return instance_type.accelerator_name.startswith("Trainium")
