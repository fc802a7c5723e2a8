"""Findings as SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from training_storage.cli.check import Entry

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_TOOL = "training-storage"


def sarif(entries: Sequence[Entry], *, promises: Mapping[str, str], notes: Sequence[str]) -> dict[str, Any]:
    """Return a SARIF log.

    Parameters
    ----------
    entries
        What was found.
    promises
        What each rule demands, by its id.
    notes
        What could not be checked.
    """
    ids = list(dict.fromkeys(entry.rule for entry in entries))
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": _TOOL,
                        "rules": [{"id": name, "shortDescription": {"text": promises.get(name, name)}} for name in ids],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": f"not checked: {note}"}} for note in notes
                        ],
                    }
                ],
                "results": [_result(entry, ids.index(entry.rule)) for entry in entries],
            }
        ],
    }


def _result(entry: Entry, index: int) -> dict[str, Any]:
    logical = ".".join(part for part in (entry.logical_id, entry.location) if part)
    return {
        "ruleId": entry.rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": entry.message},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(entry.path)}},
                "logicalLocations": [{"name": entry.logical_id, "fullyQualifiedName": logical, "kind": "resource"}],
            }
        ],
        "properties": {"source": entry.source},
    }


def _uri(path: str) -> str:
    """Return a file as SARIF wants it: relative to where the command runs, or a file URI; percent-encoded."""
    file = Path(path).resolve()
    here = Path.cwd()
    return quote(file.relative_to(here).as_posix()) if file.is_relative_to(here) else file.as_uri()
