"""What docs/training-practice.md shows runs as it stands there, from top to bottom."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.train_tiny import EXAMPLE, ROOT, lustre_contract
from training_storage.checkpoint_format import DEEPSPEED_TRACKER_NAME
from training_storage.cli import main
from training_storage.training.checkpoint_path_place import PathPlace
from training_storage.training.checkpoint_scan import State, newest_first
from training_storage.training.shard_pack import pack_shards

for _module in ("torch", "torchdata", "webdataset"):
    pytest.importorskip(_module, reason="pip install 'training-storage[training]'")

pytestmark = pytest.mark.training

PAGE = (ROOT / "docs" / "training-practice.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(
    r"^training-storage .*$", "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE
)


class Engine:
    """Writes what DeepSpeed's engine would."""

    global_steps = 1400

    def save_checkpoint(self, save_dir: str) -> None:
        folder = Path(save_dir, f"global_step{self.global_steps}")
        folder.mkdir(parents=True)
        (folder / "mp_rank_00_model_states.pt").write_bytes(b"model")
        Path(save_dir, DEEPSPEED_TRACKER_NAME).write_text(folder.name, encoding="utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", tmp_path / "small", "128"], check=True)
    return tmp_path / "small"


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) == 5
    assert len(COMMANDS) == 3


def test_every_command_runs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.parent)
    assert [main(shlex.split(command)[1:]) for command in COMMANDS] == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_every_python_example_runs(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = lustre_contract(tmp_path)
    place = values["lustre"]["paths"]["datasets"] + "train-tiny"
    pack_shards(source=str(small), target=place, shards=2, processes=1)
    (tmp_path / "storage.json").write_text(json.dumps(values), encoding="utf-8")
    monkeypatch.setenv("TRAINING_STORAGE_CONTRACT", str(tmp_path / "storage.json"))
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "GROUP_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    names: dict[str, Any] = {"engine": Engine()}
    for block in BLOCKS:
        exec(compile(block, "training-practice.md", "exec"), names)  # noqa: S102 -- our own page
    assert names["loaded"].step == 1200
    assert names["position"]["epoch"] == 1
    assert names["tag"] == "global_step1400"
    found = list(newest_first(PathPlace(values["checkpoints"]["path"])))
    assert [(one.step, one.state) for one in found] == [(step, State.COMPLETE) for step in (1400, 1300, 1200)]
    assert {channel["ChannelName"] for channel in names["request"]["InputDataConfig"]} == {"datasets", "checkpoints"}


def test_every_link_leads_somewhere() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", PAGE) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []


def test_the_example_and_the_page_name_only_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    verbs = set(re.findall(r"training-storage ((?:shards )?[a-z]+)", readme + PAGE))
    assert {"verify", "shards pack"} <= verbs
    for verb in verbs:
        with pytest.raises(SystemExit) as ended:
            main([*verb.split(), "--help"])
        assert ended.value.code == 0
    capsys.readouterr()
