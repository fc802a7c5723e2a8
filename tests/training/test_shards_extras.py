"""What is only for training is pulled and loaded only there."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from pathlib import Path

TRAINING = {"torch", "torchdata", "torchvision", "webdataset", "s3torchconnector", "obstore", "numpy", "tqdm"}


def pulled(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Return every distribution that installing `name` with `extras` pulls, as far as it is installed here."""
    found: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        current, wanted = waiting.pop()
        try:
            lines = metadata.requires(current) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            chosen = wanted or {""}
            applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in chosen)
            if applies and requirement.name not in found:
                found.add(requirement.name)
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def test_the_base_install_pulls_nothing_of_training() -> None:
    base = pulled("training-storage")
    assert {"aws-cdk-lib", "boto3"} <= base
    assert not base & TRAINING


def test_the_extra_pulls_what_training_needs_and_no_torchvision() -> None:
    extra = pulled("training-storage", frozenset({"training"}))
    assert {"torch", "torchdata", "webdataset", "s3torchconnector", "obstore", "tqdm"} <= extra
    assert "torchvision" not in extra


def test_the_other_extras_pull_no_torch() -> None:
    assert not pulled("training-storage", frozenset({"local-aws", "yaml"})) & (TRAINING - {"numpy"})


@pytest.mark.parametrize("missing", ["torch", "torchdata", "webdataset"])
def test_a_loader_without_its_libraries_says_what_to_install(missing: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try:\n    import training_storage.training.loader\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"loading shards needs {missing}")
    assert done.stdout.endswith(": pip install 'training-storage[training]'\n")


def test_planning_shards_of_a_folder_loads_neither_torch_nor_boto3(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").touch()
    script = (
        "import sys, training_storage.training, training_storage.training.loader_settings\n"
        "from training_storage import cli\n"
        f"readers = ['--nodes', '1', '--accelerators', '1', '--workers', '1']\n"
        f"code = cli.main(['shards', 'plan', {str(tmp_path)!r}, *readers])\n"
        "loaded = {'torch', 'webdataset', 's3torchconnector', 'boto3', 'aws_cdk', 'numpy'} & sys.modules.keys()\n"
        "sys.exit(code or f'loaded: {loaded}' if loaded else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
