"""What a finished checkpoint is: names, the completion marker, the pointer, and the end marks of common frameworks.

A checkpoint is one folder below the checkpoints' prefix or path. Whoever writes, reads, archives or deletes checkpoints
decides by this module alone whether one is complete. Standard library only.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA_VERSION: Final = 1
#: Written last into the folder, and create-only: the folder is complete from then on.
MARKER_NAME: Final = "_COMPLETE.json"
#: Beside the folders; names the newest complete one. Moved by compare-and-swap only, never back.
POINTER_NAME: Final = "latest.json"
#: torch.distributed.checkpoint writes it into the folder after every rank has finished.
DCP_METADATA_NAME: Final = ".metadata"
#: Megatron and DeepSpeed write these beside the folders, after the folder that they name.
MEGATRON_TRACKER_NAME: Final = "latest_checkpointed_iteration.txt"
DEEPSPEED_TRACKER_NAME: Final = "latest"
TRACKER_NAMES: Final = (MEGATRON_TRACKER_NAME, DEEPSPEED_TRACKER_NAME)

#: What a checksum may be called, with the number of its hexadecimal digits.
CHECKSUM_DIGITS: Final[Mapping[str, int]] = {"sha256": 64, "crc64nvme": 16, "crc32c": 8, "crc32": 8}

#: Ours, Megatron's and DeepSpeed's folders.
_FOLDER = re.compile(r"(?:step-|iter_|global_step)[0-9]+\Z")
_STEP_DIGITS = 10
_TRAILING_DIGITS = re.compile(r"[0-9]+\Z")
# An S3 key is at most 1,024 bytes; longer numbers are no steps, and Python refuses to read far longer ones.
_MAXIMUM_STEP_DIGITS = 18
_MEGATRON_DIGITS = 7


class CheckpointFormatError(ValueError):
    """A marker, pointer or name is not of this format; one line that says what, what was got and what is allowed."""


class NewerFormatError(CheckpointFormatError):
    """A marker or pointer is of a newer version of this package, `version`: nobody here can tell what it means."""

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


def checkpoint_name(step: int) -> str:
    """Return the folder's name of the checkpoint of `step`: ``step-0000001200``.

    Raises
    ------
    CheckpointFormatError
        For a step that is no whole number from 0 to 9,999,999,999.
    """
    _checked_step(step, what="step")
    if len(str(step)) > _STEP_DIGITS:
        raise CheckpointFormatError(f"step must have at most {_STEP_DIGITS} digits, got: {step}")
    return f"step-{step:0{_STEP_DIGITS}d}"


def step_of_name(name: str) -> int | None:
    """Return the step in the trailing digits of a folder's name; None where it ends in no number."""
    found = _TRAILING_DIGITS.search(name.rstrip("/"))
    return None if found is None or len(found.group()) > _MAXIMUM_STEP_DIGITS else int(found.group())


def is_folder_name(name: str) -> bool:
    """Whether a folder is named as ours, Megatron's or DeepSpeed's are: ``step-…``, ``iter_…``, ``global_step…``."""
    return _FOLDER.match(name) is not None


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """A checksum of a whole file.

    Parameters
    ----------
    algorithm
        sha256, crc64nvme, crc32c or crc32.
    value
        Lowercase hexadecimal digits.
    """

    algorithm: str
    value: str

    def __post_init__(self) -> None:
        digits = CHECKSUM_DIGITS.get(self.algorithm) if isinstance(self.algorithm, str) else None
        if digits is None:
            raise CheckpointFormatError(
                f"checksum.algorithm must be one of {', '.join(CHECKSUM_DIGITS)}, got: {self.algorithm!r}"
            )
        if not isinstance(self.value, str) or re.fullmatch(rf"[0-9a-f]{{{digits}}}", self.value) is None:
            raise CheckpointFormatError(
                f"checksum.value must be {digits} lowercase hexadecimal digits for {self.algorithm},"
                f" got: {self.value!r:.80}"
            )


@dataclass(frozen=True, kw_only=True)
class CheckpointFile:
    """One file of a checkpoint.

    Parameters
    ----------
    path
        Relative to the folder, with ``/`` between its parts.
    bytes
        Size of the file.
    checksum
        Of the whole file; None where the writer had none.
    """

    path: str
    bytes: int
    checksum: Checksum | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not _is_inside(self.path):
            raise CheckpointFormatError(
                f"files[].path must be relative and stay inside the checkpoint, got: {self.path!r}"
            )
        if self.path == MARKER_NAME:
            raise CheckpointFormatError(f"files[].path must not be {MARKER_NAME} itself")
        if not _is_whole(self.bytes):
            raise CheckpointFormatError(
                f"files[].bytes must be a whole number from 0 for {self.path}, got: {self.bytes!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What ``_COMPLETE.json`` says.

    Parameters
    ----------
    step
        Training step of the checkpoint.
    finished_at
        When the last file was written; with a time zone.
    files
        Every file of the checkpoint, at least one, without the marker.
    """

    step: int
    finished_at: dt.datetime
    files: tuple[CheckpointFile, ...]

    def __post_init__(self) -> None:
        _checked_step(self.step, what="step")
        if self.finished_at.tzinfo is None:
            raise CheckpointFormatError(f"finished_at must have a time zone, got: {self.finished_at.isoformat()}")
        if not self.files:
            raise CheckpointFormatError("files must name at least one file, got: none")
        paths = [file.path for file in self.files]
        if len(set(paths)) < len(paths):
            twice = next(path for path in paths if paths.count(path) > 1)
            raise CheckpointFormatError(f"files must name each file once, got: {twice} twice")

    def to_json(self) -> str:
        """Return the text of the marker file."""
        files = [
            {
                "path": file.path,
                "bytes": file.bytes,
                "checksum": None
                if file.checksum is None
                else {"algorithm": file.checksum.algorithm, "value": file.checksum.value},
            }
            for file in self.files
        ]
        return _text(
            {
                "schema_version": SCHEMA_VERSION,
                "step": self.step,
                "finished_at": time_text(self.finished_at),
                "files": files,
            }
        )


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """What ``latest.json`` says.

    Parameters
    ----------
    checkpoint
        Name of the folder, beside the pointer.
    step
        Its training step.
    """

    checkpoint: str
    step: int

    def __post_init__(self) -> None:
        if not isinstance(self.checkpoint, str) or not _is_inside(self.checkpoint) or "/" in self.checkpoint:
            raise CheckpointFormatError(
                f"checkpoint must be the name of a folder beside the pointer, got: {self.checkpoint!r}"
            )
        _checked_step(self.step, what="step")

    def to_json(self) -> str:
        """Return the text of the pointer file."""
        return _text({"schema_version": SCHEMA_VERSION, "checkpoint": self.checkpoint, "step": self.step})


def read_marker(text: str | bytes) -> Marker:
    """Return what a marker file says.

    Raises
    ------
    CheckpointFormatError
        If it is cut off, of another version or not in this format. Keys that are not known are passed over.
    """
    document = _document(text, name=MARKER_NAME)
    files = document.get("files")
    if not isinstance(files, list):
        raise CheckpointFormatError(f"{MARKER_NAME}: files must be a list, got: {files!r:.80}")
    try:
        return Marker(
            step=document.get("step"),  # type: ignore[arg-type] # checked by the class
            finished_at=read_time(document.get("finished_at"), what="finished_at"),
            files=tuple(map(_file, files)),
        )
    except CheckpointFormatError as error:
        raise CheckpointFormatError(f"{MARKER_NAME}: {error}") from None


def read_pointer(text: str | bytes) -> Pointer:
    """Return what a pointer file says.

    Raises
    ------
    CheckpointFormatError
        If it is cut off, of another version or not in this format. Keys that are not known are passed over.
    """
    document = _document(text, name=POINTER_NAME)
    try:
        return Pointer(checkpoint=document.get("checkpoint"), step=document.get("step"))  # type: ignore[arg-type]
    except CheckpointFormatError as error:
        raise CheckpointFormatError(f"{POINTER_NAME}: {error}") from None


def pointer_moves(current: Pointer | None, new: Pointer) -> bool:
    """Return whether a pointer that says `current` may be swapped for `new`: forwards only."""
    return current is None or new.step > current.step


def tracked_folder(tracker_name: str, text: str) -> str | None:
    """Return the folder that a framework's tracker file names as complete.

    Parameters
    ----------
    tracker_name
        ``latest_checkpointed_iteration.txt`` (Megatron: a number, or ``release``) or ``latest`` (DeepSpeed: a name).
    text
        Content of the file.

    Returns
    -------
    str | None
        ``iter_0001200`` or ``global_step1200``; None where the file names no folder.
    """
    word = text.strip()
    if tracker_name == MEGATRON_TRACKER_NAME:
        if word == "release":
            return word
        return f"iter_{int(word):0{_MEGATRON_DIGITS}d}" if re.fullmatch(r"[0-9]{1,18}", word) else None
    if tracker_name == DEEPSPEED_TRACKER_NAME:
        return word if _is_inside(word) and "/" not in word else None
    raise CheckpointFormatError(f"a tracker is one of {', '.join(TRACKER_NAMES)}, got: {tracker_name!r}")


def incompleteness(
    *,
    name: str,
    files: Mapping[str, int],
    marker: str | bytes | None,
    trackers: Mapping[str, str] | None = None,
) -> str | None:
    """Return why a folder is not a complete checkpoint; None if it is one.

    A marker decides alone: a framework's end mark never makes up for a file that the marker names and that is missing
    or has another size.

    Parameters
    ----------
    name
        Name of the folder.
    files
        Size in bytes of each file in the folder, by relative path.
    marker
        Content of the marker; None where the folder has none.
    trackers
        Content of the tracker files beside the folder, by name. They name one folder each: the newest. Folders that
        they named before are complete as well, but nothing says so any more.
    """
    if marker is not None:
        try:
            claimed = read_marker(marker)
        except CheckpointFormatError as error:
            return str(error)
        return next(_missing(claimed, files), None)
    if not any(path != DCP_METADATA_NAME for path in files):
        return "it holds no file"
    if DCP_METADATA_NAME in files:
        return None
    for tracker_name, text in (trackers or {}).items():
        if tracked_folder(tracker_name, text) == name:
            return None
    return (
        f"it has no end mark: neither {MARKER_NAME} nor {DCP_METADATA_NAME}, and no {' or '.join(TRACKER_NAMES)} "
        "beside it names it"
    )


def time_text(moment: dt.datetime) -> str:
    """Return a moment as these files write it: UTC in whole seconds, ``2026-11-30T12:00:00Z``."""
    return moment.astimezone(dt.UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def read_time(value: object, *, what: str) -> dt.datetime:
    """Return a moment as these files write it.

    Raises
    ------
    CheckpointFormatError
        If it is no text, no time or has no time zone.
    """
    try:
        moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CheckpointFormatError(f"{what} must be a time such as 2026-11-30T12:00:00Z, got: {value!r:.80}")
    return moment


def _missing(marker: Marker, files: Mapping[str, int]) -> Iterator[str]:
    for file in marker.files:
        got = files.get(file.path)
        if got is None:
            yield f"{file.path} is missing, which {MARKER_NAME} names"
        elif got != file.bytes:
            yield f"{file.path} has {got:,} bytes, {MARKER_NAME} says {file.bytes:,}"


def _document(text: str | bytes, *, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointFormatError(f"{name} must be whole JSON, got: {len(text)} characters that are not") from None
    if not isinstance(document, dict):
        raise CheckpointFormatError(f"{name} must be a JSON object, got: {document!r:.80}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        message = f"{name} must have schema_version {SCHEMA_VERSION}, got: {version!r:.80}"
        if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
            raise NewerFormatError(message, version=version)
        raise CheckpointFormatError(message)
    return document


def _file(entry: object) -> CheckpointFile:
    if not isinstance(entry, dict):
        raise CheckpointFormatError(f"files[] must be objects, got: {entry!r:.80}")
    checksum = entry.get("checksum")
    if checksum is not None and not isinstance(checksum, dict):
        raise CheckpointFormatError(f"files[].checksum must be an object or null, got: {checksum!r:.80}")
    return CheckpointFile(
        path=entry.get("path"),  # type: ignore[arg-type] # checked by the class
        bytes=entry.get("bytes"),  # type: ignore[arg-type]
        checksum=None
        if checksum is None
        else Checksum(algorithm=checksum.get("algorithm"), value=checksum.get("value")),  # type: ignore[arg-type]
    )


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _checked_step(step: object, *, what: str) -> None:
    if not _is_whole(step):
        raise CheckpointFormatError(f"{what} must be a whole number from 0, got: {step!r:.80}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_inside(path: str) -> bool:
    """Whether a path is relative and leaves its folder nowhere."""
    return "\x00" not in path and "\\" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
