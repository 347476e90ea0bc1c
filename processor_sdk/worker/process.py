"""The body of a worker process: sets up logging, stdout and the memory limit, then serves until it is stopped.

``processor_sdk.worker.supervisor`` starts it in a fresh interpreter. No supervision and no sockets here.
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

from dovetail.streams import last_words, unblock
from processor_sdk.apply.progress import ApplyFields, Progress
from processor_sdk.worker.serving import Service, serve
from processor_sdk.worker.watch import Beat, Watch

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MEMORY_MIB_MIN: Final = 256
"""The address space that an interpreter with its threads needs for itself."""

ALONE_MARGIN_S: Final = 20.0
"""A worker without a supervisor ends if it is blocked for an apply's time limit plus this margin."""

WorkerMessage = Beat | int
"""What a worker sends to its supervisor: its state, or the exit code with which the SDK is about to end it."""

_MIB: Final = 1024 * 1024
_STDOUT_LINE_CHARACTERS_MAX: Final = 8192


class Orders(NamedTuple):
    """The settings of a worker, passed to its process. ``service``: a pickled Service."""

    service: "SharedBytes"
    apply_timeout_ms: int
    stop_s_max: float
    memory_mib_max: int | None
    log_level: int
    configure_logging: Callable[[], object] | None


def run(number: int, orders: Orders, pipe: "Pipe[WorkerMessage, bytes]") -> None:
    """Serve until the supervisor or a signal ends it. ``number``: the worker's number at its supervisor."""
    # The supervisor handles a closed terminal. The signal was blocked until now.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    os.set_inheritable(pipe.fileno(), False)
    unblock()
    if orders.configure_logging is not None:
        orders.configure_logging()
    elif not logging.getLogger().handlers:
        logging.basicConfig(level=orders.log_level, format=LOG_FORMAT)
    # SIGABRT and SIGSEGV print where the process was.
    faulthandler.enable(file=last_words(may_wait=True))
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


class SharedBytes:
    """Bytes for any number of processes, in an unnamed file.

    Arguments of a process pass through a pipe, which holds only a few kilobytes. With long arguments, starting a
    process would block until the process has read them.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def holding(cls, content: bytes) -> "SharedBytes":
        """Write ``content`` to a new unnamed file. The caller closes it. Raises OSError if there is no room."""
        if sys.platform == "linux":
            shared = cls(os.memfd_create("parcel"))
        else:
            with tempfile.TemporaryFile() as file:
                shared = cls(os.dup(file.fileno()))
        with open(shared._descriptor, "wb", closefd=False) as file:
            file.write(content)
        return shared

    def content(self) -> bytes:
        # Mapped instead of read: all processes share the file's position.
        with mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ) as view:
            return view[:]

    def close(self) -> None:
        os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._descriptor),)


def _received(sent: Any) -> SharedBytes:
    return SharedBytes(sent.detach())


class _SupervisedWatch(Watch):
    """Also ends a worker without a supervisor, and announces to the supervisor that the SDK ends the process."""

    def __init__(self, pipe: "Pipe[WorkerMessage, bytes]", progress: Progress, orders: Orders) -> None:
        super().__init__(pipe, progress, limit_ms=orders.apply_timeout_ms, stop_s_max=orders.stop_s_max)
        self._words = pipe
        self._last_words = last_words(may_wait=False)
        self._alone_s_max = orders.apply_timeout_ms / 1000 + ALONE_MARGIN_S

    def beat(self, now: float, *, registered: bool, in_flight: int) -> None:
        """Send a heartbeat and restart the timer that ends a blocked process."""
        # This timer works even if the interpreter is blocked. If there is no memory for its thread, the old
        # timer is cancelled nevertheless, and the next beat tries again.
        with contextlib.suppress(RuntimeError):
            faulthandler.dump_traceback_later(self._alone_s_max, exit=True, file=self._last_words)
        super().beat(now, registered=registered, in_flight=in_flight)

    def exit_process(self, exit_code: int) -> NoReturn:
        """Announce the exit code to the supervisor and end this process."""
        room = select.poll()
        room.register(self._words, select.POLLOUT)
        if room.poll(0):
            with contextlib.suppress(OSError):
                self._words.send(exit_code)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        super().exit_process(exit_code)


class StdoutLines(io.BufferedIOBase):
    """The binary stream below ``sys.stdout``: each line becomes an info record of the logger ``stdout``.

    Text that the log handlers themselves print goes to ``beneath``.
    """

    name: Any = "<stdout>"

    def __init__(self, beneath: TextIO | None) -> None:
        """``beneath``: None if the process has no stdout."""
        self._beneath = beneath
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._logging = threading.local()

    def text(self) -> TextIO:
        """The text stream for ``sys.stdout``."""
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", newline="\n", write_through=True)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor of the real stdout, for child processes. Raises OSError if there is none."""
        if self._beneath is None:
            raise io.UnsupportedOperation("this process has no stdout")
        return self._beneath.fileno()

    def write(self, data: Any) -> int:
        """Log the complete lines of ``data``. An incomplete line waits, up to a length."""
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
        """Log the incomplete line."""
        if self._rest and not getattr(self._logging, "on", False):
            line, self._rest = self._rest, ""
            self._log(line)

    def close(self) -> None:
        """Flush only: a handler must not close the worker's stdout."""
        self.flush()

    def _log(self, line: str) -> None:
        self._logging.on = True
        try:
            logging.getLogger("stdout").info("%s", line)
        finally:
            self._logging.on = False
