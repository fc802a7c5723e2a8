"""Threads that nothing waits for at the end of the process. Standard library only."""

from __future__ import annotations

import functools
import queue
import threading
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """A pool whose threads do not hold up the end of the process.

    Python joins the threads of its own pools before it ends. A request to a store that is silent takes minutes until
    the SDK gives up, and cannot be interrupted: a command that is out of time, or was interrupted, would stay as long.

    As a context it waits for what was submitted, unless an exception leaves it.

    Parameters
    ----------
    threads
        Most calls at once.
    name
        Of the threads.
    """

    def __init__(self, threads: int, *, name: str) -> None:
        self._most, self._name = threads, name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("nothing can be submitted after shutdown")
            self._calls.put((future, functools.partial(fn, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 -- as Python's
        """Take no more calls, and let the threads end when they have none."""
        with self._lock:
            if cancel_futures:
                while (call := self._next_at_once()) is not None:
                    call[0].cancel()
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Wait for all calls; after an exception drop those that have not begun and wait for none."""
        self.shutdown(wait=error is None, cancel_futures=error is not None)
        return None

    def _next_at_once(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._calls.get_nowait()
        except queue.Empty:
            return None

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                self._idle.release()
                call = self._calls.get()
            if call is None:
                return
            future, run = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(run())
                except BaseException as error:  # noqa: BLE001 -- whoever asks for the result hears of it
                    future.set_exception(error)
            # What a call holds, such as a part of a file, must not wait for the next one.
            del call, future, run
