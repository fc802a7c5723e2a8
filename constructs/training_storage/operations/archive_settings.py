"""Where an archive reads and writes: from the job's storage contract, every value open to change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTRACT_VERSION: Final = 1
EXPRESS_SUFFIX: Final = "--x-s3"
_SCHEME: Final = "s3://"


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """A prefix of a bucket; the prefix ends with a slash."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The place as ``s3://bucket/prefix/``."""
        return f"{_SCHEME}{self.bucket}/{self.prefix}"

    @property
    def is_express(self) -> bool:
        """Whether the bucket is a directory bucket."""
        return self.bucket.endswith(EXPRESS_SUFFIX)


@dataclass(frozen=True, kw_only=True)
class LustrePlace:
    """The checkpoints' folder of a file system.

    Parameters
    ----------
    file_system_id
        ``fs-…``.
    mount_path, path
        Where nodes mount the file system, and the folder below it.
    """

    file_system_id: str
    mount_path: str
    path: str

    @property
    def relative(self) -> str:
        """The folder as FSx wants it: below the mount point, without slashes at its ends."""
        return PurePosixPath(self.path).relative_to(self.mount_path).as_posix()


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """How to reach S3: AWS itself unless a URL is given.

    Parameters
    ----------
    url
        Another endpoint; None leaves it to the environment (``AWS_ENDPOINT_URL``) and AWS.
    addressing_style
        auto, path or virtual.
    checksums
        when_supported or when_required.
    """

    url: str | None = None
    addressing_style: str = "auto"
    checksums: str = "when_supported"


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """Where checkpoints come from, where they go and how many stay.

    Parameters
    ----------
    job, region
        Name of the job, and its Region.
    source
        Where training writes checkpoints first.
    lake
        Where those worth keeping go.
    durable_interval_minutes
        One is archived for every interval of this length.
    durable_kept
        How many intervals stay in the lake besides the newest checkpoints.
    endpoint
        How S3 is reached.
    """

    job: str
    region: str | None
    source: S3Place | LustrePlace
    lake: S3Place
    durable_interval_minutes: float
    durable_kept: int
    endpoint: Endpoint = Endpoint()


def place_of(uri: str, *, what: str) -> S3Place:
    """Return the bucket and prefix of an ``s3://`` URI.

    Raises
    ------
    InvalidJobError
        If it is no such URI or names a whole bucket.
    """
    bucket, _, prefix = uri.removeprefix(_SCHEME).partition("/")
    prefix = prefix.strip("/")
    if not uri.startswith(_SCHEME) or not bucket or not prefix or "//" in prefix:
        raise InvalidJobError(f"{what} must be a prefix of a bucket such as s3://bucket/checkpoints/job/, got: {uri!r}")
    return S3Place(bucket=bucket, prefix=prefix + "/")


def read_contract(text: str, *, source: str) -> dict[str, Any]:
    """Return the storage contract of a job as it stands in a file or parameter named `source`.

    Raises
    ------
    InvalidJobError
        If it is no contract of this version.
    """
    try:
        contract = json.loads(text)
    except ValueError:
        raise InvalidJobError(f"{source} must hold a storage contract in JSON, got: {text[:40]!r}") from None
    version = contract.get("schema_version") if isinstance(contract, dict) else None
    if version != CONTRACT_VERSION or isinstance(version, bool):
        raise InvalidJobError(
            f"{source} must hold a storage contract of schema_version {CONTRACT_VERSION}, got: {version!r}"
        )
    return dict(contract)


def read_contract_file(path: Path) -> dict[str, Any]:
    """Return the storage contract in a file.

    Raises
    ------
    InvalidJobError
        If it cannot be read or is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidJobError(
            f"--contract must name the storage contract of a job, got: '{path}' ({reason}); on a node it is "
            "/etc/training-storage/storage.json, elsewhere use --job"
        ) from None
    return read_contract(text, source=f"'{path}'")


def settings_of(contract: Mapping[str, Any]) -> ArchiveSettings:
    """Return what an archive needs of a storage contract.

    Raises
    ------
    InvalidJobError
        If the contract lacks something, or the job's checkpoints are in the lake from the beginning.
    """
    try:
        checkpoints, lustre = contract["checkpoints"], contract["lustre"]
        lake = place_of(checkpoints["durable_uri"], what="checkpoints.durable_uri")
        if checkpoints["path"]:
            source: S3Place | LustrePlace = LustrePlace(
                file_system_id=lustre["file_system_id"], mount_path=lustre["mount_path"], path=checkpoints["path"]
            )
            if not PurePosixPath(checkpoints["path"]).is_relative_to(lustre["mount_path"]):
                raise InvalidJobError(
                    f"checkpoints.path must be below {lustre['mount_path']}, got: {checkpoints['path']}"
                )
        else:
            source = place_of(checkpoints["uri"], what="checkpoints.uri")
        endpoint = contract.get("endpoint") or {}
        return ArchiveSettings(
            job=contract["job"]["name"] or "default",
            region=contract["region"],
            source=source,
            lake=lake,
            durable_interval_minutes=float(checkpoints["durable_interval_minutes"]),
            durable_kept=int(checkpoints["durable_kept"]),
            endpoint=Endpoint(
                url=endpoint.get("url"),
                addressing_style=endpoint.get("addressing_style") or "auto",
                checksums=endpoint.get("checksums") or "when_supported",
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidJobError):
            raise
        raise InvalidJobError(f"the storage contract lacks what an archive needs, got: {error!r:.120}") from None
