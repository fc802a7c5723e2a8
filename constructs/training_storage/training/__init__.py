"""What training code uses on a node; the standard library suffices for the names below.

The names are loaded when they are first used. Nothing here imports CDK, boto3 or a training framework by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_storage.training.contract import ContractError, StorageContract, environment

_MODULE_OF_NAME = {
    "ContractError": "contract",
    "StorageContract": "contract",
    "environment": "contract",
}

__all__ = ["ContractError", "StorageContract", "environment"]


def __getattr__(name: str) -> object:
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
