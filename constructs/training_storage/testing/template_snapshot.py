"""The fixture `template_snapshot`: syrupy keeps the files, the words are ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syrupy.extensions.json import JSONSnapshotExtension

from training_storage.testing.normalisation import normalise
from training_storage.testing.snapshots import lost_since, mismatch
from training_storage.testing.sources import holds_several, read_templates

if TYPE_CHECKING:
    from collections.abc import Collection

    from syrupy.assertion import SnapshotAssertion

    from training_storage.testing.sources import Source, SynthesizedTemplate

__all__ = ["TemplateSnapshot"]

_REMEDY = "pytest --snapshot-update writes it; read its diff before you commit it"


class TemplateSnapshot:
    """Compares templates with snapshots in ``__snapshots__`` beside the test.

    Parameters
    ----------
    snapshot
        Syrupy's fixture.
    since
        Revision of git since which no resource with data may be replaced or removed; None for no such check.
    """

    def __init__(self, snapshot: SnapshotAssertion, *, since: str | None = None) -> None:
        self._snapshot = snapshot.use_extension(JSONSnapshotExtension)
        self._since = since

    def __call__(self, source: Source, *, name: str | None = None, accept: Collection[str] = ()) -> None:
        """Fail if a template is not as it was last reviewed.

        Parameters
        ----------
        source
            A stack, a template, an app with several stacks (a snapshot for each); see `Source`.
        name
            What to call the snapshot in its file's name; needed only for several of them in one test.
        accept
            Logical ids whose loss is meant.

        Raises
        ------
        AssertionError
            If there is no snapshot, if it differs, or if data would be lost; it names every difference.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        templates = read_templates(source)
        if not templates:
            raise AssertionError("source must hold a template, got: none")
        several = holds_several(source)
        found = [
            line
            for template in templates
            for line in self._compare(template, name=_name(name, template) if several else name, accept=accept)
        ]
        if found:
            raise AssertionError("\n".join(found))

    def _compare(self, template: SynthesizedTemplate, *, name: str | None, accept: Collection[str]) -> list[str]:
        document = normalise(template)
        same = self._snapshot(name=name) == document
        result = self._snapshot.executions[self._snapshot.num_executions - 1]
        if result.exception is not None:
            raise result.exception
        file = Path(result.snapshot_location)
        if not same:
            before = None if result.recalled_data is None else _parse(str(result.recalled_data), file)
            return [mismatch(before, document, file=file, remedy=_REMEDY, accept=accept)]
        return [] if self._since is None else lost_since(self._since, file, template, accept=accept)


def _name(name: str | None, template: SynthesizedTemplate) -> str:
    """Return the name of the snapshot of one stack of an app."""
    label = re.sub(r"[^\w.-]+", "-", template.label)
    return label if name is None else f"{name}-{label}"


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise AssertionError(f"a snapshot must be JSON, got: '{file}' ({error}); {_REMEDY}") from None
