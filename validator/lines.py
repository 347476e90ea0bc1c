"""Log lines that wait for the answers behind them: to write one costs as much as to answer, and nobody waits for it."""

import asyncio
from typing import Any, Final

import structlog

_BEHIND_S: Final = 0.002
"""About what a batch spends in an idle node between its answer and its commit: longer, and no line is on its way."""

log = structlog.get_logger(__name__)


class Lines:
    """Lines of level info, in the order in which they were said, a moment later. Ended with ``close``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def say(self, event: str, **values: object) -> None:
        """What happened, and with which values."""
        self._waiting.append((event, values))
        if self._timer is None:
            # The loop calls what is due behind what it finds readable, however late that is.
            self._timer = self._loop.call_later(_BEHIND_S, self._write)

    def close(self) -> None:
        """Write what waits; nothing is said after this."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()

    def _write(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for event, values in waiting:
            log.info(event, **values)
