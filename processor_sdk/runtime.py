"""The transaction processor that an author or an operator starts: handlers, and the address of a validator.

``processor_sdk.worker.supervisor`` keeps the worker processes, ``processor_sdk.worker.serving`` serves in one process.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from dovetail.streams import unblocked
from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.apply.progress import Progress
from processor_sdk.handler import TransactionHandler
from processor_sdk.worker import connection
from processor_sdk.worker.keys import read_keys
from processor_sdk.worker.process import MEMORY_MIB_MIN, Orders, SharedBytes
from processor_sdk.worker.registration import BUILD_ID_CHARACTERS_MAX
from processor_sdk.worker.serving import Service, notify, serve, signals_to
from processor_sdk.worker.slot import STOPS
from processor_sdk.worker.supervisor import UNGUARDED_EXIT, CannotStart, Report, Supervisor, WorkerReport
from processor_sdk.worker.watch import BEAT_S

__all__ = ["CannotStart", "Report", "TransactionProcessor", "WorkerReport"]

MAX_OCCUPANCY_DEFAULT: Final = 4_096
"""The transactions of two full packed messages, so that the next message is there when one is answered."""

APPLY_TIMEOUT_MS_DEFAULT: Final = 10_000
STOP_S_MAX_DEFAULT: Final = 15.0
WORKERS_MAX: Final = 256

_PORT_MAX: Final = 65_535
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]").search
_url: Final = re.compile(r"tcp://(?:\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z][0-9A-Za-z._-]*):([0-9]{1,5})|ipc://\S+").fullmatch


class TransactionProcessor:
    """Serves its handlers to one validator. Runs once."""

    def __init__(
        self,
        url: str,
        *,
        workers: int = 1,
        max_occupancy: int = MAX_OCCUPANCY_DEFAULT,
        apply_timeout_ms: int = APPLY_TIMEOUT_MS_DEFAULT,
        stop_s_max: float = STOP_S_MAX_DEFAULT,
        memory_mib_max: int | None = None,
        build_id: str | None = None,
        connection_key: str | os.PathLike[str] | None = None,
        validator_key: str | os.PathLike[str] | None = None,
    ) -> None:
        """``url``: the validator's address, as ``tcp://127.0.0.1:4004``. Raises ValueError for a wrong argument.

        ``workers``: the number of processes that apply transactions, each over its own connection.
        ``max_occupancy``: the number of transactions that one worker accepts at once.
        ``apply_timeout_ms``: the time limit of one apply, without its waits for the validator. A worker that exceeds it
        logs the apply, answers INTERNAL_ERROR if it can, and is replaced.
        ``stop_s_max``: the seconds that the workers have to finish their tasks when the processor is stopped.
        ``memory_mib_max``: the address space of each worker in MiB; None for no limit. An apply that needs more gets
        MemoryError.
        ``build_id``: a name of this build for people, at most 256 characters, for all handlers; None for the version
        or the digest of each handler's code (``registration.build_of``).
        ``connection_key``, ``validator_key``: the files of this processor's secret connection key and of the
        validator's public key, made by ``dovetail keygen --connection``; both None if the validator asks for no keys.
        The files are read at once. ValueError says what is wrong with a file.
        """
        matched = _url(url)
        if matched is None or not 1 <= int(matched[1] or 1) <= _PORT_MAX:
            raise ValueError(f"url is {url!r}; it must be tcp://HOST:PORT, PORT from 1 to {_PORT_MAX}, or ipc://PATH")
        _check("workers", workers, 1, WORKERS_MAX)
        _check("max_occupancy", max_occupancy, 1, 2**32 - 1)
        _check("apply_timeout_ms", apply_timeout_ms, 1, 86_400_000)
        _check("stop_s_max", stop_s_max, 0, 86_400)
        if memory_mib_max is not None:
            _check("memory_mib_max", memory_mib_max, MEMORY_MIB_MIN, 2**40)
        if build_id is not None:
            _check_build_id(build_id)
        self._url = url
        self._workers = workers
        self._max_occupancy = max_occupancy
        self._apply_timeout_ms = apply_timeout_ms
        self._stop_s_max = stop_s_max
        self._memory_mib_max = memory_mib_max
        self._build_id = build_id
        if (connection_key is None) != (validator_key is None):
            raise ValueError("connection_key and validator_key: give both, or neither")
        self._keys = read_keys(connection_key, validator_key) if connection_key and validator_key else None
        self._handlers: list[TransactionHandler[Any]] = []
        self._waker: socket.socket | None = None
        self._stop_asked = False

    def add(self, handler: TransactionHandler[Any]) -> "TransactionProcessor":
        """Add ``handler``, before ``run``. Raises TypeError if the argument is no handler."""
        if not isinstance(handler, TransactionHandler):
            raise TypeError(
                f"{handler!r} is no handler: give an instance, as in add(MyHandler()); of a handler of the Sawtooth 1.x"
                " line, each that processor_sdk.sawtooth.adapted makes of it"
            )
        self._handlers.append(handler)
        return self

    def stop(self) -> None:
        """Make ``run`` unregister, finish its tasks and return. May be called from any thread, any number of times.

        A ``run`` that begins later returns at once.
        """
        self._stop_asked = True
        if self._waker is not None:
            notify(self._waker, connection.STOP)

    def run(
        self,
        *,
        on_report: Callable[[Report], None] | None = None,
        report_s_max: float = BEAT_S,
        configure_logging: Callable[[], object] | None = None,
    ) -> signal.Signals | None:
        """Serve with worker processes until stopped, reconnecting for ever. Returns the signal that stopped it, if any.

        A worker is a fresh interpreter that imports the handlers' modules, so a script must call this under
        ``if __name__ == "__main__":``. A worker that ends is replaced. If this process is killed, the workers end.

        In the main thread SIGTERM, SIGINT and SIGHUP (unless it is ignored, as under nohup) stop the processor: each
        worker unregisters and finishes its tasks within ``stop_s_max``. Another signal, at least half a second later,
        kills the workers.

        ``on_report`` is called in this thread after every change, at least once a second and every ``report_s_max``. It
        must not block, because supervision stops meanwhile.
        ``configure_logging`` is called first in each worker. Otherwise a worker logs to stderr at this process's level.

        Raises ValueError without handlers or with two of the same family and version, TypeError for a handler that
        cannot be pickled, CannotStart if the first workers do not start.
        """
        # True only in an interpreter that is still importing its script for a worker.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            sys.exit(UNGUARDED_EXIT)
        _check("report_s_max", report_s_max, 0.01, 60)
        self._check_handlers()
        pickled = _pickled(self._service())
        _open_standard_files()
        _wait_for_children()
        try:
            shared = SharedBytes.holding(pickled)
        except OSError as error:
            raise CannotStart(
                f"there is no room for what the workers are given ({len(pickled)} bytes): {error}"
            ) from None
        with contextlib.closing(shared) as service, unblocked(), self._woken() as (waker, wake):
            orders = Orders(
                service,
                self._apply_timeout_ms,
                self._stop_s_max,
                self._memory_mib_max,
                logging.getLogger().getEffectiveLevel(),
                configure_logging,
            )
            supervisor = Supervisor(orders, self._workers, wake, on_report, report_s_max)
            hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with signals_to(waker, None, STOPS - {signal.SIGHUP} if hangup_ignored else STOPS):
                return supervisor.run()

    def run_in_process(self, *, on_ready: Callable[[], None] | None = None) -> None:
        """Serve in this process and thread, without workers: for tests, debuggers and programs that are workers.

        ``apply_timeout_ms``, ``stop_s_max`` and ``memory_mib_max`` have no effect: nothing replaces this process.
        ``on_ready`` is called in this thread when the validator has accepted all families for the first time. In the
        main thread SIGTERM and SIGINT stop the serving. A second signal ends it at once, even within an apply.
        Raises ValueError as ``run`` does.
        """
        self._check_handlers()
        progress = Progress((handler.family_name, handler.family_version) for handler in self._handlers)
        with unblocked(), self._woken() as (waker, wake):
            serve(self._service(), progress, waker, wake, on_ready=on_ready)

    def _service(self) -> Service:
        return Service(self._url, tuple(self._handlers), self._max_occupancy, self._build_id, self._keys)

    def _check_handlers(self) -> None:
        if not self._handlers:
            raise ValueError("no handler was added")
        Dispatcher(self._handlers)

    @contextlib.contextmanager
    def _woken(self) -> Iterator[tuple[socket.socket, socket.socket]]:
        waker, wake = socket.socketpair()
        waker.setblocking(False)
        with waker, wake:
            self._waker = waker
            if self._stop_asked:
                self.stop()
            yield waker, wake


def _open_standard_files() -> None:
    """Open closed standard files on /dev/null. A worker's pipe would otherwise get their descriptors."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        try:
            os.set_inheritable(standard, True)
        except OSError:
            os.dup2(nowhere, standard)
    if nowhere > 2:
        os.close(nowhere)


def _wait_for_children() -> None:
    """Reset an ignored SIGCHLD, which would hide the end of child processes."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _check(name: str, value: float, least: float, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be from {least} to {most}")


def _check_build_id(build_id: object) -> None:
    if not isinstance(build_id, str):
        raise ValueError(f"build_id is {type(build_id).__name__}, not text")
    if len(build_id) > BUILD_ID_CHARACTERS_MAX:
        raise ValueError(f"build_id has {len(build_id)} characters; at most {BUILD_ID_CHARACTERS_MAX} are allowed")
    if _LONE_SURROGATE(build_id):
        raise ValueError(f"build_id is {build_id!r}, which holds halves of characters (lone surrogates): no text")


def _pickled(service: Service) -> bytes:
    for handler in service.handlers:
        try:
            pickle.dumps(handler)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            # An adapted 1.x handler holds the author's own handler.
            author = type(getattr(handler, "wrapped", handler))
            raise TypeError(
                f"the handler {author.__qualname__} cannot be given to a worker process: {error}; its class must"
                " be at the top of a module, and what it holds must be picklable (open files, sockets, locks and"
                " functions without a name are not)"
            ) from None
    return pickle.dumps(service)
