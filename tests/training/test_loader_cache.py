"""The node's cache: bounded, shared, never half a shard, never another data set's."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

import pytest

from training_storage.training.loader_cache import Part, ShardCache
from training_storage.training.shard_errors import ShardError
from training_storage.training.shard_index import ShardRecord

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1000


def content(number: int) -> bytes:
    return bytes([number]) * SIZE


def record(number: int) -> ShardRecord:
    digest = hashlib.sha256(content(number)).hexdigest()
    return ShardRecord(name=f"shard-{number:06d}.tar", samples=1, files=1, bytes=SIZE, sha256=digest)


class Reader:
    """A process of a node: its cache, and how often it asked the store."""

    def __init__(self, path: Path, *, shards: int = 10, keep: range = range(10)) -> None:
        digests = frozenset(record(number).sha256 for number in keep)
        self.cache = ShardCache(path=str(path), limit_bytes=shards * SIZE, keep=digests)
        self.fetched = 0

    def open(self, number: int, *, stored: bytes | None = None) -> Any:
        def fetch() -> io.BytesIO:
            self.fetched += 1
            return io.BytesIO(content(number) if stored is None else stored)

        return self.cache.open(record(number), place=f"shard {number}", fetch=fetch)

    def read(self, number: int) -> bytes:
        with self.open(number) as stream:
            data: bytes = stream.read()
        return data


def test_a_shard_is_fetched_once_and_the_same_afterwards(tmp_path: Path) -> None:
    reader, other = Reader(tmp_path / "cache"), Reader(tmp_path / "cache")
    assert reader.read(1) == content(1)
    assert reader.read(1) == content(1)
    assert other.read(1) == content(1), "another process of the node has it as well"
    assert (reader.fetched, other.fetched) == (1, 0)


def test_what_no_longer_fits_is_passed_on_and_what_is_in_stays(tmp_path: Path) -> None:
    reader = Reader(tmp_path, shards=2)
    for _ in range(3):
        assert [reader.read(number) for number in range(4)] == [content(number) for number in range(4)]
    assert reader.fetched == 2 + 3 * 2, "two stay, two come from the store each time"
    assert sum(path.stat().st_size for path in tmp_path.glob("*.tar")) <= 2 * SIZE


def test_other_data_sets_make_room_but_only_as_much_as_is_needed(tmp_path: Path) -> None:
    old = Reader(tmp_path, shards=3, keep=range(3))
    for number in range(3):
        old.read(number)
    new = Reader(tmp_path, shards=3, keep=range(5, 8))
    new.read(5)
    assert len(list(tmp_path.glob("*.tar"))) == 3
    new.read(6)
    new.read(7)
    new.read(5)
    assert new.fetched == 3


@pytest.mark.parametrize("stored", [content(1)[:-1], content(1) + b"x", content(2), b""])
def test_a_shard_that_is_not_what_the_index_says_is_refused_and_not_kept(tmp_path: Path, stored: bytes) -> None:
    reader = Reader(tmp_path)
    with reader.open(1, stored=stored) as stream, pytest.raises(ShardError, match="^the shard shard 1 (must|has)"):
        stream.read()
    assert list(tmp_path.glob("*.[tp]ar*")) == []
    assert reader.read(1) == content(1)


def test_a_shard_that_was_not_read_to_its_end_is_not_kept(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with reader.open(1) as stream:
        stream.read(10)
    assert list(tmp_path.glob("*.[tp]ar*")) == []


def test_a_file_of_another_size_in_the_cache_is_not_trusted(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.read(1)
    (tmp_path / f"{record(1).sha256}.tar").write_bytes(b"short")
    assert reader.read(1) == content(1)


def test_two_processes_that_read_the_same_shard_at_once_both_get_it(tmp_path: Path) -> None:
    one, other = Reader(tmp_path), Reader(tmp_path)
    with one.open(1) as first, other.open(1) as second:
        assert first.read() == second.read() == content(1)
    assert one.read(1) == content(1)
    assert one.fetched == 1


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    left = tmp_path / f"{record(8).sha256}.part"
    left.write_bytes(bytes(SIZE))
    live = Part.create(tmp_path / f"{record(9).sha256}.part", size=SIZE)
    assert live is not None
    reader = Reader(tmp_path, shards=2)
    reader.read(1)
    assert not left.exists()
    assert Part.is_alive(tmp_path / f"{record(9).sha256}.part")
    reader.read(2)
    assert [path.stem for path in tmp_path.glob("*.tar")] == [record(1).sha256], "the live one's room counts"
    live.drop()


def test_without_room_nothing_is_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", shards=0)
    assert reader.read(1) == reader.read(1) == content(1)
    assert not (tmp_path / "cache").exists()
