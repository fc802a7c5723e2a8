"""Synthesizes the app in this process, each context once, and keeps what costs time to make."""

from __future__ import annotations

import functools
import gc
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

# At a desk properties look for new cases; in CI they try the same ones every time, so that a run says something about
# the change and not about luck.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking over what was imported, again and again: a quarter of cfn-lint's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _service_models_are_read_once() -> None:
    """Let all botocore sessions of this process share what they read of the SDK's own files.

    A command makes a session of its own each time that it runs, and reading the files takes longer than its requests.
    """
    from botocore import loaders, session  # noqa: PLC0415 -- hundreds of modules, loaded after collection

    class SharedLoader(loaders.Loader):  # type: ignore[misc]
        @property
        def search_paths(self) -> list[str]:
            # Each boto3 session adds its folder.
            paths: list[str] = self._search_paths
            paths[:] = dict.fromkeys(paths)
            return paths

    loaders.Loader = SharedLoader
    session.create_loader = functools.cache(loaders.create_loader)


@dataclass(frozen=True, kw_only=True)
class _Assembly:
    templates: dict[str, Any]
    violations: tuple[str, ...]


@functools.cache
def _synthesize(context: tuple[tuple[str, str], ...]) -> _Assembly:
    from aws_cdk import App  # noqa: PLC0415 -- pure tests load no CDK

    from app import build  # noqa: PLC0415

    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context={**flags, **dict(context)})
    build(app)
    made = app.synth()
    report = json.loads((Path(made.directory) / "validation-report.json").read_text(encoding="utf-8"))
    return _Assembly(
        templates={stack.stack_name: stack.template for stack in made.stacks},
        violations=tuple(row["ruleName"] for plugin in report["pluginReports"] for row in plugin["violations"]),
    )


@pytest.fixture(scope="session")
def synthesize() -> Callable[..., dict[str, Any]]:
    """Return a function from context values, as after -c, to templates by stack name."""
    return lambda **context: json.loads(json.dumps(_synthesize(tuple(sorted(context.items()))).templates))


@pytest.fixture(scope="session")
def violations() -> Callable[..., list[str]]:
    """Return a function from context values to the rules of cdk-nag, and ours, that the app breaks."""
    return lambda **context: list(_synthesize(tuple(sorted(context.items()))).violations)


JOBS: dict[str, dict[str, str]] = {
    "1": {"instances": "1"},
    "16": {"instances": "16"},
    "17": {"instances": "17"},
    "256": {"instances": "256"},
    "600-object": {"instances": "600", "interface": "object"},
    "1000-object": {"instances": "1000", "interface": "object"},
    "1200-mixed": {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"},
}
"""The jobs that every check of whole templates runs over."""


@pytest.fixture(scope="session")
def jobs() -> dict[str, dict[str, str]]:
    return JOBS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `job` over every job."""
    if "job" in metafunc.fixturenames:
        metafunc.parametrize("job", JOBS.values(), ids=JOBS.keys())
