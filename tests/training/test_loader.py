"""Reading shards: every sample once, from the cache the second time, resumed exactly, and cuts never pass unseen."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.training.loader_support import (
    as_list,
    content_of,
    contract,
    key_of,
    packed,
    read_one_by_one,
    read_through_preset,
    slow_store,
    small_files,
    uploaded,
    written,
)
from training_storage.planning.catalog.shards import shard_figures
from training_storage.planning.errors import InvalidJobError
from training_storage.training.loader_settings import LoaderSettings, loader_settings
from training_storage.training.shard_errors import ShardError

pytest.importorskip("torch", reason="pip install 'training-storage[training]'")

from training_storage.training.loader import ShardLoader, shard_loader

if TYPE_CHECKING:
    from pathlib import Path

    from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.training

SAMPLES, SHARDS = 101, 4
KEYS = Counter(path.removesuffix(".cls") for path in small_files(SAMPLES) if path.endswith(".cls"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    packed(folder, small_files(SAMPLES), shards=SHARDS)
    return folder / "shards"


def settings_for(scratch: Path, **options: Any) -> LoaderSettings:
    return loader_settings(contract(scratch, **options), cores=2, cache_gib=1)


def loader_of(place: Path | str, scratch: Path, **options: Any) -> ShardLoader:
    settings = options.pop("settings", None) or settings_for(scratch)
    wanted = {"batch_size": 8, "transform": key_of, "collate": as_list, "num_workers": 0, "shuffle_samples": 10}
    return shard_loader(str(place), settings=settings, **{**wanted, **options})


def keys_of(loader: ShardLoader) -> list[str]:
    return [key for batch in loader for key in batch]


def test_an_epoch_has_every_sample_once_and_the_next_another_order(shards: Path, tmp_path: Path) -> None:
    loader = loader_of(shards, tmp_path)
    first, second = keys_of(loader), keys_of(loader)
    assert Counter(first) == Counter(second) == KEYS
    assert first != second
    assert loader.epoch == 2
    assert keys_of(loader_of(shards, tmp_path)) == first, "the same seed gives the same order"
    assert keys_of(loader_of(shards, tmp_path, seed=1)) != first


def test_samples_come_back_as_they_were(shards: Path, tmp_path: Path) -> None:
    files = small_files(SAMPLES)
    for batch in loader_of(shards, tmp_path, transform=content_of):
        for key, cls, content in batch:
            assert (files[f"{key}.cls"], files[f"{key}.bin"]) == (cls, content)


def test_ranks_and_processes_share_the_samples(shards: Path, tmp_path: Path) -> None:
    ranks = [loader_of(shards, tmp_path, rank=rank, ranks=2, batch_size=1) for rank in range(2)]
    read = [keys_of(loader) for loader in ranks]
    # 101 samples: one rank has one more, and leaves it out so that none waits for the other.
    assert [len(loader) for loader in ranks] == [50, 50]
    assert sorted(loader.left_over for loader in ranks) == [0, 1]
    assert not set(read[0]) & set(read[1])
    assert not Counter(read[0] + read[1]) - KEYS


def test_every_rank_gives_out_as_many_batches(shards: Path, tmp_path: Path) -> None:
    for batch_size in (1, 3, 8, 60):
        counts = {
            len(list(loader_of(shards, tmp_path, rank=rank, ranks=4, batch_size=batch_size))) for rank in range(4)
        }
        assert len(counts) == 1


@pytest.mark.parametrize("taken", [1, 3, 7, 12, 13])
def test_a_loop_goes_on_after_any_batch_with_no_sample_lost_or_repeated(
    shards: Path, tmp_path: Path, taken: int
) -> None:
    whole = loader_of(shards, tmp_path)
    assert len(whole) == 13
    expected = [keys_of(whole), keys_of(whole)]
    interrupted = loader_of(shards, tmp_path)
    before, state = [], None
    for number, batch in enumerate(interrupted, 1):
        before += batch
        if number == taken:
            state = interrupted.state_dict()
            break
    assert state is not None
    resumed = loader_of(shards, tmp_path)
    resumed.load_state_dict(state)
    after = keys_of(resumed) if resumed.epoch == 0 else []
    assert before + after == expected[0]
    assert keys_of(resumed) == expected[1]


def test_processes_go_on_in_the_middle_of_an_epoch(shards: Path, tmp_path: Path) -> None:
    options = {"num_workers": 2, "settings": settings_for(tmp_path)}
    interrupted = loader_of(shards, tmp_path, **options)
    before: list[str] = []
    state = None
    for number, batch in enumerate(interrupted, 1):
        before += batch
        if number == 5:
            # The processes are far ahead by now; the state is that of what was given out.
            time.sleep(0.2)
            state = interrupted.state_dict()
            break
    assert state is not None
    resumed = loader_of(shards, tmp_path, **options)
    resumed.load_state_dict(state)
    assert Counter(before + keys_of(resumed)) == KEYS
    # Kept processes begin the next epoch anew, also where the last one was left before its end.
    assert Counter(keys_of(resumed)) == KEYS


def test_a_loader_process_that_is_killed_is_one_line_with_the_rank(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(shards, tmp_path, num_workers=0)
    words = "DataLoader worker (pid(s) 7) exited unexpectedly"

    def killed() -> Any:
        raise RuntimeError(words)
        yield

    monkeypatch.setattr(loader, "_batches", killed())
    with pytest.raises(ShardError, match=r"process of rank 0 was killed, .*pid\(s\) 7.*Resume from the last"):
        next(iter(loader))


def test_ranks_that_are_no_numbers_are_refused(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(InvalidJobError, match="variable WORLD_SIZE must be a whole number, got: 'two'"):
        loader_of(shards, tmp_path)


@pytest.mark.parametrize(("taken_with", "resumed_with"), [(0, 1), (1, 0)])
def test_a_state_of_processes_is_refused_where_there_are_none_and_the_other_way_round(
    shards: Path, tmp_path: Path, taken_with: int, resumed_with: int
) -> None:
    interrupted = loader_of(shards, tmp_path, num_workers=taken_with)
    next(iter(interrupted))
    with pytest.raises(InvalidJobError, match=f"loader with workers {taken_with}, got: workers {resumed_with}"):
        loader_of(shards, tmp_path, num_workers=resumed_with).load_state_dict(interrupted.state_dict())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("left_after", [1, 4, 6])
def test_a_loop_that_was_left_is_gone_on_with_behind_its_last_batch(
    shards: Path, tmp_path: Path, workers: int, left_after: int
) -> None:
    whole = keys_of(loader_of(shards, tmp_path, num_workers=workers))
    loader = loader_of(shards, tmp_path, num_workers=workers)
    found: list[str] = []
    for _ in range(2):
        for number, batch in enumerate(loader, 1):
            found += batch
            if number == left_after:
                break
    resumed = loader_of(shards, tmp_path, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    assert found + keys_of(loader) == found + keys_of(resumed) == whole
    assert Counter(keys_of(loader)) == KEYS, "the next epoch begins at its start"


def test_processes_of_a_rank_that_cannot_share_its_shards_evenly_read_and_resume_exactly(tmp_path: Path) -> None:
    packed(tmp_path, small_files(61), shards=3)
    options = {"num_workers": 2, "settings": settings_for(tmp_path), "batch_size": 4}
    whole = keys_of(loader_of(tmp_path / "shards", tmp_path, **options))
    assert len(set(whole)) == 61
    states, given = [], 0
    loader = loader_of(tmp_path / "shards", tmp_path, **options)
    for batch in loader:
        given += len(batch)
        states.append((given, loader.state_dict()))
    # From the middle, and where one process has ended and the others go on.
    for given, state in (states[5], states[-4], states[-2]):
        resumed = loader_of(tmp_path / "shards", tmp_path, **options)
        resumed.load_state_dict(state)
        assert keys_of(resumed) == whole[given:]


def test_a_loader_that_failed_says_so_and_gives_out_no_sample_twice(tmp_path: Path) -> None:
    packed(tmp_path, small_files(40), shards=2)
    shard = tmp_path / "shards" / "shard-000001.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-2048])
    loader = loader_of(tmp_path / "shards", tmp_path)
    with pytest.raises(ShardError, match="shard-000001.tar"):
        keys_of(loader)
    shard.write_bytes(whole)
    with pytest.raises(ShardError, match="has failed and lost its place. Make a new one and load the state"):
        keys_of(loader)


@pytest.mark.parametrize(
    "change", [{"rank": 1, "ranks": 2}, {"batch_size": 4}, {"num_workers": 2}, {"drop_last": True}, {"seed": 9}]
)
def test_another_number_of_ranks_goes_on_from_an_epochs_end_and_the_log_says_so(
    shards: Path, tmp_path: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_of(shards, tmp_path)
    for _ in loader:
        state = loader.state_dict()
    ranks = int(change.get("ranks", 1))
    others = [loader_of(shards, tmp_path, **{**change, "rank": rank, "ranks": ranks}) for rank in range(ranks)]
    for other in others:
        other.load_state_dict(state)
    assert [other.epoch for other in others] == [1] * ranks
    assert max(Counter(key for other in others for key in keys_of(other)).values()) == 1
    lines = [line.getMessage() for line in caplog.records if "begins anew" in line.getMessage()]
    assert len(lines) == 1, "rank 0 alone"
    assert lines[0].startswith("epoch 1 begins anew at its start with ")


def test_fewer_processes_than_asked_for_are_said(
    shards: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loader_of(shards, tmp_path, num_workers=2, ranks=2, rank=0)
    assert caplog.text == ""
    loader_of(shards, tmp_path, num_workers=3, ranks=4, rank=1)
    assert caplog.text == "", "rank 0 says it for all"
    loader_of(shards, tmp_path, num_workers=3, ranks=4, rank=0)
    assert "each of 4 ranks reads 1, so it has 1 loader processes and not 3. Pack again with --shards 12" in caplog.text


@pytest.mark.parametrize(
    ("change", "named"),
    [({"batch_size": 4}, "batch_size"), ({"seed": 9}, "seed"), ({"rank": 1, "ranks": 2}, "ranks 1, got: ranks 2")],
)
def test_a_state_of_another_loader_is_refused(shards: Path, tmp_path: Path, change: dict[str, int], named: str) -> None:
    loader = loader_of(shards, tmp_path)
    next(iter(loader))
    with pytest.raises(InvalidJobError, match=f"in the middle of epoch 0 by a loader with {named}"):
        loader_of(shards, tmp_path, **change).load_state_dict(loader.state_dict())


def test_ranks_that_cannot_read_as_many_shards_each_are_refused(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match="multiple of the 3 ranks, so that all read as many, got: 4"):
        loader_of(shards, tmp_path, rank=0, ranks=3)
    with pytest.raises(InvalidJobError, match="multiple of the 8 ranks"):
        loader_of(shards, tmp_path, rank=0, ranks=8)


@pytest.mark.parametrize("cut", [0, 512, 5_000, 12_000, -1024, -1])
def test_a_shard_that_was_cut_is_an_error_and_never_fewer_samples(tmp_path: Path, cut: int) -> None:
    packed(tmp_path, small_files(20), shards=1)
    shard = tmp_path / "shards" / "shard-000000.tar"
    shard.write_bytes(shard.read_bytes()[:cut])
    with pytest.raises(ShardError, match="shard-000000.tar"):
        keys_of(loader_of(tmp_path / "shards", tmp_path))


def test_a_shard_that_was_altered_is_an_error(tmp_path: Path) -> None:
    packed(tmp_path, small_files(20), shards=1)
    shard = tmp_path / "shards" / "shard-000000.tar"
    shard.write_bytes(shard.read_bytes().replace(b"000013-", b"000014-"))
    with pytest.raises(ShardError, match="another checksum"):
        keys_of(loader_of(tmp_path / "shards", tmp_path))


def test_shards_are_read_five_times_as_fast_as_small_files_and_only_once(
    aws_environment: LocalAws, bucket: str, shards: Path, tmp_path: Path
) -> None:
    files = {path: content for path, content in small_files(SAMPLES).items() if path.endswith(".bin")}
    place = uploaded(aws_environment, bucket, "shards/", shards)
    small = uploaded(aws_environment, bucket, "files/", written(tmp_path / "files", files))
    with slow_store(aws_environment.endpoint_url, latency_s=shard_figures().first_byte_ms / 1000) as store:
        settings = settings_for(tmp_path, endpoint_url=store.url)
        loader = loader_of(place, tmp_path, settings=settings, num_workers=2)
        assert Counter(keys_of(loader)) == KEYS
        asked = len(store.requests)
        assert asked == 1 + 2 * SHARDS, "the index, and for each shard its size and one range"
        assert Counter(keys_of(loader)) == KEYS
        assert len(store.requests) == asked, "the second epoch comes from the node's disks"
        # Both rates are of processes that run already: starting them takes what the machine has left to give.
        uncached = dataclasses.replace(settings, cache_bytes=0)
        count, packed_seconds = read_through_preset(place, uncached, store, workers=2, batch_size=8)
        assert count == SAMPLES
        few = [small + path for path in files][:40]
        small_seconds = read_one_by_one(few, settings, store, workers=2)
    assert count / packed_seconds >= 5 * len(few) / small_seconds


def test_what_does_not_fit_on_the_disks_is_read_from_the_store_each_time(
    aws_environment: LocalAws, bucket: str, shards: Path, tmp_path: Path
) -> None:
    place = uploaded(aws_environment, bucket, "shards/", shards)
    size = (shards / "shard-000000.tar").stat().st_size
    with slow_store(aws_environment.endpoint_url, latency_s=0) as store:
        settings = dataclasses.replace(settings_for(tmp_path, endpoint_url=store.url), cache_bytes=3 * size)
        loader = loader_of(place, tmp_path, settings=settings)
        assert Counter(keys_of(loader)) == KEYS
        kept = {path.name for path in (tmp_path / "cache").glob("*.tar")}
        asked = len(store.requests)
        assert Counter(keys_of(loader)) == KEYS
        assert len(store.requests) - asked == 2, "three of four shards are on disk"
        assert {path.name for path in (tmp_path / "cache").glob("*.tar")} == kept


@pytest.mark.parametrize("workers", [0, 1])
def test_a_store_that_falls_silent_is_an_error_in_bounded_time_that_names_shard_and_rank(
    aws_environment: LocalAws, bucket: str, shards: Path, tmp_path: Path, workers: int
) -> None:
    place = uploaded(aws_environment, bucket, "shards/", shards)
    with slow_store(aws_environment.endpoint_url, latency_s=0) as store:
        settings = dataclasses.replace(settings_for(tmp_path, endpoint_url=store.url), timeout_seconds=1.0)
        loader = loader_of(place, tmp_path, settings=settings, rank=1, ranks=2, num_workers=workers)
        store.latency_s = 20.0
        began = time.monotonic()
        with pytest.raises(ShardError, match=r"shard-00000[13].tar cannot be read by rank 1: no range of 32 MiB"):
            keys_of(loader)
        assert time.monotonic() - began < store.latency_s
        # The client cannot be interrupted: let it end here, and not beside other tests.
        store.latency_s = 0
        while any(thread.name == "read-ahead" for thread in threading.enumerate()):
            assert time.monotonic() - began < 2 * 20
            time.sleep(0.02)


def test_a_shard_that_is_not_there_names_itself(
    aws_environment: LocalAws, bucket: str, shards: Path, tmp_path: Path
) -> None:
    place = uploaded(aws_environment, bucket, "shards/", shards)
    aws_environment.client("s3").delete_object(Bucket=bucket, Key="shards/shard-000002.tar")
    settings = settings_for(tmp_path, endpoint_url=aws_environment.endpoint_url)
    with pytest.raises(ShardError, match=f"^the shard s3://{bucket}/shards/shard-000002.tar cannot be read by rank 0"):
        keys_of(loader_of(place, tmp_path, settings=settings))
