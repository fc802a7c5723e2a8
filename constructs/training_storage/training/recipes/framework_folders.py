"""Publishes the checkpoint folders that a framework writes itself, and shows published ones to it again.

The framework saves to the node's own disks. One process of each node then hands its folder over: hard links, no copy,
go to a publisher, which uploads in the background what this node's ranks have written.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import TRACKER_NAMES, incompleteness
from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.publish_background import CheckpointPublisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.training.contract import StorageContract
    from training_storage.training.publish import Published


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a framework names what it writes.

    Parameters
    ----------
    framework
        For errors.
    tracker_name
        Of the file beside the folders that names the newest finished one.
    folder_name
        Of the folder of a step.
    tracker_text
        What the tracker says of the folder of a step.
    """

    framework: str
    tracker_name: str
    folder_name: Callable[[int], str]
    tracker_text: Callable[[int], str]


class FolderPublisher:
    """Publishes folders of a framework, one after the other, in the background.

    One process of each node makes one: local rank 0. Node 0 writes the marker when every node has left its record.

    Parameters
    ----------
    layout
        Of the framework.
    publisher
        Uploads; its ranks are the nodes.
    save_dir
        Where the framework saves.
    node
        Number of this node; node 0 checks the framework's own end mark.
    """

    def __init__(
        self, layout: Layout, publisher: CheckpointPublisher, save_dir: str | os.PathLike[str], *, node: int = 0
    ) -> None:
        self._layout, self._publisher, self._save_dir, self._node = layout, publisher, Path(save_dir), node
        self._handed_over: dict[Path, Path] = {}

    @classmethod
    def from_contract(
        cls,
        layout: Layout,
        contract: StorageContract,
        save_dir: str | os.PathLike[str],
        **options: Any,  # noqa: ANN401
    ) -> FolderPublisher:
        """Return a publisher to the contract's first place; the nodes are counted by torchrun or Slurm.

        Parameters
        ----------
        layout
            Of the framework.
        contract
            The node's storage contract.
        save_dir
            Where the framework saves: on the disk of `contract.checkpoints.local_path`, because hard links need that.
        **options
            Of `CheckpointPublisher`.
        """
        node, nodes = nodes_of_environment()
        publisher = CheckpointPublisher.from_contract(contract, rank=node, ranks=nodes, **options)
        return cls(layout, publisher, save_dir, node=node)

    def saved(self, step: int) -> None:
        """Hand over the folder that the framework has finished; call it after its save on every node, and a barrier.

        Raises
        ------
        CheckpointError
            If the framework has not finished this folder, or an earlier upload failed.
        """
        folder = self._save_dir / self._layout.folder_name(step)
        if self._node == 0:
            self._refuse_unfinished(folder, step)
        with self._publisher.saving(step) as draft:
            _link_tree(folder, draft)
            copy = draft.with_name(self._publisher.name_of(step))
        self._handed_over[folder] = copy
        self._remove_originals()

    def raise_failures(self) -> None:
        """Raise what failed in the background; call it each step."""
        self._publisher.raise_failures()

    def close(self) -> tuple[Published, ...]:
        """Publish what is left."""
        published = self._publisher.close()
        self._remove_originals()
        return published

    def _refuse_unfinished(self, folder: Path, step: int) -> None:
        files = {
            path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
        }
        trackers = {
            name: (self._save_dir / name).read_text(encoding="utf-8")
            for name in TRACKER_NAMES
            if (self._save_dir / name).is_file()
        }
        why = incompleteness(name=folder.name, files=files, marker=None, trackers=trackers)
        if why is not None:
            raise CheckpointError(
                f"{folder} is no finished checkpoint of {self._layout.framework} ({why}). Call saved({step}) when the"
                " save has returned; with asynchronous saves, when it is finalized"
            )

    def _remove_originals(self) -> None:
        """Remove the framework's folders whose copy was published and is old enough to be gone."""
        for folder, copy in list(self._handed_over.items()):
            if not copy.exists():
                shutil.rmtree(folder, ignore_errors=True)
                del self._handed_over[folder]


def show(layout: Layout, folder: str | os.PathLike[str], load_dir: str | os.PathLike[str], *, step: int) -> Path:
    """Show a restored checkpoint to the framework: under its own name in `load_dir`, named by its tracker.

    Every node calls it after its `restore`. Nothing is copied: the name is a link to the folder.

    Returns
    -------
    Path
        The folder by its own name.

    Raises
    ------
    InvalidJobError
        If there is no such folder, or something else has its name.
    """
    folder, load_dir = Path(folder).resolve(), Path(load_dir)
    if not folder.is_dir():
        raise InvalidJobError(f"folder must be a restored checkpoint, got: {str(folder)!r}")
    load_dir.mkdir(parents=True, exist_ok=True)
    shown = load_dir / layout.folder_name(step)
    if shown.is_symlink():
        shown.unlink()
    elif shown.exists():
        raise InvalidJobError(
            f"{str(shown)!r} must not exist yet: what the framework wrote there itself may be unfinished. Move it away,"
            " or load from an empty folder"
        )
    shown.symlink_to(folder, target_is_directory=True)
    # Last, and whole at once: whoever finds it finds the folder.
    draft = load_dir / f".{layout.tracker_name}.draft"
    draft.write_text(layout.tracker_text(step), encoding="utf-8")
    draft.replace(load_dir / layout.tracker_name)
    return shown


def nodes_of_environment(environment: dict[str, str] | None = None) -> tuple[int, int]:
    """Return the number of this node and how many there are, as torchrun or Slurm say; 0 of 1 under neither."""
    known = dict(os.environ) if environment is None else environment
    if "GROUP_RANK" in known and "GROUP_WORLD_SIZE" in known:
        return int(known["GROUP_RANK"]), int(known["GROUP_WORLD_SIZE"])
    if "SLURM_NODEID" in known and "SLURM_JOB_NUM_NODES" in known:
        return int(known["SLURM_NODEID"]), int(known["SLURM_JOB_NUM_NODES"])
    return 0, 1


def _link_tree(folder: Path, draft: Path) -> None:
    try:
        shutil.copytree(folder, draft, copy_function=os.link, dirs_exist_ok=True)
    except shutil.Error as error:
        reason = error.args[0][0][2]
        raise CheckpointError(
            f"{folder} cannot be linked into {draft.parent} ({reason}); let the framework save to the same disk"
        ) from None
