"""Export, compare, delete: one step at a time, each decided from what AWS says now, so that any step may be the last.

Nothing is kept in memory between two steps. What must survive a crash is on the resources: the events of automatic
export as a tag of the link, the attempt that a task belongs to as a tag of the task.
"""

from __future__ import annotations

import datetime as dt
import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import tags
from .calls import EXPORT, RUNNING
from .refusal import NotFoundError, NotNowError, RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .calls import Calls, Record
    from .metrics import Metrics, Written
    from .report import Reports

#: How long to wait for CloudWatch to say that nothing was written; its values are minutes late.
_METRICS_DELAY = dt.timedelta(minutes=6)
#: After that a value that is not there is not late: CloudWatch does not know.
_METRICS_PATIENCE = dt.timedelta(minutes=30)
_RESTORE_TRIES = 6
_FILES_NAMED = 3
_TWO_MINUTES = 120
_QUEUE_AGE = "AgeOfOldestQueuedMessage"
_CHANGING = ("CREATING", "UPDATING")


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link that the file system was made with.

    Parameters
    ----------
    path
        Directory of the file system, such as ``/checkpoints``.
    exported
        Whether it is exported before the file system goes: False for what is only read from the lake, and for what the
        user called disposable.
    """

    path: str
    exported: bool


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try to delete a file system.

    Parameters
    ----------
    id
        Tells this try from the others: only a task that carries it proves anything, because it began after the writers
        had gone.
    began, deadline
        When it began, and when it gives up.
    gate
        Value of the tag that file system, links and tasks carry.
    stack_name
        The stack that the file system is from.
    links
        The links that it was made with.
    never_used
        Whether the creation of the stack failed: no cluster ever knew of the file system.
    """

    id: str
    began: dt.datetime
    deadline: dt.datetime
    gate: str
    stack_name: str
    links: tuple[Link, ...]
    never_used: bool = False


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What a step waits for, and what helps if it takes too long."""

    what: str
    way_out: str = "Run it again later"
    deleting: bool = False


class Content(enum.Enum):
    """Whether there can be anything to lose."""

    NOTHING = enum.auto()
    #: CloudWatch knows of no byte, but its values are behind: act as if there were something, but do not refuse yet.
    NOTHING_SO_FAR = enum.auto()
    SOMETHING = enum.auto()


class Gate:
    """Deletes file systems whose data is in the lake.

    Parameters
    ----------
    calls, metrics, reports
        AWS.
    clock
        Returns the present time, with a time zone.
    pause_seconds
        Between two tries to restore automatic export before a refusal: a link takes no change while it is changing.
    pause
        Waits that long.
    """

    def __init__(
        self,
        *,
        calls: Calls,
        metrics: Metrics,
        reports: Reports,
        clock: Callable[[], dt.datetime],
        pause_seconds: float = 10.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls = calls
        self._metrics = metrics
        self._reports = reports
        self._clock = clock
        self._pause_seconds = pause_seconds
        self._pause = pause

    def advance(self, file_system_id: str, attempt: Attempt) -> Waiting | None:
        """Take the next steps; return what they wait for, or None once the file system is gone.

        Raises
        ------
        RefusalError
            If the file system cannot go, or time has run out. By then automatic export is restored and the file system
            tagged.
        """
        waiting: Waiting | None = None
        try:
            waiting = self._step(file_system_id, attempt)
        except NotNowError as error:
            waiting = Waiting(what=f"AWS: {error}")
        except RefusalError as error:
            self._refuse(file_system_id, attempt, error)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, automatic export must come back
            told = RefusalError(f"the gate broke down ({type(error).__name__}: {error})", way_out="Run it again")
            self._refuse(file_system_id, attempt, told)
        if waiting is None or self._clock() < attempt.deadline:
            return waiting
        time_spent = _duration(attempt.deadline - attempt.began)
        if waiting.deleting:
            raise RefusalError(
                f"{file_system_id} is exported, verified and being deleted, but not gone after {time_spent}",
                way_out="Run it again",
            )
        self._refuse(
            file_system_id,
            attempt,
            RefusalError(
                f"time ran out after {time_spent}, waiting for {waiting.what}",
                way_out=waiting.way_out,
                words=f"time ran out waiting for {waiting.what}",
            ),
        )
        return None  # pragma: no cover - a refusal raises

    def restore(self, file_system_id: str) -> list[str]:
        """Turn automatic export on again where the gate turned it off; return why it could not, link by link."""
        left = self._restore_once(file_system_id)
        for _ in range(_RESTORE_TRIES):
            if not left:
                break
            self._pause(self._pause_seconds)
            left = self._restore_once(file_system_id)
        return left

    # ---- the steps ----

    def _step(self, file_system_id: str, attempt: Attempt) -> Waiting | None:
        system = self._calls.file_system(file_system_id)
        if system is None:
            return None
        if system["Lifecycle"] == "DELETING":
            return Waiting(what=f"{file_system_id} to be deleted", deleting=True)
        if system["Lifecycle"] == "CREATING":
            return Waiting(what=f"{file_system_id} to be created")
        links = self._calls.links(file_system_id)
        content = self._content(system, links, attempt)
        if content is Content.NOTHING:
            return self._delete(file_system_id, exported=(), attempt=attempt)
        try:
            return self._export_and_delete(file_system_id, links, attempt)
        except RefusalError:
            if content is Content.NOTHING_SO_FAR and self._clock() < attempt.began + _METRICS_DELAY:
                return Waiting(what="CloudWatch to say whether anything was ever written")
            raise

    def _content(self, system: Record, links: Sequence[Record], attempt: Attempt) -> Content:
        if not (links or attempt.links):
            return Content.NOTHING
        written = self._metrics.written_ever(system["FileSystemId"], created=system["CreationTime"])
        if system["Lifecycle"] == "FAILED":
            return self._content_of_failed(system, written)
        if written.size:
            return Content.SOMETHING
        if attempt.never_used:
            return Content.NOTHING
        # Without a byte there may still be empty files, links and directories.
        if written.size is None or written.known_until is None or written.operations != 0:
            return Content.SOMETHING
        return Content.NOTHING if written.known_until >= attempt.began else Content.NOTHING_SO_FAR

    def _content_of_failed(self, system: Record, written: Written) -> Content:
        """Return NOTHING for one whose creation failed.

        Raises
        ------
        RefusalError
            If clients had it: it cannot be exported, and what is in it may be nowhere else.
        """
        if tags.HANDED_OVER not in tags.of(system) and not written.size:
            return Content.NOTHING
        message = str((system.get("FailureDetails") or {}).get("Message") or "FSx does not say why").rstrip(".")
        raise RefusalError(
            f"it is FAILED ({message}), so nothing can be exported, and clients had it",
            way_out=(
                "Ask AWS Support whether it can be mended, then run it again; if its data may be lost, delete it"
                f" yourself with 'aws fsx delete-file-system --file-system-id {system['FileSystemId']}'"
            ),
            words="it is FAILED, and clients had it",
        )

    def _export_and_delete(self, file_system_id: str, links: Sequence[Record], attempt: Attempt) -> Waiting:
        exported = _exported(links, attempt)
        _check_links(links, exported, attempt)
        tasks = self._calls.tasks(file_system_id)
        waiting = self._make_ready(links, tasks)
        if waiting or not exported:
            return waiting or self._delete(file_system_id, exported=(), attempt=attempt)
        ours = [task for task in tasks if task["Type"] == EXPORT and tags.of(task).get(tags.ATTEMPT) == attempt.id]
        if not ours:
            return self._start(file_system_id, exported, attempt, number=1)
        newest = ours[-1]
        self._compare(newest)
        ended: dt.datetime = newest.get("EndTime") or self._clock()
        waiting = self._wait_for_queue(file_system_id, links, ended)
        if waiting:
            return waiting
        written = self._metrics.written_since(file_system_id, newest["CreationTime"])
        if written.size:
            # What was written after the task had passed is not in the lake: once more.
            self._start(file_system_id, exported, attempt, number=len(ours) + 1)
            return Waiting(
                what=f"clients to stop writing: {written.size:.0f} bytes since {newest['TaskId']} began",
                way_out="Stop what writes and unmount the file system, then run it again",
            )
        if written.known_until is not None and written.known_until >= ended:
            return self._delete(file_system_id, exported=ours, attempt=attempt)
        late = self._clock() - ended
        if written.newest is not None and written.newest >= ended and late >= _METRICS_DELAY:
            # There is a hole in the values, and nobody knows what was written in it: once more.
            self._start(file_system_id, exported, attempt, number=len(ours) + 1)
        elif late >= _METRICS_PATIENCE:
            raise _unknown(file_system_id, "DataWriteBytes", f"whether clients wrote since {newest['TaskId']} began")
        return Waiting(
            what="CloudWatch to say whether clients still write",
            way_out="Run it again when the metric DataWriteBytes has values up to now",
        )

    def _wait_for_queue(self, file_system_id: str, links: Sequence[Record], ended: dt.datetime) -> Waiting | None:
        """Wait until automatic export has nothing left; its metric exists only where a link exports by itself.

        Raises
        ------
        RefusalError
            If CloudWatch does not know.
        """
        stopped = [tags.of(link) for link in links if tags.EXPORT_EVENTS in tags.of(link)]
        since = [
            dt.datetime.fromisoformat(found[tags.EXPORT_STOPPED]) for found in stopped if tags.EXPORT_STOPPED in found
        ]
        age = self._metrics.export_queue_age(file_system_id, since=min(since, default=None))
        if age is None and stopped:
            if self._clock() - ended >= _METRICS_PATIENCE:
                raise _unknown(file_system_id, _QUEUE_AGE, "whether changes still wait for automatic export")
            return Waiting(
                what="CloudWatch to say whether changes wait for automatic export",
                way_out=f"Run it again when the metric {_QUEUE_AGE} (Publisher=AutoExport) has values",
            )
        if not age:
            return None
        return Waiting(
            what=f"automatic export: its oldest queued change is {age:.0f} seconds old",
            way_out=f"Run it again when the metric {_QUEUE_AGE} (Publisher=AutoExport) is 0",
        )

    def _make_ready(self, links: Sequence[Record], tasks: Sequence[Record]) -> Waiting | None:
        """Stop automatic export, beside which no export task runs, and wait for whatever is under way."""
        for link in links:
            if link["Lifecycle"] in _CHANGING:
                return Waiting(what=f"link {link['FileSystemPath']}, which is {link['Lifecycle']}")
        stopped = [link for link in links if self._stop_automatic_export(link)]
        if stopped:
            return Waiting(what=f"automatic export of {stopped[0]['FileSystemPath']} to stop")
        running = [task for task in tasks if task["Lifecycle"] in RUNNING]
        return _waiting_for(running[0]) if running else None

    def _stop_automatic_export(self, link: Record) -> bool:
        """Turn automatic export off, its events remembered before; return whether it was on."""
        events = _events(link)
        if events:
            stopped = self._clock().isoformat(timespec="seconds")
            self._calls.tag(link["ResourceARN"], EXPORT_EVENTS=" ".join(events), EXPORT_STOPPED=stopped)
            self._calls.set_export_events(link, ())
        return bool(events)

    def _start(self, file_system_id: str, exported: Sequence[Record], attempt: Attempt, *, number: int) -> Waiting:
        # A file system has at most 8 links, so one task takes them all (a task takes 100 paths).
        paths = [str(link["FileSystemPath"]).strip("/") for link in exported]
        self._calls.start_export(
            file_system_id,
            paths=[path for path in paths if path],
            report=self._reports.folder(file_system_id),
            token=f"{attempt.id}-{number}",
            gate=attempt.gate,
            attempt=attempt.id,
        )
        return Waiting(what="the export task to begin")

    def _compare(self, task: Record) -> None:
        """Refuse if the task left anything behind, by its own count or by its report."""
        status = task.get("Status") or {}
        failures = self._reports.failures(task)
        # The report is read in part only, so the task's own count is the count.
        failed = int(status.get("FailedCount") or 0) or len(failures)
        total, succeeded = int(status.get("TotalCount") or 0), int(status.get("SucceededCount") or 0)
        if task["Lifecycle"] == "SUCCEEDED" and not failed and succeeded >= total:
            return
        named = ", ".join(f"{failure.path} ({failure.code})" for failure in failures[:_FILES_NAMED])
        message = str((task.get("FailureDetails") or {}).get("Message") or "")
        details = "; ".join(part for part in (message.rstrip("."), named) if part)
        count = (
            f"{max(failed, total - succeeded)} of {total} files are not in the lake" if total else "no files counted"
        )
        raise RefusalError(
            f"export task {task['TaskId']} ended {task['Lifecycle']}, {count}" + (f" ({details})" if details else ""),
            way_out=f"See 'aws s3 cp {self._reports.uri(task)} -', mend the cause and run it again",
            words=f"export task {task['TaskId']} ended {task['Lifecycle']}",
        )

    def _delete(self, file_system_id: str, *, exported: Sequence[Record], attempt: Attempt) -> Waiting:
        running = [task for task in self._calls.tasks(file_system_id) if task["Lifecycle"] in RUNNING]
        if running:
            # FSx refuses while one is under way, be it only the import that came with a link.
            return _waiting_for(running[0])
        if exported:
            self._reports.write_outcome(
                file_system_id,
                exported=exported,
                content={
                    "stack": attempt.stack_name,
                    "verified_at": self._clock().isoformat(timespec="seconds"),
                    "not_exported": [
                        *(link.path for link in attempt.links if not link.exported),
                        "whatever is outside the linked directories",
                    ],
                },
            )
        self._calls.delete_file_system(file_system_id)
        return Waiting(what=f"{file_system_id} to be deleted", deleting=True)

    # ---- refusing ----

    def _refuse(self, file_system_id: str, attempt: Attempt, refusal: RefusalError) -> None:
        """Restore, tag and raise.

        Raises
        ------
        RefusalError
            Always.
        """
        also = tuple(self.restore(file_system_id))
        try:
            self.mark_left_standing(file_system_id, words=refusal.words, stack_name=attempt.stack_name)
        except (NotNowError, NotFoundError, RefusalError) as error:
            also = (*also, f"It carries no tag that says so ({error}).")
        raise RefusalError(
            refusal.reason(file_system_id, also=also), way_out=refusal.way_out, words=refusal.words
        ) from refusal

    def mark_left_standing(self, file_system_id: str, *, words: str, stack_name: str) -> None:
        """Tag a file system with why it stands and where it is from, so that it is found when the stack is gone."""
        system = self._calls.file_system(file_system_id)
        if system is not None:
            self._calls.tag(system["ResourceARN"], LEFT_STANDING=words, STACK=stack_name)

    def _restore_once(self, file_system_id: str) -> list[str]:
        left: list[str] = []
        try:
            links = self._calls.links(file_system_id)
        except (NotNowError, RefusalError) as error:
            return [f"Automatic export may be off ({error})."]
        for link in links:
            remembered = tags.of(link).get(tags.EXPORT_EVENTS)
            if not remembered:
                continue
            try:
                if not _events(link):
                    self._calls.set_export_events(link, remembered.split())
                self._calls.untag(link["ResourceARN"], tags.EXPORT_EVENTS, tags.EXPORT_STOPPED)
            except NotFoundError:
                continue
            except (NotNowError, RefusalError) as error:
                left.append(f"Automatic export of {link['FileSystemPath']} is still off ({error}).")
        return left


def _duration(length: dt.timedelta) -> str:
    seconds = round(length.total_seconds())
    return f"{seconds // 60} minutes" if seconds >= _TWO_MINUTES else f"{seconds} seconds"


def _events(link: Mapping[str, Record]) -> list[str]:
    return list(((link.get("S3") or {}).get("AutoExportPolicy") or {}).get("Events") or [])


def _directory(path: object) -> str:
    return "/" + str(path).strip("/")


def _exported(links: Sequence[Record], attempt: Attempt) -> list[Record]:
    """Return the links to export: what the gate was told, and whatever else of the file system can go out."""
    told = {_directory(link.path): link.exported for link in attempt.links}
    # A link that somebody added by hand is exported as well, unless it only brings data in.
    return [link for link in links if told.get(_directory(link["FileSystemPath"]), _is_writable(link))]


def _is_writable(link: Record) -> bool:
    imports = ((link.get("S3") or {}).get("AutoImportPolicy") or {}).get("Events")
    return bool(_events(link)) or tags.EXPORT_EVENTS in tags.of(link) or not imports


def _check_links(links: Sequence[Record], exported: Sequence[Record], attempt: Attempt) -> None:
    """Refuse if a link that must be exported is gone or cannot export."""
    there = {_directory(link["FileSystemPath"]) for link in links}
    for expected in attempt.links:
        if expected.exported and _directory(expected.path) not in there:
            raise RefusalError(
                f"the link of {expected.path} is gone, so what is in it cannot be exported",
                way_out="Link it again ('aws fsx create-data-repository-association') and run it again",
                words=f"the link of {expected.path} is gone",
            )
    for link in exported:
        if link["Lifecycle"] in ("AVAILABLE", *_CHANGING):
            continue
        message = str((link.get("FailureDetails") or {}).get("Message") or "FSx does not say why").rstrip(".")
        raise RefusalError(
            f"link {link['FileSystemPath']} ({link['AssociationId']}) is {link['Lifecycle']}: {message}",
            way_out=(
                "See 'aws fsx describe-data-repository-associations --association-ids"
                f" {link['AssociationId']}', mend the bucket's policy or key and run it again"
            ),
            words=f"link {link['FileSystemPath']} is {link['Lifecycle']}",
        )


def _unknown(file_system_id: str, metric: str, what: str) -> RefusalError:
    return RefusalError(
        f"CloudWatch has no value of {metric} that says {what}",
        way_out=(
            "See 'aws cloudwatch list-metrics --namespace AWS/FSx --dimensions"
            f" Name=FileSystemId,Value={file_system_id}' and run it again when there are values; if what is not"
            " exported may be lost, delete it yourself with"
            f" 'aws fsx delete-file-system --file-system-id {file_system_id}'"
        ),
        words=f"CloudWatch has no value of {metric}",
    )


def _waiting_for(task: Record) -> Waiting:
    status = task.get("Status") or {}
    return Waiting(
        what=(
            f"{task['TaskId']}, which is {task['Lifecycle']}"
            f" ({status.get('SucceededCount') or 0} of {status.get('TotalCount') or 0} files)"
        ),
        way_out=(
            f"It goes on; run it again when 'aws fsx describe-data-repository-tasks --task-ids {task['TaskId']}' says"
            " that it has ended, or run 'training-storage park', which waits for hours"
        ),
    )
