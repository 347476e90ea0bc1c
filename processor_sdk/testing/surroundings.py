"""The environment of the second run: a shifted clock, and a hook that refuses network, files, processes, threads.

Used only in the process of the second run. ``interpreters`` sets its hash seed, time zone and environment.
"""

import ctypes
import datetime
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_FORBIDDEN: Final = {
    "socket.": "uses the network",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.exec": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.spawn": "starts a process",
    "threading.Thread.start": "starts a thread",
    "open": "opens a file",
    "sqlite3.connect": "opens a database",
    "os.listdir": "reads a folder",
    "os.scandir": "reads a folder",
    "os.mkdir": "changes files",
    "os.remove": "changes files",
    "os.rename": "changes files",
    "os.rmdir": "changes files",
}
"""Prefixes of audit events, and the action that raises them. Python itself raises no event for a thread."""

_ALLOWED_IN: Final = ("importlib._bootstrap", "importlib._bootstrap_external", "zipimport", "linecache", "traceback")
"""Modules that may open files: imports inside an apply, and the lines of a traceback that it logs."""


class Forbidden(RuntimeError):
    """An apply used a forbidden resource."""


class Watch:
    """While ``active``, refuses forbidden actions and adds a sentence on each to ``seen``."""

    def __init__(self) -> None:
        """Installs an audit hook, which stays until the process ends."""
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self._on_event)
        true_start = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            sys.audit("threading.Thread.start", thread.name)
            true_start(thread)

        setattr(threading.Thread, "start", start)  # noqa: B010

    def _on_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.active:
            return
        for beginning, does in _FORBIDDEN.items():
            if event.startswith(beginning):
                frame = sys._getframe(1)
                if not _is_allowed(frame):
                    shown = ", ".join(repr(argument)[:60] for argument in arguments[:2])
                    self.seen.append(f"it {does}: {event}({shown}) at {_place(frame)}")
                    raise Forbidden(self.seen[-1])
                return


def _is_allowed(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in _ALLOWED_IN:
            return True
        frame = frame.f_back
    return False


def _place(frame: FrameType | None) -> str:
    """The innermost line outside the standard library and this module."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name != __name__ and name.partition(".")[0] not in sys.stdlib_module_names:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"


def shift_clock(seconds: int) -> None:
    """Move every clock of ``time``, ``datetime`` and ``os.times`` ahead by ``seconds``.

    Call it before handlers are loaded: code that imported a function of ``time`` or ``os`` before keeps the true one.
    """
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"):
        setattr(time, name, _ahead(getattr(time, name), seconds))
        setattr(time, f"{name}_ns", _ahead(getattr(time, f"{name}_ns"), seconds * 1_000_000_000))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    true_strftime, now, true_times = time.strftime, time.localtime, os.times
    setattr(time, "strftime", lambda form, *at: true_strftime(form, *(at or (now(),))))  # noqa: B010
    setattr(os, "times", lambda: os.times_result(value + seconds for value in true_times()))  # noqa: B010
    _set_methods(datetime.date, today=lambda cls: cls.fromtimestamp(time.time()))
    _set_methods(
        datetime.datetime,
        now=lambda cls, tz=None: cls.fromtimestamp(time.time(), tz),
        today=lambda cls: cls.fromtimestamp(time.time()),
        utcnow=lambda cls: cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None),
    )


def _ahead(clock: Callable[..., Any], more: int) -> Callable[..., Any]:
    return lambda *which: clock(*which) + more


def _of_now(convert: Callable[[float], Any]) -> Callable[..., Any]:
    """``convert`` with the shifted time as its default argument."""
    return lambda at=None: convert(time.time() if at is None else at)


def _set_methods(kind: type, **methods: Callable[..., Any]) -> None:
    """Replace class methods of ``kind``, a class written in C.

    A substitute class would be noticed by subclasses, pickle and comparisons of types.
    """
    [attributes] = gc.get_referents(kind.__dict__)
    attributes.update({name: classmethod(method) for name, method in methods.items()})
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
