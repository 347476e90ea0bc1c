"""Which signals end a process of a node in order. What ends then, and how, is each command's own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM and SIGHUP; without SIGHUP where that is ignored, as below nohup."""
    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if hangup_ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Each of these signals does here what Ctrl-C does, so that what has its end in order for that has it for all.

    Raises SystemExit, 128 and the signal's number, instead of a KeyboardInterrupt that is another signal's.
    """
    received = signal.SIGINT

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = signal.Signals(number)
        ctrl_c = signal.getsignal(signal.SIGINT)
        # In the background of a shell it may be ignored.
        (ctrl_c if callable(ctrl_c) else signal.default_int_handler)(signal.SIGINT, frame)

    before = {number: signal.signal(number, interrupt) for number in ending_signals() if number != signal.SIGINT}
    try:
        yield
    except KeyboardInterrupt:
        if received is signal.SIGINT:
            raise
        raise SystemExit(128 + received) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
