"""Standard streams and log files that no caller waits for.

A pipe that nobody reads, a terminal that Ctrl-S has stopped and a disk that hangs hold a writer up without a bound. So
another thread writes (``Outlet``). Lines that find no room, or that cannot be written, are dropped and counted, and
their number stands in their place as soon as something can be written again.
"""

import atexit
import contextlib
import io
import logging
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

WAITING_BYTES_MAX: Final = 1024 * 1024
"""The bytes that may wait for one stream or file; lines beyond are dropped."""

END_S_MAX: Final = 1.0
"""How long an ending process waits for its last lines to be written."""

FLUSH_S_MAX: Final = 0.05
PATIENCE_S: Final = 10.0
"""A flush waits at most FLUSH_S_MAX, so that a process that crashes next has written its last line. After a flush that
waited in vain, none waits for PATIENCE_S."""

_PIECE_BYTES: Final = 64 * 1024

LINES_DROPPED: Final = "Log lines that nobody read, or that could not be written."
"""The text of each part's metric of that number."""

Tell = Callable[[int], str]
"""Returns the line, with its line feed, that stands for a number of dropped lines."""


def _dropped_lines(count: int) -> str:
    return f"{count} lines are missing here: nobody read them, or they could not be written\n"


class Outlet:
    """Writes what it is given, in order, in a thread of its own."""

    def __init__(self, put: Callable[[memoryview], int], tell: Tell = _dropped_lines) -> None:
        """``put`` writes a beginning of its argument and returns how many bytes, or raises OSError."""
        self.tell = tell
        self.dropped = 0
        """How many lines were dropped so far."""
        self._put = put
        self._ends_mid_line = False
        self._impatient_until = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin without a thread and without waiting lines, as the child process of a fork must."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._waiting = bytearray()
        self._untold = 0
        self._overflowed = self._writes = self._closing = False

    def write(self, content: bytes) -> None:
        """Accept lines to be written, or drop them."""
        with self._changed:
            # Once lines are dropped, so are all that follow until their number is told: the log has one gap, not many.
            fits = len(self._waiting) + len(content) <= WAITING_BYTES_MAX
            if self._has_thread() and fits and not self._overflowed:
                self._waiting += content
                self._changed.notify_all()
            else:
                self._overflowed = True
                self._count(content)

    def drain(self, seconds: float) -> bool:
        """Wait until everything is written, at most ``seconds``. Returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._writes or self._overflowed), seconds)

    def flush(self) -> None:
        """Wait for a moment until everything is written."""
        if time.monotonic() >= self._impatient_until and not self.drain(FLUSH_S_MAX):
            self._impatient_until = time.monotonic() + PATIENCE_S

    def close(self) -> bool:
        """End the thread once everything is written. Returns whether it is, after at most END_S_MAX."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return self.drain(END_S_MAX)

    def _has_thread(self) -> bool:
        if self._thread is None:
            # A daemon, because a process must be able to end while its thread is held up.
            thread = threading.Thread(target=self._run, name="outlet", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False  # The system has no thread left; the next line tries again.
            self._thread = thread
        return True

    def _count(self, content: bytes) -> None:
        lines = content.count(b"\n") or 1
        self.dropped += lines
        self._untold += lines

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writes = False
                self._changed.notify_all()
                while not self._waiting and not self._overflowed:
                    if self._closing:
                        return
                    self._changed.wait()
                self._writes = True
                content, self._waiting = bytes(self._waiting), bytearray()
                # Lines that found no room came after all that wait. Lines that could not be written came before.
                told = self._untold if not (content and self._overflowed) else 0
                if told:
                    self._untold, self._overflowed = 0, False
            notice = (b"\n" * self._ends_mid_line + self.tell(told).encode(errors="replace")) if told else b""
            whole = notice + content
            done = self._written(whole)
            if done:
                self._ends_mid_line = whole[done - 1 : done] != b"\n"
            if done < len(whole):
                with self._changed:
                    if done < len(notice):
                        self._untold += told
                    if lost := whole[max(done, len(notice)) :]:
                        self._count(lost)

    def _written(self, content: bytes) -> int:
        """Write until the end or an error. Returns the number of written bytes."""
        done = 0
        view = memoryview(content)
        # ValueError: the file is closed.
        with contextlib.suppress(OSError, ValueError):
            while done < len(content):
                done += self._put(view[done : done + _PIECE_BYTES])
        return done


class _Stream(io.BufferedIOBase):
    """The binary stream below a standard stream's text: hands everything to an outlet."""

    def __init__(self, stream: TextIO, outlet: Outlet) -> None:
        self.name: Any = stream.name
        self.outlet = outlet
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, data: Any) -> int:
        content = bytes(data)
        if content:
            self.outlet.write(content)
        return len(content)

    def flush(self) -> None:
        if not _ended:
            self.outlet.flush()


_outlets: dict[tuple[int, int], Outlet] = {}
"""By the file's device and number: stdout and stderr are often one terminal, where their lines stay in order."""

_ended = False


def unblock() -> list[tuple[str, TextIO, TextIO]]:
    """From now on nothing in this process waits for the readers of its stdout and stderr.

    Returns the name, the former and the new object of each replaced stream. A stream that is closed, or that the
    program has replaced, stays.
    """
    if not _outlets:
        atexit.register(_end)
        os.register_at_fork(after_in_child=_restart)
    replaced: list[tuple[str, TextIO, TextIO]] = []
    for name in ("stdout", "stderr"):
        former: TextIO | None = getattr(sys, name)
        if former is None or former is not getattr(sys, f"__{name}__"):
            continue
        try:
            descriptor = former.fileno()
            found = os.fstat(descriptor)
        except (OSError, ValueError):
            continue
        outlet = _outlets.setdefault((found.st_dev, found.st_ino), Outlet(_to(descriptor)))
        new = io.TextIOWrapper(_Stream(former, outlet), former.encoding, former.errors, write_through=True)
        setattr(sys, name, new)
        _redirect_handlers(former, new)
        replaced.append((name, former, new))
    return replaced


@contextlib.contextmanager
def unblocked() -> Iterator[None]:
    """``unblock`` inside the ``with`` block; and after it, if the last lines still wait for a reader."""
    replaced = unblock()
    try:
        yield
    finally:
        if drain():
            for name, former, new in replaced:
                setattr(sys, name, former)
                _redirect_handlers(new, former)


def tell_as(tell: Tell) -> None:
    """Have ``tell`` word the lines that stand for dropped ones on stdout and stderr."""
    for outlet in _outlets.values():
        outlet.tell = tell


def lines_dropped() -> int:
    """How many lines this process has dropped that were for its stdout and stderr."""
    return sum(outlet.dropped for outlet in _outlets.values())


def drain() -> bool:
    """Wait until all lines are written, at most END_S_MAX. Returns whether they are. Call this before ``os._exit``."""
    until = time.monotonic() + END_S_MAX
    return all(outlet.drain(max(0.0, until - time.monotonic())) for outlet in _outlets.values())


def last_words(*, may_wait: bool) -> int:
    """A descriptor for what ``faulthandler`` writes on stderr: a pipe or terminal is opened anew, without blocking.

    If the system does not allow that, stderr itself where the writer ``may_wait``, or else a descriptor to nowhere.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(2).st_mode):
            return 2
        # /proc, because elsewhere /dev/fd only copies the descriptor, and would not change whether writes block.
        return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return 2 if may_wait else os.open(os.devnull, os.O_WRONLY)


def _to(descriptor: int) -> Callable[[memoryview], int]:
    def put(content: memoryview) -> int:
        try:
            return os.write(descriptor, content)
        except BlockingIOError:
            # Another process that shares the pipe or terminal has set it so.
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
            return 0

    return put


def _redirect_handlers(former: TextIO, new: TextIO) -> None:
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream is former:
                handler.setStream(new)


def _restart() -> None:
    for outlet in _outlets.values():
        outlet.restart()


def _end() -> None:
    global _ended
    if drain():
        # What the interpreter still has to say is written by the interpreter.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    _ended = True
