"""Worker processes of the command line; what they do is the business of who gives it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """They end with this process, however it ends."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: how many; by default one for each processor core."""
        self.count = count or os.cpu_count() or 1
        self._others = set(multiprocessing.active_children())
        # Fresh interpreters: a fork would take open sockets and the event loop along.
        self._pool = ProcessPoolExecutor(
            self.count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Nobody waits for what they do now, and a second Ctrl-C must find nothing to interrupt.
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Have ``work``, a module's own function, done in one of them."""
        return self._pool.submit(work, *arguments, **named)


def _begin_worker() -> None:
    # A terminal sends Ctrl-C to every process; the parent is the one that acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker was started by someone"
    parent.join()
    os._exit(1)
