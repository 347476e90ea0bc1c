"""Which signals end a process of a node in order. What ends then, and how, is each command's own."""

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM and SIGHUP; without SIGHUP where that is ignored, as below nohup."""
    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if hangup_ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
