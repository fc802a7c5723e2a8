"""Where each kind of data lives: folders of the lake, links of the file system, and what leaves the hot tier when."""

from __future__ import annotations

from training_storage.planning.folders import LAKE_FOLDERS
from training_storage.planning.job import UNNAMED, TrainingJob
from training_storage.planning.plan import DATA_LAKE, LinkedFolder, Placement
from training_storage.planning.selection import EXPRESS, LUSTRE, S3, Choice

_ALL_EVENTS = ("NEW", "CHANGED", "DELETED")
_WRITES = ("NEW", "CHANGED")
#: Folders in which each job has one of its own.
_OWN = ("checkpoints", "logs", "evaluations")


def folders(job: TrainingJob) -> tuple[str, ...]:
    """Return the folders of the lake that the job uses; those of its own carry its name."""
    return tuple(f"{folder}/{_name(job)}/" if folder in _OWN else f"{folder}/" for folder in LAKE_FOLDERS)


def linked_folders(job: TrainingJob, choice: Choice) -> tuple[LinkedFolder, ...]:
    """Return the associations of the file system.

    The data set comes in by itself and never goes out. Checkpoints are not exported by themselves, because exporting
    every one would write petabytes a month: archiving exports the ones to keep. Logs and evaluations are small and go
    out at once. Checkpoints that are in the lake already are listed on creation; a data set may have millions of
    files, whose listing is no part of the creation: an import task does it.
    """
    links = []
    if choice.read_tier == LUSTRE:
        links.append(_link("/datasets/", "datasets/", imports=_ALL_EVENTS))
    if choice.checkpoint_tier == LUSTRE:
        links.append(_link("/checkpoints/", f"checkpoints/{_name(job)}/", batch=True))
    links += [_link(f"/{folder}/", f"{folder}/{_name(job)}/", exports=_WRITES) for folder in ("logs", "evaluations")]
    return tuple(links)


def placements(job: TrainingJob, choice: Choice) -> tuple[Placement, ...]:
    """Return the answer to "asset or hot data" for each kind of data."""
    read = None if choice.read_tier == S3 else choice.read_tier
    save = None if choice.checkpoint_tier == S3 else choice.checkpoint_tier
    small = LUSTRE if LUSTRE in choice.tiers else None
    return (
        _asset("raw"),
        Placement(data="datasets", hot=read, durable=S3, leaves_hot=_data_leaves(read)),
        _asset("finetune"),
        _asset("models"),
        Placement(data="checkpoints", hot=save, durable=S3, leaves_hot=_checkpoints_leave(job, save)),
        *(
            Placement(
                data=data,
                hot=small,
                durable=S3,
                leaves_hot="exported as it is written; released with the file system" if small else _NEVER_HOT,
            )
            for data in ("logs", "evaluations")
        ),
    )


_NEVER_HOT = "never hot: written to and read from the lake"


def _asset(data: str) -> Placement:
    return Placement(data=data, hot=None, durable=S3, leaves_hot=_NEVER_HOT)


def _data_leaves(hot: str | None) -> str:
    if hot is None:
        return _NEVER_HOT
    if hot == EXPRESS:
        return "a copy of the lake's; deleted with the directory bucket"
    return "a copy of the lake's, listed by an import task and loaded on first use; released with the file system"


def _checkpoints_leave(job: TrainingJob, hot: str | None) -> str:
    if hot is None:
        return f"never hot: written to the lake; the newest 2 and {job.durable_checkpoints_kept} more are kept"
    way = "copied" if hot == EXPRESS else "exported"
    return (
        f"the newest {job.checkpoints_kept} stay; one is {way} to the lake every "
        f"{job.durable_interval_minutes:g} minutes and the last one at the end"
    )


def _link(
    file_system_path: str,
    folder: str,
    *,
    imports: tuple[str, ...] = (),
    exports: tuple[str, ...] = (),
    batch: bool = False,
) -> LinkedFolder:
    return LinkedFolder(
        file_system_path=file_system_path,
        data_repository_path=f"s3://{DATA_LAKE}/{folder}",
        auto_import_events=imports,
        auto_export_events=exports,
        batch_import_metadata=batch,
    )


def _name(job: TrainingJob) -> str:
    return job.name or UNNAMED
