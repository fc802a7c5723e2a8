"""The tags that the gate reads and writes: all that it remembers is on the resources themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: On file systems, links and tasks that a gate may touch; its policy allows nothing that lacks it.
GATE = "training-storage:gate"
#: On a file system: since when clients may have it. Without it nobody was ever told of the file system.
HANDED_OVER = "training-storage:handed-over"
#: On a link: the events that were exported automatically before the gate stopped that.
EXPORT_EVENTS = "training-storage:export-events"
#: On an export task: the attempt that started it.
ATTEMPT = "training-storage:attempt"
#: On a file system that a gate refused to delete: why, and the stack that it came from.
LEFT_STANDING = "training-storage:left-standing"
STACK = "training-storage:stack"

#: What AWS takes in a tag's value (FSx API, TagValue).
_FORBIDDEN = re.compile(r"[^\w\s.:/=+\-@]")
_CHARACTERS = 256


def of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of what FSx describes."""
    return {tag["Key"]: tag["Value"] for tag in record.get("Tags") or []}


def pair(key: str, value: str) -> dict[str, str]:
    """Return a tag as FSx takes it: other characters become spaces, and what is too long is cut."""
    text = " ".join(_FORBIDDEN.sub(" ", value).split())
    return {"Key": key, "Value": text[:_CHARACTERS].rstrip()}
