"""``training-storage park``: bring a job's data into the lake, then let everything else of it go."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import OK, PROGRAM, Verbs, say
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.text import rows, usd, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.operations.status_cost import JobCost
    from training_storage.operations.status_model import JobStatus, StandingFileSystem, Status

SCHEMA_VERSION = 1
_FAILED = 1
#: What shells say of a program that Ctrl-C ended.
_INTERRUPTED = 130
_POLL_SECONDS = 10.0
#: FSx gives a value of each metric a minute.
_METRIC_PERIOD_SECONDS = 60
_OPTIONS = ["--job", "--region", "--yes", "--undo", "--dry-run", "--wait", "--no-wait", "--json"]
#: States of the state machine in words.
_WORDS = {
    "Begin": "checking",
    "Connection": "no connection",
    "DeleteStack": "deleting the stack",
    "Drain": "stopping nodes",
    "Export": "exporting",
    "Express": "saving and emptying the directory bucket",
    "Restore": "turning automatic export on again",
    "Tell": "stopping",
    "Undo": "opening the cluster again",
    "Unmount": "waiting for clients to unmount",
}


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "park",
        help="bring a job's data into the lake, then let its nodes, hot storage and stack go",
        description="Stop the nodes of a job, export what its hot storage holds, verify it, and delete hot storage and "
        "stack. It runs in AWS and takes as long as it takes: this command only watches, may be interrupted, and "
        "joins what runs when it is called again. Afterwards 'cdk deploy' with the same plan brings back the same "
        "tree. Exit code 0: parked; 1: not, with the reason; 2: bad input; 130: interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("--job", metavar="NAME", help="the job; not needed where only one stands")
    parser.add_argument("--region", metavar="REGION", help="the Region; the caller's if left out")
    parser.add_argument("--yes", action="store_true", help="end nodes that run, without asking")
    parser.add_argument(
        "--undo",
        action="store_true",
        help="take back a park that failed or has not got far: stop it, and let the cluster start nodes again",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would become of what, and do nothing")
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for the end (the default), or only start",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run, options=_OPTIONS)


def _run(arguments: argparse.Namespace) -> int:
    # Only the verbs that talk to AWS load boto3.
    from training_storage.operations import aws_calls, park_command, status, status_cost  # noqa: PLC0415
    from training_storage.operations.park_error import ParkError  # noqa: PLC0415

    region = aws_calls.region_of(arguments.region)
    client = aws_calls.clients(region)
    found = status.read_status(client, region=region, job=arguments.job, now=_now())
    job = _the_job(found, region)
    line = _ProgressLine()
    parking = park_command.Parking(
        job,
        park_command.Surroundings(
            client=client,
            clock=_now,
            pause=lambda: time.sleep(_POLL_SECONDS),
            say=line.show,
            metric_period_seconds=_METRIC_PERIOD_SECONDS,
        ),
    )
    answer = _Answer(
        job=job, region=region, cost=status_cost.cost_of(job, region=region, now=found.at), as_json=arguments.json
    )
    again = f"{PROGRAM} park --job {job.name} --region {region}"
    try:
        if arguments.undo:
            parking.undo()
            line.end()
            return answer.print("undone")
        answer.nodes = park_command.running_nodes(client, job.cluster)
        if arguments.dry_run:
            return answer.print("dry-run")
        going = job.stack is not None and job.stack.state == "DELETE_IN_PROGRESS"
        _agree(answer, yes=arguments.yes or going, drains=going or parking.machine is not None)
        execution = parking.start(stop_nodes=True)
        if not arguments.wait and execution is not None:
            return answer.print("started")
        parking.follow(execution)
        line.end()
        return answer.print("parked")
    except (ParkError, *aws_calls.AWS_ERRORS) as error:
        line.end()
        text = str(error) if isinstance(error, ParkError) else aws_calls.why(error, action="ec2:DescribeInstances")
        say(sys.stderr, f"{PROGRAM}: {text.rstrip('.')}. Then: {again}\n")
        return _FAILED
    except KeyboardInterrupt:
        say(sys.stderr, f"\n{PROGRAM}: interrupted; what was started in AWS goes on. To watch it again: {again}\n")
        return _INTERRUPTED


def _the_job(found: Status, region: str) -> JobStatus:
    from training_storage.operations import job_places  # noqa: PLC0415

    if found.unknown:
        unread = "; ".join(entry.because for entry in found.unknown)
        if any(entry.part in ("stacks", "file_systems", "links") for entry in found.unknown):
            raise InvalidJobError(f"what stands in {region} could not be read, so nothing was done: {unread}.")
        # A job in a stack of another name would be taken for one that is gone.
        seen = any(job.stack is not None or job.file_systems for job in found.jobs)
        if not seen and any(entry.part in job_places.PARTS for entry in found.unknown):
            raise InvalidJobError(f"not every job in {region} could be found, so nothing was done: {unread}.")
    if not found.jobs:
        raise InvalidJobError(f"nothing of a training job stands in {region}: there is nothing to park.")
    if len(found.jobs) > 1:
        names = ", ".join(job.name for job in found.jobs)
        raise InvalidJobError(f"--job must be given where several jobs stand, got: none. There are: {names}.")
    _require_own_stack(found.jobs[0])
    return found.jobs[0]


def _require_own_stack(job: JobStatus) -> None:
    """Refuse to delete a stack that goes with another one, or that may hold more than the job.

    Raises
    ------
    InvalidJobError
        Naming the stack and the way out.
    """
    from training_storage.operations.park_command import machine_of  # noqa: PLC0415

    stack = job.stack
    if stack is None or stack.state.startswith("DELETE_"):
        return
    if stack.root_id is not None:
        root = stack.root_id.split("/")[1] if "/" in stack.root_id else stack.root_id
        raise InvalidJobError(
            f"park must be of a job in a stack that is not nested, got: {job.name} in {stack.name}, which goes only"
            f" with its root stack {root}: destroy that one (its gates export first), or take the job out of its app."
        )
    if stack.job is None and stack.resources is not None and machine_of(job) is None:
        raise InvalidJobError(
            f"park must be of a job whose stack has what parks it, got: {job.name} in {stack.name}, which has not and"
            " may hold more than the job: destroy that stack (its gates export first), or take the job out of its app."
        )


def _agree(answer: _Answer, *, yes: bool, drains: bool) -> None:
    """Refuse to end nodes that run unless somebody says so.

    Raises
    ------
    InvalidJobError
        If nobody does, or nodes run that park cannot stop.
    """
    nodes = answer.nodes
    if not nodes:
        return
    what = f"{nodes:,} node{'s' if nodes > 1 else ''} of job {answer.job.name} run{'' if nodes > 1 else 's'}"
    if not drains:
        raise InvalidJobError(
            f"{what}, and its stack has nothing that stops them: stop them first (docs/park.md), then run it again."
        )
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidJobError(f"{what}, and parking ends them: --yes must be given to say that this is meant.")
    say(sys.stderr, f"{what}. Parking ends them; what they have not saved is lost. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidJobError("nothing was done.")


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


class _ProgressLine:
    """One line on stderr that changes in place on a terminal; elsewhere a line for each change."""

    def __init__(self) -> None:
        self._last = ""
        self._began = time.monotonic()

    def show(self, state: str, text: str) -> None:
        """Show a state of the machine and what it waits for."""
        name = state.rstrip("?").removesuffix("Wait")
        words = f"{_WORDS.get(name, 'starting')}{f': {text}' if text else ''}"
        if words == self._last and not sys.stderr.isatty():
            return
        seconds = int(time.monotonic() - self._began)
        line = f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d} {words}"
        # The line is rewritten from its start: what is longer than the last one must cover it.
        say(sys.stderr, f"\r\033[K{line[: _width()]}" if sys.stderr.isatty() else line + "\n")
        sys.stderr.flush()
        self._last = words

    def end(self) -> None:
        """Leave the line."""
        if self._last and sys.stderr.isatty():
            say(sys.stderr, "\n")
        self._last = ""


def _width() -> int:
    return shutil.get_terminal_size().columns - 1


class _Answer:
    """What is known of one park."""

    def __init__(self, *, job: JobStatus, region: str, cost: JobCost, as_json: bool) -> None:
        self.job = job
        self.nodes = 0
        self._region = region
        self._cost = cost
        self._as_json = as_json

    def print(self, outcome: str) -> int:
        """Print it; return the exit code."""
        text = json.dumps(self._document(outcome), indent=2) if self._as_json else "\n".join(self._lines(outcome))
        say(sys.stdout, text + "\n")
        sys.stdout.flush()
        return OK

    def _document(self, outcome: str) -> dict[str, Any]:
        job = self.job
        return {
            "schema_version": SCHEMA_VERSION,
            "region": self._region,
            "job": job.name,
            "outcome": outcome,
            "stack": None if job.stack is None else job.stack.name,
            "nodes": self.nodes,
            "file_systems": [
                {
                    "id": standing.system.id,
                    "exported": _exported(standing),
                    "comes_back_from_the_lake": _imported(standing),
                }
                for standing in job.file_systems or ()
            ],
            "directory_buckets": [bucket.name for bucket in job.directory_buckets or ()],
            "per_hour_usd": round(self._cost.per_hour_usd, 2),
            "prices_as_of": self._cost.prices_as_of,
            "cost_is_whole": self._cost.is_whole,
        }

    def _lines(self, outcome: str) -> list[str]:
        name = self.job.name
        if outcome == "undone":
            return wrapped(
                f"Job {name} is as it was: its file system exports by itself where it did, and its cluster may start "
                "nodes. None is started by that, but jobs that wait in Slurm start theirs."
            )
        if outcome == "started":
            return wrapped(f"Job {name} is being parked in AWS. The same command without --no-wait watches it.")
        if outcome == "parked":
            return wrapped(
                f"Job {name} is parked: its data is in the lake, and nothing else of it stands in {self._region} but "
                "what is kept on purpose (the lake, /home). 'cdk deploy' with the same plan brings it back: "
                "docs/park.md."
            )
        at_least = "" if self._cost.is_whole else "at least "
        lines = [f"Job {name} in {self._region} would be parked; nothing was done."]
        lines += rows([*self._fates(), ("cost", f"{at_least}{usd(self._cost.per_hour_usd)} an hour until it is gone")])
        return lines

    def _fates(self) -> Iterator[tuple[str, str]]:
        """Yield what would become of each thing."""
        job = self.job
        if self.nodes:
            yield "nodes", f"{self.nodes:,} run and would end: what they have not saved is lost (--yes)"
        for standing in job.file_systems or ():
            yield standing.system.id, _fate(standing)
        for bucket in job.directory_buckets or ():
            yield bucket.name, "its newest complete checkpoint goes to the lake; everything else in it is lost"
        if job.home is not None:
            kept = {True: "stays", False: "goes with the stack", None: "stays or goes as its stack says"}
            yield "/home", kept[job.home.is_kept]
        if job.stack is not None:
            yield "stack", f"{job.stack.name} is deleted"


def _fate(standing: StandingFileSystem) -> str:
    exported, imported = _exported(standing), _imported(standing)
    parts = [
        f"exported: {', '.join(exported)}" if exported else "nothing of it is exported",
        *([f"only from the lake, so not exported: {', '.join(imported)}"] if imported else []),
        "outside of these directories: lost",
    ]
    return "; ".join(parts)


def _exported(standing: StandingFileSystem) -> list[str]:
    from training_storage.operations.final_export import tags  # noqa: PLC0415

    named = standing.system.tags.get(tags.EXPORTED_PATHS)
    # Without the tag nobody knows which links only bring data in.
    return tags.paths_of(named) if named is not None else [link.directory for link in standing.links or ()]


def _imported(standing: StandingFileSystem) -> list[str]:
    exported = _exported(standing)
    return [link.directory for link in standing.links or () if link.directory not in exported]
