"""Assertions for the tests of users: templates are legal, and updates lose no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_storage.planning.guard import compare_templates
from training_storage.planning.legality import check_template

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["assert_legal", "assert_nothing_lost"]


def assert_legal(template: Mapping[str, Any], *, region: str | None = None) -> None:
    """Fail if FSx for Lustre or S3 Express would refuse something in `template`.

    Parameters
    ----------
    template
        For example ``Template.from_stack(stack).to_json()``.
    region
        Where it will be deployed; rules about Regions are left out without it.

    Raises
    ------
    AssertionError
        Naming every finding.
    """
    found = check_template(template, region=region).findings
    if found:
        raise AssertionError("\n".join(f"{one.logical_id}: {one.finding.message}" for one in found))


def assert_nothing_lost(before: Mapping[str, Any], after: Mapping[str, Any], *, accept: Collection[str] = ()) -> None:
    """Fail if an update from `before` to `after` would replace or remove a resource with data.

    Parameters
    ----------
    before, after
        Two templates, such as the one last released and the one to come.
    accept
        Logical ids whose loss is meant.

    Raises
    ------
    AssertionError
        Naming every resource, what causes it, and what happens to its data.
    """
    found = compare_templates(before, after, accept=accept)
    if found:
        raise AssertionError("\n".join(f"{loss.logical_id}: {loss.message}" for loss in found))
