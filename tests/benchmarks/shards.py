"""How fast small files are packed, and what packing gives where every first byte takes its time.

Each figure stands beside its yardstick of the same run: webdataset's own writer in one process on the same disk, and a
loader that reads the small files one by one from the same slow store.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from training_storage.planning.catalog.shards import shard_figures
from training_storage.testing.local_aws import LocalAws
from training_storage.training.shard_pack import pack_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES, FILE_BYTES, SHARDS = 100_000, 1024, 8
ROUNDS: Final = 3
#: Of one process of webdataset's writer, for each core.
PACK_LEAST_A_CORE: Final = 0.7

SAMPLES, SAMPLE_BYTES, SMALL_SAMPLES, WORKERS = 20_000, 2048, 120, 2
READ_LEAST: Final = 5.0
#: Of a training step, for the share of the time that loading takes.
BATCH, STEP_SECONDS = 100, 0.05


@dataclass(frozen=True, kw_only=True)
class PackRates:
    """Files per second, medians of runs that take turns.

    Parameters
    ----------
    cores
        That packing may use.
    packed
        By `pack_shards`.
    writer
        By ``webdataset.ShardWriter`` in one process, as its documentation shows it.
    lean_writer
        The same with one time for all files, which spares it a second header for each.
    """

    cores: int
    packed: float
    writer: float
    lean_writer: float

    @property
    def a_core(self) -> float:
        """How many such writers one core of ours is worth."""
        return self.packed / self.writer / self.cores


@dataclass(frozen=True, kw_only=True)
class ReadRates:
    """Samples per second from a store that takes `latency_s` to each first byte.

    Parameters
    ----------
    latency_s
        Of each request.
    packed, small
        From shards through the preset without a cache, and small files one by one, with as many processes that run
        already.
    second_epoch_requests
        What the second epoch asked of the store.
    loading_share
        Of the time of the second epoch, where a step takes 50 ms.
    """

    latency_s: float
    packed: float
    small: float
    second_epoch_requests: int
    loading_share: float


def pack_rates() -> PackRates:
    """Measure packing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "files"
        _write_files(source)
        ways: dict[str, Callable[[], object]] = {
            "packed": lambda: pack_shards(source=str(source), target=str(folder / "out"), shards=SHARDS),
            "writer": lambda: _write_with_webdataset(source, folder / "out", {}),
            "lean_writer": lambda: _write_with_webdataset(source, folder / "out", {"mtime": 0}),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, work in ways.items():
                start = time.perf_counter()
                work()
                times[way].append(time.perf_counter() - start)
                shutil.rmtree(folder / "out")
        rates = {way: FILES / statistics.median(seconds) for way, seconds in times.items()}
    return PackRates(cores=len(os.sched_getaffinity(0)), **rates)


def read_rates() -> ReadRates:
    """Measure reading through a store as slow to its first byte as S3 is published to be."""
    latency_s = shard_figures().first_byte_ms / 1000
    with LocalAws.start() as aws, tempfile.TemporaryDirectory() as name:
        before = dict(os.environ)
        os.environ.update(aws.settings())
        try:
            return _read(aws, Path(name), latency_s)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _read(aws: LocalAws, folder: Path, latency_s: float) -> ReadRates:
    # Loaded here: torch would be loaded again by every process that packs.
    from tests.training.loader_support import (  # noqa: PLC0415
        as_list,
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
    from training_storage.training.loader import shard_loader  # noqa: PLC0415
    from training_storage.training.loader_settings import loader_settings  # noqa: PLC0415

    aws.client("s3").create_bucket(Bucket="slow-to-first-byte")
    packed(folder, small_files(SAMPLES, size=SAMPLE_BYTES), shards=SHARDS)
    place = uploaded(aws, "slow-to-first-byte", "shards/", folder / "shards")
    few = {path: data for path, data in small_files(SMALL_SAMPLES, size=SAMPLE_BYTES).items() if path.endswith(".bin")}
    small = uploaded(aws, "slow-to-first-byte", "files/", written(folder / "few", few))
    with slow_store(aws.endpoint_url, latency_s=latency_s) as store:
        settings = loader_settings(contract(folder, endpoint_url=store.url), cores=WORKERS, cache_gib=1)
        small_seconds = read_one_by_one([small + path for path in few], settings, store, workers=WORKERS)
        uncached = dataclasses.replace(settings, cache_bytes=0)
        count, packed_seconds = read_through_preset(place, uncached, store, workers=WORKERS, batch_size=BATCH)
        loader = shard_loader(
            place, settings=settings, batch_size=BATCH, transform=key_of, collate=as_list, num_workers=WORKERS
        )
        for _ in loader:
            pass
        asked = len(store.requests)
        for _ in loader:
            time.sleep(STEP_SECONDS)
            share = loader.loading_share
    return ReadRates(
        latency_s=latency_s,
        packed=count / packed_seconds,
        small=SMALL_SAMPLES / small_seconds,
        second_epoch_requests=len(store.requests) - asked,
        loading_share=share,
    )


def _write_files(source: Path) -> None:
    content = random.Random(0).randbytes(FILE_BYTES)  # noqa: S311 - no secret
    for number in range(FILES):
        folder = source / f"{number // 1000:04d}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"{number:08d}.bin").write_bytes(content)


def _write_with_webdataset(source: Path, target: Path, options: dict[str, int]) -> None:
    """Pack as webdataset's documentation shows it: list, shuffle, read, write."""
    from webdataset import ShardWriter  # noqa: PLC0415 - see _read

    target.mkdir()
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]  # noqa: PTH118
    random.Random(0).shuffle(paths)  # noqa: S311 - no secret
    with ShardWriter(f"{target}/%06d.tar", maxcount=FILES // SHARDS, verbose=0, **options) as writer:
        for path in paths:
            with open(path, "rb") as file:  # noqa: PTH123 - as fast as it gets, for the yardstick
                writer.write({"__key__": os.path.relpath(path, source)[:-4], "bin": file.read()})


def claims(packing: PackRates, reading: ReadRates) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is claimed: the words, what was measured, the limit, and whether it holds."""
    yield (
        "files packed per second / one process of webdataset's writer, for each core",
        f"{packing.a_core:.2f}",
        f"at least {PACK_LEAST_A_CORE}",
        packing.a_core >= PACK_LEAST_A_CORE,
    )
    yield (
        f"samples per second from shards / small files one by one, first bytes after {reading.latency_s * 1000:.0f} ms",
        f"{reading.packed / reading.small:.0f}",
        f"at least {READ_LEAST:.0f}",
        reading.packed / reading.small >= READ_LEAST,
    )
    yield (
        "requests of the second epoch",
        f"{reading.second_epoch_requests}",
        "at most 0",
        reading.second_epoch_requests == 0,
    )
    most = shard_figures().loading_share_of_time_maximum
    yield (
        "share of the time that a loop waits for samples in the second epoch",
        f"{reading.loading_share:.1%}",
        f"at most {most:.0%}",
        reading.loading_share <= most,
    )


def lines(packing: PackRates, reading: ReadRates) -> Iterator[str]:
    """Yield the section of the document."""
    yield from ("", "## Shards", "")
    yield (
        f"Packing {FILES:,} files of {FILE_BYTES:,} bytes into {SHARDS} shards on the same disk, medians of {ROUNDS}"
        f" runs in turns; ours lists, shuffles, sums and syncs as well, with {packing.cores} processes. That 200,000"
        " files come back as the same samples is a test, not a figure here."
    )
    yield from ("", "| | files per second | ratio |", "|---|---|---|")
    for words, rate in (
        ("`webdataset.ShardWriter`, one process", packing.writer),
        ("the same with `mtime=0`, which spares a header a file", packing.lean_writer),
        ("`shards pack`", packing.packed),
    ):
        yield f"| {words} | {rate:,.0f} | {rate / packing.writer:.2f} |"
    yield ""
    yield (
        f"Reading samples of {SAMPLE_BYTES:,} bytes with {WORKERS} processes from a store on loopback that takes"
        f" {reading.latency_s * 1000:.0f} ms to each first byte, as S3's guide publishes it. One run each, by processes"
        " that run already, and nothing is cached."
    )
    yield from ("", "| | samples per second | ratio |", "|---|---|---|")
    for words, rate in (("small files one by one", reading.small), ("shards through the preset", reading.packed)):
        yield f"| {words} | {rate:,.0f} | {rate / reading.small:.0f} |"
    yield ""
    yield (
        f"The second epoch asks the store {reading.second_epoch_requests} times; a loop with steps of"
        f" {STEP_SECONDS * 1000:.0f} ms waits {reading.loading_share:.1%} of its time."
    )
