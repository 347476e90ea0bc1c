"""A transaction processor as a running thing: handlers on one side, a validator's address on the other.

What an author or an operator starts. How it is done lives below: ``processor_sdk.worker.supervisor`` keeps the worker
processes, ``processor_sdk.worker.serving`` is one process's worth of serving.
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

from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.apply.progress import Progress
from processor_sdk.handler import TransactionHandler
from processor_sdk.worker import connection
from processor_sdk.worker.keys import read_keys
from processor_sdk.worker.process import MEMORY_MIB_MIN, Orders, Parcel
from processor_sdk.worker.registration import BUILD_ID_CHARACTERS_MAX
from processor_sdk.worker.serving import Service, serve, signals_to, tell
from processor_sdk.worker.slot import STOPS
from processor_sdk.worker.supervisor import UNGUARDED_EXIT, CannotStart, Report, Supervisor, WorkerReport
from processor_sdk.worker.watch import BEAT_S

__all__ = ["CannotStart", "Report", "TransactionProcessor", "WorkerReport"]

MAX_OCCUPANCY_DEFAULT: Final = 4_096
"""Two full packed messages, so that the next is here when one is answered."""

APPLY_TIMEOUT_MS_DEFAULT: Final = 10_000
STOP_S_MAX_DEFAULT: Final = 15.0
WORKERS_MAX: Final = 256

_PORT_MAX: Final = 65_535
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]").search
_url: Final = re.compile(r"tcp://(?:\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z][0-9A-Za-z._-]*):([0-9]{1,5})|ipc://\S+").fullmatch


class TransactionProcessor:
    """Serves the handlers added to it to one validator. Runs once."""

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
        """``url``: the validator's address, as ``tcp://127.0.0.1:4004``. Raises ValueError for what cannot be.

        ``workers``: how many processes apply transactions, each over a connection of its own.
        ``max_occupancy``: how many transactions one worker takes at once.
        ``apply_timeout_ms``: how long one apply may take, without what it waits for the validator. A worker that takes
        longer says so, answers INTERNAL_ERROR where it can, and is replaced.
        ``stop_s_max``: how many seconds the workers may take to finish what is in flight when the processor is stopped.
        ``memory_mib_max``: how much address space each worker may have, in MiB; None for no limit. An apply that wants
        more gets MemoryError.
        ``build_id``: by which people tell this build of the families from others, at most 256 characters, for all
        handlers; None for the version or the digest of each one's own code (``registration.build_of``).
        ``connection_key``, ``validator_key``: the files of this processor's secret connection key and of the
        validator's public one, as ``dovetail keygen --connection`` makes them; None, both, for a validator that asks
        for no keys. Read at once: ValueError says what is wrong with one.
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
        """Serve ``handler`` too; before ``run``. Raises TypeError for what is none."""
        if not isinstance(handler, TransactionHandler):
            raise TypeError(
                f"{handler!r} is no handler: give an instance, as in add(MyHandler()); of a handler of the Sawtooth 1.x"
                " line, each that processor_sdk.sawtooth.adapted makes of it"
            )
        self._handlers.append(handler)
        return self

    def stop(self) -> None:
        """End ``run``: unregister, finish what is in flight, return. From any thread, any number of times.

        Before ``run`` it makes that return at once.
        """
        self._stop_asked = True
        if self._waker is not None:
            tell(self._waker, connection.STOP)

    def run(
        self,
        *,
        on_report: Callable[[Report], None] | None = None,
        report_s_max: float = BEAT_S,
        configure_logging: Callable[[], object] | None = None,
    ) -> signal.Signals | None:
        """Serve with worker processes until stopped; gives the signal that did it, if one did. Reconnects for ever.

        A worker is a fresh interpreter that imports what the handlers come from, so a script calls this under
        ``if __name__ == "__main__":``. One that ends is replaced. In the main thread SIGTERM, SIGINT and SIGHUP stop
        (the last where it is not ignored, as under nohup): each worker unregisters and finishes what it has within
        ``stop_s_max``; another one, half a second later or more, kills the workers. Where this process is killed, they
        end by themselves.

        ``on_report`` is called in this thread with every change, and at least once a second and every ``report_s_max``;
        it must not wait, since nothing else is done meanwhile.
        ``configure_logging`` is called in each worker before anything else there; without it a worker logs to stderr
        what is at least as important as this process logs.

        Raises ValueError without handlers, or with two for the same family and version; TypeError for a handler that
        cannot be given to another process; CannotStart where the first workers do not come up.
        """
        # An interpreter that is still importing its script for a worker; nothing else tells.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            sys.exit(UNGUARDED_EXIT)
        _check("report_s_max", report_s_max, 0.01, 60)
        self._check_handlers()
        pickled = _pickled(self._service())
        _open_standard_files()
        _wait_for_children()
        try:
            parcel = Parcel.holding(pickled)
        except OSError as error:
            raise CannotStart(
                f"there is no room for what the workers are given ({len(pickled)} bytes): {error}"
            ) from None
        with contextlib.closing(parcel) as service, self._woken() as (waker, wake):
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

        Nothing replaces this process, so neither ``apply_timeout_ms``, ``stop_s_max`` nor ``memory_mib_max`` hold.
        ``on_ready`` is called, in this thread, when the validator has accepted all families for the first time. In the
        main thread SIGTERM and SIGINT stop it, and a second one ends it at once, also in the middle of an apply.
        Raises ValueError as ``run`` does.
        """
        self._check_handlers()
        progress = Progress((handler.family_name, handler.family_version) for handler in self._handlers)
        with self._woken() as (waker, wake):
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
    """Where stdin, stdout or stderr is closed, a worker's pipe would take its place, and get what is written there."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        try:
            os.set_inheritable(standard, True)
        except OSError:
            os.dup2(nowhere, standard)
    if nowhere > 2:
        os.close(nowhere)


def _wait_for_children() -> None:
    """A process may be started with SIGCHLD ignored: then nobody can tell how, or that, its children have ended."""
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
            # Of a handler of the 1.x line, the author's own.
            author = type(getattr(handler, "wrapped", handler))
            raise TypeError(
                f"the handler {author.__qualname__} cannot be given to a worker process: {error}; its class must"
                " be at the top of a module, and what it holds must be picklable (open files, sockets, locks and"
                " functions without a name are not)"
            ) from None
    return pickle.dumps(service)
