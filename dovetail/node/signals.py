"""The signals that end a process of a node in order. Each command decides what it ends, and how."""

import asyncio
import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Final, NamedTuple

from dovetail.streams import last_words

_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM and SIGHUP; without SIGHUP if the process ignores it, as under nohup."""
    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if hangup_ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_within(seconds: float) -> None:
    """End this process after ``seconds`` with exit code 1, whatever blocks it, and write on stderr where it is."""
    # The timer of faulthandler works even if the interpreter is blocked. It must not wait for the reader of stderr.
    faulthandler.dump_traceback_later(seconds, exit=True, file=last_words(may_wait=False))


class _Target(NamedTuple):
    """The loop and the handler that receive ending signals now."""

    loop: asyncio.AbstractEventLoop
    handler: Callable[[signal.Signals], None]
    within_s: float


class _Watcher:
    """A thread that reads signals from the interpreter's wake-up descriptor, and so works while the main thread hangs.

    One thread serves the process until its end.
    """

    def __init__(self) -> None:
        self.target: _Target | None = None
        self._reader, self.descriptor = os.pipe()
        os.set_blocking(self.descriptor, False)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    def _watch(self) -> None:
        ended: _Target | None = None
        while True:
            for number in os.read(self._reader, 64):
                target = self.target
                if target is None or number not in _ENDING:
                    continue
                if target is not ended:
                    ended = target
                    end_within(target.within_s)
                with suppress(RuntimeError):  # The loop is closed.
                    target.loop.call_soon_threadsafe(target.handler, signal.Signals(number))


@cache
def _watcher() -> _Watcher:
    return _Watcher()


def handle_ending_signals(handler: Callable[[signal.Signals], None], within_s: float) -> Callable[[], None]:
    """Call ``handler`` in the running event loop for each ending signal. The result restores the former handlers.

    After the first signal the process ends within ``within_s``, unless the handlers are restored before.
    """
    watcher = _watcher()
    former = {number: signal.getsignal(number) for number in ending_signals()}
    former_target, former_descriptor = (
        watcher.target,
        signal.set_wakeup_fd(watcher.descriptor, warn_on_full_buffer=False),
    )
    watcher.target = _Target(asyncio.get_running_loop(), handler, within_s)
    for number in former:
        # The interpreter writes the number to the descriptor, and then calls this in the main thread.
        signal.signal(number, lambda _number, _frame: None)
        signal.siginterrupt(number, False)

    def restore() -> None:
        faulthandler.cancel_dump_traceback_later()
        watcher.target = former_target
        signal.set_wakeup_fd(former_descriptor)
        for number, each in former.items():
            signal.signal(number, each)

    return restore


@contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """Make each ending signal raise KeyboardInterrupt, as Ctrl-C does, so that one clean-up serves all signals.

    If the signal is not SIGINT, the block then raises SystemExit with 128 plus the signal's number.
    """
    received = signal.SIGINT

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = signal.Signals(number)
        on_interrupt = signal.getsignal(signal.SIGINT)
        # A shell starts its background jobs with SIGINT ignored.
        (on_interrupt if callable(on_interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    former = {number: signal.signal(number, interrupt) for number in ending_signals() if number != signal.SIGINT}
    try:
        yield
    except KeyboardInterrupt:
        if received is signal.SIGINT:
            raise
        raise SystemExit(128 + received) from None
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
