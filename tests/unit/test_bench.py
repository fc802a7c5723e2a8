"""The benchmark's own words: only planned jobs count, limits stand beside figures, and a missed one is an exit code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.benchmarks import bench, checkpoint_stall, published, shards, timing, train_tiny_times
from tests.benchmarks.agreement import Agreement

PLANNED = Agreement(job={"instances": 64}, ratio=1.0, printed_ratio=1.0, meets=True)
REFUSED = Agreement(job={"instances": 8}, ratio=None, printed_ratio=None, meets=True)
GOOD: dict[str, Any] = {
    "compared": [PLANNED, REFUSED],
    "cold": {"python -c pass": 0.013, "plan": 0.113},
    "rate": 2000.0,
    "default_rate": 1500.0,
    "loop": 0.075,
}

TRAINED = train_tiny_times.TrainTiny(
    import_s=1.0, whole_s=10.0, killed_s=10.0, resumed_s=9.0, same=True, save_call_s=0.1, saved_s=1.0
)
PACKED = shards.PackRates(cores=2, packed=2000.0, writer=1000.0, lean_writer=1200.0)
STALL = checkpoint_stall.Stall(save_s=0.1, synchronous_s=2.0, background_s=0.02)
READ = shards.ReadRates(latency_s=0.1, packed=4000.0, small=20.0, second_epoch_requests=0, loading_share=0.03)


def missed(**changes: Any) -> list[str]:
    return [claim.words for claim in bench._claims(**{**GOOD, **changes}) if not claim.holds]


def test_refused_jobs_are_not_counted_as_plans_that_meet_the_demand() -> None:
    claims = {claim.words: claim.measured for claim in bench._claims(**GOOD)}
    assert claims["plans that meet the demand"] == "1 of 1"
    assert "| planned jobs whose plan meets the demand | 1 of 1 |" in list(bench._brute_force([PLANNED, REFUSED]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compared": [Agreement(job={}, ratio=1.02, printed_ratio=1.0, meets=True)]}, "total cost of the plan"),
        ({"compared": [Agreement(job={}, ratio=1.0, printed_ratio=1.0, meets=False)]}, "plans that meet the demand"),
        ({"cold": {"python -c pass": 0.1, "plan": 0.3}}, "a cold plan over `python -c pass`"),
        ({"cold": {"python -c pass": 0.005, "plan": 0.1}}, "a cold plan / `python -c pass`"),
        ({"default_rate": 999.0, "loop": 1.0}, "plans per second in process, `instances=256`"),
        ({"rate": 1001.0, "loop": 0.07}, "plans in the time of the fixed loop, the random jobs"),
    ],
)
def test_each_limit_can_be_missed_and_is_printed_as_missed(changes: dict[str, Any], words: str) -> None:
    assert missed() == []
    assert [found for found in missed(**changes) if found.startswith(words)]
    table = list(bench._held(list(bench._claims(**{**GOOD, **changes}))))
    assert any("**MISSED**" in line and words in line for line in table)
    assert all("at most" in line or "at least" in line or "| all |" in line for line in table[5:])


@pytest.mark.parametrize(("plan_s", "code"), [(0.1, 0), (3.0, 1)])
def test_a_missed_claim_is_written_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, plan_s: float, code: int
) -> None:
    monkeypatch.setattr(bench, "_DOCUMENT", tmp_path / "benchmarks.md")
    monkeypatch.setattr(bench, "agreements", lambda _: iter([PLANNED, REFUSED]))
    monkeypatch.setattr(bench, "comparisons", list)
    monkeypatch.setattr(timing, "cold_plan", lambda: {"python -c pass": 0.013, "plan": plan_s})
    monkeypatch.setattr(timing, "plans_per_second", lambda _: (2000.0, 0.075))
    monkeypatch.setattr(timing, "synth", lambda: {"empty": 1.0, "bare L1": 1.0, "app": 2.0})
    monkeypatch.setattr(train_tiny_times, "train_tiny_times", lambda: TRAINED)
    monkeypatch.setattr(shards, "pack_rates", lambda: PACKED)
    monkeypatch.setattr(shards, "read_rates", lambda: READ)
    monkeypatch.setattr(checkpoint_stall, "checkpoint_stall", lambda: STALL)
    assert bench.main() == code
    assert ("MISSED" in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")) == bool(code)


@pytest.mark.parametrize("changes", [{"whole_s": 42.0}, {"same": False}])
def test_the_example_misses_its_claims_when_it_is_slow_or_resumes_another_run(changes: dict[str, Any]) -> None:
    assert [holds for *_, holds in train_tiny_times.claims(TRAINED)] == [True, True]
    assert False in [holds for *_, holds in train_tiny_times.claims(dataclasses.replace(TRAINED, **changes))]


@pytest.mark.parametrize(
    ("packing", "reading", "words"),
    [
        ({"packed": 1300.0}, {}, "files packed per second"),
        ({}, {"packed": 99.0}, "samples per second from shards"),
        ({}, {"second_epoch_requests": 1}, "requests of the second epoch"),
        ({}, {"loading_share": 0.11}, "share of the time that a loop waits"),
    ],
)
def test_each_claim_on_shards_can_be_missed(packing: dict[str, Any], reading: dict[str, Any], words: str) -> None:
    assert all(holds for *_, holds in shards.claims(PACKED, READ))
    changed = shards.claims(dataclasses.replace(PACKED, **packing), dataclasses.replace(READ, **reading))
    assert [named.startswith(words) for named, *_, holds in changed if not holds] == [True]


def test_the_claim_on_background_publishing_can_be_missed() -> None:
    assert [holds for *_, holds in checkpoint_stall.claims(STALL)] == [True]
    assert [holds for *_, holds in checkpoint_stall.claims(dataclasses.replace(STALL, background_s=0.1))] == [False]


def test_published_cases_with_fitted_budgets_say_so_in_the_document() -> None:
    text = "\n".join(bench._published(published.comparisons()))
    fitted = [case for case in published.CASES if case.fitted]
    assert len(fitted) == 3
    for case in fitted:
        assert f"| {case.source} * |" in text
        assert f"\\* {case.source}: {case.fitted}" in text
