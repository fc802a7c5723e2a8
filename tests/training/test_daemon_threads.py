"""Threads that nothing waits for."""

from __future__ import annotations

import threading
import time

import pytest

from training_storage.training.daemon_threads import DaemonThreads


def test_as_many_calls_run_at_once_as_there_are_threads_and_their_results_come_in_order() -> None:
    together = threading.Barrier(4)
    with DaemonThreads(4, name="test") as pool:
        # A barrier of four lets nobody through where fewer run at once.
        assert list(pool.map(lambda number: (together.wait(10), number)[1], range(8))) == list(range(8))


def test_a_call_that_fails_raises_where_its_result_is_asked_for() -> None:
    with DaemonThreads(1, name="test") as pool:
        failed, later = pool.submit(int, "x"), pool.submit(int, "7")
        with pytest.raises(ValueError, match="invalid literal"):
            failed.result(10)
        assert later.result(10) == 7


def test_without_an_error_all_calls_end_before_the_context_does() -> None:
    done: list[int] = []

    def slowly(number: int) -> None:
        time.sleep(0.02)
        done.append(number)

    with DaemonThreads(1, name="test") as pool:
        for number in range(3):
            pool.submit(slowly, number)
    assert done == [0, 1, 2]
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_an_interruption_waits_for_no_call_and_drops_those_that_have_not_begun() -> None:
    go, began = threading.Event(), threading.Event()
    ran: list[int] = []

    def silent() -> None:
        began.set()
        go.wait(30)

    pool = DaemonThreads(1, name="test")
    pool.submit(silent)
    later = pool.submit(ran.append, 1)
    assert began.wait(10)
    with pytest.raises(KeyboardInterrupt), pool:
        raise KeyboardInterrupt
    assert later.cancelled()
    go.set()
    assert ran == []
