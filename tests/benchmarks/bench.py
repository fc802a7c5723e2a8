"""``make bench``: measures every claim in one run, writes docs/benchmarks.md, exits with 1 if a claim is missed."""

from __future__ import annotations

import datetime as dt
import os
import platform
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.benchmarks import checkpoint_stall, shards, timing, train_tiny_times
from tests.benchmarks.agreement import Agreement, agreements
from tests.benchmarks.published import Comparison, comparisons
from tests.benchmarks.random_jobs import COUNT, SEED, random_jobs
from training_storage.planning import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCUMENT = timing.ROOT / "docs" / "benchmarks.md"
_RATIO_MOST, _COLD_MOST_S, _PLANS_LEAST = 1.01, 0.15, 1000.0
#: The same limits beside the yardsticks of the run, for machines of any speed: 0.15 s over an empty Python of 0.013 s,
#: and 1,000 plans a second where the loop takes 0.075 s.
_COLD_MOST_RATIO, _PLANS_LEAST_A_LOOP = 12.5, 75.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is claimed, what was measured, and the limit."""

    words: str
    measured: str
    limit: str
    holds: bool


def main() -> int:
    """Run all, write the document with limits and what was missed, return 1 if a claim was."""
    compared = list(agreements(random_jobs()))
    cold = timing.cold_plan()
    rate, loop = timing.plans_per_second([TrainingJob(**job) for job, _ in _plannable(compared)])
    default_rate, _ = timing.plans_per_second([TrainingJob(instances=256)] * 200)
    synth = timing.synth()
    published = comparisons()
    example = train_tiny_times.train_tiny_times()
    packing, reading = shards.pack_rates(), shards.read_rates()
    stall = checkpoint_stall.checkpoint_stall()
    claims = [
        *_claims(compared, cold, rate, default_rate, loop),
        *(
            Claim(words=words, measured=measured, limit=limit, holds=holds)
            for words, measured, limit, holds in (
                *train_tiny_times.claims(example),
                *shards.claims(packing, reading),
                *checkpoint_stall.claims(stall),
            )
        ),
    ]
    lines = [
        *page_head(),
        *_held(claims),
        *_brute_force(compared),
        *_speed(cold, rate, default_rate, loop),
        *_synth(synth),
        *_published(published),
        *train_tiny_times.lines(example),
        *shards.lines(packing, reading),
        *checkpoint_stall.lines(stall),
    ]
    _DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if all(claim.holds for claim in claims) else 1


def _plannable(compared: list[Agreement]) -> list[tuple[dict[str, Any], float]]:
    return [(agreement.job, agreement.ratio) for agreement in compared if agreement.ratio is not None]


def _claims(
    compared: list[Agreement], cold: dict[str, float], rate: float, default_rate: float, loop: float
) -> Iterator[Claim]:
    planned = _planned(compared)
    worst, met = max(ratio for _, ratio in _plannable(compared)), sum(agreement.meets for agreement in planned)
    yield Claim(
        words="total cost of the plan / least of the brute force, worst",
        measured=f"{worst:.6f}",
        limit=f"at most {_RATIO_MOST}",
        holds=worst <= _RATIO_MOST,
    )
    yield Claim(
        words="plans that meet the demand",
        measured=f"{met} of {len(planned)}",
        limit="all",
        holds=met == len(planned),
    )
    over, times = cold["plan"] - cold["python -c pass"], cold["plan"] / cold["python -c pass"]
    yield Claim(
        words="a cold plan over `python -c pass`",
        measured=f"{over:.3f} s",
        limit=f"at most {_COLD_MOST_S} s",
        holds=over <= _COLD_MOST_S,
    )
    yield Claim(
        words="a cold plan / `python -c pass`",
        measured=f"{times:.1f}",
        limit=f"at most {_COLD_MOST_RATIO}",
        holds=times <= _COLD_MOST_RATIO,
    )
    for words, value in (("the random jobs", rate), ("`instances=256`", default_rate)):
        yield Claim(
            words=f"plans per second in process, {words}",
            measured=f"{value:,.0f}",
            limit=f"at least {_PLANS_LEAST:,.0f}",
            holds=value >= _PLANS_LEAST,
        )
        yield Claim(
            words=f"plans in the time of the fixed loop, {words}",
            measured=f"{value * loop:.0f}",
            limit=f"at least {_PLANS_LEAST_A_LOOP:.0f}",
            holds=value * loop >= _PLANS_LEAST_A_LOOP,
        )


def _planned(compared: list[Agreement]) -> list[Agreement]:
    return [agreement for agreement in compared if agreement.ratio is not None]


def _held(claims: list[Claim]) -> Iterator[str]:
    yield from ("", "## Claims and limits", "", "| claim | measured | limit | |", "|---|---|---|---|")
    for claim in claims:
        yield f"| {claim.words} | {claim.measured} | {claim.limit} | {'held' if claim.holds else '**MISSED**'} |"


def page_head() -> Iterator[str]:
    """Yield the beginning of the document."""
    today = dt.datetime.now(tz=dt.UTC).date()
    yield "# Benchmarks"
    yield ""
    yield (
        f"Written by `make bench` on {today}, on {platform.system()} with {os.cpu_count()} cores and Python "
        f"{platform.python_version()}. Seconds are medians of runs that take turns with their yardstick, where a "
        "section says nothing else; the ratios are what to compare."
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
    planned = _planned(compared)
    yield f"| planned jobs whose plan meets the demand | {sum(a.meets for a in planned)} of {len(planned)} |"


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
    yield from (
        "",
        "## Synth time",
        "",
        "The app with `-c instances=256`, cdk-nag included; medians of 5 runs that take turns.",
        "",
    )
    yield from ("| | seconds | of the empty app |", "|---|---|---|")
    names = {"empty": "an empty CDK app", "bare L1": "the same resources as bare L1", "app": "the app"}
    for name, words in names.items():
        yield f"| {words} | {seconds[name]:.2f} | {seconds[name] / seconds['empty']:.2f} |"


def _published(found: list[Comparison]) -> Iterator[str]:
    yield from ("", "## Plans against published choices", "")
    yield (
        "Run of 720 h by the brute force's arithmetic: storage, requests, accelerators that wait, work done twice. "
        "Where the choice has too little capacity or throughput for the job its total stands for a file system that "
        "could not hold it. Where no budget is published, one was fitted to what the published choice gives, marked * "
        "and said below; such a row shows that the model agrees with the choice, not that it was found without it."
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
        mark = " *" if row.case.fitted else ""
        yield f"| {row.case.source}{mark} | {meets} | {usd} | {row.plan_shape} | {row.plan_usd:,.0f} | {ratio} |"
    yield ""
    for row in found:
        if row.case.fitted:
            yield f"\\* {row.case.source}: {row.case.fitted}"
            yield ""


if __name__ == "__main__":
    sys.exit(main())
