"""The distributions, built once, and an environment of its own into which the wheel is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from uv import find_uv_bin

from tests.packaging.public_api import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: A folder with an sdist and a wheel that exist already: a release tests what it publishes.
DISTRIBUTIONS = "TRAINING_STORAGE_DISTRIBUTIONS"
#: What a build needs. Nothing else of this checkout is near when the wheel is tested.
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "constructs")
_LEFT_OUT = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
FOREIGN_APP = ROOT / "examples" / "foreign_app"


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """The files that a release publishes."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """Somebody else's machine: a virtual environment with the wheel, and a folder with their app.

    Attributes
    ----------
    environment
        The virtual environment.
    folder
        The foreign app, outside of this checkout.
    """

    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def run(self, *words: str | Path, fails: bool = False, **variables: str) -> str:
        """Run a program of the environment, or any other, in the app's folder; return all that it printed."""
        ended = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env={**clean_environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert bool(ended.returncode) is fails, f"{words[0]} ended with {ended.returncode}\n{ended.stdout}"
        return ended.stdout


def clean_environment() -> dict[str, str]:
    """The variables of this process without what would lead to this checkout or to an account."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "CDK_", "PYTEST_")) and name not in _LEFT_OUT
    }
    # Several programs import CDK, which takes seconds to compile: bytecode is kept in the environment.
    return {**kept, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "CI": "true"}


def uv(*words: str | Path, cwd: Path) -> None:
    """Run uv. Where it installs must be said with `--python`: else it would take the environment of the tests."""
    subprocess.run(
        [find_uv_bin(), "--quiet", *(str(word) for word in words)],
        cwd=cwd,
        env=clean_environment(),
        check=True,
        timeout=600,
    )


def copy_of_sources(folder: Path) -> Path:
    """Copy what a build needs: building in the checkout would leave folders there, and take what lies in them."""
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the distributions are built of, as it was at one moment."""
    return copy_of_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def distributions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The sdist, and the wheel that is built from it; or those of the folder in TRAINING_STORAGE_DISTRIBUTIONS."""
    given = os.environ.get(DISTRIBUTIONS)
    folder = Path(given) if given else tmp_path_factory.mktemp("dist")
    if not given:
        uv("build", "--out-dir", folder, cwd=request.getfixturevalue("sources"))
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return Distributions(sdist=sdist.resolve(), wheel=wheel.resolve())


@pytest.fixture(scope="session")
def consumer(distributions: Distributions) -> Iterator[Consumer]:
    """An empty environment into which the wheel was installed, with what it and the foreign app's tests ask for.

    The versions of CDK and boto3 are those of requirements.txt, so that the same commit gives the same result on any
    day. Everything else is the newest that fits.
    """
    with tempfile.TemporaryDirectory(prefix="training-storage-consumer-") as name:
        home = Path(name).resolve()
        pins = re.findall(r"^[\w-]+==\S+$", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
        (home / "constraints.txt").write_text("\n".join(pins), encoding="utf-8")
        environment = home / "environment"
        uv("venv", "--python", sys.executable, environment, cwd=home)
        wheel = f"training-storage[testing] @ {distributions.wheel.as_uri()}"
        python = environment / "bin" / "python"
        uv("pip", "install", "--python", python, "--constraint", "constraints.txt", wheel, cwd=home)
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "cdk.out")
        app = Path(shutil.copytree(FOREIGN_APP, home / "app", ignore=ignored))
        yield Consumer(environment=environment, folder=app)


@pytest.fixture(scope="session")
def assembly(consumer: Consumer) -> Mapping[str, Any]:
    """What the CDK CLI makes of the foreign app: the path of its cdk.out, and what was printed."""
    cdk = ROOT / "node_modules" / ".bin" / "cdk"
    printed = consumer.run(
        cdk, "synth", "--quiet", "--app", f"{consumer.python} app.py", "--output", "cdk.out",
        CDK_DISABLE_CLI_TELEMETRY="true",
    )  # fmt: skip
    return {"folder": consumer.folder / "cdk.out", "printed": printed}
