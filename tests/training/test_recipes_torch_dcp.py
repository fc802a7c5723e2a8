"""torch's distributed checkpoint with two ranks, to a path and to S3: what is saved, completed, refused and loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.checkpoint_support import PART, saved
from tests.training.train_tiny import lustre_contract
from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    POINTER_NAME,
    checkpoint_name,
    read_marker,
    read_pointer,
)
from training_storage.training import StorageContract
from training_storage.training.checkpoint_attempt import Attempt
from training_storage.training.checkpoint_errors import CheckpointError, DamagedError, NoCheckpointError
from training_storage.training.checkpoint_place import open_place
from training_storage.training.checkpoint_scan import State, newest_first
from training_storage.training.publish import publish
from training_storage.training.restore import restore

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws
    from training_storage.training.checkpoint_place import Place

torch = pytest.importorskip("torch", reason="pip install 'training-storage[training]'")

from training_storage.training.recipes.torch_dcp import DcpCheckpoints, local_bytes  # noqa: E402 -- torch may be missing

pytestmark = pytest.mark.training

ROOT = Path(__file__).resolve().parents[2]
RANKS = 2
BUCKET = "training-dcp"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What both ranks printed, and where they saved."""

    target: str
    results: list[dict[str, Any]]

    def place(self, scenario: str) -> Place:
        return open_place(f"{self.target}{scenario}/", region="us-east-1")

    def of(self, scenario: str) -> list[dict[str, Any]]:
        return [result[scenario] for result in self.results]


@pytest.fixture(scope="module")
def surroundings(training_aws: LocalAws) -> dict[str, str]:
    return {
        **os.environ,
        **training_aws.settings(),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'constructs'}",
        "GLOO_SOCKET_IFNAME": "lo",
    }


@pytest.fixture(scope="module", params=["path", "s3"])
def run(
    request: pytest.FixtureRequest,
    training_aws: LocalAws,
    surroundings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Every scenario of `dcp_ranks`, in one run of two ranks for each kind of place."""
    folder = tmp_path_factory.mktemp("dcp")
    target = f"{folder}/lustre/"
    if request.param == "s3":
        for module in ("s3torchconnector", "tenacity"):
            pytest.importorskip(module, reason="pip install 's3torchconnector[dcp]'")
        training_aws.client("s3").create_bucket(Bucket=BUCKET)
        target = f"s3://{BUCKET}/checkpoints/job/"
    return Run(target=target, results=run_ranks(target, surroundings, rendezvous=folder / "rendezvous"))


@pytest.fixture(autouse=True)
def same_surroundings(surroundings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)


def run_ranks(target: str, surroundings: dict[str, str], *, rendezvous: Path) -> list[dict[str, Any]]:
    environment = {**surroundings, "RENDEZVOUS_FILE": str(rendezvous), "WORLD_SIZE": str(RANKS)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.dcp_ranks", target],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, process in enumerate(processes):
        assert process.returncode == 0, f"rank {rank}: {outputs[rank][1][-3000:]}"
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def test_what_was_saved_in_the_background_comes_back_though_training_went_on(run: Run) -> None:
    ranks = run.of("save_and_load")
    for rank in ranks:
        assert rank["own_group"]
        assert rank["loaded"] == rank["expected"]
        assert (rank["name"], rank["step"]) == ("step-0000000003", 3)
        assert rank["saved"] == ranks[0]["saved"]
    assert [rank["loaded"]["own"] for rank in ranks] == [[30.0], [31.0]]


def test_as_many_checkpoints_stay_as_the_job_keeps_and_the_pointer_names_the_newest(run: Run) -> None:
    place = run.place("save_and_load")
    assert [one["removed"] for one in run.of("save_and_load")[0]["saved"]] == [[], [], ["step-0000000001"]]
    assert [found.name for found in newest_first(place)] == ["step-0000000003", "step-0000000002"]
    pointer = place.read(POINTER_NAME)
    assert pointer is not None
    assert read_pointer(pointer.data).checkpoint == "step-0000000003"


def test_the_marker_names_every_file_with_a_checksum_that_holds(run: Run, tmp_path: Path) -> None:
    place = run.place("save_and_load")
    marker = place.read(f"step-0000000003/{MARKER_NAME}")
    assert marker is not None
    named = {file.path: file.bytes for file in read_marker(marker.data).files}
    assert set(named) == {"__0_0.distcp", "__1_0.distcp", DCP_METADATA_NAME}
    assert named["__0_0.distcp"] > PART
    # `restore` reads every byte.
    restored = restore(place, tmp_path / "restored")
    saved = run.of("save_and_load")[0]["saved"][-1]
    assert (restored.checked, restored.files, restored.bytes) == (True, 3, saved["bytes"])


def test_a_name_is_never_used_twice_and_what_was_there_stays(run: Run) -> None:
    for rank in run.of("name_used_twice"):
        assert "rank 0: " in rank["error"]
        assert "step-0000000007 holds files already" in rank["error"]
        assert rank["after"] == rank["before"]
        assert rank["name"] == "step-0000000007"


def test_a_rank_that_fails_is_named_at_the_next_step_on_all_ranks(run: Run) -> None:
    for rank in run.of("rank_1_fails"):
        assert "rank 1: No space left on device" in rank["error"]
        assert f"{run.target}rank_1_fails/step-0000000002 was not saved" in rank["error"]
        assert (rank["loaded"], rank["then"]) == ("step-0000000001", "step-0000000003")


def test_a_save_that_failed_is_never_complete_and_shows_no_half_file_of_s3(run: Run) -> None:
    place = run.place("rank_1_fails")
    states = {found.name: found.state for found in newest_first(place)}
    assert states["step-0000000002"] == State.INCOMPLETE
    assert states["step-0000000003"] == states["step-0000000001"] == State.COMPLETE
    if place.local_folder is None:
        # The connector's writer would complete the upload when it is collected; ours aborts it.
        assert "__1_0.distcp" not in place.files("step-0000000002")


def test_a_damaged_checkpoint_is_passed_over_for_the_next_older_one(run: Run) -> None:
    for rank in run.of("newest_is_damaged"):
        assert rank["loaded"] == "step-0000000001"
        [[name, why]] = rank["passed_over"]
        assert name == "step-0000000002"
        assert "__1_0.distcp has another sha256" in why


def test_a_checkpoint_that_one_rank_cannot_read_is_an_error_on_all_and_no_older_one_is_taken(run: Run) -> None:
    for rank in run.of("newest_is_unreadable"):
        assert "rank 1: " in rank["error"]
        assert "Input/output error" in rank["error"]
        # Far from the time that a collective waits for a rank that is gone.
        assert rank["seconds"] < 20


def test_a_rank_that_cannot_take_or_begin_is_named_on_all_ranks(run: Run) -> None:
    for scenario in ("rank_1_cannot_take_it", "rank_1_cannot_begin"):
        assert {rank["error"] for rank in run.of(scenario)} == {"CheckpointError: rank 1: no room for this"}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_processes_without_a_launcher_never_meet_and_none_removes_what_another_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    contract = StorageContract.from_dict(lustre_contract(tmp_path))
    names = []
    for _ in range(3):
        checkpoints = DcpCheckpoints.from_contract(contract, kept=1)
        checkpoints.save(7, {"weights": torch.ones(2)})
        done = checkpoints.close()
        assert done is not None
        assert done.removed == ()
        names.append(done.name)
    assert sorted(found.name for found in newest_first(open_place(contract.checkpoints.write_to))) == sorted(names)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("counted", [True, False], ids=["same-run", "another-run"])
def test_after_damage_the_new_saves_stay_and_a_restart_loads_them(tmp_path: Path, *, counted: bool) -> None:
    target = f"{tmp_path}/lustre/"
    state = {"weights": torch.ones(1000)}
    attempts = [Attempt(run="run-7" if counted else f"run-{number}", counts=(number,)) for number in range(3)]
    first = DcpCheckpoints(target, kept=2, attempt=attempts[0])
    for step in (1000, 2000):
        first.save(step, state)
    first.save(3000, state)
    first.close()
    for step in (2000, 3000):
        (file,) = Path(target, attempts[0].folder_name(step)).glob("*.distcp")
        data = bytearray(file.read_bytes())
        data[-50] ^= 1
        file.write_bytes(data)
    # It kept two, so what is left is damaged: the second starts from the beginning.
    second = DcpCheckpoints(target, kept=2, attempt=attempts[1])
    with pytest.raises(DamagedError):
        second.load(state)
    for step in (1010, 1020, 1030):
        second.save(step, state)
        done = second.wait()
        assert done is not None
        assert done.name not in done.removed
    second.close()
    loaded = DcpCheckpoints(target, attempt=attempts[2]).load(state)
    assert loaded.name == attempts[1].folder_name(1030)
    assert [one.name for one in loaded.passed_over] == [attempts[0].folder_name(step) for step in (3000, 2000)]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_that_was_cut_is_named_and_never_means_that_there_is_none(tmp_path: Path) -> None:
    checkpoints = DcpCheckpoints(f"{tmp_path}/lustre/")
    for step in (1, 2):
        checkpoints.save(step, {"weights": torch.full((1000,), float(step))})
    checkpoints.close()
    for step in (2, 1):
        (file,) = (tmp_path / "lustre" / checkpoint_name(step)).glob("*.distcp")
        os.truncate(file, 100)
        state = {"weights": torch.zeros(1000)}
        if step == 1:
            with pytest.raises(DamagedError, match=r"no complete checkpoint .* can be loaded: .* has 100 bytes"):
                checkpoints.load(state)
        else:
            loaded = checkpoints.load(state, verify=False)
            assert (loaded.step, [one.name for one in loaded.passed_over]) == (1, [checkpoint_name(2)])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_a_newer_version_is_not_passed_over(tmp_path: Path) -> None:
    checkpoints = DcpCheckpoints(f"{tmp_path}/lustre/")
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    checkpoints.close()
    (tmp_path / "lustre" / checkpoint_name(2) / MARKER_NAME).write_text('{"schema_version": 2}')
    with pytest.raises(CheckpointError, match=r"step-0000000002 cannot be judged: .* schema_version 2"):
        checkpoints.load({"step": 0})


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_restart_removes_what_the_attempt_before_left(tmp_path: Path) -> None:
    target = f"{tmp_path}/lustre/"
    state = {"weights": torch.ones(10)}
    for count, steps in enumerate([(10, 20), (30,)]):
        checkpoints = DcpCheckpoints(target, kept=2, attempt=Attempt(run="run-7", counts=(count,)))
        if count:
            checkpoints.load(state)
        for step in steps:
            checkpoints.save(step, state)
        done = checkpoints.close()
    assert done is not None
    assert done.removed == ("run-7-0-step-0000000010",)


def test_a_save_that_is_killed_anywhere_leaves_the_newest_whole_one_and_the_pointer_never_goes_back(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.training.dcp_kills", tmp_path / "lustre", "40"],
        env=surroundings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    printed = json.loads(run.stdout)
    found = [tuple(one) for one in printed["found"]]
    assert len(found) == 41
    assert found == sorted(found)
    assert all(pointer <= step for step, pointer in found)
    assert found[-1][0] > 20, "the kills left time for many saves"
    # What killed saves left before the newest two was removed by later ones.
    assert printed["folders"] <= 8


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_what_torch_did_not_save_is_passed_over_and_named(tmp_path: Path) -> None:
    checkpoints = DcpCheckpoints(f"{tmp_path}/lustre/")
    state = {"weights": torch.arange(4.0), "step": 1}
    checkpoints.save(1, state)
    checkpoints.close()
    publish(saved(tmp_path / "local", 2), f"{tmp_path}/lustre/")
    state = {"weights": torch.zeros(4), "step": 0}
    for verify in (True, False):
        loaded = checkpoints.load(state, verify=verify)
        assert (loaded.step, state["step"]) == (1, 1)
        [passed] = loaded.passed_over
        assert (passed.name, "holds no .metadata" in passed.why) == ("step-0000000002", True)
    assert torch.equal(state["weights"], torch.arange(4.0))


def test_a_job_without_a_checkpoint_says_where_it_looked(tmp_path: Path) -> None:
    values = lustre_contract(tmp_path)
    checkpoints = DcpCheckpoints.from_contract(StorageContract.from_dict(values))
    with pytest.raises(NoCheckpointError, match=r"fsx/checkpoints/, .*lake/$"):
        checkpoints.load({})


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_job_that_lost_its_file_system_resumes_from_the_lake(tmp_path: Path) -> None:
    values = lustre_contract(tmp_path)
    DcpCheckpoints.from_contract(StorageContract.from_dict(values))
    in_the_lake = DcpCheckpoints(values["checkpoints"]["durable_uri"])
    in_the_lake.save(40, {"weights": torch.ones(2)})
    in_the_lake.close()
    loaded = DcpCheckpoints.from_contract(StorageContract.from_dict(values)).load({"weights": torch.zeros(2)})
    assert (loaded.place, loaded.step) == (values["checkpoints"]["durable_uri"], 40)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_in_the_lake_itself_nothing_is_removed_because_the_archive_keeps_more(tmp_path: Path) -> None:
    values = lustre_contract(tmp_path)
    values["checkpoints"]["durable_uri"] = values["checkpoints"]["path"]
    checkpoints = DcpCheckpoints.from_contract(StorageContract.from_dict(values))
    for step in range(1, values["checkpoints"]["kept"] + 3):
        checkpoints.save(step, {"weights": torch.ones(2)})
        done = checkpoints.wait()
        assert done is not None
        assert done.removed == ()


def test_the_size_of_a_rank_is_that_of_all_its_tensors() -> None:
    state = {"a": torch.zeros(10), "b": [{"c": torch.zeros(3, dtype=torch.int8)}, (torch.zeros(2),)], "d": "text"}
    assert local_bytes(state) == 40 + 3 + 8
