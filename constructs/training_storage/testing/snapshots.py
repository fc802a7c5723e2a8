"""Compares templates with the snapshots that were last reviewed; for pytest's fixture and for any other framework."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.testing.assertions import NotComparedWarning, losses
from training_storage.testing.differences import differences
from training_storage.testing.normalisation import normalise
from training_storage.testing.revisions import find_at
from training_storage.testing.sources import SynthesizedTemplate, read_template

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from training_storage.testing.sources import Source

__all__ = ["UPDATE_VARIABLE", "assert_matches_snapshot", "lost_since", "mismatch", "snapshot_text"]

#: Set to 1, it makes `assert_matches_snapshot` write snapshots instead of comparing with them.
UPDATE_VARIABLE: Final = "TRAINING_STORAGE_UPDATE_SNAPSHOTS"


def assert_matches_snapshot(
    source: Source,
    path: str | os.PathLike[str],
    *,
    update: bool | None = None,
    since: str | None = None,
    accept: Collection[str] = (),
) -> None:
    """Fail if the template of `source` is not as it was last reviewed.

    For test frameworks other than pytest, which has the fixture ``template_snapshot``; both write the same files.

    Parameters
    ----------
    source
        A stack, a template, or anything else that holds exactly one template; see `Source`.
    path
        File of the snapshot, JSON.
    update
        Write the snapshot. Without a value the variable ``TRAINING_STORAGE_UPDATE_SNAPSHOTS`` decides: 1 writes.
    since
        Revision of git; also fail if a resource with data would be replaced or removed since then.
    accept
        Logical ids whose loss is meant.

    Raises
    ------
    AssertionError
        If there is no snapshot, if it differs, or if data would be lost; it names every difference.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    template, file = read_template(source), Path(path)
    document = normalise(template)
    if os.environ.get(UPDATE_VARIABLE, "") == "1" if update is None else update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(snapshot_text(document), encoding="utf-8")
    else:
        found = _read(file)
        if found is None or found != document:
            remedy = f"{UPDATE_VARIABLE}=1 writes it"
            raise AssertionError(mismatch(found, document, file=file, remedy=remedy, accept=accept))
    if since is not None:
        lost = lost_since(since, file, template, accept=accept)
        if lost:
            raise AssertionError("\n".join(lost))


def snapshot_text(document: Mapping[str, Any]) -> str:
    """Return a normalised template as the file of its snapshot holds it."""
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def mismatch(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
    *,
    file: Path,
    remedy: str,
    accept: Collection[str] = (),
) -> str:
    """Return what to say about a template that is not as in its snapshot.

    Parameters
    ----------
    before
        The snapshot; None if there is none.
    after
        The template, normalised.
    file
        Of the snapshot.
    remedy
        How to write the snapshot.
    accept
        Logical ids whose loss is meant.
    """
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    if before is None:
        return f"there is no snapshot {shown} yet: {remedy}"
    lost = losses(
        SynthesizedTemplate(label="", document=before), SynthesizedTemplate(label="", document=after), accept=accept
    )
    return "\n".join(
        [
            f"the template is not as in {shown} (- snapshot, + now). If it is meant: {remedy}",
            *differences(before, after),
            *(f"! data would be lost: {line}" for line in lost),
        ]
    )


def lost_since(revision: str, file: Path, template: SynthesizedTemplate, *, accept: Collection[str] = ()) -> list[str]:
    """Return a line for each resource with data that would be replaced or removed since a revision of git.

    Parameters
    ----------
    revision
        As git spells it.
    file
        The snapshot, which is read as that revision holds it.
    template
        As it is now.
    accept
        Logical ids whose loss is meant.

    Warns
    -----
    NotComparedWarning
        If the revision holds no such snapshot.

    Raises
    ------
    ValueError
        If git does not know the revision.
    """
    before = find_at(revision, file)
    if before is None:
        warnings.warn(f"{revision} holds no {file.name}, so it is not compared", NotComparedWarning, stacklevel=2)
        return []
    lost = losses(SynthesizedTemplate(label=revision, document=before), template, accept=accept)
    return [
        f"since {revision} data would be lost; if it is meant, accept=[…] names the resource: {line}" for line in lost
    ]


def _read(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise AssertionError(f"a snapshot must be JSON, got: '{file}' ({error}); write it anew") from None
    return dict(document)
