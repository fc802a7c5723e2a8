"""Why a file system was not deleted, for three readers: CloudFormation, a tag, and the person who must mend it."""

from __future__ import annotations

#: CloudFormation cuts a reason at 4 KB, and the CDK framework adds a stack trace to ours.
_REASON_CHARACTERS = 1500


class RefusalError(Exception):
    """The file system stays, and so do its links.

    Parameters
    ----------
    what
        What stands in the way, a sentence without a full stop.
    way_out
        What helps: a command, or what to do before the next try.
    words
        `what` in a few words, for a tag; `what` itself if it is short already.
    """

    def __init__(self, what: str, *, way_out: str, words: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.words = words or what

    def reason(self, file_system_id: str, *, also: tuple[str, ...] = ()) -> str:
        """Return the whole reason in one line: what stands, why, and what helps."""
        line = f"{file_system_id} and its links stand, nothing is deleted: {self.what}. {self.way_out}."
        line = " ".join([line, *also]).replace("\n", " ")
        return line if len(line) <= _REASON_CHARACTERS else line[: _REASON_CHARACTERS - 1] + "…"


class NotNowError(Exception):
    """AWS cannot answer now (throttled, or an error of its own): the same step is tried again later."""


class NotFoundError(Exception):
    """What a call is about does not exist (any more)."""
