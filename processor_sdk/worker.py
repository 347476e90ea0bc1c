"""The body of a worker process: its surroundings (log, stdout, memory), then serving until it is told to end.

Started by ``processor_sdk.supervisor`` in a fresh interpreter. No supervision and no sockets here.
"""

import faulthandler
import io
import logging
import pickle
import resource
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Final, NamedTuple, TextIO

from processor_sdk.progress import ApplyFields, Progress
from processor_sdk.serving import Service, serve
from processor_sdk.watch import Beat, Watch

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MEMORY_MIB_MIN: Final = 256
"""An interpreter with its threads takes that much of the address space for itself."""

_MIB: Final = 1024 * 1024
_STDOUT_LINE_CHARACTERS_MAX: Final = 8192


class Orders(NamedTuple):
    """What a worker needs to know; passes from process to process. ``service``: a pickled Service."""

    service: bytes
    apply_timeout_ms: int
    stop_s_max: float
    memory_mib_max: int | None
    log_level: int
    configure_logging: Callable[[], None] | None


def run(number: int, orders: Orders, pipe: "Pipe[Beat, bytes]") -> None:
    """Serve until the supervisor, or a signal, says to end. ``number``: this worker's among those of its supervisor."""
    if orders.configure_logging is not None:
        orders.configure_logging()
    elif not logging.getLogger().handlers:
        logging.basicConfig(level=orders.log_level, format=LOG_FORMAT)
    faulthandler.enable()  # Ended by SIGABRT or SIGSEGV, it says where it was.
    if orders.memory_mib_max is not None:
        limit = orders.memory_mib_max * _MIB
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    service: Service = pickle.loads(orders.service)
    progress = Progress((handler.family_name, handler.family_version) for handler in service.handlers)
    fields = ApplyFields(progress, number)
    for log_handler in logging.getLogger().handlers:
        log_handler.addFilter(fields)
    sys.stdout = StdoutLines(sys.stdout)
    watch = Watch(pipe, progress, limit_ms=orders.apply_timeout_ms, stop_s_max=orders.stop_s_max)
    waker, wake = socket.socketpair()
    waker.setblocking(False)
    with waker, wake:
        serve(service, progress, waker, wake, watch=watch)
    sys.stdout.flush()


class StdoutLines(io.TextIOBase):
    """Stands in for ``sys.stdout``: each line becomes a log record of the logger ``stdout``, at info.

    What writing the log itself prints goes to ``beneath``.
    """

    def __init__(self, beneath: TextIO | None) -> None:
        """``beneath`` is None where the process has no stdout."""
        self._beneath = beneath
        self._rest = ""
        self._logging = threading.local()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Takes all of ``text``; a line without an end waits for it, but not for ever."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if getattr(self._logging, "on", False):
            if self._beneath is not None:
                self._beneath.write(text)
            return len(text)
        *lines, self._rest = (self._rest + text).split("\n")
        while len(self._rest) > _STDOUT_LINE_CHARACTERS_MAX:
            lines.append(self._rest[:_STDOUT_LINE_CHARACTERS_MAX])
            self._rest = self._rest[_STDOUT_LINE_CHARACTERS_MAX:]
        for line in lines:
            self._log(line)
        return len(text)

    def flush(self) -> None:
        """A line without an end is one now."""
        if self._rest and not getattr(self._logging, "on", False):
            line, self._rest = self._rest, ""
            self._log(line)

    def _log(self, line: str) -> None:
        self._logging.on = True
        try:
            logging.getLogger("stdout").info("%s", line[:_STDOUT_LINE_CHARACTERS_MAX])
        finally:
            self._logging.on = False
