"""The process of the second run: ``python -m processor_sdk.testing.child DESCRIPTOR SECONDS``.

It makes handlers and runs every apply in a fork of itself, so that no apply sees data that an earlier one left in a
handler, a class or a module. It exchanges pickles with ``interpreters``. Every apply has a time limit, and every fork
ends when the parent process has ended.
"""

import gc
import importlib
import importlib.util
import os
import pickle
import random
import select
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Final, NamedTuple

from processor_sdk.apply.dispatch import Dispatcher
from processor_sdk.testing import capture, surroundings

_ANSWERED: Final = b"answered"


class Make(NamedTuple):
    """Make handlers of ``pickled``, with ``modules`` (name, file) and the module search ``path``. The answer is Made.

    ``pickled``: a list of handlers, and of classes to call. ``seconds_max``: after this time SIGALRM ends the process.
    """

    key: str
    pickled: bytes
    modules: tuple[tuple[str, str | None], ...]
    path: tuple[str, ...]
    seconds_max: float


class Made(NamedTuple):
    """The answer to Make: the handlers are made."""


class Apply(NamedTuple):
    """Apply a serialized TpProcessRequest with the handlers ``key``. Answered by any number of Call,
    then Applied or Died.

    ``seconds_max``: after this time SIGALRM ends the apply.
    """

    key: str
    request: bytes
    seconds_max: float


class Call(NamedTuple):
    """A state request of the apply. The reply is the content of the answer."""

    message_type: int
    content: bytes


class Applied(NamedTuple):
    """``response``: a serialized TpProcessResponse.

    ``trace``: the traceback of an exception that is no verdict, or empty.
    ``forbidden``: a sentence for each forbidden action.
    """

    response: bytes
    trace: str
    forbidden: list[str]


class Died(NamedTuple):
    """The apply ended its process. ``status``: from os.waitpid."""

    status: int


def main(descriptor: int, seconds: int) -> None:
    """Serve until the parent closes the connection. A handler that cannot be made ends the process with a traceback."""
    surroundings.shift_clock(seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    watch = surroundings.Watch()
    connection: Connection[Any, Any] = Connection(descriptor)
    dispatchers: dict[str, Dispatcher] = {}
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if isinstance(message, Make):
            signal.setitimer(signal.ITIMER_REAL, message.seconds_max)
            dispatchers[message.key] = _make(message)
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.freeze()  # A garbage collection in a fork would copy the shared memory.
            connection.send(Made())
            continue
        # End of file means that the fork has ended, because only the fork holds the other end.
        ended, ended_end = os.pipe()
        fork = os.fork()
        if not fork:
            signal.setitimer(signal.ITIMER_REAL, message.seconds_max)
            _answer(connection, watch, dispatchers[message.key], message.request, ended_end)
        os.close(ended_end)
        lost = _is_lost_before(connection, ended)
        if lost:
            os.kill(fork, signal.SIGKILL)
        _, status = os.waitpid(fork, 0)
        answered = os.read(ended, len(_ANSWERED)) == _ANSWERED
        os.close(ended)
        if not lost and not answered:
            connection.send(Died(status))


def _is_lost_before(connection: "Connection[Any, Any]", ended: int) -> bool:
    """Wait until ``connection`` or ``ended`` hangs up. True if the connection does."""
    waiting = select.poll()
    waiting.register(connection.fileno(), 0)
    waiting.register(ended, 0)
    return connection.fileno() in dict(waiting.poll())


def _make(message: Make) -> Dispatcher:
    sys.path[:] = message.path
    for name, file in message.modules:
        _load(name, file)
    made = pickle.loads(message.pickled)
    environment = dict(os.environ)
    _empty_environment()
    # A module may have seeded ``random`` at import time, as in the test's interpreter.
    random.seed()
    dispatcher = Dispatcher([handler() if isinstance(handler, type) else handler for handler in made])
    os.environ.update(environment)
    return dispatcher


def _empty_environment() -> None:
    """Empty the environment except TZ, which parts of the C library read at every call."""
    zone = os.environ["TZ"]
    os.environ.clear()
    os.environ["TZ"] = zone


def _answer(
    connection: "Connection[Any, Any]",
    watch: surroundings.Watch,
    dispatcher: Dispatcher,
    request: bytes,
    ended_end: int,
) -> None:
    """In a fork: apply, answer, write to ``ended_end``, and exit. Python seeds ``random`` anew in every fork."""
    try:
        # Standard error is for the traceback of this process. The first run has shown the handler's output.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        _empty_environment()
        os.chdir("/")

        def link(message_type: int, content: bytes) -> bytes:
            connection.send(Call(message_type, content))
            return connection.recv()  # type: ignore[no-any-return]

        with capture.failures() as failures:
            watch.active = True
            response = dispatcher.single(request, link)
            watch.active = False
        trace = "".join(traceback.format_exception(failures[0])) if failures else ""
        connection.send(Applied(response, trace, watch.seen))
        os.write(ended_end, _ANSWERED)
    finally:
        os._exit(0)


def _load(name: str, file: str | None) -> None:
    """Load ``file`` as module ``name``, unless it is loaded."""
    if file is None or _is_file(sys.modules.get(name), file):
        return
    if name != "__main__":
        try:
            if _is_file(importlib.import_module(name), file):
                return
        except ModuleNotFoundError:
            pass  # Test runners load modules that are not on the path.
    # The name keeps a script from running its ``__main__`` part.
    spec = importlib.util.spec_from_file_location("__dovetail_main__" if name == "__main__" else name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _is_file(module: ModuleType | None, file: str) -> bool:
    found = getattr(module, "__file__", None)
    return found is not None and os.path.realpath(found) == os.path.realpath(file)


if __name__ == "__main__":
    # Imported under its own name, because the parent pickles the classes of the imported module.
    from processor_sdk.testing import child

    child.main(int(sys.argv[1]), int(sys.argv[2]))
