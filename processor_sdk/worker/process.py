"""The body of a worker process: its surroundings (log, stdout, memory), then serving until it is told to end.

Started by ``processor_sdk.worker.supervisor`` in a fresh interpreter. No supervision and no sockets here.
"""

import codecs
import contextlib
import faulthandler
import io
import logging
import mmap
import os
import pickle
import resource
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, NamedTuple, NoReturn, TextIO

from processor_sdk.apply.progress import ApplyFields, Progress
from processor_sdk.worker.serving import Service, serve
from processor_sdk.worker.watch import Beat, Watch

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MEMORY_MIB_MIN: Final = 256
"""An interpreter with its threads takes that much of the address space for itself."""

ALONE_MARGIN_S: Final = 20.0
"""So much longer than the time limit of an apply an interpreter that nobody supervises may stand still."""

Word = Beat | int
"""What a worker says to its supervisor: how it is, or the exit code with which the SDK is about to end it."""

_MIB: Final = 1024 * 1024
_STDOUT_LINE_CHARACTERS_MAX: Final = 8192


class Orders(NamedTuple):
    """What a worker needs to know; passes from process to process. ``service``: holds a pickled Service."""

    service: "Parcel"
    apply_timeout_ms: int
    stop_s_max: float
    memory_mib_max: int | None
    log_level: int
    configure_logging: Callable[[], object] | None


def run(number: int, orders: Orders, pipe: "Pipe[Word, bytes]") -> None:
    """Serve until the supervisor, or a signal, says to end. ``number``: this worker's among those of its supervisor."""
    # A terminal that goes away is the supervisor's business; it was blocked until now.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    os.set_inheritable(pipe.fileno(), False)
    if orders.configure_logging is not None:
        orders.configure_logging()
    elif not logging.getLogger().handlers:
        logging.basicConfig(level=orders.log_level, format=LOG_FORMAT)
    faulthandler.enable()  # Ended by SIGABRT or SIGSEGV, it says where it was.
    if orders.memory_mib_max is not None:
        limit = orders.memory_mib_max * _MIB
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    service: Service = pickle.loads(orders.service.content())
    orders.service.close()
    progress = Progress((handler.family_name, handler.family_version) for handler in service.handlers)
    fields = ApplyFields(progress, number)
    for log_handler in logging.getLogger().handlers:
        log_handler.addFilter(fields)
    sys.stdout = StdoutLines(sys.stdout).text()
    watch = _SupervisedWatch(pipe, progress, orders)
    waker, wake = socket.socketpair()
    waker.setblocking(False)
    with waker, wake:
        serve(service, progress, waker, wake, watch=watch)
    sys.stdout.flush()


class Parcel:
    """Bytes for any number of processes, in a file without a name.

    Who starts a process waits until it has read what is written to it, so that must be less than a pipe takes at once.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def holding(cls, content: bytes) -> "Parcel":
        """A new one; whoever made it closes it. Raises OSError where there is no room for it."""
        if sys.platform == "linux":
            parcel = cls(os.memfd_create("parcel"))
        else:
            with tempfile.TemporaryFile() as file:
                parcel = cls(os.dup(file.fileno()))
        with open(parcel._descriptor, "wb", closefd=False) as file:
            file.write(content)
        return parcel

    def content(self) -> bytes:
        """All of it."""
        # By its place: all processes share the file's position.
        with mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ) as view:
            return view[:]

    def close(self) -> None:
        """Let it go, in this process."""
        os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._descriptor),)


def _received(sent: Any) -> Parcel:
    return Parcel(sent.detach())


class _SupervisedWatch(Watch):
    """Also ends a worker that nobody else can end any more, and says before that the SDK is who ends it."""

    def __init__(self, pipe: "Pipe[Word, bytes]", progress: Progress, orders: Orders) -> None:
        super().__init__(pipe, progress, limit_ms=orders.apply_timeout_ms, stop_s_max=orders.stop_s_max)
        self._words = pipe
        self._alone_s_max = orders.apply_timeout_ms / 1000 + ALONE_MARGIN_S

    def beat(self, now: float, *, registered: bool, in_flight: int) -> None:
        """Puts the end off, too."""
        # The one thing that happens in a process whose interpreter stands still. Without memory for its thread the one
        # before it has still been put away; the next beat tries again.
        with contextlib.suppress(RuntimeError):
            faulthandler.dump_traceback_later(self._alone_s_max, exit=True)
        super().beat(now, registered=registered, in_flight=in_flight)

    def leave(self, exit_code: int) -> NoReturn:
        """End this process, after its last word."""
        room = select.poll()
        room.register(self._words, select.POLLOUT)
        if room.poll(0):
            with contextlib.suppress(OSError):
                self._words.send(exit_code)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        super().leave(exit_code)


class StdoutLines(io.BufferedIOBase):
    """What stands below ``sys.stdout``: each line becomes a log record of the logger ``stdout``, at info.

    What writing the log itself prints goes to ``beneath``.
    """

    name: Any = "<stdout>"

    def __init__(self, beneath: TextIO | None) -> None:
        """``beneath`` is None where the process has no stdout."""
        self._beneath = beneath
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._logging = threading.local()

    def text(self) -> TextIO:
        """To be ``sys.stdout``."""
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", newline="\n", write_through=True)

    def writable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """The descriptor beneath, past the log: for child processes. Raises OSError where there is none."""
        if self._beneath is None:
            raise io.UnsupportedOperation("this process has no stdout")
        return self._beneath.fileno()

    def write(self, data: Any) -> int:
        """Takes all of ``data``; a line without an end waits for it, but not for ever."""
        content = bytes(data)
        if getattr(self._logging, "on", False):
            if self._beneath is not None:
                self._beneath.write(content.decode(errors="replace"))
            return len(content)
        *lines, self._rest = (self._rest + self._decoder.decode(content)).split("\n")
        if len(self._rest) > _STDOUT_LINE_CHARACTERS_MAX:
            lines.append(self._rest)
            self._rest = ""
        for line in lines:
            for start in range(0, max(len(line), 1), _STDOUT_LINE_CHARACTERS_MAX):
                self._log(line[start : start + _STDOUT_LINE_CHARACTERS_MAX])
        return len(content)

    def flush(self) -> None:
        """A line without an end is one now."""
        if self._rest and not getattr(self._logging, "on", False):
            line, self._rest = self._rest, ""
            self._log(line)

    def close(self) -> None:
        """As ``flush``: what a handler closes is not its own."""
        self.flush()

    def _log(self, line: str) -> None:
        self._logging.on = True
        try:
            logging.getLogger("stdout").info("%s", line)
        finally:
            self._logging.on = False
