"""What the retention rule promises, over random lists of checkpoints."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage.operations.archive_prune import archive_rule, lake_rule
from training_storage.operations.archive_settings import ArchiveSettings, S3Place
from training_storage.operations.retention import (
    NEWEST,
    Checkpoint,
    RetentionError,
    RetentionRule,
    kept,
    newest_complete,
    protected,
)

START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def at(minutes: float, *, step: int | None = None, complete: bool = True, name: str | None = None) -> Checkpoint:
    step = int(minutes) if step is None else step
    moment = START + dt.timedelta(minutes=minutes)
    return Checkpoint(name=name or f"step-{step:010d}", step=step, finished_at=moment, complete=complete)


MOMENTS = st.integers(0, 3000).map(lambda minutes: START + dt.timedelta(minutes=minutes))
CHECKPOINTS = st.lists(
    st.builds(
        Checkpoint,
        name=st.integers(0, 60).map("c-{}".format),
        step=st.none() | st.integers(0, 500),
        finished_at=MOMENTS,
        complete=st.booleans(),
    ),
    unique_by=lambda one: one.name,
    max_size=30,
)
RULES = st.builds(
    RetentionRule,
    keep_last=st.integers(0, 6),
    interval_minutes=st.none() | st.sampled_from([0.5, 7, 60, 360, 1440]),
    intervals_kept=st.none() | st.integers(0, 5),
    every_steps=st.none() | st.integers(1, 50),
    names=st.frozensets(st.integers(0, 60).map("c-{}".format), max_size=3),
    not_before=st.none() | MOMENTS,
)


@given(checkpoints=CHECKPOINTS, rule=RULES)
def test_the_newest_complete_checkpoint_is_kept_under_every_rule(
    checkpoints: list[Checkpoint], rule: RetentionRule
) -> None:
    newest = newest_complete(checkpoints)
    chosen = kept(checkpoints, rule)
    if newest is None:
        assert chosen == {}
    else:
        assert chosen[newest.name] == NEWEST
        highest = max((one.step for one in checkpoints if one.complete and one.step is not None), default=None)
        assert highest is None or highest in {one.step for one in checkpoints if one.name in chosen}
        assert protected(checkpoints) <= set(chosen)


@given(checkpoints=CHECKPOINTS, rule=RULES)
def test_what_is_not_complete_is_never_chosen(checkpoints: list[Checkpoint], rule: RetentionRule) -> None:
    complete = {one.name for one in checkpoints if one.complete}
    assert set(kept(checkpoints, rule)) <= complete
    # And it changes nothing for the others.
    assert kept([one for one in checkpoints if one.complete], rule) == kept(checkpoints, rule)


@given(checkpoints=CHECKPOINTS, rule=RULES)
def test_keeping_what_was_kept_keeps_all_of_it(checkpoints: list[Checkpoint], rule: RetentionRule) -> None:
    chosen = kept(checkpoints, rule)
    assert kept([one for one in checkpoints if one.name in chosen], rule) == chosen


@given(data=st.data(), checkpoints=CHECKPOINTS, rule=RULES)
def test_the_order_of_a_listing_changes_nothing(
    data: st.DataObject, checkpoints: list[Checkpoint], rule: RetentionRule
) -> None:
    shuffled = data.draw(st.permutations(checkpoints))
    assert list(kept(shuffled, rule).items()) == list(kept(checkpoints, rule).items())


@given(checkpoints=CHECKPOINTS, rule=RULES, more=RULES)
def test_a_rule_that_keeps_more_never_drops_one(
    checkpoints: list[Checkpoint], rule: RetentionRule, more: RetentionRule
) -> None:
    wider = dataclasses.replace(
        rule,
        intervals_kept=None,
        names=rule.names | more.names,
        not_before=None,
        every_steps=rule.every_steps or more.every_steps,
    )
    before = set(kept(checkpoints, rule))
    assert before <= set(kept(checkpoints, wider))
    assert before <= set(kept(checkpoints, dataclasses.replace(rule, names=rule.names | more.names)))


@given(checkpoints=CHECKPOINTS, keep_last=st.integers(0, 6))
def test_keeping_one_more_of_the_newest_adds_at_most_one(checkpoints: list[Checkpoint], keep_last: int) -> None:
    fewer = set(kept(checkpoints, RetentionRule(keep_last=keep_last)))
    more = set(kept(checkpoints, RetentionRule(keep_last=keep_last + 1)))
    assert fewer <= more
    assert len(more) <= len(fewer) + 1


@given(checkpoints=CHECKPOINTS, rule=RULES)
def test_an_older_checkpoint_that_goes_changes_nothing_for_those_kept(
    checkpoints: list[Checkpoint], rule: RetentionRule
) -> None:
    chosen = kept(checkpoints, rule)
    for gone in [one for one in checkpoints if one.name not in chosen]:
        assert set(kept([one for one in checkpoints if one is not gone], rule)) == set(chosen)


@given(source=CHECKPOINTS, lake=CHECKPOINTS, durable_kept=st.integers(0, 5))
def test_what_an_archive_brings_pruning_does_not_remove(
    source: list[Checkpoint], lake: list[Checkpoint], durable_kept: int
) -> None:
    settings = ArchiveSettings(
        job="j",
        region=None,
        source=S3Place(bucket="b--x-s3", prefix="c/"),
        lake=S3Place(bucket="b", prefix="c/"),
        durable_interval_minutes=360,
        durable_kept=durable_kept,
    )
    everything = {one.name: one for one in [*lake, *source] if one.complete}
    brought = set(kept(everything.values(), archive_rule(settings)))
    there = brought | {one.name for one in lake if one.complete}
    after = kept([one for one in everything.values() if one.name in there], lake_rule(settings))
    assert brought <= set(after)


def test_each_interval_keeps_its_newest() -> None:
    rule = RetentionRule(interval_minutes=360)
    assert list(kept([at(5), at(300), at(365), at(719), at(721)], rule)) == [
        "step-0000000300",
        "step-0000000719",
        "step-0000000721",
    ]


def test_a_lake_keeps_the_newest_two_and_four_intervals_besides() -> None:
    rule = RetentionRule(keep_last=2, interval_minutes=360, intervals_kept=4)
    checkpoints = [at(360 * n + 100) for n in range(20)]
    assert list(kept(checkpoints, rule)) == [one.name for one in checkpoints[-6:]]


def test_multiples_of_a_step_are_kept_whatever_their_age() -> None:
    chosen = kept([at(step) for step in (0, 400, 500, 999, 1000, 1100)], RetentionRule(every_steps=500))
    assert chosen == {
        "step-0000000000": "a multiple of 500 steps",
        "step-0000000500": "a multiple of 500 steps",
        "step-0000001000": "a multiple of 500 steps",
        "step-0000001100": NEWEST,
    }


def test_training_that_went_back_keeps_the_last_and_the_highest_step() -> None:
    assert kept([at(10, step=1200), at(20, step=1100), at(15, step=900)], RetentionRule()) == {
        "step-0000001200": "the highest step",
        "step-0000001100": NEWEST,
    }


def test_what_is_named_is_kept_only_if_it_is_complete() -> None:
    rule = RetentionRule(names=frozenset({"step-0000000001", "step-0000000002", "gone"}))
    assert list(kept([at(1), at(2, complete=False), at(3)], rule)) == ["step-0000000001", "step-0000000003"]


def test_an_age_limits_every_part_but_names_and_the_newest() -> None:
    rule = RetentionRule(keep_last=9, every_steps=1, not_before=START + dt.timedelta(minutes=50))
    assert list(kept([at(10), at(60)], rule)) == ["step-0000000060"]
    assert list(kept([at(10), at(20)], rule)) == ["step-0000000020"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keep_last", -1),
        ("interval_minutes", 0),
        ("interval_minutes", float("nan")),
        ("interval_minutes", float("inf")),
        ("intervals_kept", -1),
        ("every_steps", 0),
        ("not_before", START.replace(tzinfo=None)),
    ],
)
def test_a_rule_that_means_nothing_is_refused(field: str, value: object) -> None:
    with pytest.raises(RetentionError, match=f"{field} must"):
        RetentionRule(**{field: value})  # type: ignore[arg-type]
