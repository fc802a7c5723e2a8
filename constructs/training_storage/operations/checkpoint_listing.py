"""Lists the checkpoints below a path of a mounted file system, or below a prefix of a bucket."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training_storage.checkpoint_format import (
    DCP_METADATA_NAME,
    MARKER_NAME,
    POINTER_NAME,
    TRACKER_NAMES,
    CheckpointFormatError,
    Marker,
    incompleteness,
    read_marker,
    step_of_name,
    tracked_folder,
)
from training_storage.operations.archive_manifest import MANIFEST_NAME, ArchiveManifest, read_manifest
from training_storage.operations.retention import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Files that are read, not only listed. What they miss in a folder is for `incompleteness` to say.
_MARKS: Final[tuple[str, ...]] = (MARKER_NAME, MANIFEST_NAME)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file or object: its size, when it was written, and the tag that changes with its content (S3 only)."""

    bytes: int
    modified_at: dt.datetime
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class FoundCheckpoint:
    """One folder that may be a checkpoint.

    Parameters
    ----------
    name
        Name of the folder.
    files
        What it holds, by relative path; end marks and the manifest of an archive among it.
    incomplete
        Why it is no complete checkpoint; None if it is one.
    marker
        What its completion marker says; None without a valid one.
    manifest
        What the archive says that put it there; None without a valid one.
    finished_at
        The marker's time, else when its end mark was written.
    """

    name: str
    files: Mapping[str, StoredFile]
    incomplete: str | None
    marker: Marker | None
    manifest: ArchiveManifest | None
    finished_at: dt.datetime

    @property
    def step(self) -> int | None:
        """The training step, from the marker, else from the name."""
        return self.marker.step if self.marker else step_of_name(self.name)

    @property
    def content(self) -> dict[str, StoredFile]:
        """The files of the checkpoint, without what an archive adds."""
        return {path: file for path, file in self.files.items() if path != MANIFEST_NAME}

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(file.bytes for file in self.content.values())

    def for_retention(self) -> Checkpoint:
        """Return what the retention rule looks at."""
        return Checkpoint(
            name=self.name, step=self.step, finished_at=self.finished_at, complete=self.incomplete is None
        )


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The folders of one place and the files beside them.

    Parameters
    ----------
    place
        The path or ``s3://`` URI that was listed, for people.
    checkpoints
        Every folder, by name.
    beside
        The pointer and the trackers of frameworks: content by name.
    """

    place: str
    checkpoints: Mapping[str, FoundCheckpoint]
    beside: Mapping[str, str] = field(default_factory=dict)

    def complete(self) -> list[FoundCheckpoint]:
        """Return the complete ones."""
        return [one for one in self.checkpoints.values() if one.incomplete is None]

    def complete_by_name(self) -> dict[str, FoundCheckpoint]:
        """Return the complete ones by name."""
        return {one.name: one for one in self.complete()}


def list_path(path: Path) -> Listing:
    """Return the checkpoints below `path`; hidden folders are none.

    Symbolic links are passed over: an export would not follow them.

    Raises
    ------
    OSError
        If the path cannot be read.
    """
    beside = {name: text for name in (POINTER_NAME, *TRACKER_NAMES) if (text := _read(path / name)) is not None}
    found = {}
    for entry in sorted(path.iterdir()):
        if not entry.is_dir() or entry.is_symlink() or entry.name.startswith("."):
            continue
        # A folder that training removes meanwhile is one that is not there.
        with contextlib.suppress(FileNotFoundError):
            files = dict(_walk(entry))
            texts = {name: text for name in _MARKS if (text := _read(entry / name)) is not None}
            found[entry.name] = _found(entry.name, files, texts, beside)
    return Listing(place=str(path), checkpoints=found, beside=beside)


def list_prefix(client: Any, *, bucket: str, prefix: str) -> Listing:  # noqa: ANN401 -- boto3 clients have no type
    """Return the checkpoints below `prefix`, which ends with a slash, of any bucket; hidden folders are none."""
    folders: dict[str, dict[str, StoredFile]] = {}
    here = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            folder, slash, path = entry["Key"].removeprefix(prefix).partition("/")
            if not slash:
                here.append(folder)
            elif path and not path.endswith("/") and not folder.startswith("."):
                folders.setdefault(folder, {})[path] = StoredFile(
                    bytes=entry["Size"], modified_at=entry["LastModified"], etag=entry["ETag"]
                )

    def texts(parent: str, names: Iterable[str]) -> dict[str, str]:
        read = {name: _object_text(client, bucket, prefix + parent + name) for name in names}
        return {name: text for name, text in read.items() if text is not None}

    beside = texts("", [name for name in (POINTER_NAME, *TRACKER_NAMES) if name in here])
    found = {
        name: _found(name, files, texts(f"{name}/", [mark for mark in _MARKS if mark in files]), beside)
        for name, files in sorted(folders.items())
    }
    return Listing(place=f"s3://{bucket}/{prefix}", checkpoints=found, beside=beside)


def end_mark(name: str, files: Mapping[str, StoredFile], trackers: Mapping[str, str]) -> str | None:
    """Return what says that a folder is complete: the marker, torch's metadata or a tracker's name."""
    if MARKER_NAME in files:
        return MARKER_NAME
    if DCP_METADATA_NAME in files:
        return DCP_METADATA_NAME
    return next((tracker for tracker in TRACKER_NAMES if _names(tracker, trackers, name)), None)


def _found(
    name: str, files: Mapping[str, StoredFile], texts: Mapping[str, str], beside: Mapping[str, str]
) -> FoundCheckpoint:
    content = {path: file.bytes for path, file in files.items() if path not in _MARKS}
    trackers = {tracker: beside[tracker] for tracker in TRACKER_NAMES if tracker in beside}
    marker = _parsed(read_marker, texts.get(MARKER_NAME))
    manifest = _parsed(read_manifest, texts.get(MANIFEST_NAME))
    incomplete = incompleteness(name=name, files=content, marker=texts.get(MARKER_NAME), trackers=trackers)
    if incomplete is not None and manifest is not None and MARKER_NAME not in texts:
        # An archive has compared every file: its manifest is an end mark too, as long as they are all there.
        sizes = {path: file.bytes for path, file in files.items()}
        gone = next((file.path for file in manifest.files if sizes.get(file.path) != file.bytes), None)
        incomplete = gone and f"{gone} is missing or cut off, which {MANIFEST_NAME} names"
    return FoundCheckpoint(
        name=name,
        files=dict(files),
        incomplete=incomplete,
        marker=marker,
        manifest=manifest,
        finished_at=(marker or manifest).finished_at if marker or manifest else _written_at(files),
    )


def _written_at(files: Mapping[str, StoredFile]) -> dt.datetime:
    """Return when torch's metadata was written, else the last file: what a tracker names has no time of its own."""
    if DCP_METADATA_NAME in files:
        return files[DCP_METADATA_NAME].modified_at
    return max((file.modified_at for path, file in files.items() if path != MANIFEST_NAME), default=_EPOCH)


def _names(tracker: str, trackers: Mapping[str, str], folder: str) -> bool:
    return tracker in trackers and tracked_folder(tracker, trackers[tracker]) == folder


def _parsed(read: Any, text: str | None) -> Any:  # noqa: ANN401 -- a reader and what it returns
    try:
        return None if text is None else read(text)
    except CheckpointFormatError:
        return None


def _object_text(client: Any, bucket: str, key: str) -> str | None:  # noqa: ANN401
    """Return the text of an object; None if it was removed meanwhile."""
    try:
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        return None
    return str(body.decode(errors="replace"))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except FileNotFoundError:
        return None


def _walk(folder: Path) -> Iterator[tuple[str, StoredFile]]:
    for parent, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            path = Path(parent) / name
            status = path.stat(follow_symlinks=False)
            if not path.is_symlink():
                modified = dt.datetime.fromtimestamp(status.st_mtime, tz=dt.UTC)
                yield (
                    path.relative_to(folder).as_posix(),
                    StoredFile(bytes=status.st_size, modified_at=modified),
                )


def _raise(error: OSError) -> None:
    """Raise: what cannot be listed must not look like what is not there."""
    raise error
