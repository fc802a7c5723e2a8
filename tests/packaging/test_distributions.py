"""The wheel and the sdist hold the library, all of it, and nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.packaging.conftest import uv
from tests.packaging.public_api import ROOT

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

    from tests.packaging.conftest import Distributions

pytestmark = pytest.mark.slow


def files_of_wheel(path: Path) -> dict[str, int]:
    """Checksums by name."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.CRC for info in archive.infolist() if not info.is_dir()}


@pytest.fixture(scope="module")
def metadata(distributions: Distributions) -> Message:
    with zipfile.ZipFile(distributions.wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_every_file_of_the_library_and_nothing_else(
    distributions: Distributions, sources: Path
) -> None:
    root = sources / "constructs"
    library = {str(path.relative_to(root)) for path in (root / "training_storage").rglob("*") if path.is_file()}
    wheel = {name for name in files_of_wheel(distributions.wheel) if ".dist-info/" not in name}
    assert wheel == library


def test_kinds_of_files_that_are_no_python_are_in_the_wheel(distributions: Distributions) -> None:
    # What the folder of the library holds today: the test above would pass without them if all were lost.
    kinds = {name.rpartition(".")[2] for name in files_of_wheel(distributions.wheel)}
    assert {"toml", "sh", "service", "timer", "target", "sbatch", "json", "typed"} <= kinds


def test_the_sdist_makes_the_same_wheel_as_the_checkout(
    distributions: Distributions, sources: Path, tmp_path: Path
) -> None:
    uv("build", "--wheel", "--out-dir", tmp_path, cwd=sources)
    (wheel,) = tmp_path.glob("*.whl")
    assert files_of_wheel(wheel) == files_of_wheel(distributions.wheel)


def test_the_sdist_holds_what_a_build_needs_and_no_tests(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == {"constructs"}


def test_the_wheel_asks_for_cdk_and_boto3_only_and_pins_nothing(metadata: Message) -> None:
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    base = {one.name: str(one.specifier) for one in asked if one.marker is None}
    assert set(base) == {"aws-cdk-lib", "boto3", "constructs"}
    assert not any("==" in specifier for specifier in base.values())
    pinned = {one.name for one in asked if "==" in str(one.specifier)}
    assert pinned <= {"ministack"}, "ministack's private tables are used; whoever pins more breaks other apps"


def test_the_metadata_say_what_indexes_ask_for(metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Version"] == project["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"aws-cdk", "cdk"} <= set(str(metadata["Keywords"]).split(","))
    classifiers = metadata.get_all("Classifier", [])
    assert {"Framework :: AWS CDK :: 2", "Typing :: Typed"} <= set(classifiers)
    assert not [one for one in classifiers if one.startswith("License ::")], "PEP 639: the expression says it"


def test_the_index_would_take_the_files_and_render_the_readme(distributions: Distributions) -> None:
    twine = [sys.executable, "-m", "twine", "check", "--strict", str(distributions.sdist), str(distributions.wheel)]
    ended = subprocess.run(twine, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("PASSED") == 2
