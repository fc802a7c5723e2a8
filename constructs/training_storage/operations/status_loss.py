"""What would be lost if everything were destroyed now. What only a node can see is unknown, never nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.operations.lustre_state import EXPORT
from training_storage.operations.status_model import KEPT, LOST, NOTHING, UNKNOWN
from training_storage.planning.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator

    from training_storage.operations.lustre_state import Link
    from training_storage.operations.status_checkpoints import Checkpoints
    from training_storage.operations.status_model import (
        ClusterStatus,
        DirectoryBucketStatus,
        Home,
        JobStatus,
        StandingFileSystem,
        Status,
        Unknown,
    )

_ONLY_A_NODE = "only a node sees the files of a Lustre file system"
_NO_TEMPLATE = "the stack's template is no JSON"
#: Names that fit a line.
_NAMED = 3
_BROKEN = ("MISCONFIGURED", "FAILED")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One thing, and what would become of it.

    Parameters
    ----------
    what
        Where the data lies.
    verdict
        nothing, lost, unknown or kept.
    words
        What would be lost, or why nothing; what is known where the verdict is unknown.
    because
        Why it is unknown; None for other verdicts.
    command
        What brings it into safety; None where nothing need be done, or nothing can.
    """

    what: str
    verdict: str
    words: str = ""
    because: str | None = None
    command: str | None = None


def losses(job: JobStatus, *, region: str) -> tuple[Loss, ...]:
    """Return what would be lost of a job."""
    return tuple(_losses(job, region))


def lake_loss(status: Status) -> Loss:
    """Return what would become of the lake."""
    stack, what = status.lake, "the lake"
    if stack is None:
        reason = _why(status.unknown, "stacks") or "no stack TrainingDataLake is here, and its owner decides"
        return _unknown(what, reason)
    if stack.kept is None:
        return _unknown(what, _why(status.unknown, "kept") or _NO_TEMPLATE, words="Whether its bucket is retained.")
    if any(resource.logical_id in stack.kept for resource in stack.of_kind("AWS::S3::Bucket")):
        return Loss(what=what, verdict=KEPT, words="bucket and key stay when its stack goes")
    return Loss(what=what, verdict=LOST, words="its stack would delete the bucket")


def _losses(job: JobStatus, region: str) -> Iterator[Loss]:
    if job.file_systems is None:
        yield _unknown("file systems", job.why_unknown("file_systems"))
    for standing in job.file_systems or ():
        yield from _file_system(standing, job, region)
    if job.directory_buckets is None:
        yield _unknown("directory buckets", job.why_unknown("resources"))
    for bucket in job.directory_buckets or ():
        yield from _directory_bucket(bucket, job, region)
    if job.home is not None:
        yield _home(job.home, job)
    if job.cluster is not None:
        yield _node_disks(job.cluster, job)


def _unknown(what: str, because: str | None, *, words: str = "", command: str | None = None) -> Loss:
    return Loss(what=what, verdict=UNKNOWN, words=words, because=because or "it was not asked", command=command)


def _why(entries: Iterable[Unknown], part: str) -> str | None:
    return next((entry.because for entry in entries if entry.part == part), None)


def _file_system(standing: StandingFileSystem, job: JobStatus, region: str) -> Iterator[Loss]:
    system = standing.system
    if system.lifecycle == "CREATING":
        yield Loss(what=system.id, verdict=NOTHING, words="it is being made: no client has been on it")
        return
    if standing.links is None:
        yield _unknown(f"{system.id}, all of it", job.why_unknown("links"))
        return
    for link in standing.links:
        yield _link(link, standing, job, region)
    if any(link.directory == "/" for link in standing.links):
        return
    if standing.links:
        elsewhere = "Files outside the linked directories are never exported."
        yield _unknown(f"{system.id} elsewhere", _ONLY_A_NODE, words=elsewhere)
    else:
        yield _unknown(f"{system.id}, all of it", _ONLY_A_NODE, words="It has no link: nothing is exported.")


def _link(link: Link, standing: StandingFileSystem, job: JobStatus, region: str) -> Loss:
    what = f"{link.file_system_id} {link.directory}"
    if link.lifecycle in _BROKEN:
        reason = f": {link.failure.rstrip('.')}" if link.failure else ""
        return _unknown(
            what,
            _ONLY_A_NODE,
            words=f"The link is {link.lifecycle}{reason}. What was written since then is not in the lake.",
        )
    if link.exports:
        return _exported_by_itself(what, standing, job)
    if "/checkpoints/" in f"{link.data_repository_path}/":
        return _checkpoints(what, link, standing, job, region)
    since = _exported(standing, link)
    written = f"What was written after the export of {_time(since)}" if since else "What jobs wrote here themselves"
    source = "Loaded from the lake. " if link.import_events else ""
    return _unknown(what, _ONLY_A_NODE, words=f"{source}{written} is not exported.")


def _exported_by_itself(what: str, standing: StandingFileSystem, job: JobStatus) -> Loss:
    if standing.metrics is None:
        return _unknown(what, job.why_unknown("metrics"), words="Exported by itself, some time after it is written.")
    age = standing.metrics.export_age_seconds
    if age is None:
        return _unknown(
            what,
            "CloudWatch has no value of the last 20 minutes",
            words="Exported by itself, some time after it is written.",
        )
    if age.value > 0:
        return Loss(
            what=what,
            verdict=LOST,
            words=(
                f"changes of up to the last {_duration(age.value)} wait for export (the oldest of all links of the "
                "file system)"
            ),
        )
    waited = f"Exported by itself; nothing waited at {_time(age.at)}."
    doubt = _written_since(standing, job, age.at)
    if doubt:
        return _unknown(what, doubt, words=waited)
    return Loss(
        what=what,
        verdict=NOTHING,
        words=(
            f"{waited[0].lower()}{waited[1:-1]}, and no client wrote since; what FSx failed to export is in no queue, "
            "only in its log"
        ),
    )


def _written_since(standing: StandingFileSystem, job: JobStatus, at: dt.datetime) -> str | None:
    """Return why something may have been written since a reading of the queue; None if it is known that nothing was."""
    cluster = job.cluster
    if cluster is not None and cluster.nodes is None:
        return f"whether nodes run is not known: {job.why_unknown('nodes')}"
    if cluster is not None and cluster.nodes:
        return f"{len(cluster.nodes):,} node{'s run' if len(cluster.nodes) > 1 else ' runs'} and may have written since"
    written = standing.metrics.written_bytes if standing.metrics else None
    if written is None or written.at < at:
        return "CloudWatch does not know yet what clients wrote since"
    return "clients have written since" if written.value else None


def _checkpoints(what: str, link: Link, standing: StandingFileSystem, job: JobStatus, region: str) -> Loss:
    lake, since = job.lake_checkpoints, _exported(standing, link)
    command = _archive_command(job, region)
    if lake is None:
        return _unknown(
            what,
            job.why_unknown("lake_checkpoints"),
            words="Checkpoints that are not in the lake would be lost.",
            command=command,
        )
    words = [_newer_than(lake)]
    if since:
        words.append(f"An export of all of it, begun at {_time(since)}, succeeded.")
    if standing.tasks is None:
        words.append(f"Its exports are unknown, because {job.why_unknown('tasks')}.")
    return _unknown(what, _ONLY_A_NODE, words=" ".join(words), command=command)


def _newer_than(lake: Checkpoints) -> str:
    newest = lake.newest
    if newest is not None:
        at = f" of {_time(newest.finished)}" if newest.finished else ""
        return f"Checkpoints newer than {newest.name}{at}, the newest complete one in the lake, would be lost."
    if lake.unmarked:
        return (
            f"None of the newest in the lake ({', '.join(lake.unmarked)}) has a completion marker; checkpoints that "
            "are not there would be lost."
        )
    return "No checkpoint is in the lake: each one written here would be lost."


def _archive_command(job: JobStatus, region: str) -> str:
    return f"training-storage archive --job {job.name} --region {region}"


def _exported(standing: StandingFileSystem, link: Link) -> dt.datetime | None:
    """Return when the newest export task of all of the link's directory began that succeeded.

    What was written while it ran may have come too late for it.
    """
    for task in standing.tasks or ():
        if task.kind == EXPORT and task.lifecycle == "SUCCEEDED" and not task.failed and task.covers(link.directory):
            return task.started or task.created
    return None


def _directory_bucket(bucket: DirectoryBucketStatus, job: JobStatus, region: str) -> Iterator[Loss]:
    if bucket.unknown is not None:
        yield _unknown(bucket.name, bucket.unknown)
        return
    if bucket.is_empty:
        yield Loss(what=bucket.name, verdict=NOTHING, words="empty")
        return
    found = bucket.checkpoints
    if found is not None and found.folders:
        yield _express_checkpoints(f"{bucket.name}, checkpoints", found, job, _archive_command(job, region))
    yield _unknown(
        f"{bucket.name}, other objects",
        "that takes a comparison of every object with the lake",
        words="They are hot copies of the lake's; what was written here alone would be lost.",
    )


def _express_checkpoints(what: str, found: Checkpoints, job: JobStatus, command: str) -> Loss:
    lake = job.lake_checkpoints
    if lake is None:
        return _unknown(
            what,
            job.why_unknown("lake_checkpoints"),
            words=f"{len(found.folders)} there; those that are not in the lake would be lost.",
            command=command,
        )
    missing = [name for name in found.folders if name not in lake.folders]
    if missing:
        shown = ", ".join(missing[-_NAMED:]) + (" and others" if len(missing) > _NAMED else "")
        return Loss(what=what, verdict=LOST, words=f"{len(missing)} not in the lake: {shown}", command=command)
    complete = {entry.name for entry in lake.complete}
    doubtful = [name for name in found.folders if name not in complete]
    if doubtful:
        return _unknown(
            what,
            "their completion markers in the lake were not found or not looked for",
            words=f"Each has a folder in the lake; {', '.join(doubtful[-_NAMED:])} may not be complete there.",
            command=command,
        )
    return Loss(what=what, verdict=NOTHING, words="each one is complete in the lake")


def _home(home: Home, job: JobStatus) -> Loss:
    what = f"/home ({home.id})"
    if home.is_kept is None:
        return _unknown(what, job.why_unknown("kept") or _NO_TEMPLATE, words="Whether it goes with the stack.")
    if home.is_kept:
        return Loss(what=what, verdict=KEPT, words="stays when the stack goes")
    return Loss(what=what, verdict=LOST, words="goes with the stack")


def _node_disks(cluster: ClusterStatus, job: JobStatus) -> Loss:
    what = "disks of the nodes (/scratch)" if job.home else "disks of the nodes (/scratch, /home)"
    if cluster.nodes is None:
        return _unknown(what, job.why_unknown("nodes"))
    if not cluster.nodes:
        return Loss(what=what, verdict=NOTHING, words="no node runs")
    count = len(cluster.nodes)
    return Loss(
        what=what, verdict=LOST, words=f"end with each of the {count:,} node{'s' if count != 1 else ''} that run"
    )


def _time(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _duration(seconds: float) -> str:
    if seconds < SECONDS_PER_MINUTE:
        return f"{seconds:.0f} s"
    if seconds < SECONDS_PER_HOUR:
        return f"{seconds / SECONDS_PER_MINUTE:.0f} min"
    return f"{seconds / SECONDS_PER_HOUR:.1f} h"
