"""Finds nested templates, and the construct behind a resource of a template, by the metadata that CDK writes.

CDK itself looks a logical id up in the whole app. Logical ids repeat, in two stages or two nested stacks, so that a
finding would be shown at another construct, and an acknowledgement there would silence it here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LOGICAL_ID, _TEMPLATE_FILE = "aws:cdk:logicalId", "aws:cdk:templateFile"


def nested_templates(template: Path) -> list[Path]:
    """Return the templates of all stacks that are nested in that of `template`, at any depth, those alike included.

    Parameters
    ----------
    template
        The template of a stack in a cloud assembly.
    """
    for entries in _metadata(template.parent):
        names = [name for _, name in _values(entries, _TEMPLATE_FILE)]
        if template.name in names:
            return [template.parent / name for name in names if name != template.name]
    return []


def construct_path(template: Path, logical_id: str) -> str | None:
    """Return the path of the construct that became `logical_id` of a template; None where CDK wrote no metadata.

    Parameters
    ----------
    template
        A template in a cloud assembly, of a stack or of a nested one.
    logical_id
        A resource of it.
    """
    for entries in _metadata(template.parent):
        stacks = dict(_values(entries, _TEMPLATE_FILE))
        for path, found in _values(entries, _LOGICAL_ID):
            if found == logical_id and _template_of(path, stacks) == template.name:
                return path.lstrip("/")
    return None


def _metadata(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield what CDK notes of each stack of an assembly, by the path of the construct."""
    for file in sorted(folder.glob("*.metadata.json")):
        yield json.loads(file.read_text(encoding="utf-8"))


def _values(entries: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    for path, notes in entries.items():
        for note in notes:
            if note.get("type") == kind:
                yield path, str(note.get("data"))


def _template_of(path: str, stacks: Mapping[str, str]) -> str | None:
    """Return the template that a construct is in: that of the closest stack above it."""
    above = [stack for stack in stacks if path.startswith(f"{stack}/")]
    return stacks[max(above, key=len)] if above else None
