"""Snapshots that a revision of git holds and the checkout does not: a stack that is gone loses its data as well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from training_storage.planning.guard import compare_templates
from training_storage.testing.revisions import files_at, find_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_FOLDER = "__snapshots__"


def lost_with_snapshots(revision: str, root: Path, *, accept: Collection[str] = ()) -> list[str]:
    """Return a line for each resource with data in a snapshot that has vanished since a revision of git.

    A snapshot that only has another name now is none of them: one that the revision does not hold keeps what it held.

    Parameters
    ----------
    revision
        As git spells it.
    root
        Snapshots below it are looked at.
    accept
        Logical ids whose loss is meant.
    """
    held = [file for file in files_at(revision, root) if _FOLDER in file.parts and file.suffix == ".json"]
    vanished = [file for file in held if not file.exists()]
    if not vanished:
        return []
    begun = list(_begun(root, held))
    return [line for file in vanished for line in _lost(revision, file, begun, root=root, accept=accept)]


def _begun(root: Path, held: Collection[Path]) -> Iterator[dict[str, Any]]:
    """Yield the templates of snapshots that the revision does not hold."""
    for file in sorted(set(root.glob(f"**/{_FOLDER}/**/*.json")) - set(held)):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(document, dict) and "Resources" in document:
            yield document


def _lost(
    revision: str, file: Path, begun: list[dict[str, Any]], *, root: Path, accept: Collection[str]
) -> Iterator[str]:
    try:
        before = find_at(revision, file)
    except ValueError:
        return  # no template: a snapshot of something else
    if before is None or not isinstance(before.get("Resources"), dict):
        return
    losses = compare_templates(before, {"Resources": {}}, accept=accept)
    if not losses or any(not compare_templates(before, after, accept=accept) for after in begun):
        return
    names = ", ".join(dict.fromkeys(loss.logical_id for loss in losses))
    yield (
        f"{file.relative_to(root)} of {revision} is gone, and with its stack data would be lost: {names};"
        f" if it is meant, give --accept-lost {losses[0].logical_id}"
    )
