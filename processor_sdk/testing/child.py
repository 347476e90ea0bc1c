"""The process where applies run the second time: ``python -m processor_sdk.testing.child DESCRIPTOR SECONDS``.

Makes handlers as they are told and never applies with them itself: every apply runs in a fork of this process, so that
whatever an earlier one left in a handler, a class or a module is not there. Talks to ``interpreters`` alone, in pickle.
"""

import gc
import importlib
import importlib.util
import os
import pickle
import sys
import traceback
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Final, NamedTuple

from processor_sdk.dispatch import Dispatcher
from processor_sdk.testing import capture, surroundings

ANSWERED: Final = 86
"""The exit code of a fork that has sent its answer."""


class Make(NamedTuple):
    """Make handlers out of ``pickled``, with modules (name, file) from the folders of ``path``; answered by Made."""

    key: str
    pickled: bytes
    modules: tuple[tuple[str, str | None], ...]
    path: tuple[str, ...]


class Made(NamedTuple):
    """The handlers are there."""


class Apply(NamedTuple):
    """Apply a serialized TpProcessRequest with the handlers ``key``: any number of Call, then Applied or Died."""

    key: str
    request: bytes


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
    watch = surroundings.Watch()
    connection: Connection[Any, Any] = Connection(descriptor)
    dispatchers: dict[str, Dispatcher] = {}
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if isinstance(message, Make):
            sys.path[:] = message.path
            for name, file in message.modules:
                _load(name, file)
            dispatchers[message.key] = Dispatcher(pickle.loads(message.pickled))
            gc.freeze()  # What forks share, a collection in one of them would copy.
            connection.send(Made())
            continue
        fork = os.fork()
        if not fork:
            _answer(connection, watch, dispatchers[message.key], message.request)
        _, status = os.waitpid(fork, 0)
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != ANSWERED:
            connection.send(Died(status))


def _answer(
    connection: "Connection[Any, Any]", watch: surroundings.Watch, dispatcher: Dispatcher, request: bytes
) -> None:
    """In a fork: apply, answer, and end. Python seeds ``random`` anew in every fork."""
    status = 1
    try:
        # Standard error holds what this process dies of; a handler's words were shown by the first run.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        os.environ.clear()
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
        status = ANSWERED
    finally:
        os._exit(status)


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
