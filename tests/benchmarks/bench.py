"""``make bench``: measures every claim in one run, writes docs/benchmarks.md, fails if a claim does not hold."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
import sys
from typing import TYPE_CHECKING, Any

from tests.benchmarks import timing
from tests.benchmarks.agreement import Agreement, agreements
from tests.benchmarks.published import Comparison, comparisons
from tests.benchmarks.random_jobs import COUNT, SEED, random_jobs
from training_storage.planning import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCUMENT = timing.ROOT / "docs" / "benchmarks.md"
_RATIO_MOST, _COLD_MOST_S, _PLANS_LEAST = 1.01, 0.15, 1000.0


def main() -> int:
    """Run all, write the document, return 1 if a claim is missed."""
    compared = list(agreements(random_jobs()))
    cold = timing.cold_plan()
    rate, loop = timing.plans_per_second([TrainingJob(**job) for job, _ in _plannable(compared)])
    default_rate, _ = timing.plans_per_second([TrainingJob(instances=256)] * 200)
    synth = timing.synth()
    published = comparisons()
    lines = [
        *_head(),
        *_brute_force(compared),
        *_speed(cold, rate, default_rate, loop),
        *_synth(synth),
        *_published(published),
    ]
    _DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    missed = list(_missed(compared, cold, rate))
    for line in (*lines, *missed):
        sys.stdout.write(line + "\n")
    return 1 if missed else 0


def _plannable(compared: list[Agreement]) -> list[tuple[dict[str, Any], float]]:
    return [(agreement.job, agreement.ratio) for agreement in compared if agreement.ratio is not None]


def _missed(compared: list[Agreement], cold: dict[str, float], rate: float) -> Iterator[str]:
    worst = max(ratio for _, ratio in _plannable(compared))
    if worst > _RATIO_MOST:
        yield f"MISSED: the worst plan costs {worst:.4f} of the brute force, at most {_RATIO_MOST} is claimed."
    if not all(agreement.meets for agreement in compared):
        yield "MISSED: a plan has less than the demand."
    over = cold["plan"] - cold["python -c pass"]
    if over > _COLD_MOST_S:
        yield f"MISSED: a cold plan costs {over:.3f} s over python -c pass, at most {_COLD_MOST_S} is claimed."
    if rate < _PLANS_LEAST:
        yield f"MISSED: {rate:.0f} plans per second, at least {_PLANS_LEAST:.0f} are claimed."


def _head() -> Iterator[str]:
    today = dt.datetime.now(tz=dt.UTC).date()
    yield "# Benchmarks"
    yield ""
    yield (
        f"Written by `make bench` on {today}, on {platform.system()} with {os.cpu_count()} cores and Python "
        f"{platform.python_version()}. Seconds are medians of runs that take turns with their yardstick; the ratios "
        "are what to compare."
    )


def _brute_force(compared: list[Agreement]) -> Iterator[str]:
    ratios = [ratio for _, ratio in _plannable(compared)]
    printed = [agreement.printed_ratio for agreement in compared if agreement.printed_ratio is not None]
    yield from ("", "## Plans against brute force", "")
    yield (
        f"{COUNT} random jobs (seed {SEED}). The brute force weighs every legal configuration of the chosen tiers with "
        "its own arithmetic, written from the sizing guide and the published figures; it shares no code and no data "
        "with the planner."
    )
    yield from ("", "| | |", "|---|---|")
    yield f"| jobs planned by both | {len(ratios)} |"
    yield f"| jobs refused by both | {sum(a.ratio is None for a in compared)} |"
    yield f"| total cost of the plan / least of the brute force, worst | {max(ratios):.6f} |"
    yield f"| the same, median | {statistics.median(ratios):.6f} |"
    farthest = max(printed, key=lambda ratio: abs(ratio - 1))
    yield f"| printed money / the brute force's for the same configuration, farthest | {farthest:.6f} |"
    yield f"| plans that meet the demand | {sum(a.meets for a in compared)} of {len(compared)} |"


def _speed(cold: dict[str, float], rate: float, default_rate: float, loop: float) -> Iterator[str]:
    yield from ("", "## Speed of planning", "", "| | | ratio |", "|---|---|---|")
    yield f"| `python -c pass` | {cold['python -c pass']:.3f} s | 1 |"
    yield (
        f"| cold `training-storage plan --instances 256`, alternatives and levers included | {cold['plan']:.3f} s "
        f"(+{cold['plan'] - cold['python -c pass']:.3f} s) | {cold['plan'] / cold['python -c pass']:.1f} |"
    )
    yield f"| fixed loop of a million steps in pure Python | {loop:.3f} s | 1 |"
    yield f"| plans per second in process, the random jobs, no alternatives | {rate:,.0f} | {rate * loop:.0f} a loop |"
    yield f"| the same for `instances=256` | {default_rate:,.0f} | {default_rate * loop:.0f} a loop |"


def _synth(seconds: dict[str, float]) -> Iterator[str]:
    yield from ("", "## Synth time", "", "The app with `-c instances=256`, cdk-nag included.", "")
    yield from ("| | seconds | of the empty app |", "|---|---|---|")
    names = {"empty": "an empty CDK app", "bare L1": "the same resources as bare L1", "app": "the app"}
    for name, words in names.items():
        yield f"| {words} | {seconds[name]:.2f} | {seconds[name] / seconds['empty']:.2f} |"


def _published(found: list[Comparison]) -> Iterator[str]:
    yield from ("", "## Plans against published choices", "")
    yield (
        "Run of 720 h by the brute force's arithmetic: storage, requests, accelerators that wait, work done twice. "
        "Where the choice has too little capacity or throughput for the job its total stands for a file system that "
        "could not hold it."
    )
    yield from (
        "",
        "| published | meets the demand | USD | plan | USD | published / plan |",
        "|---|---|---|---|---|---|",
    )
    for row in found:
        usd = "never complete" if row.advised_usd is None else f"{row.advised_usd:,.0f}"
        ratio = "–" if row.advised_usd is None else f"{row.advised_usd / row.plan_usd:.2f}"
        meets = "yes" if row.advised_meets else "no"
        yield f"| {row.case.source} | {meets} | {usd} | {row.plan_shape} | {row.plan_usd:,.0f} | {ratio} |"


if __name__ == "__main__":
    sys.exit(main())
