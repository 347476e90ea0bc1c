"""Writes log lines to stderr: at once, or, beside an event loop, when the loop is idle.

Writing a line takes about as long as answering a request, and delays the next answer. So lines of level info or below
wait up to 0.1 s until the loop would sleep anyway, and are written together. A line of a higher level is written at
once, after all lines before it (ADR 17).
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

import structlog
from structlog import DropEvent

_IDLE_WRITE_S: Final = 0.05
"""An idle loop writes when the first waiting line has this age: many lines at once cost less than each alone."""

_WAIT_S_MAX: Final = 0.1
"""The longest wait of a line, promised in docs/reference/configuration.md, DOVETAIL_LOG_LEVEL."""

_LINES_WAITING_MAX: Final = 200
"""About 30 kB, which fit into a pipe that is read."""

_MAY_WAIT: Final = frozenset({"debug", "info"})
_NEEDS_ITS_MOMENT: Final = ("exc_info", "stack_info")
"""An event with one of these members is rendered at once, while the stack of the logging call still exists."""

Event = MutableMapping[str, Any]
Processor = Callable[[Any, str, Any], Any]
"""A structlog processor; the last one of a chain returns the line."""


class LogLines:
    """The last of structlog's processors, and the stream of the standard library's log lines.

    Values become text only when a line is written, so callers must not change them after the call. Any thread may log;
    lines of other threads than the loop's are written at once.
    """

    def __init__(self, stderr: TextIO, renderers: Sequence[Processor]) -> None:
        self._stderr = stderr
        self._renderers = renderers
        self._waiting: list[tuple[str, Event]] = []
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def __call__(self, _logger: object, level: str, event: Event) -> Event:
        """Accept an event. Always raises DropEvent, because structlog has nothing left to write."""
        loop = self._loop
        with self._lock:
            self._waiting.append((level, event))
            if (
                loop is None
                or level not in _MAY_WAIT
                or threading.get_ident() != self._loop_thread
                or len(self._waiting) >= _LINES_WAITING_MAX
                or any(event.get(name) for name in _NEEDS_ITS_MOMENT)
            ):
                self.flush()
                if loop is None or level not in _MAY_WAIT:
                    self._settle()
            elif self._timer is None:
                self._timer = loop.call_later(_WAIT_S_MAX, self.flush)
                self._due_at = loop.time() + _IDLE_WRITE_S
        raise DropEvent

    def write(self, text: str) -> None:
        """Write the waiting lines, and then ``text``."""
        with self._lock:
            self.flush()
            self._put(text)
            self._settle()

    def flush(self) -> None:
        """Write the waiting lines."""
        with self._lock:
            if self._timer is not None and threading.get_ident() == self._loop_thread:
                self._timer.cancel()
                self._timer = None
            if self._waiting:
                waiting, self._waiting = self._waiting, []
                # One write for all, because each write wakes the reader.
                self._put("".join([f"{self._rendered(level, event)}\n" for level, event in waiting]))

    @contextmanager
    def behind_loop(self) -> Iterator[asyncio.Runner]:
        """A runner of a new event loop. Until the ``with`` block ends, lines wait for that loop to be idle."""
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            self._loop, self._loop_thread = runner.get_loop(), threading.get_ident()
            try:
                yield runner
            finally:
                # Lines that the loop's shutdown logs are written at once.
                self._loop = self._timer = None
                self.flush()

    def due(self) -> bool:
        """Whether an idle loop should write the waiting lines now."""
        return self._timer is not None and self._loop is not None and self._loop.time() >= self._due_at

    def flush_soon(self) -> None:
        """Make the loop write the waiting lines next, in a separate callback: a failing line must not end the loop."""
        if self._loop is not None:
            self._loop.call_soon(self.flush)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_WritingSelector(self))

    def dropped(self, count: int) -> str:
        """The line that stands for dropped ones. Called by any thread."""
        why = "nobody read them, or they could not be written"
        event = {"event": "log lines are missing here", "lines": count, "reason": why}
        stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)(None, "warning", event)
        return f"{self._rendered('warning', stamped)}\n"

    def _put(self, text: str) -> None:
        # The stream may be closed, on a full disk or without a reader. There is no other place to report that.
        with suppress(OSError, ValueError):
            self._stderr.write(text)

    def _settle(self) -> None:
        """Have the lines written now, unless nobody reads them."""
        with suppress(OSError, ValueError):
            self._stderr.flush()

    def _rendered(self, level: str, event: Event) -> Any:
        try:
            return self._through_renderers(level, event)
        except Exception as error:
            # Other lines and the current caller must not fail because of this line.
            why = {"event": "a line cannot be shown", "reason": type(error).__name__, "level": level}
            return self._through_renderers(level, why | {"timestamp": event.get("timestamp", "")})

    def _through_renderers(self, level: str, event: Event) -> Any:
        for renderer in self._renderers:
            event = renderer(None, level, event)
        return event


class _WritingSelector(selectors.DefaultSelector):
    """A selector that writes due lines before the loop would really wait."""

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._lines.due():
            ready = super().select(0)
            if not ready and timeout != 0:
                self._lines.flush_soon()
            return ready
        return super().select(timeout)
