"""The completion reports of export tasks in the lake, and the record of what was exported."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .calls import Calls, Record

_FAILED = "FAILED"
#: Columns of REPORT_CSV_20191124: path, status, error code (FSx for Lustre guide, task completion reports).
_COLUMNS = 3
_START_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class FailedFile:
    """A file that a task could not export, and FSx's code for why."""

    path: str
    code: str


class Reports:
    """Reports under one prefix of the lake.

    Parameters
    ----------
    calls
        AWS.
    uri
        ``s3://bucket/prefix/``, within a linked prefix: FSx writes reports nowhere else.
    """

    def __init__(self, *, calls: Calls, uri: str) -> None:
        self._calls = calls
        self._bucket, _, self._prefix = uri.removeprefix("s3://").rstrip("/").partition("/")

    def folder(self, file_system_id: str) -> str:
        """Return where the reports of a file system go, for FSx."""
        return f"s3://{self._bucket}/{self._prefix}/{file_system_id}"

    def uri(self, task: Mapping[str, object]) -> str:
        """Return the report of a task, for people."""
        return f"{self.folder(str(task['FileSystemId']))}/{task['TaskId']}/failures.csv"

    def failures(self, task: Mapping[str, object]) -> list[FailedFile]:
        """Return files that the report of a task lists as failed; a report may be missing if none failed.

        A report has a line for every file and no limit, so only its start is read: enough to name some, and to know
        that there are any. How many there are is in the task's own count.
        """
        key = self.uri(task).removeprefix(f"s3://{self._bucket}/")
        text = self._calls.read_start(bucket=self._bucket, key=key, size=_START_BYTES)
        # The last line may be cut, which leaves its path and, at worst, a part of its code.
        rows = [row for row in csv.reader(io.StringIO(text)) if len(row) >= _COLUMNS]
        return [FailedFile(path=row[0], code=row[2]) for row in rows if row[1].strip().upper() == _FAILED]

    def write_outcome(self, file_system_id: str, *, exported: Sequence[Record], content: Mapping[str, object]) -> str:
        """Write what was exported and what was not, beside the reports; return where."""
        tasks = [{"task": task["TaskId"], "paths": task["Paths"], "status": task.get("Status")} for task in exported]
        key = f"{self._prefix}/{file_system_id}/outcome.json"
        record = {"schema_version": 1, "file_system_id": file_system_id, **content, "export_tasks": tasks}
        self._calls.write_json(bucket=self._bucket, key=key, content=record)
        return f"s3://{self._bucket}/{key}"
