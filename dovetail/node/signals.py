"""The signals that end a process of a node in order. Each command decides what it ends, and how."""

import asyncio
import faulthandler
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dovetail.streams import last_words


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM and SIGHUP; without SIGHUP if the process ignores it, as under nohup."""
    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if hangup_ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_within(seconds: float) -> None:
    """End this process after ``seconds`` with exit code 1, whatever blocks it, and write on stderr where it is."""
    # The timer of faulthandler works even if the interpreter is blocked. It must not wait for the reader of stderr.
    faulthandler.dump_traceback_later(seconds, exit=True, file=last_words(may_wait=False))


def handle_ending_signals(handler: Callable[[signal.Signals], None], within_s: float) -> Callable[[], None]:
    """Call ``handler`` in the running event loop for each ending signal. The result restores the former handlers.

    After the first signal the process ends within ``within_s``, unless the handlers are restored before.
    """
    loop = asyncio.get_running_loop()
    former = {number: signal.getsignal(number) for number in ending_signals()}
    began = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # Runs also if the loop is blocked, as long as its thread runs Python code or waits in a system call.
        nonlocal began
        if not began:
            began = True
            end_within(within_s)

    for number in former:
        loop.add_signal_handler(number, handler, number)
        # The loop reads signals from a descriptor, to which the interpreter writes besides calling this.
        signal.signal(number, on_signal)
        signal.siginterrupt(number, False)

    def restore() -> None:
        faulthandler.cancel_dump_traceback_later()
        for number, each in former.items():
            loop.remove_signal_handler(number)
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
