"""The errors of the FSx API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class FsxError(Exception):
    """An error answer: the code that boto3 shows, the message and further members of the error shape."""

    code: str
    message: str
    members: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def bad_request(message: str) -> FsxError:
    """Return the error of a parameter that FSx refuses."""
    return FsxError("BadRequest", message)


def denied(operation: str, *, account: str) -> FsxError:
    """Return the error of a caller whose policies do not allow an operation."""
    return FsxError(
        "AccessDeniedException",
        f"User: arn:aws:sts::{account}:assumed-role/local is not authorized to perform: fsx:{operation}"
        f" because no identity-based policy allows the fsx:{operation} action",
    )


def not_found(kind: str, identifier: str) -> FsxError:
    """Return the error of a file system, association, task or backup that does not exist.

    Parameters
    ----------
    kind
        As in the error's code: ``FileSystem``, ``DataRepositoryAssociation``, ``DataRepositoryTask`` or ``Backup``.
    identifier
        The id asked for.
    """
    words = {
        "FileSystem": f"File system '{identifier}' does not exist.",
        "DataRepositoryAssociation": f"Data repository association '{identifier}' does not exist.",
        "DataRepositoryTask": f"Data repository task '{identifier}' does not exist.",
        "Backup": f"Backup '{identifier}' does not exist.",
    }
    return FsxError(f"{kind}NotFound", words[kind])
