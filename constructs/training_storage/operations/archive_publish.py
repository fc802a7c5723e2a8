"""Puts marks and pointers into the lake: create-only, or by compare-and-swap and never back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.checkpoint_format import (
    MEGATRON_TRACKER_NAME,
    POINTER_NAME,
    TRACKER_NAMES,
    CheckpointFormatError,
    Pointer,
    pointer_moves,
    read_pointer,
    step_of_name,
    tracked_folder,
)
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.aws_calls import code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.operations.archive_settings import S3Place
    from training_storage.operations.checkpoint_listing import FoundCheckpoint

_ATTEMPTS: Final = 8
_LOST: Final = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_GONE: Final = ("NoSuchKey", "404", "NotFound")


def ensure(client: Any, place: S3Place, name: str, text: str) -> bool:  # noqa: ANN401 -- boto3 clients have no type
    """Write a file of ours unless it says the same already; return whether it was written."""
    return _swap(client, place, name, text, lambda current: current != text)


def move_pointers(client: Any, place: S3Place, checkpoint: FoundCheckpoint, *, tracker: str | None) -> list[str]:  # noqa: ANN401
    """Point to a published checkpoint if its step is higher than what is pointed to; return the names that moved.

    Parameters
    ----------
    tracker
        The framework's own tracker that named the checkpoint at the source; None if none did.
    """
    step = checkpoint.step
    if step is None:
        return []
    pointer = Pointer(checkpoint=checkpoint.name, step=step)
    moved = []
    if _swap(client, place, POINTER_NAME, pointer.to_json(), lambda text: _pointer_moves(text, pointer)):
        moved.append(POINTER_NAME)
    if tracker in TRACKER_NAMES:
        word = str(step) if tracker == MEGATRON_TRACKER_NAME else checkpoint.name
        if _swap(client, place, tracker, word, lambda text: _tracker_moves(tracker, text, step)):
            moved.append(tracker)
    return moved


def _pointer_moves(text: str | None, new: Pointer) -> bool:
    try:
        current = None if text is None else read_pointer(text)
    except CheckpointFormatError as error:
        raise ArchiveError(f"the lake's pointer is not one ({error}); remove it or put it right") from None
    return pointer_moves(current, new)


def _tracker_moves(tracker: str, text: str | None, step: int) -> bool:
    named = None if text is None else tracked_folder(tracker, text)
    current = None if named is None else step_of_name(named)
    return current is None or step > current


def _swap(client: Any, place: S3Place, name: str, text: str, moves: Callable[[str | None], bool]) -> bool:  # noqa: ANN401
    """Replace a small file if `moves` says so of what it holds; whoever writes in between is asked about again."""
    for _ in range(_ATTEMPTS):
        current, condition = _read(client, place, name)
        if not moves(current):
            return False
        try:
            client.put_object(Bucket=place.bucket, Key=place.prefix + name, Body=text.encode(), **condition)
        except ClientError as error:
            if code_of(error) in _LOST:
                continue
            raise
        return True
    raise ArchiveError(f"{place.uri}{name} is changed by others all the time; run the same command again")


def _read(client: Any, place: S3Place, name: str) -> tuple[str | None, dict[str, str]]:  # noqa: ANN401
    try:
        answer = client.get_object(Bucket=place.bucket, Key=place.prefix + name)
    except ClientError as error:
        if code_of(error) in _GONE:
            return None, {"IfNoneMatch": "*"}
        raise
    return answer["Body"].read().decode(errors="replace"), {"IfMatch": answer["ETag"]}
