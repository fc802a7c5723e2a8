"""Presets: processes by cores and demand, a share of the network, the endpoint's rules, room on the disks."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.loader_support import contract
from training_storage.planning.errors import InvalidJobError
from training_storage.training.loader_settings import loader_processes, loader_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("cores", "accelerators", "planned", "read_mb_per_s", "workers"),
    [
        (192, 8, 8, None, 8),
        (192, 8, 13, None, 13),
        (192, 8, 40, None, 16),
        (192, 8, 2, None, 8),
        (96, 8, 16, None, 12),
        (4, 8, 8, None, 1),
        (192, 8, 8, 900.0, 11),
        (192, 8, 16, 1.0, 8),
    ],
)
def test_processes_follow_cores_and_demand(
    tmp_path: Path, cores: int, accelerators: int, planned: int, read_mb_per_s: float | None, workers: int
) -> None:
    made = contract(tmp_path, accelerators=accelerators, workers_per_accelerator=planned)
    settings = loader_settings(made, cores=cores, read_mb_per_s=read_mb_per_s, cache_gib=1)
    assert settings.workers == workers
    assert str(workers) in settings.reasons[0]


def test_every_process_reads_ahead_with_a_share_of_the_network_of_its_own(tmp_path: Path) -> None:
    settings = loader_settings(contract(tmp_path, accelerators=8, prefetch_factor=2), cores=192, cache_gib=1)
    assert settings.prefetch_factor >= 4
    # 100 Gbps of one address of a p5.48xlarge for 8 accelerators with 8 processes each.
    assert settings.throughput_target_gbps == pytest.approx(100 / 64)
    assert settings.part_bytes == 8 * 2**20
    assert settings.read_ahead_bytes == 4 * settings.part_bytes
    arguments = settings.data_loader_arguments()
    assert arguments["persistent_workers"] is True
    assert arguments["multiprocessing_context"] == "forkserver"
    assert settings.loading_share_maximum == 0.1


@pytest.mark.parametrize(
    ("url", "style", "path_style", "checksums"),
    [
        (None, "auto", False, "when_supported"),
        ("https://store.example.com", "auto", True, "when_required"),
        ("https://store.example.com", "virtual", False, "when_required"),
        ("https://s3.us-east-1.amazonaws.com", "auto", False, "when_required"),
        (None, "path", True, "when_supported"),
    ],
)
def test_the_endpoints_rules_reach_the_client_and_the_sdks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str | None,
    style: str,
    path_style: bool,
    checksums: str,
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = loader_settings(contract(tmp_path, endpoint_url=url, addressing_style=style), cores=8, cache_gib=1)
    assert (settings.endpoint_url, settings.force_path_style, settings.checksums) == (url, path_style, checksums)
    assert settings.s3_client_arguments()["force_path_style"] is path_style
    assert settings.environment()["AWS_REQUEST_CHECKSUM_CALCULATION"] == checksums
    assert settings.environment().get("AWS_ENDPOINT_URL_S3") == url


def test_the_cache_takes_half_of_the_disk_that_it_will_lie_on(tmp_path: Path) -> None:
    settings = loader_settings(contract(tmp_path, cache_path=str(tmp_path / "not" / "yet" / "there")), cores=8)
    assert settings.cache_bytes == shutil.disk_usage(tmp_path).total // 2
    assert loader_settings(contract(tmp_path), cores=8, cache_gib=0).cache_bytes == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("cores", 0), ("cores", True), ("cores", 1.5), ("read_mb_per_s", -1), ("cache_gib", float("nan"))],
)
def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(InvalidJobError, match=f"^{name} must be .*, got: {value!r}"):
        loader_settings(contract(tmp_path), **{name: value})


@pytest.mark.parametrize(
    ("shards", "ranks", "workers", "processes"),
    # 11 and 13 shards a rank have no divisor: one process would take 11 and 13 times as long as it must.
    [(64, 8, 8, 8), (64, 8, 7, 4), (24, 8, 16, 3), (7, 7, 8, 1), (30, 2, 8, 8), (88, 8, 8, 6), (104, 8, 8, 7)],
)
def test_processes_are_as_few_as_read_the_shards_as_fast_as_all_could(
    shards: int, ranks: int, workers: int, processes: int
) -> None:
    assert loader_processes(shards=shards, ranks=ranks, workers=workers) == processes


@given(each=st.integers(1, 200), ranks=st.integers(1, 9), workers=st.integers(1, 16))
def test_no_number_of_shards_leaves_a_process_more_than_the_others_could_take(
    each: int, ranks: int, workers: int
) -> None:
    processes = loader_processes(shards=each * ranks, ranks=ranks, workers=workers)
    assert 1 <= processes <= min(workers, each)
    assert math.ceil(each / processes) == math.ceil(each / workers)


def test_ranks_that_cannot_read_the_same_number_of_shards_learn_how_to_pack() -> None:
    with pytest.raises(InvalidJobError, match="got: 10. Pack again with --shards 12"):
        loader_processes(shards=10, ranks=4, workers=8)
