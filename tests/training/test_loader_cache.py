"""The node's cache: bounded, shared, never half a shard, never another data set's."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from functools import partial
from multiprocessing import get_context
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


@pytest.mark.parametrize("left", [bytes(SIZE), content(2), content(1)[:-1]])
def test_a_file_that_a_disk_or_a_power_cut_has_altered_is_read_again_and_never_given_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: bytes
) -> None:
    Reader(tmp_path).read(1)
    kept = tmp_path / f"{record(1).sha256}.tar"
    kept.write_bytes(left)
    after = Reader(tmp_path)
    assert after.read(1) == content(1)
    assert after.fetched == 1
    assert kept.read_bytes() == content(1), "the true one takes its place"
    assert str(kept) in caplog.text


def test_a_file_is_summed_once_a_process_and_not_by_the_one_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, algorithm: str) -> Any:
        summed.append(algorithm)
        return digest(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    writer, other = Reader(tmp_path), Reader(tmp_path)
    for reader, times in ((writer, 0), (other, 1)):
        for _ in range(3):
            reader.read(1)
        assert len(summed) == times


def test_a_file_has_its_name_only_after_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.append([path.suffix for path in tmp_path.glob("*.*")]))
    Reader(tmp_path).read(1)
    assert names == [[".part"]]


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_place_that_can_be_no_folder_is_one_line_before_anything_is_read(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "cache"
    if kind == "file":
        place.write_text("theirs", encoding="utf-8")
    else:
        place.symlink_to(tmp_path / "nowhere" / "below")
    reader = Reader(place)
    for use in (reader.cache.prepare, lambda: reader.read(1)):
        with pytest.raises(ShardError, match=r"^the cache '.*/cache' must be a folder .*, got: [^\n]*$"):
            use()
    assert reader.fetched == 0


def test_a_disk_that_fails_ends_the_caching_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    reader = Reader(tmp_path)
    assert reader.read(1) == reader.read(1) == content(1)
    assert reader.fetched == 2
    assert list(tmp_path.glob("*.[tp]ar*")) == []
    assert "is not kept in the cache (Input/output error)" in caplog.text


def keep_many(folder: str, first: int) -> int:
    """Read shards that are as small as files get, so that their names change all the time."""
    cache = ShardCache(path=folder, limit_bytes=10**9, keep=frozenset())
    for number in range(first, first + _SHARDS_EACH):
        data = b"%06d" % number
        one = ShardRecord(
            name=f"shard-{number:06d}.tar", samples=1, files=1, bytes=6, sha256=hashlib.sha256(data).hexdigest()
        )
        with cache.open(one, place="a shard", fetch=partial(io.BytesIO, data)) as stream:
            assert stream.read() == data
    return _SHARDS_EACH


_PROCESSES, _SHARDS_EACH = 8, 60


def test_processes_that_list_and_name_at_once_do_not_meet_each_others_renames(tmp_path: Path) -> None:
    with get_context("fork").Pool(_PROCESSES) as pool:
        starts = [(str(tmp_path), number * _SHARDS_EACH) for number in range(_PROCESSES)]
        assert pool.starmap(keep_many, starts) == [_SHARDS_EACH] * _PROCESSES
    assert len(list(tmp_path.glob("*.tar"))) == _PROCESSES * _SHARDS_EACH
    assert list(tmp_path.glob("*.part")) == []


def test_without_room_nothing_is_written(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", shards=0)
    assert reader.read(1) == reader.read(1) == content(1)
    assert not (tmp_path / "cache").exists()
