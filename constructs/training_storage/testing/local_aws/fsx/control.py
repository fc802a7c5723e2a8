"""What a test can tell the local FSx to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OUTCOMES = ("SUCCEED", "FAIL", "HANG")
# Service quotas whose enforcement can be switched on, with the defaults of a new account (FSx for Lustre user guide).
DEFAULT_QUOTAS: Mapping[str, int] = {
    "L-9AFA1F09": 100,
    "L-FD6F2F22": 100,
    "L-C48231E5": 100,
    "L-C8640C82": 100_800,
    "L-8F1B9C74": 100_800,
    "L-AD2FC696": 100_800,
    "L-0CD18A5D": 100_000,
}


@dataclass(kw_only=True)
class Control:
    """The switches, as one account's tests set them.

    Attributes
    ----------
    task_outcome
        What becomes of tasks created from now on: SUCCEED, FAIL or HANG (they stay EXECUTING until cancelled).
    failed_files
        Files that a task reports as failed, each with an error code; a task that names any ends FAILED.
    transition_seconds
        How long each passing state (CREATING, PENDING, EXECUTING, DELETING) lasts, in seconds.
    quotas
        Enforced quotas by code; a code that is absent is not enforced.
    files
        File contents by file-system id and absolute path; an export task writes those to the linked bucket that are
        new or changed since the last one. The id "*" means every file system, also those made later; no contents
        at all forget the id's files.
    task_seconds
        How long tasks are EXECUTING, those that are so now included; None for `transition_seconds`.
    misconfigured
        Linked paths, each with FSx's message: the link is shown as MISCONFIGURED, and exports of it fail.
    queue_age_seconds
        Age of the oldest change that automatic export has queued, as CloudWatch shows it; None for 0 while a link
        exports by itself, and for no such metric otherwise.
    client_writes
        Bytes that clients write every minute, by file-system id, as CloudWatch shows them.
    denied
        API operations that the caller may not do, such as "DeleteFileSystem". CloudFormation may do them.
    """

    task_outcome: str = "SUCCEED"
    failed_files: dict[str, str] = field(default_factory=dict)
    transition_seconds: float = 0.2
    quotas: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    task_seconds: float | None = None
    misconfigured: dict[str, str] = field(default_factory=dict)
    queue_age_seconds: float | None = None
    client_writes: dict[str, float] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)

    def files_of(self, file_system_id: str) -> dict[str, str]:
        """Return the contents of a file system by path."""
        return {**self.files.get("*", {}), **self.files.get(file_system_id, {})}

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Set the switches that ``changes`` names.

        Raises
        ------
        ValueError
            For an unknown switch or value.
        """
        unknown = sorted(set(changes) - set(vars(self)))
        if unknown:
            message = f"unknown FSx control {unknown[0]!r}; the controls are {', '.join(vars(self))}"
            raise ValueError(message)
        outcome = changes.get("task_outcome", self.task_outcome)
        if outcome not in OUTCOMES:
            message = f"task_outcome must be one of {', '.join(OUTCOMES)}, got: {outcome!r}"
            raise ValueError(message)
        for name, value in changes.items():
            if name == "files":
                for file_system_id, contents in value.items():
                    self.files[file_system_id] = {**self.files.get(file_system_id, {}), **contents} if contents else {}
            else:
                setattr(self, name, value)
