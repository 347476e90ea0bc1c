"""The interpreters of the second run: started when first needed, shared by all ledgers of a process.

Each has its own hash seed, clock and time zone. ``processor_sdk.testing.runs`` compares the results.
"""

import atexit
import contextlib
import hashlib
import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from typing import Any, Final, NamedTuple

from processor_sdk.apply.state import Link
from processor_sdk.handler import TransactionHandler
from processor_sdk.testing import child
from processor_sdk.testing.child import Applied, Apply, Call, Died, Make
from processor_sdk.testing.model import CannotRunTwice
from processor_sdk.testing.path import absolute_path, python_path

_DAY_S: Final = 86_400


class _Kind(NamedTuple):
    hash_seed: int
    clock_ahead_s: int
    time_zone: str


# Two more hash seeds: three interpreters iterate a set of n elements in the same order with probability 1/(n!)². The
# seeds are fixed, so that a failing test keeps failing.
_KINDS: Final = (
    _Kind(1009, 401 * _DAY_S + 18_431, "Pacific/Kiritimati"),
    _Kind(2003, 77 * _DAY_S + 40_961, "Etc/GMT+9"),
)
_TRACE_BYTES_MAX: Final = 8_192

APPLY_S_MAX: Final = 60.0
"""The time limit of a second run, and of making its handlers; far longer than they take."""


class Recipe(NamedTuple):
    """How to make handlers again: by the class if it takes no arguments, as nodes do; otherwise as copies."""

    make: Make

    @classmethod
    def of(cls, handlers: Sequence[TransactionHandler[Any]]) -> "Recipe":
        """Raises CannotRunTwice if a handler can only be made in this interpreter."""
        makers = [type(handler) if not inspect.signature(type(handler)).parameters else handler for handler in handlers]
        for handler, maker in zip(handlers, makers, strict=True):
            try:
                pickle.dumps(maker)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise CannotRunTwice(
                    f"{type(handler).__qualname__} cannot be made again in a second interpreter ({error}): define it at"
                    " the top of a module and keep on self only what can be pickled, or give up the check for"
                    " non-determinism with Ledger(…, twice=False)"
                ) from None
        pickled = pickle.dumps(makers)
        names = dict.fromkeys(type(handler).__module__ for handler in handlers)
        modules = tuple((name, getattr(sys.modules.get(name), "__file__", None)) for name in names)
        key = hashlib.sha256(repr((pickled, modules)).encode()).hexdigest()
        return cls(Make(key, pickled, modules, absolute_path(), APPLY_S_MAX))


class _Interpreter:
    def __init__(self, kind: _Kind) -> None:
        self._connection, other = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._made: set[str] = set()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", child.__name__, str(other.fileno()), str(kind.clock_ahead_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(other.fileno(),),
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(),
                    "PYTHONHASHSEED": str(kind.hash_seed),
                    "PYTHONBREAKPOINT": "0",
                    "TZ": kind.time_zone,
                },
            )

    def start(self, recipe: Recipe, request: bytes) -> None:
        if recipe.make.key not in self._made:
            with self._lost_means_cannot_make():
                self._connection.send(recipe.make)
                self._connection.recv()
            self._made.add(recipe.make.key)
        self._connection.send(Apply(recipe.make.key, request, APPLY_S_MAX))

    def finish(self, link: Link) -> Applied | Died:
        """Serve the state calls of the apply until it ends."""
        while True:
            message: Applied | Died | Call = self._connection.recv()
            if not isinstance(message, Call):
                return message
            self._connection.send(link(message.message_type, message.content))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def _lost_means_cannot_make(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            if self._process.wait() == -signal.SIGALRM:
                raise CannotRunTwice(
                    f"the handlers were not made in a second interpreter within {APPLY_S_MAX:g} s"
                ) from None
            self._errors.seek(0)
            said = self._errors.read()[-_TRACE_BYTES_MAX:].decode(errors="replace")
            raise CannotRunTwice(
                f"the handlers cannot be made in a second interpreter, with an empty environment; it said:\n{said}"
            ) from None

    def close(self) -> None:
        self._connection.close()
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()


class _Pool:
    """All interpreters of this process, started when needed."""

    def __init__(self) -> None:
        self._interpreters: list[_Interpreter] = []
        self._owner = os.getpid()

    def get(self) -> list[_Interpreter]:
        if self._owner != os.getpid():
            # In a fork: the interpreters belong to the parent.
            self._interpreters, self._owner = [], os.getpid()
        if not self._interpreters:
            self._interpreters = [_Interpreter(kind) for kind in _KINDS]
        return self._interpreters

    def close(self) -> None:
        if self._owner == os.getpid():
            for interpreter in self._interpreters:
                interpreter.close()
        self._interpreters = []


_pool: Final = _Pool()
atexit.register(_pool.close)


def apply_again(recipe: Recipe, request: bytes, links: Sequence[Link]) -> list[Applied | Died]:
    """Apply a serialized TpProcessRequest in every interpreter, each with its own link."""
    with contextlib.ExitStack() as undo:
        # An interrupted conversation leaves unread messages, so the next one needs new interpreters.
        undo.callback(_pool.close)
        interpreters = _pool.get()
        for interpreter in interpreters:
            interpreter.start(recipe, request)
        ended = [interpreter.finish(link) for interpreter, link in zip(interpreters, links, strict=True)]
        if all(isinstance(end, Applied) for end in ended):
            undo.pop_all()
    return ended


INTERPRETERS: Final = len(_KINDS)
