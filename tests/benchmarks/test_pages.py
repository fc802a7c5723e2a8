"""The page of figures has the training side: every claim with its limit, and how each figure was measured."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tests.benchmarks import bench, checkpoint_stall, shards, timing, train_tiny_times
from training_storage.planning.catalog.shards import shard_figures

if TYPE_CHECKING:
    import pytest

PACKING = shards.PackRates(cores=2, packed=16_000.0, writer=8000.0, lean_writer=9000.0)
READING = shards.ReadRates(latency_s=0.1, packed=4000.0, small=20.0, second_epoch_requests=0, loading_share=0.01)
STALL = checkpoint_stall.Stall(save_s=0.1, synchronous_s=1.2, background_s=0.01)
EXAMPLE = train_tiny_times.TrainTiny(
    import_s=1.8, whole_s=11.0, killed_s=11.0, resumed_s=9.0, same=True, save_call_s=0.2, saved_s=0.9
)


def held(packing: shards.PackRates, reading: shards.ReadRates) -> list[bool]:
    return [holds for *_, holds in shards.claims(packing, reading)]


def test_each_claim_holds_at_its_limit_and_is_missed_beyond() -> None:
    assert held(PACKING, READING) == [True] * 4
    least = 2 * shards.PACK_LEAST_A_CORE * PACKING.writer
    assert held(dataclasses.replace(PACKING, packed=least), READING)[0]
    assert not held(dataclasses.replace(PACKING, packed=least - 10), READING)[0]
    most = shard_figures().loading_share_of_time_maximum
    for number, wrong in (
        (1, dataclasses.replace(READING, packed=20.0 * shards.READ_LEAST - 1)),
        (2, dataclasses.replace(READING, second_epoch_requests=1)),
        (3, dataclasses.replace(READING, loading_share=most + 0.01)),
    ):
        assert [place for place, holds in enumerate(held(PACKING, wrong)) if not holds] == [number]
    (stalled,) = checkpoint_stall.claims(dataclasses.replace(STALL, background_s=0.06))
    assert not stalled[-1]
    slow = train_tiny_times.claims(dataclasses.replace(EXAMPLE, resumed_s=39.0, same=False))
    assert [holds for *_, holds in slow] == [False, False]


def test_the_page_says_how_the_training_side_was_measured() -> None:
    page = "\n".join(
        [
            *bench.page_head(),
            *shards.lines(PACKING, READING),
            *checkpoint_stall.lines(STALL),
            *train_tiny_times.lines(EXAMPLE),
        ]
    )
    for words in (
        "## Shards",
        "## Publishing checkpoints",
        "where a section says nothing else",
        "The least of 5 rounds that take turns, and no median",
        "200,000 files come back as the same samples is a test",
        "by processes that run already",
        "| small files one by one | 20 | 1 |",
        "| published in the background, beyond saving | 0.01 s |",
        "resumed, to the end | 9.0 s |",
    ):
        assert words in page


def test_the_run_writes_every_section_and_claim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[str] = []

    class Document:
        def write_text(self, text: str, encoding: str) -> None:
            written.append(text.encode(encoding).decode())

    for module, name, value in (
        (bench, "agreements", lambda _: []),
        (bench, "comparisons", list),
        (timing, "cold_plan", lambda: {"plan": 0.1, "python -c pass": 0.01}),
        (timing, "plans_per_second", lambda _: (2000.0, 0.1)),
        (timing, "synth", lambda: {"empty": 1.0, "bare L1": 1.0, "app": 2.0}),
        (train_tiny_times, "train_tiny_times", lambda: EXAMPLE),
        (shards, "pack_rates", lambda: PACKING),
        (shards, "read_rates", lambda: READING),
        (checkpoint_stall, "checkpoint_stall", lambda: STALL),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(bench, "_claims", lambda *_: [])
    monkeypatch.setattr(bench, "_brute_force", lambda _: [])
    monkeypatch.setattr(bench, "_DOCUMENT", Document())
    assert bench.main() == 0
    (page,) = written
    for section in ("## Shards", "## Publishing checkpoints", "## The example, and background saves"):
        assert page.count(section) == 1
    assert page.count("| held |") == 7
    monkeypatch.setattr(shards, "read_rates", lambda: dataclasses.replace(READING, second_epoch_requests=3))
    assert bench.main() == 1
    assert "| requests of the second epoch | 3 | at most 0 | **MISSED** |" in written[1]
    capsys.readouterr()
