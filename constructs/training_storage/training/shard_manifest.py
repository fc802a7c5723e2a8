"""Which sample goes into which shard: the listing of a source, shuffled and cut, in a file instead of in memory.

The order is that of a keyed hash of each sample's key: it looks random, depends on the seed and the keys alone, and
needs no list in memory to be made. Shards get the same number of samples, give or take one, so that readers of as many
shards read as many samples.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from training_storage.planning.sample_names import SampleName, is_hidden, sample_name
from training_storage.planning.sample_survey import DataSummary, member_bytes, unnamed_words
from training_storage.training.shard_errors import ShardInputError
from training_storage.training.shard_source import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from training_storage.training.shard_source import Source

_ROWS_AT_ONCE = 10_000
#: SQLite's whole numbers have 64 bits with a sign: seven bytes of a hash fit, and collide only to be told apart by key.
_RANK_BYTES = 7

#: Rank, key, field in small letters, field if it is spelled otherwise, size, mark.
_Row = tuple[int, bytes, bytes, bytes | None, int, str]

_LISTED = "CREATE TABLE listed (rank INTEGER, key BLOB, folded BLOB, field BLOB, size INTEGER, mark TEXT)"
_SHUFFLED = """
CREATE TABLE shuffled (
  rank INTEGER, key BLOB, folded BLOB, field BLOB, size INTEGER, mark TEXT, PRIMARY KEY (rank, key, folded)
) WITHOUT ROWID
"""


class Cut(NamedTuple):
    """Where a shard begins: the rank and the key of its first sample."""

    rank: int
    key: bytes


class SampleFiles(NamedTuple):
    """A sample: its key, and its files by field."""

    key: str
    files: tuple[tuple[str, SourceFile], ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The shuffled listing of a source.

    Parameters
    ----------
    path
        The file it is in.
    data
        What was listed, without the distribution of sizes.
    fingerprint
        Hexadecimal digits that change with any path, size or mark.
    """

    path: Path
    data: DataSummary
    fingerprint: str

    def cuts(self, shards: int) -> list[Cut]:
        """Return where each of `shards` shards begins."""
        samples = self.data.samples
        starts = iter([number * samples // shards for number in range(shards)])
        wanted = next(starts)
        found: list[Cut] = []
        with sqlite3.connect(self.path) as database:
            for position, row in enumerate(database.execute("SELECT DISTINCT rank, key FROM shuffled")):
                if position == wanted:
                    found.append(Cut(*row))
                    wanted = next(starts, -1)
        return found

    def samples(self, begin: Cut, end: Cut | None) -> Iterator[SampleFiles]:
        """Yield the samples from `begin` to before `end`, in their order."""
        bounds, values = "(rank, key) >= (?, ?)", [*begin]
        if end is not None:
            bounds, values = f"{bounds} AND (rank, key) < (?, ?)", [*begin, *end]
        query = f"SELECT key, coalesce(field, folded), size, mark FROM shuffled WHERE {bounds}"  # noqa: S608 - no input
        with sqlite3.connect(self.path) as database:
            current: bytes | None = None
            files: list[tuple[str, SourceFile]] = []
            for key, field, size, mark in database.execute(f"{query} ORDER BY rank, key, folded", values):
                if key != current and current is not None:
                    yield SampleFiles(_text(current), tuple(files))
                    files = []
                current = key
                name = _text(field)
                files.append((name, SourceFile(f"{_text(key)}.{name}", size, mark)))
            if current is not None:
                yield SampleFiles(_text(current), tuple(files))


def build_manifest(
    source: Source,
    *,
    path: Path,
    seed: int,
    skip_unnamed: bool = False,
    part_bytes: int,
    listed: Callable[[int], None] | None = None,
) -> Manifest:
    """List `source` into a new manifest at `path`.

    Parameters
    ----------
    source
        What is packed.
    path
        A file that does not exist yet.
    seed
        Of the shuffle.
    skip_unnamed
        Leave out files that can be no sample; otherwise they are refused.
    part_bytes
        Size of one request, for the count of requests.
    listed
        Is told the number of files so far, now and then.

    Raises
    ------
    ShardInputError
        If there is no sample, a file can be no sample, or two files are the same field of one.
    """
    listing = _Listing(seed=seed, part_bytes=part_bytes)
    database = sqlite3.connect(path)
    try:
        # Nothing here outlives the packing, so nothing needs protection.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute(
            "CREATE TABLE listed (rank INTEGER, key BLOB, folded BLOB, field BLOB, size INTEGER, mark TEXT)"
        )
        for rows in listing.rows(source):
            database.executemany("INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?)", rows)
            if listed is not None:
                listed(listing.files)
        _check(listing, source, skip_unnamed=skip_unnamed)
        database.execute(_SHUFFLED)
        try:
            database.execute("INSERT INTO shuffled SELECT * FROM listed ORDER BY rank, key, folded")
        except sqlite3.IntegrityError:
            raise _same_field(database) from None
        database.execute("DROP TABLE listed")
        database.commit()
        fingerprint = listing.fingerprint(database, ordered=source.is_ordered)
        (samples,) = database.execute("SELECT count(*) FROM (SELECT DISTINCT rank, key FROM shuffled)").fetchone()
    finally:
        database.close()
    return Manifest(path=path, data=listing.summary(samples), fingerprint=fingerprint)


class _Listing:
    """Turns a listing into rows and counts it. Packing waits for this, so it works in batches."""

    def __init__(self, *, seed: int, part_bytes: int) -> None:
        self._salt = seed.to_bytes(16, "big")
        self._part_bytes = part_bytes
        self._digest = hashlib.sha256()
        self.files = 0
        self._bytes = self._tar_bytes = self._requests = self._largest = 0
        self._smallest: int | None = None
        self.hidden = self.unnamed = 0
        self.first_unnamed: str | None = None

    def rows(self, source: Source) -> Iterator[list[_Row]]:
        files = source.files()
        while batch := list(islice(files, _ROWS_AT_ONCE)):
            named = [(file, name) for file in batch if (name := self._name(file)) is not None]
            self._count([file for file, _ in named])
            if source.is_ordered:
                listed = "".join(f"{path}\0{size}\0{mark}\n" for (path, size, mark, _), _ in named)
                self._digest.update(listed.encode("utf-8", "surrogateescape"))
            yield [self._row(file, name) for file, name in named]

    def _name(self, file: SourceFile) -> SampleName | None:
        if is_hidden(file.path):
            self.hidden += 1
            return None
        name = None if file.fault else sample_name(file.path)
        if name is None:
            self.unnamed += 1
            self.first_unnamed = self.first_unnamed or unnamed_words(file.path, file.fault)
        return name

    def _row(self, file: SourceFile, name: SampleName) -> _Row:
        key, field = name.key.encode("utf-8", "surrogateescape"), name.field
        folded = field.lower()
        rank = hashlib.blake2b(key, key=self._salt, digest_size=_RANK_BYTES).digest()
        spelled = None if field == folded else field.encode("utf-8", "surrogateescape")
        small = folded.encode("utf-8", "surrogateescape")
        return int.from_bytes(rank, "big"), key, small, spelled, file.size, file.mark

    def _count(self, files: list[SourceFile]) -> None:
        if not files:
            return
        sizes = [file.size for file in files]
        self.files += len(files)
        self._bytes += sum(sizes)
        self._tar_bytes += sum(member_bytes(file.path, file.size) for file in files)
        self._requests += sum(max(1, -(-size // self._part_bytes)) for size in sizes)
        self._largest = max(self._largest, *sizes)
        self._smallest = min(sizes if self._smallest is None else (self._smallest, *sizes))

    def fingerprint(self, database: sqlite3.Connection, *, ordered: bool) -> str:
        """Return what tells this listing from any other, whatever the order in which it came."""
        digest = self._digest
        if not ordered:
            # Directory buckets list in no order; their rows have one by now.
            for row in database.execute("SELECT key, folded, field, size, mark FROM shuffled"):
                digest.update(repr(row).encode())
        digest.update(f"{self.files}/{self.hidden}/{self.unnamed}".encode())
        return digest.hexdigest()

    def summary(self, samples: int) -> DataSummary:
        return DataSummary(
            files=self.files,
            bytes=self._bytes,
            samples=samples,
            smallest_bytes=self._smallest or 0,
            largest_bytes=self._largest,
            tar_bytes=self._tar_bytes,
            range_requests=self._requests,
            distribution=(),
            hidden=self.hidden,
            unnamed=self.unnamed,
            first_unnamed=self.first_unnamed,
        )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _check(listing: _Listing, source: Source, *, skip_unnamed: bool) -> None:
    if listing.unnamed and not skip_unnamed:
        raise ShardInputError(
            f"every file must be there and have a name with an extension, such as 7.jpg, to be part of a sample, got:"
            f" {listing.first_unnamed} and {listing.unnamed - 1} more in {source.name}. Repair or rename them, or leave"
            " them out with --skip-unnamed."
        )
    if not listing.files:
        raise ShardInputError(f"{source.name} must hold files to pack, got: none.")


def _same_field(database: sqlite3.Connection) -> ShardInputError:
    key, one, other = database.execute(
        "SELECT key, min(coalesce(field, folded)), max(coalesce(field, folded)) FROM listed"
        " GROUP BY rank, key, folded HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    paths = [f"{_text(key)}.{_text(field)}" for field in (one, other)]
    return ShardInputError(
        f"extensions must differ in more than upper and lower case, got: {paths[0]!r} and {paths[1]!r}. Rename one:"
        " readers take both for the same field of one sample."
    )
