"""Log lines on their way to stderr: at once, or, beside an event loop, while it waits for somebody.

To write a line takes about as long as to answer a request, wakes whoever reads it, and is what the next answer waits
for. So what is said at level info or below waits until the loop would sleep anyway, with what else is said in a
twentieth of a second; what is said above that level is written at once, behind all that was said before.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from structlog import DropEvent

_OLD_S: Final = 0.05
"""From this age of the first line on, the next sleep will do. Many at once cost a fraction of what each would alone."""

_BEHIND_S_MAX: Final = 0.1
"""docs/reference/configuration.md, DOVETAIL_LOG_LEVEL."""

_LINES_WAITING_MAX: Final = 200
"""Mostly some 30 kB: a pipe holds 64 KiB, and beyond that whoever writes waits for whoever reads."""

_MAY_WAIT: Final = frozenset({"debug", "info"})
_NEEDS_ITS_MOMENT: Final = ("exc_info", "stack_info")
"""Members of an event that are read off the stack of whoever said it."""

Event = MutableMapping[str, Any]
Processor = Callable[[Any, str, Any], Any]
"""As structlog knows them; the last of a row gives a line."""


class LogLines:
    """The last of structlog's processors, which takes every event; and the stream of the standard library's lines.

    Values become text when a line is written: who says something must not change them afterwards. Any thread may say
    something, for a library's threads log as well: what another than the loop's says is written at once.
    """

    def __init__(self, stderr: TextIO, renderers: Sequence[Processor]) -> None:
        self._stderr = stderr
        self._renderers = renderers
        self._waiting: list[tuple[str, Event]] = []
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._old_from = 0.0

    def __call__(self, _logger: object, level: str, event: Event) -> Event:
        """Take an event. Always raises DropEvent: nothing is left for structlog to write."""
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
            elif self._timer is None:
                self._timer = loop.call_later(_BEHIND_S_MAX, self.flush)
                self._old_from = loop.time() + _OLD_S
        raise DropEvent

    def write(self, text: str) -> None:
        """Write what waits, and then this."""
        with self._lock:
            self.flush()
            self._put(text)

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if self._timer is not None and threading.get_ident() == self._loop_thread:
                self._timer.cancel()
                self._timer = None
            if self._waiting:
                waiting, self._waiting = self._waiting, []
                # One write for all of them: each wakes whoever reads them.
                self._put("".join([f"{self._rendered(level, event)}\n" for level, event in waiting]))

    @contextmanager
    def behind_loop(self) -> Iterator[asyncio.Runner]:
        """A runner of a new event loop; lines wait for it as long as it is there."""
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            self._loop, self._loop_thread = runner.get_loop(), threading.get_ident()
            try:
                yield runner
            finally:
                # What the end of the loop has to say is written at once.
                self._loop = self._timer = None
                self.flush()

    def due(self) -> bool:
        """Whether there are lines for a loop that has nothing else to do."""
        return self._timer is not None and self._loop is not None and self._loop.time() >= self._old_from

    def flush_soon(self) -> None:
        """Have the loop write what waits as the next it does; what goes wrong with a line ends nothing else there."""
        if self._loop is not None:
            self._loop.call_soon(self.flush)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_WritesBeforeItSleeps(self))

    def _put(self, text: str) -> None:
        # Where nobody reads it any more, its disk is full, or it was closed, there is nobody to tell.
        with suppress(OSError, ValueError):
            self._stderr.write(text)
            self._stderr.flush()

    def _rendered(self, level: str, event: Event) -> Any:
        try:
            return self._through_renderers(level, event)
        except Exception as error:
            # Those beside it have done nothing wrong, nor has whoever said something just now.
            why = {"event": "a line cannot be shown", "reason": type(error).__name__, "level": level}
            return self._through_renderers(level, why | {"timestamp": event.get("timestamp", "")})

    def _through_renderers(self, level: str, event: Event) -> Any:
        for renderer in self._renderers:
            event = renderer(None, level, event)
        return event


class _WritesBeforeItSleeps(selectors.DefaultSelector):
    """What a loop waits with; lines that are due are written first, where it would wait indeed."""

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
