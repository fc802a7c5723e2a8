"""Request limits of S3 and of S3 Express One Zone, and rates of S3 Files."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from training_storage.planning.catalog._data import load


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class S3Limits:
    """S3 general purpose: requests per second of one prefix, and the most parts of an object."""

    put_per_s_per_prefix: int
    get_per_s_per_prefix: int
    parts_maximum: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LifecycleLimits:
    """S3 lifecycle rules: days before which no object moves to S3 Standard-IA or One Zone-IA."""

    infrequent_access_days_minimum: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CopyLimits:
    """S3: the most that one CopyObject takes, sizes of a part in MiB (the last may be smaller), keys of a deletion."""

    copy_mib_maximum: int
    part_mib_minimum: int
    part_mib_maximum: int
    delete_keys_maximum: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ExpressLimits:
    """S3 Express One Zone: requests per second of one bucket, by default and on request."""

    get_per_s: int
    put_per_s: int
    get_per_s_on_request: int
    put_per_s_on_request: int


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FilesLimits:
    """S3 Files: reads of one client and writes of all clients in GiB/s, at best."""

    read_gib_per_s_per_client: int
    write_gib_per_s: int


def _fields(table: str) -> dict[str, int]:
    return {key: value for key, value in load("s3.toml")[table].items() if key not in ("source", "as_of")}


@functools.cache
def s3_limits() -> S3Limits:
    """Return the limits of S3 general purpose buckets."""
    return S3Limits(**_fields("s3"))


@functools.cache
def lifecycle_limits() -> LifecycleLimits:
    """Return the limits of lifecycle rules."""
    return LifecycleLimits(**_fields("s3-lifecycle"))


@functools.cache
def copy_limits() -> CopyLimits:
    """Return the limits of copies on the server's side."""
    return CopyLimits(**_fields("s3-copy"))


@functools.cache
def express_limits() -> ExpressLimits:
    """Return the limits of directory buckets."""
    return ExpressLimits(**_fields("s3-express"))


@functools.cache
def files_limits() -> FilesLimits:
    """Return the limits of S3 Files."""
    return FilesLimits(**_fields("s3-files"))
