"""Megatron's checkpoint folders: ``iter_NNNNNNN`` beside ``latest_checkpointed_iteration.txt``.

A save writes ``mp_rank_XX[_XXX]/model_optim_rng.pt`` (and ``distrib_optim.pt``), or with ``--ckpt-format torch_dist``
torch's ``__X_X.distcp``, ``common.pt`` and ``.metadata``, into ``iter_NNNNNNN``, and at last the iteration's number
into the tracker (Megatron-LM's ``megatron/training/checkpointing.py``: ``get_checkpoint_name``,
``get_checkpoint_tracker_filename``). With ``--async-save`` that is when the save is finalized. Megatron itself needs
GPUs; nothing here imports it.

Examples
--------
>>> folders = megatron.publisher(StorageContract.read(), args.save)  # on local rank 0 # doctest: +SKIP
>>> save_checkpoint(iteration, model, optimizer, scheduler, flops)  # doctest: +SKIP
>>> torch.distributed.barrier()  # doctest: +SKIP
>>> folders.saved(iteration)  # on local rank 0 # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import MEGATRON_TRACKER_NAME
from training_storage.planning.errors import InvalidJobError
from training_storage.training.recipes.framework_folders import FolderPublisher, Layout, show

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from training_storage.training.contract import StorageContract
    from training_storage.training.restore import Restored


def folder_of(iteration: int) -> str:
    """Return Megatron's own name of an iteration: ``iter_0001200``."""
    return f"iter_{iteration:07d}"


LAYOUT = Layout(framework="Megatron", tracker_name=MEGATRON_TRACKER_NAME, folder_name=folder_of, tracker_text=str)


def publisher(contract: StorageContract, save_dir: str | os.PathLike[str], **options: Any) -> FolderPublisher:  # noqa: ANN401
    """Return what publishes Megatron's folders to the contract's first place; see `FolderPublisher.from_contract`."""
    return FolderPublisher.from_contract(LAYOUT, contract, save_dir, **options)


def load_from(restored: Restored, load_dir: str | os.PathLike[str]) -> Path:
    """Show a restored checkpoint to Megatron, which then finds it in ``--load load_dir``; return its folder there."""
    if restored.step is None:
        raise InvalidJobError(f"a checkpoint of Megatron must have a step, got: {restored.name!r}")
    return show(LAYOUT, restored.folder, load_dir, step=restored.step)
