"""Synthesizes the app in this process, each context once."""

from __future__ import annotations

import functools
import json
import os
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


@functools.cache
def _synthesize(context: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    from aws_cdk import App  # noqa: PLC0415 -- pure tests load no CDK

    from app import build  # noqa: PLC0415

    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context={**flags, **dict(context)})
    build(app)
    return {stack.stack_name: stack.template for stack in app.synth().stacks}


@pytest.fixture(scope="session")
def synthesize() -> Callable[..., dict[str, Any]]:
    """Return a function from context values, as after -c, to templates by stack name."""
    return lambda **context: json.loads(json.dumps(_synthesize(tuple(sorted(context.items())))))


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
