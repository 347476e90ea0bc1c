"""The process where applies run the second time: ``python -m processor_sdk.testing.child DESCRIPTOR SECONDS``.

Makes handlers as they are told and never applies with them itself: every apply runs in a fork of this process, so that
whatever an earlier one left in a handler, a class or a module is not there. Talks to ``interpreters`` alone, in pickle.
Nothing here outlives its bound, and no fork the process on the other side.
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
    """Make handlers out of ``pickled``, with modules (name, file) from the folders of ``path``; answered by Made.

    ``pickled``: a list of handlers, and of classes that make one when they are called. ``seconds_max``: SIGALRM ends
    this process then.
    """

    key: str
    pickled: bytes
    modules: tuple[tuple[str, str | None], ...]
    path: tuple[str, ...]
    seconds_max: float


class Made(NamedTuple):
    """The handlers are there."""


class Apply(NamedTuple):
    """Apply a serialized TpProcessRequest with the handlers ``key``: any number of Call, then Applied or Died.

    ``seconds_max``: SIGALRM ends it then.
    """

    key: str
    request: bytes
    seconds_max: float


class Call(NamedTuple):
    """A state request of the apply; the content of its answer is expected."""

    message_type: int
    content: bytes


class Applied(NamedTuple):
    """``response``: a serialized TpProcessResponse; ``trace``: of an exception that is no verdict, or empty.

    ``forbidden``: what it did that no apply may do, a sentence each.
    """

    response: bytes
    trace: str
    forbidden: list[str]


class Died(NamedTuple):
    """The apply ended its process; as os.waitpid tells it."""

    status: int


def main(descriptor: int, seconds: int) -> None:
    """Serve until the other side closes. A handler that cannot be made ends the process with its traceback."""
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
            gc.freeze()  # What forks share, a collection in one of them would copy.
            connection.send(Made())
            continue
        # Its end of file says that the fork has ended: nothing else holds the other end.
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
    """Wait until ``connection``, on which a fork talks, or ``ended`` hangs up: whether it is the connection."""
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
    # A module may have seeded it when it was imported, and the handler of the test then drew the same.
    random.seed()
    dispatcher = Dispatcher([handler() if isinstance(handler, type) else handler for handler in made])
    os.environ.update(environment)
    return dispatcher


def _empty_environment() -> None:
    """All but the time zone, which parts of the C library read again at every call."""
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
    """In a fork: apply, answer, say so to ``ended_end``, and end. Python seeds ``random`` anew in every fork."""
    try:
        # Standard error holds what this process dies of; a handler's words were shown by the first run.
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
    """Make sure that ``name`` is the module of ``file``, as it is where the handler comes from."""
    if file is None or _is_file(sys.modules.get(name), file):
        return
    if name != "__main__":
        try:
            if _is_file(importlib.import_module(name), file):
                return
        except ModuleNotFoundError:
            pass  # Test runners load modules that no folder of the path leads to.
    # The name keeps a script from doing what it does when it is started.
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
    # Under its own name: what the other side pickles are the classes of the imported module.
    from processor_sdk.testing import child

    child.main(int(sys.argv[1]), int(sys.argv[2]))
