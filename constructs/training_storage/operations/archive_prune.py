"""Removes checkpoints from the lake that the retention rule keeps no longer.

What is removed, of the job's own folder: what carries a manifest of this job; whole checkpoints of a step without a
manifest, as the last export of a file system leaves them; and folders named as checkpoints are that such an export
brought half written, once a whole one is newer by time and by step. Never the newest complete checkpoint, never what
the pointer names, never another job's, never what has no shape of a checkpoint. Objects are deleted without naming a
version, so the lake keeps them as noncurrent ones for as long as its lifecycle says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    POINTER_NAME,
    CheckpointFormatError,
    is_folder_name,
    read_pointer,
)
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_manifest import MANIFEST_NAME
from training_storage.operations.aws_calls import AWS_ERRORS, why
from training_storage.operations.checkpoint_listing import list_prefix
from training_storage.operations.retention import RetentionRule, kept, newest_complete, protected
from training_storage.planning.catalog.s3 import copy_limits
from training_storage.planning.defaults import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.operations.archive_settings import ArchiveSettings, S3Place
    from training_storage.operations.checkpoint_listing import FoundCheckpoint, Listing


@dataclass(frozen=True, kw_only=True)
class PrunePlan:
    """What stays in the lake, with the reason, and what goes, oldest first."""

    stays: dict[str, str]
    goes: tuple[FoundCheckpoint, ...]


def archive_rule(settings: ArchiveSettings) -> RetentionRule:
    """Return what goes into the lake by itself: the newest, and the newest of each of so many intervals.

    All of it stays under `lake_rule`, so that archiving and pruning never undo each other.
    """
    return RetentionRule(interval_minutes=settings.durable_interval_minutes, intervals_kept=settings.durable_kept)


def lake_rule(settings: ArchiveSettings) -> RetentionRule:
    """Return what stays in the lake: the newest two, and one of each of so many intervals besides."""
    return RetentionRule(
        keep_last=int(number("newest_durable_checkpoints")),
        interval_minutes=settings.durable_interval_minutes,
        intervals_kept=settings.durable_kept,
    )


def plan_prune(listing: Listing, settings: ArchiveSettings, rule: RetentionRule) -> PrunePlan:
    """Return what `rule` keeps of the lake and what may go.

    Raises
    ------
    ArchiveError
        If the pointer cannot be read: then nothing is safe to remove.
    """
    seen = [one.for_retention() for one in listing.checkpoints.values()]
    stays = kept(seen, rule)
    try:
        pointed = read_pointer(listing.beside[POINTER_NAME]).checkpoint if POINTER_NAME in listing.beside else None
    except CheckpointFormatError as error:
        raise ArchiveError(f"nothing is removed: the lake's pointer is not one ({error})") from None
    newest = newest_complete(seen)
    highest = max((one.step for one in seen if one.complete and one.step is not None), default=-1)
    goes = []
    for name, one in listing.checkpoints.items():
        if name in stays or not _is_ours(one, settings.job):
            continue
        if name == pointed:
            stays[name] = "the pointer names it"
        elif newest is None:
            stays[name] = "nothing in the lake is complete"
        elif one.incomplete is not None and (_has_end_mark(one) or one.finished_at >= newest.finished_at):
            # Damaged, or younger than everything complete: for a person to look at. What a removal left behind when it
            # was interrupted has lost its end mark, and goes.
            stays[name] = f"damaged: {one.incomplete}"
        elif one.manifest is None and one.incomplete is not None and (one.step is None or one.step >= highest):
            stays[name] = "half written, and of a higher step than every whole one"
        else:
            goes.append(one)
    return PrunePlan(stays=stays, goes=tuple(sorted(goes, key=lambda one: (one.finished_at, one.name))))


def prune(client: Any, plan: PrunePlan, settings: ArchiveSettings) -> None:  # noqa: ANN401 -- boto3 clients have no type
    """Remove what may go: end marks first, so that nobody reads a half; the manifest last, to go on after a kill.

    Raises
    ------
    ArchiveError
        If something newer is not there any more, or S3 refuses.
    """
    place = settings.lake
    for one in plan.goes:
        try:
            # Looked at again just before: between plan and deed the newest may have gone, and this one become it.
            now = list_prefix(client, bucket=place.bucket, prefix=place.prefix)
            spared = protected(other.for_retention() for other in now.checkpoints.values())
            if one.name in spared:
                raise ArchiveError(f"{one.name} is the newest complete checkpoint by now, and stays")
            if not spared:
                raise ArchiveError(f"{one.name} stays: nothing in the lake is complete any more")
            marks = [path for path in (MARKER_NAME, DCP_METADATA_NAME) if path in one.files]
            _delete(client, place, one.name, marks)
            _delete(client, place, one.name, [path for path in one.files if path not in (*marks, MANIFEST_NAME)])
            _delete(client, place, one.name, [MANIFEST_NAME])
        except AWS_ERRORS as error:
            raise ArchiveError(f"{one.name} could not be removed: {why(error, action='s3:DeleteObject')}") from error


def _is_ours(one: FoundCheckpoint, job: str) -> bool:
    """Whether a folder is a checkpoint that this job's archive, or the last export of its file system, brought."""
    if one.manifest is not None:
        return one.manifest.job == job
    return one.step is not None if one.incomplete is None else is_folder_name(one.name)


def _has_end_mark(one: FoundCheckpoint) -> bool:
    return MARKER_NAME in one.files or DCP_METADATA_NAME in one.files


def _delete(client: Any, place: S3Place, name: str, paths: Sequence[str]) -> None:  # noqa: ANN401
    most = copy_limits().delete_keys_maximum
    for start in range(0, len(paths), most):
        objects = [{"Key": f"{place.prefix}{name}/{path}"} for path in paths[start : start + most]]
        answer = client.delete_objects(Bucket=place.bucket, Delete={"Objects": objects, "Quiet": True})
        for refused in answer.get("Errors", []):
            raise ArchiveError(f"{refused['Key']} could not be removed ({refused['Code']}: {refused['Message']})")
