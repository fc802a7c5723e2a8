"""What holds for every file of the kit."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.contracts import contract
from tests.node_kit.conftest import COMMANDS, KIT, unit_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_kit.conftest import Node

SCRIPTS = sorted([*KIT.rglob("*.sh"), *KIT.rglob("*.sbatch")])
UNITS = sorted((KIT / "systemd").iterdir())


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck")
    assert shellcheck is not None, "pip install -r requirements-dev.txt"
    files = [str(path) for path in [*SCRIPTS, *sorted(COMMANDS.iterdir())]]
    found = subprocess.run(
        [shellcheck, "--external-sources", "--source-path=SCRIPTDIR", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
    assert found.returncode == 0


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(KIT)))
def test_no_script_hides_a_failure(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "|| true" not in text
    assert "|| :" not in text
    assert "set +e" not in text
    # Programs say so; what is sourced takes it from them.
    assert ("set -euo pipefail" in text) == text.startswith("#!")
    # A directive that is not within a function or before a line would be a blanket one.
    assert not re.search(r"\A(#[^\n]*\n)*# shellcheck disable", text)


def test_every_unit_runs_a_script_that_is_there() -> None:
    for path in UNITS:
        for command in unit_file(path).get("Service", {}).get("ExecStart", []):
            assert (KIT / command.split()[0].removeprefix("/opt/training-storage/")).exists(), path.name


def test_every_unit_that_is_named_is_there() -> None:
    names = {path.name for path in UNITS}
    for path in UNITS:
        assert (
            set(re.findall(r"training-storage-[a-z-]+\.(?:service|timer)", path.read_text(encoding="utf-8"))) <= names
        )


def test_no_unit_waits_for_user_data_which_waits_for_the_units() -> None:
    for path in UNITS:
        assert "cloud" not in path.read_text(encoding="utf-8"), path.name


def test_every_check_needs_only_checks_before_it() -> None:
    seen: set[str] = set()
    for path in sorted((KIT / "checks").iterdir()):
        for line in re.findall(r"^# Needs: (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert set(line.split()) <= seen, path.name
        seen.add(path.stem.split("-", 1)[1])


def test_the_python_of_the_kit_is_python_3_9() -> None:
    for path in (KIT / "lib").glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("fields", [{"instances": 1}, {"instances": 256}, {"instances": 1000, "interface": "object"}])
def test_the_environment_file_says_what_the_contract_says(fields: dict[str, object]) -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    made = contract(**fields)
    helper["check"](made, region="us-east-1", job="default")
    read = subprocess.run(
        ["/bin/bash", "-c", "set -a; source /dev/stdin; env"],
        input=helper["render"](made),
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    values = dict(line.split("=", 1) for line in read.splitlines() if line.startswith("TRAINING_STORAGE_"))
    assert values["TRAINING_STORAGE_JOB_INSTANCES"] == str(fields["instances"])
    assert values["TRAINING_STORAGE_S3_URIS_DATASETS"] == made["s3"]["uris"]["datasets"]
    assert values["TRAINING_STORAGE_ENDPOINT_URL"] == ""
    if made["lustre"]:
        assert values["TRAINING_STORAGE_LUSTRE_MOUNT_PATH"] == "/fsx"
        assert values["TRAINING_STORAGE_LUSTRE_EFA_ENABLED"] == "false"
    else:
        assert values["TRAINING_STORAGE_LUSTRE"] == ""


@pytest.mark.parametrize("value", ["a'b", "a\nb", "a\\b"])
def test_a_value_that_a_shell_would_read_otherwise_is_refused(value: str) -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    with pytest.raises(ValueError, match="TRAINING_STORAGE_JOB_NAME holds a quote"):
        helper["render"]({"job": {"name": value}})


def test_values_are_data_to_the_shell() -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    text = helper["render"]({"job": {"name": "$(touch /nowhere) `id` ;"}})
    assert text == "TRAINING_STORAGE_JOB_NAME='$(touch /nowhere) `id` ;'\n"


@pytest.mark.parametrize("mounted", [True, False])
def test_the_sample_batch_script_shows_the_contract_and_checks_the_node(healthy: Node, mounted: bool) -> None:
    if not mounted:
        healthy.unmount("/fsx")
    text = (KIT / "samples/check-storage.sbatch").read_text(encoding="utf-8")
    for path in ("/etc/training-storage", "/usr/local/bin/training-storage-ready"):
        text = text.replace(path, f"{healthy.root}{path}")
    script = healthy.file(
        "check-storage.sbatch", text.replace("${TRAINING_STORAGE_CHECKPOINTS_PATH%/}", f"{healthy.root}/fsx")
    )
    srun = healthy.bin / "srun"
    srun.write_text(
        '#!/bin/sh\nshift\nexport SLURM_JOB_ID=1 SLURM_PROCID=0 SLURMD_NODENAME=compute-1\nexec "$@"\n',
        encoding="utf-8",
    )
    srun.chmod(0o755)
    run = healthy.run(str(script))
    assert "checkpoints     /fsx/checkpoints/\n" in run.stdout
    assert (run.returncode == 0) == mounted, run.stderr
    assert ("compute-1: ready, 42% of checkpoints free" in run.stdout) == mounted
    assert ("/fsx is not mounted" in run.stderr) != mounted
