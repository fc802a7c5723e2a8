"""What a place of checkpoints or shards may be called: ``s3://BUCKET/PREFIX/`` or a path. Standard library only."""

from __future__ import annotations

import re
from typing import Final

S3_SCHEME: Final = "s3://"
_SOME_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_no_place(text: str) -> bool:
    """Whether `text` is nothing, or another scheme, or one in capitals or with a slash too few.

    Such a text would be taken for a folder of that name.
    """
    return not text or (_SOME_SCHEME.match(text) is not None and not text.startswith(S3_SCHEME))
