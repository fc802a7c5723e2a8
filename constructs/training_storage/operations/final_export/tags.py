"""The tags that the gate reads and writes: all that it remembers is on the resources themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: On file systems, links and tasks that a gate may touch; its policy allows nothing that lacks it.
GATE = "training-storage:gate"
#: On a file system: since when clients may have it. Without it nobody was ever told of the file system.
HANDED_OVER = "training-storage:handed-over"
#: On a link: the events that were exported automatically before the gate stopped that.
EXPORT_EVENTS = "training-storage:export-events"
#: On a link: when the gate stopped its automatic export, after which the metric of its queue may end.
EXPORT_STOPPED = "training-storage:export-stopped"
#: On a file system: the linked paths that are exported before it goes, for when its stack can no longer say so.
EXPORTED_PATHS = "training-storage:exported-paths"
#: On a file system: when a park was taken back. What was exported before that proves nothing any more.
TAKEN_BACK = "training-storage:taken-back"
#: On an export task: the attempt that started it.
ATTEMPT = "training-storage:attempt"
#: On a file system that a gate refused to delete: why, and the stack that it came from.
LEFT_STANDING = "training-storage:left-standing"
STACK = "training-storage:stack"

#: What AWS takes in a tag's value (FSx API, TagValue).
_FORBIDDEN = re.compile(r"[^\w\s.:/=+\-@]")
_CHARACTERS = 256
#: In place of paths where none is exported.
_NO_PATH = "/none"


def of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of what FSx describes."""
    return {tag["Key"]: tag["Value"] for tag in record.get("Tags") or []}


def pair(key: str, value: str) -> dict[str, str]:
    """Return a tag as FSx takes it: other characters become spaces, and what is too long is cut."""
    text = " ".join(_FORBIDDEN.sub(" ", value).split())
    return {"Key": key, "Value": text[:_CHARACTERS].rstrip()}


def paths_value(paths: Sequence[str]) -> str | None:
    """Return the value of `EXPORTED_PATHS`; None if a tag cannot hold these paths."""
    cleaned = ["/" + path.strip("/") for path in paths]
    value = " ".join(cleaned) or _NO_PATH
    if len(value) > _CHARACTERS or pair(EXPORTED_PATHS, value)["Value"] != value or paths_of(value) != cleaned:
        return None
    return value


def paths_of(value: str) -> list[str]:
    """Return the paths that a value of `EXPORTED_PATHS` names: each begins with a slash, and may hold spaces."""
    return [path for path in re.split(r" (?=/)", value) if path != _NO_PATH]
