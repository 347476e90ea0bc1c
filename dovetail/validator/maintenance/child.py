"""Runs work in a child process: LMDB may kill a process on a damaged page, and the parent must report that."""

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
    """The progress of a part of the work: ``done`` of ``total`` units of ``title``."""

    title: str
    done: int
    total: int


OnStep = Callable[[Step], None]


class Ended(Exception):
    """A signal ended the process before its work was done; the text names the signal."""


def run_in_child(on_step: OnStep, work: Callable[..., T], *arguments: Any) -> T:
    """Call ``work(on_step, *arguments)``, a function of a module, in a child process, and return its result.

    Raises Ended, and StorageFailed if ``work`` raised it or an OSError.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    # The child's stderr: a message of the C library or a traceback, shown if nothing better is known.
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
                    on_step(value)
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
    # A terminal sends Ctrl-C to every process; only the parent acts on it.
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
