"""Counts the files of a source for a plan, in bounded memory."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import TYPE_CHECKING

from training_storage.planning.sample_names import is_hidden, sample_name
from training_storage.planning.sample_survey import DataSummary, Survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.training.shard_source import Source

_FILES_BETWEEN_NOTES = 10_000


def survey(source: Source, *, part_bytes: int, listed: Callable[[int], None] | None = None) -> DataSummary:
    """Return what `source` is made of.

    Parameters
    ----------
    source
        A folder or a prefix.
    part_bytes
        Greater files are read in several requests of this size.
    listed
        Is told the number of files so far, now and then.
    """
    found = Survey(part_bytes=part_bytes)
    keys = None if source.is_ordered else _Keys()
    for number, (path, size, _, fault) in enumerate(source.files(), 1):
        found.add(path, size, fault=fault)
        if keys is not None and fault is None:
            keys.add(path)
        if listed is not None and number % _FILES_BETWEEN_NOTES == 0:
            listed(number)
    summary = found.summary()
    return summary if keys is None else dataclasses.replace(summary, samples=keys.count())


class _Keys:
    """Counts different keys of a listing without an order, in a temporary file that SQLite removes by itself."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, path: str) -> None:
        name = None if is_hidden(path) else sample_name(path)
        if name is not None:
            self._database.execute("INSERT OR IGNORE INTO keys VALUES (?)", (name.key.encode(),))

    def count(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM keys").fetchone()
        self._database.close()
        return int(count)
