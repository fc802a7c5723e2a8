"""``training-storage release``: free the space of files that are in the lake already; deletes nothing."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import OK, PROGRAM, Verbs, say
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.text import wrapped
from training_storage.planning.units import GIB

if TYPE_CHECKING:
    from training_storage.operations.lustre_state import Task
    from training_storage.operations.release import Capacity, Request, Started

SCHEMA_VERSION = 1
_FAILED = 1
#: What shells say of a program that Ctrl-C ended.
_INTERRUPTED = 130
#: Seconds between two looks at the task: FSx counts files in far larger steps.
_POLL_SECONDS = 10.0
_OPTIONS = [
    "--job",
    "--file-system",
    "--path",
    "--unused-days",
    "--region",
    "--dry-run",
    "--wait",
    "--no-wait",
    "--json",
]


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "release",
        help="free the space of files that are in the lake already; deletes nothing",
        description="Free the space of files on FSx for Lustre that are in the lake already and that nobody has used "
        "for some days. Their names stay; the first read of one brings its data back. Nothing is deleted, and what has "
        "not been exported stays as it is.",
        allow_abbrev=False,
    )
    parser.add_argument("--job", metavar="NAME", help="the job; not needed where one file system stands")
    parser.add_argument("--file-system", metavar="ID", help="the file system, such as fs-0123456789abcdef0")
    parser.add_argument(
        "--path",
        metavar="PATH",
        action="append",
        default=[],
        help="a directory or file such as /datasets/2025; may be repeated; everything if left out",
    )
    parser.add_argument(
        "--unused-days",
        metavar="DAYS",
        help="only files that were neither read nor changed for so many days (default 7; 0 for all)",
    )
    parser.add_argument("--region", metavar="REGION", help="the Region; the caller's if left out")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for the end and say what was freed (the default), or only start",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run, options=_OPTIONS)


def _run(arguments: argparse.Namespace) -> int:
    # Only the verbs that talk to AWS load boto3.
    from training_storage.operations import aws_calls, release  # noqa: PLC0415

    days = _days(arguments.unused_days, default=release.DEFAULT_UNUSED_DAYS)
    region = aws_calls.region_of(arguments.region)
    client = aws_calls.clients(region)
    fsx, cloudwatch = client("fsx"), client("cloudwatch")
    try:
        system = release.find_target(fsx, job=arguments.job, file_system_id=arguments.file_system)
        request = release.prepare(fsx, system=system, paths=arguments.path, unused_days=days)
        before = release.free_bytes(cloudwatch, system, now=_now())
        answer = _Answer(request=request, region=region, capacity=before)
        if arguments.dry_run:
            return answer.print(as_json=arguments.json)
        answer.started = release.start(fsx, request)
        if not arguments.wait:
            return answer.print(as_json=arguments.json)
        line = _ProgressLine()
        answer.task = release.watch(fsx, answer.started.task, say=line.show, poll_seconds=_POLL_SECONDS)
        line.end()
        answer.capacity = release.freed(
            cloudwatch, system, before=before, ended=answer.task.ended or _now(), poll_seconds=_POLL_SECONDS
        )
        return answer.print(as_json=arguments.json)
    except release.ReleaseError as error:
        say(sys.stderr, f"{PROGRAM}: {error}\n")
        return _FAILED
    except KeyboardInterrupt:
        say(
            sys.stderr,
            f"\n{PROGRAM}: interrupted; a task that was started goes on. The same command watches it again.\n",
        )
        return _INTERRUPTED


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


def _days(text: str | None, *, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidJobError(f"--unused-days must be a whole number of days from 0, got: {text!r}; for example 7.")
    return int(text)


class _ProgressLine:
    """One line on stderr that changes in place on a terminal; elsewhere a line for each change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, task: Task) -> None:
        """Show how far the task is."""
        text = f"{task.id} {task.lifecycle}: {task.progress()}"
        if text == self._last:
            return
        if sys.stderr.isatty():
            say(sys.stderr, f"\r{text:<{len(self._last)}}")
        else:
            say(sys.stderr, text + "\n")
        sys.stderr.flush()
        self._last = text

    def end(self) -> None:
        """Leave the line."""
        if self._last and sys.stderr.isatty():
            say(sys.stderr, "\n")


class _Answer:
    """What is known so far of one release."""

    def __init__(self, *, request: Request, region: str, capacity: Capacity) -> None:
        self.request = request
        self.region = region
        self.capacity = capacity
        self.started: Started | None = None
        self.task: Task | None = None

    def print(self, *, as_json: bool) -> int:
        """Print it; return the exit code."""
        text = json.dumps(self._document(), indent=2) + "\n" if as_json else "\n".join(self._lines()) + "\n"
        say(sys.stdout, text)
        sys.stdout.flush()
        task = self.task
        return _FAILED if task is not None and task.lifecycle != "SUCCEEDED" else OK

    def _document(self) -> dict[str, Any]:
        task = self.task or (self.started.task if self.started else None)
        capacity = self.capacity
        return {
            "schema_version": SCHEMA_VERSION,
            "region": self.region,
            "job": self.request.system.job,
            "file_system_id": self.request.system.id,
            "paths": list(self.request.paths),
            "unused_days": self.request.unused_days,
            "dry_run": self.started is None,
            "adopted": bool(self.started and self.started.adopted),
            "task": None
            if task is None
            else {
                "id": task.id,
                "lifecycle": task.lifecycle,
                "total_files": task.total,
                "succeeded_files": task.succeeded,
                "failed_files": task.failed,
                "failure": task.failure,
            },
            "capacity": {
                "total_gib": _gib(capacity.total_bytes),
                "free_before_gib": _gib(capacity.free_before_bytes),
                "free_after_gib": _gib(capacity.free_after_bytes),
                "freed_gib": _gib(capacity.freed_bytes),
                "unknown": capacity.unknown,
            },
        }

    def _lines(self) -> list[str]:
        request, capacity = self.request, self.capacity
        system = request.system
        where = ", ".join(request.paths) or ", ".join(link.directory for link in request.links)
        lines = [f"{system.id} of job {system.job or '(no tag)'} in {self.region}: {_free_words(capacity)}"]
        if self.started is None:
            lines += wrapped(
                f"Would release files under {where} that are in the lake and were neither read nor changed for "
                f"{request.unused_days} days. How many that are, only the task finds out. Nothing was done."
            )
            return lines
        task = self.task
        if task is None:
            verb = "is under way already" if self.started.adopted else "has started"
            lines += wrapped(f"{self.started.task.id} {verb}; the same command without --no-wait watches it.")
            return lines
        if task.lifecycle == "SUCCEEDED":
            lines += wrapped(f"Released under {where}: {task.progress()}. {_freed_words(capacity)}")
            lines += wrapped("Their names are still there; the first read of a file brings its data back.")
        else:
            reason = task.failure or "FSx gives no reason"
            lines += wrapped(
                f"{task.id} is {task.lifecycle}: {reason} ({task.progress()}). Nothing is lost: files that were not "
                "released are on the file system as before. Run the same command again."
            )
        return lines


def _gib(value: int | None) -> float | None:
    return None if value is None else round(value / GIB, 1)


def _free_words(capacity: Capacity) -> str:
    total = f"{capacity.total_bytes / GIB:,.0f} GiB"
    if capacity.free_before_bytes is None:
        return f"free of {total}: unknown, because {capacity.unknown}"
    return f"{capacity.free_before_bytes / GIB:,.0f} of {total} free before"


def _freed_words(capacity: Capacity) -> str:
    if capacity.free_after_bytes is None or capacity.freed_bytes is None:
        return f"What that freed is unknown, because {capacity.unknown}."
    return f"{capacity.free_after_bytes / GIB:,.0f} GiB are free now, {capacity.freed_bytes / GIB:+,.0f} GiB."
