"""Make small files to pack: ``python make_data.py FOLDER [SAMPLES]``."""

# ruff: noqa: INP001 -- a script

from __future__ import annotations

import random
import sys
from pathlib import Path

SAMPLES, BYTES = 512, 64


def make(folder: Path, samples: int) -> None:
    """Write `samples` files of 64 bytes; the last byte is the target, which depends on the others."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)  # noqa: S311 -- data, no secret
    for number in range(samples):
        features = chance.randbytes(BYTES - 1)
        (folder / f"sample-{number:06d}.bin").write_bytes(features + bytes([sum(features) % 256]))


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else SAMPLES)  # noqa: PLR2004 -- the second argument
