"""Small checkpoints and places for them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from training_storage.checkpoint_format import checkpoint_name
from training_storage.training.capability import AWS
from training_storage.training.checkpoint_s3_place import S3Place
from training_storage.training.endpoint import endpoint_of

if TYPE_CHECKING:
    from pathlib import Path

PART_MIB = 5
PART = PART_MIB * 1024 * 1024


def content(step: int, name: str, size: int) -> bytes:
    """Return bytes that differ for each step and name."""
    seed = hashlib.sha256(f"{step}/{name}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def saved(folder: Path, step: int, sizes: dict[str, int] | None = None, *, name: str | None = None) -> Path:
    """Save a checkpoint of `step` below `folder`; return its own folder."""
    made = folder / (name or checkpoint_name(step))
    for path, size in (sizes or {"model.pt": 3000, "optimizer.pt": 5000, "rng.json": 10}).items():
        file = made / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(step, path, size))
    return made


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what a folder holds, without the marker."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "_COMPLETE.json"
    }


def s3_place(bucket: str, *, prefix: str = "checkpoints/job/", url: str | None = None, strict: bool = True) -> S3Place:
    """Return a place in a bucket of the local AWS, which keeps what AWS documents; `strict` says so unprobed."""
    return S3Place.open(
        f"s3://{bucket}/{prefix}",
        endpoint=endpoint_of(url=url),
        capabilities=AWS if strict else None,
        part_size_mib=PART_MIB,
        request_timeout_seconds=10,
    )
