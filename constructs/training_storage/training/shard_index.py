"""The index of packed shards, written last: what each shard holds, and a checksum of it. Standard library only."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from training_storage.training.shard_errors import ShardInputError

SCHEMA_VERSION: Final = 1
INDEX_NAME: Final = "index.json"
FORMAT: Final = "webdataset-tar"
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: A class with a field `bytes` cannot say so itself.
Text: TypeAlias = str | bytes
_NAME = re.compile(r"shard-[0-9]{6,}\.tar")


def shard_name(number: int) -> str:
    """Return the name of a shard: ``shard-000007.tar``."""
    return f"shard-{number:06d}.tar"


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One shard: its samples and their files, its size in bytes and its SHA-256 in hexadecimal digits."""

    name: str
    samples: int
    files: int
    bytes: int
    sha256: str

    def values(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        values = dataclasses.asdict(self)
        values["checksum"] = {"algorithm": "sha256", "value": values.pop("sha256")}
        return values

    @classmethod
    def from_values(cls, values: object) -> ShardRecord:
        """Read a record from JSON values.

        Raises
        ------
        ShardInputError
            If they are no record of this version.
        """
        if not isinstance(values, dict):
            raise ShardInputError(f"shards[] must be objects, got: {values!r:.80}.")
        checksum = values.get("checksum")
        digest = checksum.get("value") if isinstance(checksum, dict) else None
        algorithm = checksum.get("algorithm") if isinstance(checksum, dict) else None
        if algorithm != "sha256" or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ShardInputError(
                f"shards[].checksum must be a sha256 of 64 hexadecimal digits, got: {checksum!r:.90}."
            )
        name = values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ShardInputError(f"shards[].name must be like {shard_name(7)}, got: {name!r:.80}.")
        counts: dict[str, int] = {}
        for field in ("samples", "files", "bytes"):
            count = values.get(field)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ShardInputError(f"shards[].{field} must be a whole number from 1 for {name}, got: {count!r:.80}.")
            counts[field] = count
        return cls(name=name, sha256=digest, **counts)


@dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """All shards of a packed data set.

    Parameters
    ----------
    source
        What was packed: a folder or a URI.
    seed
        Of the shuffle.
    run
        Hexadecimal digits that tell this packing from any other: of its source's files, seed and number of shards.
    hidden, unnamed
        Files that were left out: hidden ones, and those that can be no sample.
    shards
        In the order of their numbers.
    """

    source: str
    seed: int
    run: str
    hidden: int
    unnamed: int
    shards: tuple[ShardRecord, ...]

    @property
    def samples(self) -> int:
        """Samples of all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def to_json(self) -> str:
        """Return the index as text; the same shards give the same text."""
        values = {
            "schema_version": SCHEMA_VERSION,
            "format": FORMAT,
            "source": self.source,
            "seed": self.seed,
            "run": self.run,
            "left_out": {"hidden": self.hidden, "unnamed": self.unnamed},
            "samples": self.samples,
            "files": sum(shard.files for shard in self.shards),
            "bytes": self.bytes,
            "shards": [shard.values() for shard in self.shards],
        }
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: Text, *, place: str) -> ShardIndex:
        """Read an index from its text; `place` names it in errors.

        Raises
        ------
        ShardInputError
            If it is no index of this version.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ShardInputError(f"{place} must be JSON, got: what is not ({error!s:.80}).") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ShardInputError(f"{place} must be an index that `shards pack` wrote, got: something else.")
        if values.get("schema_version") != SCHEMA_VERSION:
            version = values.get("schema_version")
            raise ShardInputError(f"schema_version of {place} must be {SCHEMA_VERSION}, got: {version!r:.80}.")
        records = values.get("shards")
        if not isinstance(records, list) or not records:
            raise ShardInputError(f"shards of {place} must be a list with at least one shard, got: {records!r:.80}.")
        left_out = values.get("left_out")
        counts = left_out if isinstance(left_out, dict) else {}
        index = cls(
            source=str(values.get("source")),
            seed=_whole(values.get("seed"), "seed", place),
            run=str(values.get("run")),
            hidden=_whole(counts.get("hidden"), "left_out.hidden", place),
            unnamed=_whole(counts.get("unnamed"), "left_out.unnamed", place),
            shards=tuple(ShardRecord.from_values(record) for record in records),
        )
        names = [shard.name for shard in index.shards]
        if names != [shard_name(number) for number in range(len(names))]:
            listed = ", ".join(names)
            raise ShardInputError(f"shards of {place} must be numbered from 0 without a gap, got: {listed:.80}.")
        if (values.get("samples"), values.get("bytes")) != (index.samples, index.bytes):
            raise ShardInputError(f"samples and bytes of {place} must be the sums over its shards, got: others.")
        return index


def _whole(value: object, field: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ShardInputError(f"{field} of {place} must be a whole number from 0, got: {value!r:.80}.")
    return value
