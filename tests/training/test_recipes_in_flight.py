"""One save at a time in the background: waits, failures and deadlines."""

from __future__ import annotations

import threading
import time

import pytest

from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError, DeniedError
from training_storage.training.recipes.in_flight import InFlight


class FrameworkError(BaseException):
    """As torch's CheckpointException: no Exception, so that it slips through usual handlers."""


def in_flight(*, timeout_seconds: float = 10.0) -> InFlight[int]:
    return InFlight(rank=3, timeout_seconds=timeout_seconds)


def fail(error: BaseException) -> int:
    raise error


def test_a_result_is_told_once() -> None:
    saves = in_flight()
    assert saves.check() is None
    saves.start(lambda: 7, what="step 1")
    assert saves.wait() == 7
    assert saves.wait() is None


def test_checking_never_waits_and_a_second_save_waits_for_the_first() -> None:
    saves, go, order = in_flight(), threading.Event(), []

    def first() -> int:
        go.wait(10)
        order.append(1)
        return 1

    saves.start(first, what="step 1")
    started = time.monotonic()
    assert saves.check() is None
    assert time.monotonic() - started < 1
    threading.Timer(0.2, go.set).start()
    saves.start(lambda: len(order), what="step 2")
    assert saves.wait() == 1


@pytest.mark.parametrize("error", [FrameworkError("disk\nfull"), OSError("disk full"), TimeoutError("disk full")])
def test_what_failed_is_raised_once_in_one_line_with_rank_and_place(error: BaseException) -> None:
    saves = in_flight()
    saves.start(lambda: fail(error), what="/fsx/step-1")
    with pytest.raises(CheckpointError, match=r"^rank 3: /fsx/step-1 was not saved: disk full$"):
        saves.wait()
    assert saves.check() is None
    saves.start(lambda: 2, what="/fsx/step-2")
    assert saves.wait() == 2


def test_our_own_errors_keep_their_kind() -> None:
    saves = in_flight()
    saves.start(lambda: fail(DeniedError("s3://lake: no permission")), what="step 1")
    with pytest.raises(DeniedError, match="no permission"):
        saves.wait()


def test_a_save_that_hangs_is_an_error_that_names_rank_and_place() -> None:
    saves, go = in_flight(timeout_seconds=0.2), threading.Event()
    saves.start(lambda: int(go.wait(10)), what="/fsx/step-1")
    with pytest.raises(DeadlineError, match="rank 3: /fsx/step-1 was not saved in 0 s"):
        saves.wait()
    with pytest.raises(DeadlineError):
        saves.check()
    go.set()
    saves.close()
