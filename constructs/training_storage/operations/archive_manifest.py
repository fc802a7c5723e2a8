"""The manifest that an archive writes into each checkpoint in the lake, last of all but the pointer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from training_storage.checkpoint_format import CheckpointFormatError, read_time, time_text

if TYPE_CHECKING:
    import datetime as dt

MANIFEST_NAME: Final = "archive-manifest.json"
MANIFEST_VERSION: Final = 1

#: What the bytes of a file in the lake were compared by. From Lustre only sizes can be: FSx has no checksums.
COMPARED_FULL_OBJECT: Final = "full-object checksum"
COMPARED_PARTS: Final = "checksum of part checksums"
COMPARED_SIZE: Final = "size"
COMPARISONS: Final = (COMPARED_FULL_OBJECT, COMPARED_PARTS, COMPARED_SIZE)


@dataclass(frozen=True, kw_only=True)
class ArchivedFile:
    """One file in the lake.

    Parameters
    ----------
    path
        Relative to the checkpoint's folder.
    bytes
        Size.
    algorithm, checksum
        As S3 keeps it for the object (CRC64NVME …; base64, with ``-<parts>`` for one of part checksums); None without.
    compared
        What it was compared with the source by.
    source_etag
        ETag of the source object; None for a file system.
    """

    path: str
    bytes: int
    algorithm: str | None
    checksum: str | None
    compared: str
    source_etag: str | None


@dataclass(frozen=True, kw_only=True)
class ArchiveManifest:
    """What was archived, from where and when.

    Parameters
    ----------
    job, checkpoint, step
        Whose, which folder, its training step (None where its name has none).
    source
        ``s3://bucket--x-s3/prefix/name/`` or ``fsx://fs-…/path/name``.
    end_mark
        What said that the source was complete.
    finished_at, archived_at
        When training finished it and when the archive did.
    files
        Every file, the end mark included.
    """

    job: str
    checkpoint: str
    step: int | None
    source: str
    end_mark: str
    finished_at: dt.datetime
    archived_at: dt.datetime
    files: tuple[ArchivedFile, ...]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files)

    def to_json(self) -> str:
        """Return the text of the manifest."""
        document = {
            "schema_version": MANIFEST_VERSION,
            "job": self.job,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "source": self.source,
            "end_mark": self.end_mark,
            "finished_at": time_text(self.finished_at),
            "archived_at": time_text(self.archived_at),
            "bytes": self.bytes,
            "files": [vars(file) for file in self.files],
        }
        return json.dumps(document, indent=1) + "\n"


def read_manifest(text: str | bytes) -> ArchiveManifest:
    """Return what a manifest says.

    Raises
    ------
    CheckpointFormatError
        If it is cut off, of another version or not in this format.
    """
    try:
        return _manifest(json.loads(text))
    except CheckpointFormatError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointFormatError(f"{MANIFEST_NAME} must be whole and of this format, got: {error!r:.120}") from None


def _manifest(document: dict[str, Any]) -> ArchiveManifest:
    version = document["schema_version"]
    if version != MANIFEST_VERSION or isinstance(version, bool):
        raise CheckpointFormatError(
            f"{MANIFEST_NAME} must have schema_version {MANIFEST_VERSION}, got: {version!r:.80}"
        )
    return ArchiveManifest(
        job=_text(document, "job"),
        checkpoint=_text(document, "checkpoint"),
        step=document["step"],
        source=_text(document, "source"),
        end_mark=_text(document, "end_mark"),
        finished_at=read_time(document["finished_at"], what="finished_at"),
        archived_at=read_time(document["archived_at"], what="archived_at"),
        files=tuple(
            ArchivedFile(
                path=_text(entry, "path"),
                bytes=int(entry["bytes"]),
                algorithm=entry["algorithm"],
                checksum=entry["checksum"],
                compared=_text(entry, "compared"),
                source_etag=entry["source_etag"],
            )
            for entry in document["files"]
        ),
    )


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry[name]
    if not isinstance(value, str):
        raise CheckpointFormatError(f"{MANIFEST_NAME}: {name} must be text, got: {value!r:.80}")
    return value
