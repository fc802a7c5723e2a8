"""Rules: what a CloudFormation template must write, and what it cannot, whatever the API takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.legality.finding import Problem, Text, Unknown, Words, listed, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE_SYSTEM_TYPES = ("LUSTRE", "ONTAP", "OPENZFS", "WINDOWS")
_SCHEMAS = "CloudFormation registry schemas (required)"
FILE_SYSTEM_REQUIRED = ("FileSystemType", "SubnetIds")
LINK_REQUIRED = ("FileSystemId", "FileSystemPath", "DataRepositoryPath")
DIRECTORY_BUCKET_REQUIRED = ("LocationName", "DataRedundancy")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A resource of a template.

    Parameters
    ----------
    missing
        Required properties that it lacks.
    file_system_type
        ``FileSystemType``.
    root_squash
        Whether ``LustreConfiguration.RootSquashConfiguration`` is given.
    """

    missing: tuple[str, ...] = ()
    file_system_type: Text = None
    root_squash: bool = False


@rule("lustre-required", source=_SCHEMAS)
def file_system_required(given: Declaration) -> Iterator[Problem]:
    """Require that a file system has a type and a subnet."""
    yield from _missing(given, FILE_SYSTEM_REQUIRED, "name the clients' zone by a subnet, and LUSTRE as the type")


@rule("lustre-file-system-type", source="FSx API, CreateFileSystemRequest.FileSystemType")
def file_system_type(given: Declaration) -> Iterator[Problem]:
    """Require that the type of a file system exists."""
    got = given.file_system_type
    if got is not None and not isinstance(got, Unknown) and got not in _FILE_SYSTEM_TYPES:
        yield Problem(
            what="file_system_type",
            allowed=f"be one of {listed(_FILE_SYSTEM_TYPES)}",
            got=got,
            remedy="LUSTRE is the one checked here",
            location="FileSystemType",
        )


@rule("lustre-root-squash-template", source="CloudFormation registry schema of AWS::FSx::FileSystem")
def root_squash_template(given: Declaration) -> Iterator[Problem]:
    """Require that templates leave the root squash to the API, which alone takes it."""
    if given.root_squash:
        yield Problem(
            what="root_squash",
            allowed="be left out of templates",
            got=Words("a RootSquashConfiguration"),
            remedy="CloudFormation has no such property: set it with 'aws fsx update-file-system'",
            location="LustreConfiguration.RootSquashConfiguration",
        )


@rule("link-required", source=_SCHEMAS)
def link_required(given: Declaration) -> Iterator[Problem]:
    """Require that a link names its file system, path and repository."""
    yield from _missing(given, LINK_REQUIRED, "such as '/datasets' and 's3://bucket/datasets/'")


@rule("express-required", source=_SCHEMAS)
def directory_bucket_required(given: Declaration) -> Iterator[Problem]:
    """Require that a directory bucket has a zone and a redundancy."""
    yield from _missing(given, DIRECTORY_BUCKET_REQUIRED, "such as use1-az4 and SingleAvailabilityZone")


def _missing(given: Declaration, required: tuple[str, ...], remedy: str) -> Iterator[Problem]:
    missing = [name for name in required if name in given.missing]
    if missing:
        yield Problem(
            what=listed(missing),
            allowed="be given",
            got=Words("nothing"),
            remedy=remedy,
            location=missing[0],
        )


FILE_SYSTEM_RULES = (file_system_required, file_system_type, root_squash_template)
LINK_RULES = (link_required,)
DIRECTORY_BUCKET_RULES = (directory_bucket_required,)
