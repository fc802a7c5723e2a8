"""What a store can do, and which promise becomes weaker where it cannot.

AWS's S3 and S3 Express One Zone do all of it. Stores that speak S3's protocol often lack a piece, or take a condition
and pass over it, which is worse: nobody is told. `training_storage.training.capability_probe` finds out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final


class Answer(StrEnum):
    """How a store answered a probe."""

    YES = "yes"
    #: It said that all is well and did something else.
    IGNORED = "ignored"
    #: It said no.
    REFUSED = "refused"
    #: It was not asked.
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """How a store answered each probe.

    Parameters
    ----------
    read_after_write
        What was written, replaced or deleted is seen so by the next request.
    ranged_read
        A part of an object can be read.
    create_only
        ``If-None-Match: *`` refuses to replace an object.
    compare_and_swap
        ``If-Match`` refuses to replace an object that has changed.
    multipart
        An object can be uploaded in parts.
    multipart_create_only
        ``If-None-Match: *`` refuses to complete an upload whose object exists.
    copy
        An object can be copied on the server's side.
    """

    read_after_write: Answer = Answer.UNKNOWN
    ranged_read: Answer = Answer.UNKNOWN
    create_only: Answer = Answer.UNKNOWN
    compare_and_swap: Answer = Answer.UNKNOWN
    multipart: Answer = Answer.UNKNOWN
    multipart_create_only: Answer = Answer.UNKNOWN
    copy: Answer = Answer.UNKNOWN

    def has(self, name: str) -> bool:
        """Whether the store was found to do it."""
        return bool(getattr(self, name) == Answer.YES)

    def lacks(self, name: str) -> bool:
        """Whether the store was found not to do it."""
        return getattr(self, name) in (Answer.IGNORED, Answer.REFUSED)

    def missing(self) -> tuple[str, ...]:
        """Return the names of what the store was found not to do."""
        return tuple(field.name for field in fields(self) if self.lacks(field.name))

    def weaker(self) -> tuple[str, ...]:
        """Return one sentence for each promise that is weaker on this store, or cannot be given."""
        return tuple(WEAKER[name] for name in self.missing())


#: What AWS documents for S3 and S3 Express One Zone: conditions on PutObject and CompleteMultipartUpload, strong
#: read-after-write.
AWS: Final = Capabilities(**{field.name: Answer.YES for field in fields(Capabilities)})

#: The promise that needs each capability, and what is left without it.
WEAKER: Final = {
    "read_after_write": (
        "a checkpoint that was just published may not be seen at once: restore may return an older complete one"
    ),
    "ranged_read": "restoring cannot read in parallel ranges: not supported on this store",
    "create_only": (
        "files are not create-only: the store is asked first and written then, so two publishers of the same checkpoint"
        " can overwrite each other's files in between; publish each checkpoint from one process"
    ),
    "compare_and_swap": (
        "latest.json is read, compared and written in two requests: with two publishers at once it can go back; restore"
        " does not rely on it"
    ),
    "multipart": (
        "a file larger than one PUT takes (5 GiB on AWS) cannot be published, and each PUT holds its whole file in"
        " memory"
    ),
    "multipart_create_only": (
        "files uploaded in parts are not create-only: the store is asked before the upload is completed, so two"
        " publishers of the same checkpoint can overwrite each other's files in between; publish each checkpoint from"
        " one process"
    ),
    "copy": "checkpoints cannot be copied inside the store: archiving reads and writes them again",
}
