"""Brings the checkpoints worth keeping into the lake, each whole or not at all."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    CheckpointFile,
    Marker,
    time_text,
)
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.archive_manifest import (
    COMPARED_SIZE,
    MANIFEST_NAME,
    ArchivedFile,
    ArchiveManifest,
)
from training_storage.operations.archive_publish import ensure, move_pointers
from training_storage.operations.archive_settings import LustrePlace, S3Place
from training_storage.operations.aws_calls import AWS_ERRORS, why
from training_storage.operations.checkpoint_listing import FoundCheckpoint, Listing, end_mark, list_path, list_prefix
from training_storage.operations.express_copy import (
    DEFAULT_CONCURRENCY,
    DEFAULT_PART_MIB,
    ExpressCopy,
    FileToCopy,
    OutOfTimeError,
    abort_upload,
    unfinished_uploads,
)
from training_storage.operations.lustre_export import LustreExport
from training_storage.operations.object_state import marker_checksum
from training_storage.operations.retention import RetentionRule, kept
from training_storage.planning.catalog.lustre import association_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from training_storage.operations.archive_settings import ArchiveSettings

NEW: Final = "new"
BEGUN: Final = "begun"
ARCHIVED: Final = "archived"
CONFLICT: Final = "conflict"
NOT_DUE: Final = "not due"
_END_MARKS: Final = (MARKER_NAME, DCP_METADATA_NAME)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A checkpoint that the rule keeps.

    Parameters
    ----------
    found
        The checkpoint at its source.
    why
        What part of the rule keeps it.
    state
        new, begun (some of it is in the lake), archived, conflict (the lake has another one of that name) or not due.
    missing
        Files that the lake lacks, by path.
    """

    found: FoundCheckpoint
    why: str
    state: str
    missing: tuple[str, ...]

    @property
    def missing_bytes(self) -> int:
        """Size of what the lake lacks."""
        return sum(self.found.files[path].bytes for path in self.missing)

    @property
    def is_open(self) -> bool:
        """Whether there is something to do."""
        return self.state in (NEW, BEGUN)


@dataclass(frozen=True, kw_only=True)
class ArchivePlan:
    """What an archive would do.

    Parameters
    ----------
    choices
        What the rule keeps, the newest first.
    incomplete
        Folders at the source that are no complete checkpoints, with the reason.
    lake
        What the lake holds.
    """

    choices: tuple[Choice, ...]
    incomplete: Mapping[str, str]
    source: Listing
    lake: Listing

    @property
    def open(self) -> tuple[Choice, ...]:
        """Those with something to do."""
        return tuple(choice for choice in self.choices if choice.is_open)


@dataclass(frozen=True, kw_only=True)
class ArchiveResult:
    """What an archive did: names that were published now, pointers that moved, and whether the time ran out."""

    published: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Archive:
    """One run.

    Parameters
    ----------
    settings
        Where from and where to.
    s3, fsx
        Clients; `fsx` for Lustre only.
    rule
        What is worth keeping of what source and lake hold.
    names
        Checkpoints to archive whatever the rule says; on a machine that does not mount the file system, all there is.
    if_due
        Leave out checkpoints that are younger than an interval after one in the lake.
    part_mib, concurrency
        See ExpressCopy.
    wait_minutes
        How long to wait for export tasks.
    out_of_time, copied, say
        Asked and told while it runs.
    now
        The time that goes into the manifest.
    """

    settings: ArchiveSettings
    s3: Any
    fsx: Any = None
    rule: RetentionRule = field(default_factory=RetentionRule)
    names: Sequence[str] = ()
    if_due: bool = False
    part_mib: int = DEFAULT_PART_MIB
    concurrency: int = DEFAULT_CONCURRENCY
    wait_minutes: float = 360.0
    out_of_time: Callable[[], bool] = lambda: False
    copied: Callable[[int], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(tz=dt.UTC)

    def plan(self) -> ArchivePlan:
        """Return what there is to do.

        Raises
        ------
        ArchiveError
            If source or lake cannot be listed, or a named checkpoint is not complete.
        """
        lake = self.list_lake()
        source = self.list_source()
        for name in self.names:
            found = source.checkpoints.get(name)
            if found is None:
                raise ArchiveError(f"{name} is not at {source.place}")
            if found.incomplete is not None:
                raise ArchiveError(f"{name} is not archived: it is no complete checkpoint, {found.incomplete}")
        # The rule looks at both places: what pruning would take from the lake again is not brought there.
        seen = {
            **{one.name: one.for_retention() for one in lake.complete()},
            **{one.name: one.for_retention() for one in source.complete()},
        }
        reasons = dict.fromkeys(self.names, "named") if self.names else kept(seen.values(), self.rule)
        chosen = source.complete_by_name()
        choices = [self._choice(chosen[name], reason, lake) for name, reason in reasons.items() if name in chosen]
        return ArchivePlan(
            choices=tuple(reversed(choices)),
            incomplete={name: one.incomplete for name, one in source.checkpoints.items() if one.incomplete is not None},
            source=source,
            lake=lake,
        )

    def run(self, plan: ArchivePlan) -> ArchiveResult:
        """Do what the plan says, the newest checkpoint first; each is published as soon as it is whole.

        Raises
        ------
        ArchiveError
            For the first that fails, after the others were tried.
        """
        published: list[str] = []
        moved: list[str] = []
        unfinished: list[str] = []
        failures: list[str] = []
        for choice in plan.choices:
            name = choice.found.name
            if choice.state == CONFLICT:
                failures.append(f"{name} {_taken(plan.lake.place, name)}")
            elif choice.is_open and unfinished:
                unfinished.append(name)
            elif choice.state not in (NOT_DUE, CONFLICT):
                try:
                    if choice.is_open:
                        self._publish(choice, plan)
                        published.append(name)
                    moved += self._point(choice, plan)
                except OutOfTimeError:
                    unfinished.append(name)
                except ArchiveError as error:
                    failures.append(f"{name}: {error}")
                except AWS_ERRORS as error:
                    failures.append(f"{name}: {why(error, action='s3:PutObject')}")
        if failures:
            others = f" ({len(failures) - 1} more failed)" if len(failures) > 1 else ""
            done = f"; archived before: {', '.join(published)}" if published else ""
            raise ArchiveError(f"{failures[0]}{others}{done}")
        return ArchiveResult(published=tuple(published), moved=tuple(moved), unfinished=tuple(unfinished))

    def list_source(self) -> Listing:
        """Return the checkpoints at the source.

        Raises
        ------
        ArchiveError
            If they cannot be listed, or the file system is not mounted here and no names were given.
        """
        source = self.settings.source
        if isinstance(source, S3Place):
            return self._listed(source)
        path = Path(source.path)
        try:
            if path.is_dir():
                return list_path(path)
        except OSError as error:
            raise ArchiveError(f"{source.path} cannot be listed ({error.strerror})") from error
        raise ArchiveError(
            f"{source.path} is not mounted on this machine, and FSx lists no files: run this on a node "
            "(archive.sbatch does)"
        )

    def list_lake(self) -> Listing:
        """Return the checkpoints in the lake.

        Raises
        ------
        ArchiveError
            If they cannot be listed.
        """
        return self._listed(self.settings.lake)

    def _listed(self, place: S3Place) -> Listing:
        try:
            return list_prefix(self.s3, bucket=place.bucket, prefix=place.prefix)
        except AWS_ERRORS as error:
            raise ArchiveError(f"{place.uri} cannot be listed: {why(error, action='s3:ListBucket')}") from error

    def _choice(self, found: FoundCheckpoint, reason: str, lake: Listing) -> Choice:
        there = lake.checkpoints.get(found.name)
        held = {} if there is None else {path: file.bytes for path, file in there.content.items()}
        missing = tuple(path for path, file in found.content.items() if held.get(path) != file.bytes)
        if there is None:
            state = NEW if self._is_due(found, lake) else NOT_DUE
        elif there.manifest is None:
            # Somebody may have brought a checkpoint of that name here without a manifest, from training itself.
            state = CONFLICT if there.incomplete is None and not _may_be_copy(found, there) else BEGUN
        elif not _same(found, there.manifest):
            state = CONFLICT
        else:
            # A manifest whose files somebody has removed since is mended.
            state = BEGUN if missing else ARCHIVED
        return Choice(found=found, why=reason, state=state, missing=() if state == CONFLICT else missing)

    def _is_due(self, found: FoundCheckpoint, lake: Listing) -> bool:
        if not self.if_due:
            return True
        interval = dt.timedelta(minutes=self.settings.durable_interval_minutes)
        since = [found.finished_at - one.finished_at for one in lake.complete() if one.manifest is not None]
        return not any(dt.timedelta() <= age < interval for age in since)

    def _publish(self, choice: Choice, plan: ArchivePlan) -> None:
        """Copy, compare, and only then say that it is there: end marks, our marker, the manifest."""
        found = choice.found
        source = self.settings.source
        files = self._export(found, source) if isinstance(source, LustrePlace) else self._copy(found, plan.lake, source)
        self._verify(found)
        mark = end_mark(found.name, found.files, plan.source.beside) or MARKER_NAME
        if MARKER_NAME not in found.files and found.step is not None:
            # What only a tracker names, nothing names any more once training has gone on.
            ensure(self.s3, self.settings.lake, f"{found.name}/{MARKER_NAME}", _marker(found, files).to_json())
        manifest = ArchiveManifest(
            job=self.settings.job,
            checkpoint=found.name,
            step=found.step,
            source=self._source_uri(found.name),
            end_mark=mark,
            finished_at=found.finished_at,
            archived_at=self.now(),
            files=tuple(sorted(files, key=lambda file: file.path)),
        )
        ensure(self.s3, self.settings.lake, f"{found.name}/{MANIFEST_NAME}", manifest.to_json())

    def _point(self, choice: Choice, plan: ArchivePlan) -> list[str]:
        mark = end_mark(choice.found.name, choice.found.files, plan.source.beside)
        moved = move_pointers(self.s3, self.settings.lake, choice.found, tracker=mark)
        return [f"{name} to {choice.found.name}" for name in moved]

    def _copy(self, found: FoundCheckpoint, lake: Listing, source: S3Place) -> list[ArchivedFile]:
        target = self.settings.lake
        prefix = f"{target.prefix}{found.name}/"
        uploads = unfinished_uploads(self.s3, bucket=target.bucket, prefix=prefix)
        there = lake.checkpoints.get(found.name)
        held = {} if there is None else there.files
        claimed = {file.path: file.checksum for file in found.marker.files} if found.marker else {}
        copier = ExpressCopy(
            client=self.s3,
            source_bucket=source.bucket,
            lake_bucket=target.bucket,
            part_mib=self.part_mib,
            concurrency=self.concurrency,
            checksums=self.settings.endpoint.checksums == "when_supported",
            copied=self.copied,
            out_of_time=self.out_of_time,
        )

        def copied(paths: Iterable[str]) -> list[ArchivedFile]:
            return copier.copy(
                [
                    FileToCopy(
                        path=path,
                        source_key=f"{source.prefix}{found.name}/{path}",
                        lake_key=prefix + path,
                        bytes=found.files[path].bytes,
                        etag=found.files[path].etag or "",
                        claimed=claimed.get(path),
                        exists=path in held,
                        # A whole checkpoint in the lake is never replaced, also where sizes and ages look the same.
                        replaceable=there is None or there.incomplete is not None,
                    )
                    for path in sorted(paths)
                ],
                uploads=uploads,
            )

        content = found.content
        files = copied(path for path in content if path not in _END_MARKS)
        for key, left in uploads.items():
            if key.removeprefix(prefix) not in content:
                for upload in left:
                    abort_upload(self.s3, bucket=target.bucket, key=key, upload_id=upload["UploadId"])
        # Readers trust end marks: they follow when everything else is there.
        return files + copied(path for path in content if path in _END_MARKS)

    def _export(self, found: FoundCheckpoint, source: LustrePlace) -> list[ArchivedFile]:
        export = LustreExport(
            fsx=self.fsx,
            s3=self.s3,
            settings=self.settings,
            source=source,
            wait_minutes=self.wait_minutes,
            say=self.say,
        )
        export.check_link()
        folder = f"{source.relative}/{found.name}"
        entries = sorted({path.split("/", 1)[0] for path in found.content} - set(_END_MARKS))
        self._look_before_export(found)
        if entries and len(entries) <= association_limits().task_paths_maximum:
            export.export([f"{folder}/{entry}" for entry in entries])
            self._look_before_export(found)
        # Everything that is not there yet: the end marks, or all of a folder with more files than a task takes paths.
        export.export([folder])
        self.copied(found.bytes)
        return [
            ArchivedFile(
                path=path, bytes=file.bytes, algorithm=None, checksum=None, compared=COMPARED_SIZE, source_etag=None
            )
            for path, file in found.content.items()
        ]

    def _look_before_export(self, found: FoundCheckpoint) -> None:
        """Refuse if the lake has another whole checkpoint of that name by now: FSx would write over it."""
        lake = self.list_lake()
        if self._choice(found, "", lake).state == CONFLICT:
            raise ArchiveError(f"it {_taken(lake.place, found.name)}")

    def _verify(self, found: FoundCheckpoint) -> None:
        """Look once more at what is in the lake, and at the source, before anything says that it is whole."""
        held = self.list_lake().checkpoints.get(found.name)
        sizes = {} if held is None else {path: file.bytes for path, file in held.content.items()}
        for path, file in found.content.items():
            if sizes.get(path) != file.bytes:
                got = "not there" if path not in sizes else f"{sizes[path]:,} bytes"
                hint = ""
                if isinstance(self.settings.source, LustrePlace):
                    hint = (
                        " FSx exports what is new or changed: what was removed from the lake since comes again once "
                        "the file is written again (cp, then mv)"
                    )
                raise ArchiveError(
                    f"{path} in the lake is {got}, at the source {file.bytes:,} bytes: not published.{hint}"
                )
        if isinstance(self.settings.source, LustrePlace):
            again = self.list_source().checkpoints.get(found.name)
            if again is None or again.content != found.content:
                raise ArchiveError("it changed while it was exported: a finished checkpoint must not be written again")

    def _source_uri(self, name: str) -> str:
        source = self.settings.source
        if isinstance(source, LustrePlace):
            return f"fsx://{source.file_system_id}/{source.relative}/{name}"
        return f"{source.uri}{name}/"


def _taken(place: str, name: str) -> str:
    return (
        "is in the lake already with other content, and is left alone; if the new one should take its place: aws s3 rm "
        f"--recursive {place}{name}/"
    )


def _may_be_copy(found: FoundCheckpoint, there: FoundCheckpoint) -> bool:
    """Whether a whole checkpoint in the lake that no manifest describes may have come from this very one.

    What is there must have the sizes of the source. Then markers decide: two runs of one step finish at two times.
    Where one side has no marker, no file in the lake may be older than the source's.
    """
    held = there.content
    if found.marker is None:
        # The archive adds a marker where training wrote none.
        held = {path: file for path, file in held.items() if path != MARKER_NAME}
    if any(path not in found.content or found.content[path].bytes != file.bytes for path, file in held.items()):
        return False
    if there.marker is not None:
        if found.marker is not None:
            return there.marker == found.marker
        if time_text(there.finished_at) != time_text(found.finished_at):
            return False
    # S3 tells whole seconds.
    return all(
        file.modified_at >= found.content[path].modified_at.replace(microsecond=0) for path, file in held.items()
    )


def _same(found: FoundCheckpoint, manifest: ArchiveManifest) -> bool:
    """Whether a manifest is of this very content: sizes, tags where both sides have them, and when it was finished."""
    listed = {file.path: file for file in manifest.files}
    if set(listed) != set(found.content) or time_text(manifest.finished_at) != time_text(found.finished_at):
        return False
    for path, file in found.content.items():
        tag = listed[path].source_etag
        if listed[path].bytes != file.bytes or (tag and file.etag and tag != file.etag.strip('"')):
            return False
    return True


def _marker(found: FoundCheckpoint, files: Sequence[ArchivedFile]) -> Marker:
    if found.step is None:
        raise ArchiveError("a marker needs a step")
    return Marker(
        step=found.step,
        finished_at=found.finished_at,
        files=tuple(
            CheckpointFile(path=file.path, bytes=file.bytes, checksum=marker_checksum(file.algorithm, file.checksum))
            for file in sorted(files, key=lambda file: file.path)
        ),
    )
