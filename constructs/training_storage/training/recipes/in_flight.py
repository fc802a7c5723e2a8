"""One save at a time in the background; what went wrong there is raised by the next call."""

from __future__ import annotations

import concurrent.futures
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from training_storage.training.checkpoint_errors import CheckpointError, DeadlineError
from training_storage.training.daemon_threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Running(Generic[T]):
    what: str
    future: concurrent.futures.Future[T]
    started: float


class InFlight(Generic[T]):
    """Runs calls in one thread, at most one at a time.

    Parameters
    ----------
    rank
        Named in errors.
    timeout_seconds
        Longest wait for the one before.
    """

    def __init__(self, *, rank: int, timeout_seconds: float) -> None:
        self._rank, self._timeout_seconds = rank, timeout_seconds
        self._pool = DaemonThreads(1, name="checkpoint")
        self._running: _Running[T] | None = None

    def start(self, call: Callable[[], T], *, what: str) -> None:
        """Run `call` in the background; `what` names it in errors. Waits for the one before."""
        self.wait()
        self._running = _Running(what=what, future=self._pool.submit(call), started=time.monotonic())

    def check(self) -> T | None:
        """Return what the last call returned if it has ended, else None; at once.

        Raises
        ------
        CheckpointError
            If it failed, or takes longer than allowed.
        """
        running = self._running
        if running is None:
            return None
        if not running.future.done():
            if time.monotonic() - running.started > self._timeout_seconds:
                raise self._too_long(running)
            return None
        return self._result(running, 0)

    def wait(self) -> T | None:
        """Wait for the call in flight and return what it returned; None where there is none. Raises like `check`."""
        running = self._running
        if running is None:
            return None
        return self._result(running, max(0.0, self._timeout_seconds - (time.monotonic() - running.started)))

    def close(self) -> None:
        """Let the thread end; nothing waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, running: _Running[T], seconds: float) -> T:
        try:
            result = running.future.result(timeout=seconds)
        except concurrent.futures.TimeoutError:
            if running.future.done():
                self._running = None
                raise self._failed(running) from running.future.exception()
            raise self._too_long(running) from None
        except CheckpointError:
            self._running = None
            raise
        # Whatever a framework raises, a BaseException of its own included, ends in one line.
        except BaseException as error:
            self._running = None
            if not running.future.done():
                raise
            raise self._failed(running) from error
        self._running = None
        return result

    def _failed(self, running: _Running[T]) -> CheckpointError:
        reason = " ".join(str(running.future.exception()).split())
        return CheckpointError(f"rank {self._rank}: {running.what} was not saved: {reason:.400}")

    def _too_long(self, running: _Running[T]) -> DeadlineError:
        return DeadlineError(
            f"rank {self._rank}: {running.what} was not saved in {self._timeout_seconds:.0f} s; save less often, or"
            " raise timeout_seconds"
        )
