"""Logical ids of what holds data stay: under another id CloudFormation makes a new, empty resource."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk.assertions import Template

from tests.cdk.job_compositions import jobs
from training_storage.planning.catalog.stateful import resource_types
from training_storage.planning.guard import compare_templates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PINNED = Path(__file__).parent / "logical_ids.json"
_UPDATE = (
    "If it is meant, name it in CHANGELOG.md with what a user has to do, raise the major version, and change"
    f" {_PINNED.name}"
)
FILE_SYSTEM = "AWS::FSx::FileSystem"
Resources = dict[str, dict[str, Any]]


def stateful(template: Mapping[str, Any]) -> Resources:
    """Return what holds data in a template, as far as the file has it."""
    types = resource_types()
    return {
        logical_id: _kept(resource)
        for logical_id, resource in sorted(template["Resources"].items())
        if (kind := types.get(resource["Type"])) is not None and kind.stateful
    }


def _kept(resource: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: resource[name] for name in ("Type", "DeletionPolicy") if name in resource}
    capacity = resource.get("Properties", {}).get("StorageCapacity")
    return kept if capacity is None else {**kept, "Properties": {"StorageCapacity": capacity}}


def costs(pinned: Mapping[str, Any], template: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each pinned resource that the template has no more, with what that costs a user."""
    there = stateful(template)
    gone = {name: one for name, one in pinned.items() if there.get(name, {}).get("Type") != one["Type"]}
    lost = compare_templates({"Resources": gone}, {"Resources": {}})
    for loss in lost:
        capacity = gone[loss.logical_id].get("Properties", {}).get("StorageCapacity")
        size = f" of {capacity:,} GiB" if isinstance(capacity, int) else ""
        news = [name for name, one in there.items() if one["Type"] == loss.type_name and name not in pinned]
        instead = (
            f"CloudFormation would make a new, empty one, {news[0]}, and drop this one{size}"
            if news
            else f"CloudFormation would drop it{size}"
        )
        yield f"{loss.logical_id} {loss.type_name}: {instead}; {loss.data}. {_UPDATE}"


@pytest.fixture(scope="module")
def pinned() -> Mapping[str, Resources]:
    found: Mapping[str, Resources] = json.loads(_PINNED.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def templates(synthesize: Callable[..., dict[str, Any]], jobs: Mapping[str, dict[str, str]]) -> dict[str, Any]:
    """The app's templates for each job, and every construct's in a stack and nested."""
    made = {
        f"app {name} {stack}": template
        for name, context in jobs.items()
        for stack, template in synthesize(**context).items()
    }
    composed = all_constructs()
    return {**made, **composed}


def all_constructs() -> dict[str, Any]:
    made = jobs()
    return {
        "constructs": dict(Template.from_stack(made.stack).to_json()),
        "constructs nested": dict(Template.from_stack(made.nested).to_json()),
    }


def test_no_user_loses_what_holds_data_by_a_change_of_ours(
    templates: dict[str, Any], pinned: Mapping[str, Resources]
) -> None:
    assert [line for name, template in templates.items() for line in costs(pinned[name], template)] == []


def test_every_resource_with_data_is_pinned(templates: dict[str, Any], pinned: Mapping[str, Resources]) -> None:
    new = {
        f"{name}: {logical_id}"
        for name, template in templates.items()
        for logical_id in stateful(template)
        if logical_id not in pinned[name]
    }
    assert new == set(), f"add them to {_PINNED.name}"
    assert set(pinned) == set(templates)


def test_a_changed_id_fails_with_what_it_would_cost(templates: dict[str, Any], pinned: Mapping[str, Resources]) -> None:
    name = next(name for name, rows in pinned.items() if any(row["Type"] == FILE_SYSTEM for row in rows.values()))
    old = next(logical_id for logical_id, row in pinned[name].items() if row["Type"] == FILE_SYSTEM)
    capacity = pinned[name][old]["Properties"]["StorageCapacity"]
    resources = {("Renamed" if key == old else key): value for key, value in templates[name]["Resources"].items()}
    (line,) = costs(pinned[name], {"Resources": resources})
    assert line.startswith(
        f"{old} AWS::FSx::FileSystem: CloudFormation would make a new, empty one, Renamed, and drop this one of"
        f" {capacity:,} GiB; "
    )
    assert "CHANGELOG.md" in line
