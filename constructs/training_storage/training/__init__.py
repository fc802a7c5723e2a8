"""What training code uses on a node; the standard library suffices for all but `ShardLoader` and `shard_loader`.

The names are loaded when they are first used. Nothing here imports CDK, boto3 or a training framework by itself; the
loader needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_storage.training.checkpoint_errors import CheckpointError, NoCheckpointError
    from training_storage.training.contract import ContractError, StorageContract, environment
    from training_storage.training.loader import ShardLoader, shard_loader
    from training_storage.training.loader_settings import LoaderSettings
    from training_storage.training.publish import Published, publish_checkpoint
    from training_storage.training.publish_background import CheckpointPublisher, attempt_of_environment
    from training_storage.training.restore import Restored, restore_checkpoint

_MODULE_OF_NAME = {
    "CheckpointError": "checkpoint_errors",
    "CheckpointPublisher": "publish_background",
    "ContractError": "contract",
    "LoaderSettings": "loader_settings",
    "NoCheckpointError": "checkpoint_errors",
    "Published": "publish",
    "Restored": "restore",
    "ShardLoader": "loader",
    "StorageContract": "contract",
    "attempt_of_environment": "publish_background",
    "environment": "contract",
    "publish_checkpoint": "publish",
    "restore_checkpoint": "restore",
    "shard_loader": "loader",
}

__all__ = [
    "CheckpointError",
    "CheckpointPublisher",
    "ContractError",
    "LoaderSettings",
    "NoCheckpointError",
    "Published",
    "Restored",
    "ShardLoader",
    "StorageContract",
    "attempt_of_environment",
    "environment",
    "publish_checkpoint",
    "restore_checkpoint",
    "shard_loader",
]


def __getattr__(name: str) -> object:
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
