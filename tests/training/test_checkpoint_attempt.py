"""Names of attempts: no two of them are the same, and cleaning up knows its own run by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from training_storage.planning.errors import InvalidJobError
from training_storage.training.checkpoint_attempt import Attempt
from training_storage.training.publish_background import attempt_of_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

SLURM = {"SLURM_JOB_ID": "77"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "My job/2", "TORCHELASTIC_RESTART_COUNT": "3"}


@pytest.mark.parametrize(
    ("environment", "attempt"),
    [
        ({}, None),
        (SLURM, "run-77-0"),
        (TORCHRUN, "run-My-job-2-3"),
        ({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}, None),
        ({**SLURM, "SLURM_RESTART_COUNT": "2", "SLURM_STEP_ID": "4"}, "run-77.4-2"),
        ({**SLURM, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "5"}, "run-77-0-5"),
        ({**SLURM, "TORCHELASTIC_RUN_ID": "77", "TORCHELASTIC_RESTART_COUNT": "5"}, "run-77-0-5"),
        ({**SLURM, **TORCHRUN}, "run-77-My-job-2-0-3"),
    ],
)
def test_the_attempt_is_what_the_launchers_count(environment: dict[str, str], attempt: str | None) -> None:
    assert attempt_of_environment(environment) == attempt


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # torchrun starts its workers again inside one Slurm job.
        (
            {**SLURM, "TORCHELASTIC_RUN_ID": "77", "TORCHELASTIC_RESTART_COUNT": "0"},
            {**SLURM, "TORCHELASTIC_RUN_ID": "77", "TORCHELASTIC_RESTART_COUNT": "1"},
        ),
        # Two srun in one allocation.
        ({**SLURM, "SLURM_STEP_ID": "0"}, {**SLURM, "SLURM_STEP_ID": "1"}),
        # Two torchrun in one allocation.
        ({**SLURM, "TORCHELASTIC_RUN_ID": "a"}, {**SLURM, "TORCHELASTIC_RUN_ID": "b"}),
        # Names too long for a folder's name, alike at first.
        ({"TORCHELASTIC_RUN_ID": "x" * 80 + "a"}, {"TORCHELASTIC_RUN_ID": "x" * 80 + "b"}),
        (
            {"TORCHELASTIC_RUN_ID": "x" * 80, "TORCHELASTIC_RESTART_COUNT": "1"},
            {"TORCHELASTIC_RUN_ID": "x" * 80, "TORCHELASTIC_RESTART_COUNT": "2"},
        ),
    ],
)
def test_two_attempts_never_have_one_name(one: Mapping[str, str], other: Mapping[str, str]) -> None:
    names = [attempt_of_environment(one), attempt_of_environment(other)]
    assert len({*names}) == 2
    assert all(name is not None and len(name) <= 63 for name in names)


def test_processes_without_a_launcher_have_a_name_of_their_own() -> None:
    assert Attempt.unique().name != Attempt.unique().name


@pytest.mark.parametrize(
    ("folder", "owned"),
    [
        ("run-77-0-2-step-0000000010", True),
        ("run-77-1-0-step-0000000010", True),
        ("run-77-1-1-step-0000000010", True),
        ("run-77-1-2-step-0000000010", False),
        ("run-77-2-0-step-0000000010", False),
        ("run-77-0-step-0000000010", False),
        ("run-77-0-0-0-step-0000000010", False),
        ("run-77.1-0-0-step-0000000010", False),
        ("run-78-0-0-step-0000000010", False),
        ("step-0000000010", False),
        ("my-run-77-0-0-step-0000000010", False),
        ("run-77-0-0-step-0000000010-copy", False),
        ("run-77-0-0", False),
    ],
)
def test_a_run_owns_what_this_attempt_and_earlier_ones_wrote(folder: str, owned: bool) -> None:
    assert Attempt(run="run-77", counts=(1, 1)).owns(folder) is owned


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x", "x" * 64, "a\nb"])
def test_an_attempt_is_named_so_that_every_store_keeps_it(name: str) -> None:
    with pytest.raises(InvalidJobError, match="attempt must be letters"):
        Attempt(run=name)
