"""In which requests a shard goes to S3: the rule that packing sends by, and the plan counts by."""

from __future__ import annotations

import math
from typing import Final

from training_storage.planning.catalog.s3 import s3_limits
from training_storage.planning.catalog.shards import shard_figures
from training_storage.planning.units import MIB

#: Of a part: fewer requests than with the least that S3 takes, and a few of them still fit into memory.
_PART_MIB: Final = 16


def upload_part_bytes(size: int) -> int:
    """Return the size of a part of an upload of `size` bytes; larger where it would have too many parts."""
    least = max(_PART_MIB, shard_figures().upload_part_mib_minimum) * MIB
    return max(least, math.ceil(size / s3_limits().parts_maximum))


def upload_requests(size: int) -> int:
    """Return the PUT and POST requests of an upload of `size` bytes: one, or begin, parts and end."""
    parts = math.ceil(size / upload_part_bytes(size))
    return parts + 2 if parts > 1 else 1
