"""What FSx accepts when a data repository association is made.

Sources: the botocore service model of FSx (DataRepositoryAssociation), the FSx for Lustre user guide (linking a file
system to an S3 bucket), and error texts seen in trials of the service in October 2026.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request
from training_storage.testing.local_aws.fsx.surroundings import Surroundings

MAX_ASSOCIATIONS = 8
UNSUPPORTED = "This file system does not support data repository associations"
BUCKET_UNREACHABLE = "Amazon FSx is unable to validate access to the S3 bucket"

_EVENTS = ("NEW", "CHANGED", "DELETED")
_MAX_CHUNK_MIB = 512_000


def check_association(
    *,
    request: Mapping[str, Any],
    file_system: Mapping[str, Any],
    existing: Iterable[Mapping[str, Any]],
    surroundings: Surroundings,
) -> dict[str, Any]:
    """Return the association that a request asks for, its defaults filled in.

    Raises
    ------
    FsxError
        In the service's words.
    """
    lustre = file_system["LustreConfiguration"]
    if (
        lustre["DeploymentType"] == "SCRATCH_1"
        or file_system["FileSystemTypeVersion"] == "2.10"
        or file_system["StorageType"] == "INTELLIGENT_TIERING"
        or "DataRepositoryConfiguration" in lustre
    ):
        raise bad_request(UNSUPPORTED)
    path = str(request.get("FileSystemPath") or "/")
    if not path.startswith("/"):
        raise bad_request(f"FileSystemPath must start with a forward slash, got: {path}")
    repository = str(request.get("DataRepositoryPath") or "")
    bucket = bucket_of(repository)
    others = list(existing)
    if len(others) >= MAX_ASSOCIATIONS:
        message = f"A file system can have at most {MAX_ASSOCIATIONS} data repository associations."
        raise FsxError("ServiceLimitExceeded", message, {"Limit": "FILE_SYSTEM_COUNT"})
    check_overlaps(path=path, repository=repository, others=others)
    bucket_region = surroundings.bucket_region(bucket)
    if bucket_region is None:
        raise bad_request(f"{BUCKET_UNREACHABLE}: {bucket}. Ensure the bucket exists and can be accessed.")
    policies = checked_policies(request.get("S3"))
    if "AutoImportPolicy" in policies and bucket_region != surroundings.region():
        raise bad_request(
            f"An automatic import policy requires the bucket in the file system's Region {surroundings.region()}, "
            f"got: {bucket_region}."
        )
    return {
        "FileSystemPath": path,
        "DataRepositoryPath": with_slash(repository),
        "BatchImportMetaDataOnCreate": str(request.get("BatchImportMetaDataOnCreate", False)).lower() == "true",
        "ImportedFileChunkSize": checked_chunk(request.get("ImportedFileChunkSize", 1024)),
        "S3": policies,
    }


def check_overlaps(*, path: str, repository: str, others: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a path or prefix that lies inside another association's, or around it."""
    for other in others:
        theirs = str(other["FileSystemPath"])
        if "/" in (path, theirs):
            raise bad_request(
                "The root path '/' can be linked only by the first and only data repository association "
                "of a file system."
            )
        if _nested(with_slash(path), with_slash(theirs)):
            raise bad_request(f"The file system path {path} overlaps with {theirs} of {other['AssociationId']}.")
        if _nested(with_slash(repository), with_slash(str(other["DataRepositoryPath"]))):
            raise bad_request(
                f"The data repository path {repository} overlaps with {other['DataRepositoryPath']} "
                f"of {other['AssociationId']}."
            )


def bucket_of(repository: str) -> str:
    """Return the bucket of an ``s3://bucket/prefix/`` path."""
    bucket = repository.removeprefix("s3://").split("/", 1)[0]
    if not repository.startswith("s3://") or not bucket:
        raise bad_request(f"DataRepositoryPath must have the form s3://bucket/prefix/, got: {repository}")
    if bucket.endswith("--x-s3"):
        raise bad_request(f"A directory bucket cannot be a data repository, got: {bucket}")
    return bucket


def checked_chunk(size: object) -> int:
    """Refuse an ImportedFileChunkSize outside 1 to 512,000 MiB."""
    if not 1 <= int(str(size)) <= _MAX_CHUNK_MIB:
        raise bad_request(f"ImportedFileChunkSize must be between 1 and {_MAX_CHUNK_MIB} MiB, got: {size}.")
    return int(str(size))


def checked_policies(policies: Mapping[str, Any] | None) -> dict[str, Any]:
    """Refuse events other than NEW, CHANGED and DELETED; drop empty policies."""
    checked: dict[str, Any] = {}
    for name, policy in (policies or {}).items():
        events = list((policy or {}).get("Events") or [])
        wrong = [event for event in events if event not in _EVENTS]
        if wrong:
            raise bad_request(f"{name} events must be among {', '.join(_EVENTS)}, got: {', '.join(wrong)}.")
        if events:
            checked[name] = {"Events": events}
    return checked


def with_slash(path: str) -> str:
    """Return the path with the trailing slash that FSx appends."""
    return path if path.endswith("/") else path + "/"


def _nested(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
