"""What is no template is never found clean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App

from training_storage.testing import assert_legal, assert_nothing_lost, lint_findings, normalised

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKS: dict[str, Callable[[Any], object]] = {
    "legal": assert_legal,
    "lint": lint_findings,
    "lost": lambda source: assert_nothing_lost(source, {"Resources": {}}),
    "lost-after": lambda source: assert_nothing_lost({"Resources": {}}, source),
    "normalised": normalised,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("source", [{}, {"foo": 1}, {"resources": {}}, {"Resources": []}], ids=str)
def test_a_mapping_without_resources_is_refused_in_one_line(check: str, source: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a template must have Resources, got one with the keys: [^\n]*\Z"):
        CHECKS[check](source)


@pytest.mark.parametrize("check", ["legal", "lint"])
def test_an_app_without_stacks_is_refused_in_one_line(check: str) -> None:
    with pytest.raises(ValueError, match=r"source must hold a template, got: none; nothing was checked\Z"):
        CHECKS[check](App())
