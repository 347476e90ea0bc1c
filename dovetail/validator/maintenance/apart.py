"""Work in a process of its own: LMDB may end a process on a damaged page, and whoever asked must be able to say so."""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, TypeVar

from dovetail.validator.store import StorageFailed

T = TypeVar("T")

_TRACE_BYTES_MAX: Final = 16 * 1024
_FAILED: Final = 1


class Step(NamedTuple):
    """How far a part of the work is: ``done`` of ``total`` units, in words what is being done."""

    title: str
    done: int
    total: int


Tell = Callable[[Step], None]


class Ended(Exception):
    """The process was ended, by a signal, before its work was done; the text says by which."""


def apart(tell: Tell, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work``, a module's own function, returns for a ``Tell`` and ``arguments`` in a process of its own.

    Raises Ended, and StorageFailed where the work did.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    # What the C library says when it gives up, or a trace: shown only where nothing better is known.
    with here, tempfile.NamedTemporaryFile() as words:
        with there:
            process = context.Process(target=_run, args=(there, words.name, work, arguments))
            process.start()
        try:
            while True:
                try:
                    kind, value = here.recv()
                except EOFError:
                    break
                if kind == "step":
                    tell(value)
                elif kind == "failed":
                    raise StorageFailed(value)
                else:
                    done: T = value
                    return done
            process.join()
            code = process.exitcode or 0
            if code < 0:
                raise Ended(f"{signal.Signals(-code).name}")
            words.seek(0)
            raise RuntimeError(f"exit code {code}: {words.read(_TRACE_BYTES_MAX).decode(errors='replace')}")
        finally:
            process.kill()
            process.join()
            process.close()


def _run(there: Connection, errors: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # A terminal sends Ctrl-C to every process; the parent is the one that acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    with open(errors, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    try:
        there.send(("done", work(lambda step: there.send(("step", step)), *arguments)))
    except BrokenPipeError:
        os._exit(_FAILED)
    except (StorageFailed, OSError) as failure:
        there.send(("failed", str(failure)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it was started by someone"
    parent.join()
    os._exit(_FAILED)
