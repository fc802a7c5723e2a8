"""DeepSpeed's checkpoint folders: ``global_stepN`` beside ``latest``.

``engine.save_checkpoint(save_dir)`` lets each rank write ``mp_rank_XX_model_states.pt`` and
``[bf16_]zero_pp_rank_X_mp_rank_XX_optim_states.pt`` into ``save_dir/global_stepN``, and rank 0 at last ``latest``,
which holds the folder's name (DeepSpeed's ``runtime/engine.py`` and ``utils/zero_to_fp32.py``). DeepSpeed itself needs
GPUs; nothing here imports it.

On nodes with their own disks set ``"checkpoint": {"use_node_local_storage": true}`` in DeepSpeed's configuration.

Examples
--------
>>> folders = deepspeed.publisher(StorageContract.read(), save_dir)  # on local rank 0 # doctest: +SKIP
>>> engine.save_checkpoint(save_dir)  # doctest: +SKIP
>>> dist.barrier()  # doctest: +SKIP
>>> folders.saved(engine.global_steps)  # on local rank 0 # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import DEEPSPEED_TRACKER_NAME
from training_storage.planning.errors import InvalidJobError
from training_storage.training.recipes.framework_folders import FolderPublisher, Layout, show

if TYPE_CHECKING:
    import os

    from training_storage.training.contract import StorageContract
    from training_storage.training.restore import Restored


def tag_of(step: int) -> str:
    """Return DeepSpeed's own name of a step: ``global_step1200``."""
    return f"global_step{step}"


LAYOUT = Layout(framework="DeepSpeed", tracker_name=DEEPSPEED_TRACKER_NAME, folder_name=tag_of, tracker_text=tag_of)


def publisher(contract: StorageContract, save_dir: str | os.PathLike[str], **options: Any) -> FolderPublisher:  # noqa: ANN401
    """Return what publishes DeepSpeed's folders to the contract's first place; see `FolderPublisher.from_contract`."""
    return FolderPublisher.from_contract(LAYOUT, contract, save_dir, **options)


def load_from(restored: Restored, load_dir: str | os.PathLike[str]) -> str:
    """Show a restored checkpoint to DeepSpeed; return the tag for ``engine.load_checkpoint(load_dir, tag)``."""
    if restored.step is None:
        raise InvalidJobError(f"a checkpoint of DeepSpeed must have a step, got: {restored.name!r}")
    return show(LAYOUT, restored.folder, load_dir, step=restored.step).name
