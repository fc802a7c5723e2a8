"""DeepSpeed's and Megatron's folders, in the shape that their public sources write, without the frameworks.

DeepSpeed: ``runtime/engine.py`` (``latest`` and the names of states). Megatron-LM:
``megatron/training/checkpointing.py`` (``iter_{:07d}``, ``mp_rank_{:02d}[_{:03d}]/model_optim_rng.pt``, the tracker).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.contracts import contract
from tests.training.checkpoint_support import content, files_of
from training_storage.checkpoint_format import checkpoint_name
from training_storage.planning.errors import InvalidJobError
from training_storage.training import StorageContract
from training_storage.training.checkpoint_errors import CheckpointError
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.checkpoint_scan import State, look, newest_first
from training_storage.training.publish_background import CheckpointPublisher
from training_storage.training.recipes import deepspeed, megatron
from training_storage.training.recipes.framework_folders import FolderPublisher, Layout, nodes_of_environment
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from pathlib import Path

DEEPSPEED_FILES = (
    "mp_rank_00_model_states.pt",
    "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
)
MEGATRON_FILES = (
    "mp_rank_00_000/model_optim_rng.pt",
    "mp_rank_00_000/distrib_optim.pt",
    "mp_rank_00_001/model_optim_rng.pt",
)
TORCH_DIST_FILES = ("__0_0.distcp", "__1_0.distcp", "common.pt", "metadata.json", ".metadata")


@dataclass(frozen=True, kw_only=True)
class Framework:
    layout: Layout
    files: tuple[str, ...]

    def save(self, save_dir: Path, step: int, *, files: tuple[str, ...] | None = None, finish: bool = True) -> Path:
        """Write what the framework would, its end mark last."""
        folder = save_dir / self.layout.folder_name(step)
        for path in files or self.files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content(step, path, 2000))
        if finish:
            (save_dir / self.layout.tracker_name).write_text(self.layout.tracker_text(step), encoding="utf-8")
        return folder


FRAMEWORKS = {
    "deepspeed": Framework(layout=deepspeed.LAYOUT, files=DEEPSPEED_FILES),
    "megatron": Framework(layout=megatron.LAYOUT, files=MEGATRON_FILES),
    "megatron-torch-dist": Framework(layout=megatron.LAYOUT, files=TORCH_DIST_FILES),
}


@pytest.fixture(params=list(FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]


def node_publisher(tmp_path: Path, framework: Framework, *, node: int = 0, nodes: int = 1) -> FolderPublisher:
    publisher = CheckpointPublisher(
        str(tmp_path / "lustre"),
        local_path=tmp_path / f"node-{node}" / "copies",
        rank=node,
        ranks=nodes,
        attempt="run-7-0",
        timeout_seconds=60,
    )
    return FolderPublisher(framework.layout, publisher, tmp_path / f"node-{node}" / "saved", node=node)


def test_no_recipe_loads_a_framework_that_it_does_not_need() -> None:
    recipes = ("sagemaker", "deepspeed", "megatron", "completion", "in_flight")
    script = (
        "import sys, importlib;"
        f"[importlib.import_module('training_storage.training.recipes.' + name) for name in {recipes}];"
        "print([m for m in ('torch', 'obstore', 'webdataset', 's3torchconnector', 'aws_cdk') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_the_folders_have_the_names_that_the_frameworks_give() -> None:
    assert deepspeed.tag_of(1200) == "global_step1200"
    assert megatron.folder_of(1200) == "iter_0001200"
    assert megatron.LAYOUT.tracker_name == "latest_checkpointed_iteration.txt"
    assert deepspeed.LAYOUT.tracker_name == "latest"


def test_what_a_framework_wrote_to_lustre_itself_is_complete_once_its_end_mark_names_it(
    tmp_path: Path, framework: Framework
) -> None:
    folder = framework.save(
        tmp_path, 1200, files=tuple(path for path in framework.files if path != ".metadata"), finish=False
    )
    assert look(PathPlace(tmp_path), folder.name).state == State.INCOMPLETE
    framework.save(tmp_path, 1200)
    found = look(PathPlace(tmp_path), folder.name)
    assert (found.state, found.step) == (State.COMPLETE, 1200)


def test_a_finished_folder_is_published_and_comes_back_under_its_own_name(tmp_path: Path, framework: Framework) -> None:
    folder = framework.save(tmp_path / "node-0" / "saved", 1200)
    folders = node_publisher(tmp_path, framework)
    folders.saved(1200)
    [published] = folders.close()
    assert (published.name, published.complete, published.latest_moved) == ("run-7-0-step-0000001200", True, True)
    restored = restore(str(tmp_path / "lustre"), tmp_path / "restored")
    assert restored.checked
    load_dir = tmp_path / "load"
    if framework.layout is deepspeed.LAYOUT:
        shown = load_dir / deepspeed.load_from(restored, load_dir)
    else:
        shown = megatron.load_from(restored, load_dir)
    assert shown.name == folder.name
    assert files_of(shown) == files_of(folder)
    tracker = (load_dir / framework.layout.tracker_name).read_text(encoding="utf-8")
    assert tracker == ("global_step1200" if framework.layout is deepspeed.LAYOUT else "1200")
    assert look(PathPlace(load_dir), shown.name).state == State.COMPLETE


def test_every_node_publishes_what_its_ranks_wrote_and_node_0_completes_the_whole(
    tmp_path: Path, framework: Framework
) -> None:
    first = tuple(path for path in framework.files if path == ".metadata") + framework.files[:1]
    others = tuple(path for path in framework.files if path not in first)
    framework.save(tmp_path / "node-0" / "saved", 5, files=first)
    framework.save(tmp_path / "node-1" / "saved", 5, files=others, finish=False)
    nodes = [node_publisher(tmp_path, framework, node=node, nodes=2) for node in range(2)]
    for node in nodes:
        node.saved(5)
    results: dict[int, bool] = {}

    def close(number: int) -> None:
        results[number] = nodes[number].close()[0].complete

    threads = [threading.Thread(target=close, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: True, 1: False}
    restored = restore(str(tmp_path / "lustre"), tmp_path / "restored")
    assert set(files_of(restored.folder)) == set(framework.files)


def test_a_save_that_is_not_finished_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    framework = FRAMEWORKS["megatron"]
    framework.save(tmp_path / "node-0" / "saved", 100)
    framework.save(tmp_path / "node-0" / "saved", 200, finish=False)
    folders = node_publisher(tmp_path, framework)
    with pytest.raises(
        CheckpointError, match=r"iter_0000200 is no finished checkpoint of Megatron.*when it is finalized"
    ):
        folders.saved(200)
    assert folders.close() == ()
    assert list(newest_first(PathPlace(tmp_path / "lustre"))) == []


def test_older_folders_leave_the_local_disk_once_they_are_published_the_newest_two_stay(
    tmp_path: Path, framework: Framework
) -> None:
    folders = node_publisher(tmp_path, framework)
    saved = tmp_path / "node-0" / "saved"
    for step in (10, 20, 30, 40):
        framework.save(saved, step)
        folders.saved(step)
    folders.close()
    left = [path.name for path in saved.iterdir() if path.is_dir()]
    assert sorted(left) == [framework.layout.folder_name(step) for step in (30, 40)]
    copies = tmp_path / "node-0" / "copies"
    assert sorted(path.name for path in copies.iterdir()) == [f"run-7-0-{checkpoint_name(step)}" for step in (30, 40)]


def test_a_framework_never_finds_its_own_unfinished_folder_in_place_of_the_restored_one(tmp_path: Path) -> None:
    framework = FRAMEWORKS["deepspeed"]
    framework.save(tmp_path / "node-0" / "saved", 1200)
    folders = node_publisher(tmp_path, framework)
    folders.saved(1200)
    folders.close()
    restored = restore(str(tmp_path / "lustre"), tmp_path / "restored")
    (tmp_path / "load" / "global_step1200").mkdir(parents=True)
    with pytest.raises(InvalidJobError, match="must not exist yet"):
        deepspeed.load_from(restored, tmp_path / "load")
    assert not (tmp_path / "load" / "latest").exists()


def test_the_nodes_are_those_of_the_launcher() -> None:
    assert nodes_of_environment({"GROUP_RANK": "3", "GROUP_WORLD_SIZE": "16"}) == (3, 16)
    assert nodes_of_environment({"SLURM_NODEID": "1", "SLURM_JOB_NUM_NODES": "2"}) == (1, 2)
    assert nodes_of_environment({}) == (0, 1)


def test_the_contract_says_where_folders_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = json.loads(json.dumps(contract(instances=17)))
    values["checkpoints"]["path"] = str(tmp_path / "lustre")
    values["checkpoints"]["local_path"] = str(tmp_path / "copies")
    for name in ("GROUP_RANK", "SLURM_NODEID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    FRAMEWORKS["megatron"].save(tmp_path / "saved", 7)
    folders = megatron.publisher(StorageContract.from_dict(values), tmp_path / "saved")
    folders.saved(7)
    folders.close()
    (found,) = newest_first(PathPlace(tmp_path / "lustre"))
    assert (found.step, found.state) == (7, State.COMPLETE)
