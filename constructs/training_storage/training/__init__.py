"""What training code uses on a node; the standard library suffices for the names below.

The names are loaded when they are first used. Nothing here imports CDK, boto3 or a training framework by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_storage.training.checkpoint_errors import CheckpointError, NoCheckpointError
    from training_storage.training.contract import ContractError, StorageContract, environment
    from training_storage.training.publish import Published, publish_checkpoint
    from training_storage.training.publish_background import CheckpointPublisher
    from training_storage.training.restore import Restored, restore_checkpoint

_MODULE_OF_NAME = {
    "CheckpointError": "checkpoint_errors",
    "CheckpointPublisher": "publish_background",
    "ContractError": "contract",
    "NoCheckpointError": "checkpoint_errors",
    "Published": "publish",
    "Restored": "restore",
    "StorageContract": "contract",
    "environment": "contract",
    "publish_checkpoint": "publish",
    "restore_checkpoint": "restore",
}

__all__ = [
    "CheckpointError",
    "CheckpointPublisher",
    "ContractError",
    "NoCheckpointError",
    "Published",
    "Restored",
    "StorageContract",
    "environment",
    "publish_checkpoint",
    "restore_checkpoint",
]


def __getattr__(name: str) -> object:
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
