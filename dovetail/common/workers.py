"""A pool of worker processes for any work of the command line."""

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
    """Processes that end with this process, however it ends."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: how many; by default one per core."""
        self.count = count or os.cpu_count() or 1
        self._others = set(multiprocessing.active_children())
        # Spawned: a fork would inherit open sockets and the event loop.
        self._pool = ProcessPoolExecutor(
            self.count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Nobody needs the results of these processes, and a second Ctrl-C must not interrupt a wait for them.
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run ``work``, a function at the top of a module, in one of the processes."""
        return self._pool.submit(work, *arguments, **named)


def _begin_worker() -> None:
    # A terminal sends Ctrl-C to every process; only the parent acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)
