"""Exports folders of a Lustre file system to the lake with data repository tasks."""

from __future__ import annotations

import csv
import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_settings import place_of
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.operations.lustre_state import (
    EXPORT,
    JOB_TAG,
    Link,
    Task,
    read_links,
    read_task,
    read_tasks,
    task_of,
)
from training_storage.planning.catalog.lustre import association_limits
from training_storage.planning.units import SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training_storage.operations.archive_settings import ArchiveSettings, LustrePlace, S3Place

#: Hidden, so that no listing of checkpoints takes it for one.
REPORTS: Final = ".archive-reports"
#: The first look at a task, and how long the wait between two grows to: FSx counts files in far larger steps.
FIRST_POLL_SECONDS: Final = 1.0
POLL_SECONDS: Final = 10.0
_GROWTH: Final = 1.5
_REPORT_FORMAT: Final = "REPORT_CSV_20191124"
_NAMED_FILES: Final = 3
#: The beginning of a report, of which a few files are named: whole ones have as many lines as files failed.
_REPORT_BYTES: Final = 64 * 1024
_AVAILABLE: Final = ("AVAILABLE", "UPDATING")


class LustreExport:
    """Runs export tasks on a file system, one at a time, and waits for them.

    Parameters
    ----------
    fsx, s3
        Clients.
    settings
        The job's; its source is a Lustre folder.
    wait_minutes
        How long to wait for tasks altogether; a task that takes longer goes on, and the next run adopts it.
    say
        Told a line about each task that is waited for.
    """

    def __init__(
        self,
        *,
        fsx: Any,  # noqa: ANN401 -- boto3 clients have no type
        s3: Any,  # noqa: ANN401
        settings: ArchiveSettings,
        source: LustrePlace,
        wait_minutes: float,
        say: Callable[[str], None],
    ) -> None:
        self._fsx = fsx
        self._s3 = s3
        self._job = settings.job
        self._source = source
        self._lake = settings.lake
        self._deadline = time.monotonic() + wait_minutes * SECONDS_PER_MINUTE
        self._wait_minutes = wait_minutes
        self._say = say

    def check_link(self) -> Link:
        """Return the link that takes the checkpoints' folder to the lake.

        Raises
        ------
        ArchiveError
            If there is none, it does not work, it leads elsewhere, or it exports by itself.
        """
        system, folder = self._source.file_system_id, "/" + self._source.relative
        links: list[Link] = self._asked(
            lambda: read_links(self._fsx, [system]), "fsx:DescribeDataRepositoryAssociations"
        )
        link = next((one for one in links if one.covers(folder)), None)
        if link is None:
            there = ", ".join(one.directory for one in links) or "none"
            raise ArchiveError(f"{folder} of {system} is linked to no prefix of the lake (linked: {there})")
        if link.lifecycle not in _AVAILABLE:
            raise ArchiveError(
                f"the link {link.id} of {link.directory} is {link.lifecycle} ({link.failure or 'FSx gives no reason'});"
                " mend it first: training-storage status says how"
            )
        target = _target(link, folder)
        if target != self._lake:
            raise ArchiveError(
                f"{folder} of {system} is linked to {target.uri}, the archive should go to {self._lake.uri}"
            )
        if link.export_events:
            raise ArchiveError(
                f"{link.directory} of {system} exports {', '.join(link.export_events)} by itself, and FSx runs no "
                f"export task beside that; turn it off: aws fsx update-data-repository-association --association-id "
                f"{link.id} --s3 'AutoExportPolicy={{Events=[]}}'"
            )
        return link

    def export(self, paths: Sequence[str]) -> None:
        """Export `paths`, which are relative to the mount point, and wait until they are in the lake.

        What is there already is not copied again. A task that does the same already is waited for instead.

        Raises
        ------
        ArchiveError
            If a task fails, is cancelled or takes too long; names the report and the first files.
        """
        most = association_limits().task_paths_maximum
        for start in range(0, len(paths), most):
            self._run(sorted(paths[start : start + most]))

    def _run(self, paths: list[str]) -> None:
        system = self._source.file_system_id
        while True:
            running = [
                task
                for task in self._asked(lambda: read_tasks(self._fsx, [system]), "fsx:DescribeDataRepositoryTasks")
                if task.is_running
            ]
            same = next((task for task in running if _is_of(task, paths)), None)
            if same is not None:
                self._say(f"{same.id} exports this already; waiting for it")
                self._judge(self._wait(same))
                return
            if not running:
                task = self._start(paths)
                if task is not None:
                    self._judge(self._wait(task))
                    return
            else:
                other = running[0]
                self._say(
                    f"{other.id} ({other.kind}) is {other.lifecycle}; FSx runs one task at a time, waiting for it"
                )
                self._wait(other)

    def _start(self, paths: list[str]) -> Task | None:
        """Start the task; None if another one came first."""
        try:
            record = self._fsx.create_data_repository_task(
                FileSystemId=self._source.file_system_id,
                Type=EXPORT,
                Paths=paths,
                Report={
                    "Enabled": True,
                    "Path": self._lake.uri + REPORTS,
                    "Format": _REPORT_FORMAT,
                    "Scope": "FAILED_FILES_ONLY",
                },
                Tags=[{"Key": JOB_TAG, "Value": self._job}],
            )["DataRepositoryTask"]
        except AWS_ERRORS as error:
            if code_of(error) == "DataRepositoryTaskExecuting":
                return None
            raise ArchiveError(
                f"the export could not be started: {why(error, action='fsx:CreateDataRepositoryTask')}"
            ) from error
        task = task_of(record)
        self._say(f"{task.id} exports {len(paths)} paths to {self._lake.uri}")
        return task

    def _wait(self, task: Task) -> Task:
        pause = FIRST_POLL_SECONDS
        while task.is_running:
            if time.monotonic() >= self._deadline:
                raise ArchiveError(
                    f"{task.id} is still {task.lifecycle} after {self._wait_minutes:g} minutes ({task.progress()}); it "
                    "goes on, and the same command takes it up again"
                )
            time.sleep(pause)
            pause = min(pause * _GROWTH, POLL_SECONDS)
            task = self._asked(partial(read_task, self._fsx, task.id), "fsx:DescribeDataRepositoryTasks")
        return task

    def _judge(self, task: Task) -> None:
        if task.lifecycle == "SUCCEEDED" and not task.failed:
            return
        if task.lifecycle == "CANCELED":
            raise ArchiveError(f"{task.id} was cancelled ({task.progress()}); run the same command again")
        report = f"{REPORTS}/{task.id}/failures.csv"
        named = self._failed_files(report)
        which = f": {'; '.join(named)}" if named else ""
        rest = (task.failed or 0) - len(named)
        more = f" and {rest:,} more" if named and rest > 0 else ""
        raise ArchiveError(
            f"{task.id} failed ({task.progress()}){which}{more}; {task.failure or 'FSx gives no reason'} Report: "
            f"{self._lake.uri}{report}"
        )

    def _failed_files(self, report: str) -> list[str]:
        """Return the first files of a completion report with their error codes; empty if it cannot be read."""
        try:
            answer = self._s3.get_object(
                Bucket=self._lake.bucket, Key=self._lake.prefix + report, Range=f"bytes=0-{_REPORT_BYTES - 1}"
            )
            text = answer["Body"].read().decode(errors="replace")
        except AWS_ERRORS:
            return []
        lines = text.splitlines(keepends=True)
        if len(text.encode()) >= _REPORT_BYTES and not lines[-1].endswith("\n"):
            # Cut off by the range.
            lines.pop()
        # FilePath, FileStatus, ErrorCode (FSx API, CompletionReport).
        rows = (row for row in csv.reader(lines) if len(row) > 1)
        return [f"{row[0]} ({row[-1]})" for row in islice(rows, _NAMED_FILES)]

    def _asked(self, ask: Callable[[], Any], action: str) -> Any:  # noqa: ANN401 -- whatever is asked for
        try:
            return ask()
        except AWS_ERRORS as error:
            raise ArchiveError(
                f"{self._source.file_system_id} cannot be looked at: {why(error, action=action)}"
            ) from error


def _target(link: Link, folder: str) -> S3Place:
    below = folder.removeprefix(link.directory.rstrip("/")).strip("/")
    return place_of(
        "/".join(filter(None, [link.data_repository_path.rstrip("/"), below])), what="the link's repository"
    )


def _is_of(task: Task, paths: Sequence[str]) -> bool:
    return (
        task.kind == EXPORT
        and task.lifecycle != "CANCELING"
        and sorted(path.strip("/") for path in task.paths) == list(paths)
    )
