"""One checkpoint from several ranks: each leaves a record of its files, rank 0 gathers them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from training_storage.checkpoint_format import CheckpointFile, CheckpointFormatError, Checksum
from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError, DifferentContentError
from training_storage.training.publish_pauses import pauses
from training_storage.training.publish_source import RECORDS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training_storage.training.checkpoint_place import Place

_VERSION: Final = 1
_NAMED: Final = 8


def record(place: Place, name: str, *, rank: int, ranks: int, step: int, files: Sequence[CheckpointFile]) -> None:
    """Leave the record of a rank.

    Raises
    ------
    DifferentContentError
        If the rank left another record before.
    """
    key = f"{name}/{_record(rank, ranks)}"
    data = json.dumps(
        {
            "schema_version": _VERSION,
            "step": step,
            "rank": rank,
            "ranks": ranks,
            "files": [
                {"path": file.path, "bytes": file.bytes, "checksum": _value(file)}
                for file in sorted(files, key=lambda file: file.path)
            ],
        },
        indent=1,
    ).encode()
    if place.create(key, data):
        return
    there = place.read(key)
    if there is None or there.data != data:
        raise DifferentContentError(
            f"rank {rank}: {place.uri}{key} exists and names other files; nothing was replaced. Publish to a folder"
            " whose name was never used"
        )


def gather(place: Place, name: str, *, ranks: int, step: int, deadline: float) -> list[CheckpointFile]:
    """Return the files of all ranks, once each has left its record.

    Raises
    ------
    DeadlineError
        If some did not in time; names them.
    DifferentContentError
        If two ranks have another content under one path.
    """
    wanted = {_record(rank, ranks): rank for rank in range(ranks)}
    for pause in pauses():
        missing = sorted(rank for path, rank in wanted.items() if path not in _records(place, name))
        if not missing:
            break
        if time.monotonic() + pause > deadline:
            shown = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
            raise DeadlineError(
                f"rank 0: {place.uri}{name}/ was not finished in time: no record of rank {shown}"
                f" ({len(missing)} of {ranks} ranks)"
            )
        time.sleep(pause)
    files: dict[str, CheckpointFile] = {}
    for path, rank in wanted.items():
        for file in _files(place, f"{name}/{path}", step=step):
            if files.setdefault(file.path, file) != file:
                raise DifferentContentError(
                    f"rank {rank}: {place.uri}{name}/{file.path} was published by another rank with another content"
                )
    return list(files.values())


def _record(rank: int, ranks: int) -> str:
    return f"{RECORDS_FOLDER}/rank-{rank:05d}-of-{ranks:05d}.json"


def _records(place: Place, name: str) -> set[str]:
    return {f"{RECORDS_FOLDER}/{path}" for path in place.files(f"{name}/{RECORDS_FOLDER}")}


def _value(file: CheckpointFile) -> dict[str, str] | None:
    return None if file.checksum is None else {"algorithm": file.checksum.algorithm, "value": file.checksum.value}


def _files(place: Place, key: str, *, step: int) -> list[CheckpointFile]:
    found = place.read(key)
    try:
        document = json.loads(found.data if found else b"")
        files = [
            CheckpointFile(path=entry["path"], bytes=entry["bytes"], checksum=Checksum(**entry["checksum"]))
            for entry in document["files"]
        ]
    except (ValueError, TypeError, KeyError, CheckpointFormatError) as error:
        raise CheckpointError(f"{place.uri}{key} is no record of a rank ({error})") from None
    if document.get("step") != step:
        raise DifferentContentError(f"{place.uri}{key} is of step {document.get('step')}, not {step}")
    return files
