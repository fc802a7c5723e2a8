"""Which files form one sample: WebDataset's rule, by which shards are written and read.

The key of a sample is a file's path up to the first dot of its name, the field is the rest: ``cats/7.jpg`` and
``cats/7.cls`` are the fields ``jpg`` and ``cls`` of the sample ``cats/7``. Folders stay in the key, so that the same
name in two folders makes two samples.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Readers of WebDataset skip files below such a name without a word.
_META: Final = re.compile(r"__[^/]*__($|/)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")


class SampleName(NamedTuple):
    """The sample that a file belongs to, and which of its fields the file is."""

    key: str
    field: str


def sample_name(path: str) -> SampleName | None:
    """Return the sample and field of the file at `path`, relative and with ``/``; None if no reader would see it."""
    start = path.rfind("/") + 1
    dot = path.find(".", start + 1)
    if dot < 0 or path[start] == ".":
        return None
    field = path[dot + 1 :]
    if not field or (field.startswith("__") and field.endswith("__")):
        return None
    if path.startswith("__") and (_META.match(path) or (start == 0 and path.endswith("__"))):
        return None
    if not path.isprintable() and _UNPRINTABLE.search(path):
        return None
    return SampleName(path[:dot], field)


def is_hidden(path: str) -> bool:
    """Whether the file or a folder above it begins with a dot, or `path` is an object that stands for a folder."""
    return not path or path.startswith(".") or "/." in path or path.endswith("/")
