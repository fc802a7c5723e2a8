"""What FSx accepts when a data repository association is made.

What is legal is said by `training_storage.planning.legality`. Here its findings become errors of the service, in AWS's
own words where these are known from trials of the service in October 2026.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from training_storage.planning import legality
from training_storage.planning.catalog.lustre import associations_maximum
from training_storage.testing.local_aws.fsx.errors import FsxError, bad_request
from training_storage.testing.local_aws.fsx.surroundings import Surroundings

MAX_ASSOCIATIONS = associations_maximum()
UNSUPPORTED = "This file system does not support data repository associations"
BUCKET_UNREACHABLE = "Amazon FSx is unable to validate access to the S3 bucket"

_ROOT_ALONE = "The root path '/' can be linked only by the first and only data repository association of a file system."


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
    path = str(request.get("FileSystemPath") or "/")
    repository = str(request.get("DataRepositoryPath") or "")
    members = {**request, "FileSystemPath": path, "DataRepositoryPath": repository}
    link = legality.read_link(members, file_system=legality.read_file_system(file_system))
    if "DataRepositoryConfiguration" in file_system["LustreConfiguration"]:
        raise bad_request(UNSUPPORTED)
    findings = {finding.rule: finding for finding in legality.check_link(link)}
    if "link-file-system" in findings:
        raise bad_request(UNSUPPORTED)
    if "link-path" in findings:
        raise bad_request(f"FileSystemPath must start with a forward slash: {findings['link-path'].message}.")
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
    placed = legality.read_link(members, file_system_region=surroundings.region(), bucket_region=bucket_region)
    for finding in legality.check_link(placed):
        raise bad_request(f"Invalid {finding.location}: {finding.message}.")
    return {
        "FileSystemPath": path,
        "DataRepositoryPath": with_slash(repository),
        "BatchImportMetaDataOnCreate": str(request.get("BatchImportMetaDataOnCreate", False)).lower() == "true",
        "ImportedFileChunkSize": checked_chunk(request.get("ImportedFileChunkSize", 1024)),
        "S3": policies,
    }


def check_overlaps(*, path: str, repository: str, others: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a path or prefix that lies inside another association's, or around it."""
    link = legality.Link(file_system_path=path, data_repository_path=repository)
    for other in others:
        words = {
            "link-root": _ROOT_ALONE,
            "link-path-overlap": f"The file system path {path} overlaps with {other['FileSystemPath']} "
            f"of {other['AssociationId']}.",
            "link-prefix-overlap": f"The data repository path {repository} overlaps with {other['DataRepositoryPath']} "
            f"of {other['AssociationId']}.",
        }
        for finding in legality.check_link_beside(link, [legality.read_link(other)]):
            raise bad_request(words[finding.rule])


def bucket_of(repository: str) -> str:
    """Return the bucket of an ``s3://bucket/prefix/`` path."""
    for finding in legality.check_link(legality.Link(data_repository_path=repository)):
        raise bad_request(f"DataRepositoryPath must have the form s3://bucket/prefix/: {finding.message}.")
    return repository.removeprefix("s3://").split("/", 1)[0]


def checked_chunk(size: object) -> int:
    """Refuse an ImportedFileChunkSize outside 1 to 512,000 MiB."""
    for finding in legality.check_link(legality.read_link({"ImportedFileChunkSize": size})):
        raise bad_request(f"Invalid ImportedFileChunkSize: {finding.message}.")
    return int(str(size))


def checked_policies(policies: Mapping[str, Any] | None) -> dict[str, Any]:
    """Refuse events other than NEW, CHANGED and DELETED; drop empty policies."""
    for finding in legality.check_link(legality.read_link({"S3": policies or {}})):
        raise bad_request(f"Invalid {finding.location}: {finding.message}.")
    return {
        name: {"Events": list(policy["Events"])}
        for name, policy in (policies or {}).items()
        if (policy or {}).get("Events")
    }


def with_slash(path: str) -> str:
    """Return the path with the trailing slash that FSx appends."""
    return path if path.endswith("/") else path + "/"
