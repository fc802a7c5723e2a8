"""What holds for every file of the kit."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts import contract
from tests.node_kit.conftest import COMMANDS, KIT, unit_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_kit.conftest import Node

SCRIPTS = sorted([*KIT.rglob("*.sh"), *KIT.rglob("*.sbatch")])
SCHEMA = KIT.parent / "training/storage_contract.schema.json"
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


def changed(*keys: str, to: object) -> dict[str, Any]:
    made = contract(instances=256)
    section: dict[str, Any] = made
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = to
    return made


FOLDERS = [
    ("scratch", "path"),
    ("lustre", "mount_path"),
    ("mountpoint", "path"),
    ("mountpoint", "cache_path"),
    ("checkpoints", "path"),
    ("lustre", "paths", "checkpoints"),
    ("lustre", "paths", "logs"),
    ("lustre", "paths", "evaluations"),
]


@pytest.mark.parametrize("keys", FOLDERS, ids=".".join)
def test_no_folder_of_the_contract_is_one_of_the_systems(keys: tuple[str, ...]) -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    system = ["/", "/etc", "/usr/bin", "/var/lib", "/home", "/root", "/boot", "/opt/aws", "/mnt", "/local", "/srv/x"]
    for path in (*system, "/fsx/../etc", "/scratch/./x", "//etc", "/scratch//etc", "scratch", "/scratchy", "/fsx x", 7):
        with pytest.raises(ValueError, match=f"{'.'.join(keys)} must be a folder at or below /fsx or /scratch"):
            helper["check"](changed(*keys, to=path), region="us-east-1", job="default")


def test_folders_that_the_kit_allows_are_those_of_the_schema() -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for path in ("/fsx", "/fsx/Team_A/v1.2", "/scratch", "/scratch/mountpoint", "/mnt/lake", "/local/nvme0"):
        assert re.fullmatch(helper["FOLDER"], path)
        assert re.search(schema["$defs"]["path"]["pattern"], path)
        helper["check"](changed("checkpoints", "path", to=f"{path}/"), region="us-east-1", job="default")


def test_words_have_the_patterns_of_the_schema() -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for (section, key), pattern in helper["WORDS"].items():
        part = schema["properties"][section]
        part = next((choice for choice in part.get("oneOf", []) if choice["type"] == "object"), part)["properties"][key]
        part = next((choice for choice in part.get("oneOf", []) if choice.get("type") != "null"), part)
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        assert part["pattern"] == pattern, key


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("region",), "eu-west-1", "region must be this node's, us-east-1, got: eu-west-1"),
        (("job", "name"), "other", "job.name must be this node's, default, got: other"),
        (("lustre", "dns_name"), "--options=suid", "lustre.dns_name must match"),
        (("mountpoint", "bucket"), "--foreground", "mountpoint.bucket must match"),
        (("endpoint", "url"), "file:///etc/shadow", "endpoint.url must match"),
        (("mountpoint", "cache_gib"), "x[$(id)]", "mountpoint.cache_gib must be a whole number from 0"),
        (("lustre", "efa_interfaces"), True, "lustre.efa_interfaces must be a whole number from 0"),
        (("scratch", "local_nvme_gb"), -1, "scratch.local_nvme_gb must be a whole number from 0"),
        (("scratch",), None, "the contract lacks: scratch"),
        (("lustre", "mount_path"), "/scratch/fsx", "lustre.mount_path must not lie in scratch.path"),
        (("scratch", "path"), "/fsx", "must not lie in"),
    ],
)
def test_a_contract_that_would_make_root_do_something_else_is_refused(
    keys: tuple[str, ...], value: object, message: str
) -> None:
    helper = runpy.run_path(str(KIT / "lib/contract_env.py"))
    with pytest.raises(ValueError, match=re.escape(message)):
        helper["check"](changed(*keys, to=value), region="us-east-1", job="default")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(KIT)))
def test_no_pipe_ends_before_what_writes_into_it(path: Path) -> None:
    """It would end the writer with SIGPIPE now and then, which pipefail makes a failure."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s+(head |grep [^|\n]*(--quiet|-q|--max-count|-m)\b)", text)
    assert not re.search(r"\| *awk [^|]*\{[^}']*\bexit\b *(\}|;)", text)
    assert not re.search(r"command -v [^\s;&|>]+ [^\s;&|>]+ ", text), "true if any of them is there"


@pytest.mark.parametrize("path", sorted(KIT.glob("samples/*.sbatch")), ids=lambda path: path.name)
def test_samples_name_the_only_queue(path: Path) -> None:
    assert "\n#SBATCH --partition=train\n" in path.read_text(encoding="utf-8")


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
