"""What is different where an apply runs the second time, and what is forbidden there. For that process alone.

A shifted clock, and an audit hook that refuses network, files, processes and threads. Hash seed, time zone and
environment are set by whoever starts the process.
"""

import datetime
import sys
import threading
import time
from collections.abc import Callable
from datetime import date as true_date
from datetime import datetime as true_datetime
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
"""Beginnings of audit events, and what an apply does that raises one. Python itself raises none for a thread."""

_ALLOWED_IN: Final = ("importlib._bootstrap", "importlib._bootstrap_external", "zipimport", "linecache")
"""Modules that may open files: imports inside an apply, and the lines of a traceback that it logs."""


class Forbidden(RuntimeError):
    """An apply did what none may do."""


class Watch:
    """While ``active``, refuses what an apply must not do and keeps a sentence on each in ``seen``."""

    def __init__(self) -> None:
        """Cannot be undone: an audit hook stays as long as its process."""
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
    """The innermost line that is neither the standard library's nor this module's."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name != __name__ and name.partition(".")[0] not in sys.stdlib_module_names:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"


def shift_clock(seconds: int) -> None:
    """From now on every clock of ``time`` and ``datetime`` is so many seconds ahead.

    Whoever took a function or class out of these modules before keeps the true one: call it before handlers are loaded.
    """
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, _ahead(getattr(time, name), seconds))
        setattr(time, f"{name}_ns", _ahead(getattr(time, f"{name}_ns"), seconds * 1_000_000_000))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    true_strftime, now = time.strftime, time.localtime
    setattr(time, "strftime", lambda form, *at: true_strftime(form, *(at or (now(),))))  # noqa: B010
    _shift_datetime(datetime.timedelta(seconds=seconds))


def _ahead(clock: Callable[[], Any], more: int) -> Callable[[], Any]:
    return lambda: clock() + more


def _of_now(convert: Callable[[float], Any]) -> Callable[..., Any]:
    """``convert``, which means the shifted now where it is given no time."""
    return lambda at=None: convert(time.time() if at is None else at)


def _shift_datetime(more: datetime.timedelta) -> None:
    class SameKind(type):
        """Every true datetime or date is an instance of its shifted class: nothing else may look different."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, cls.__mro__[1])

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, cls.__mro__[1])

    class ShiftedDatetime(true_datetime, metaclass=SameKind):
        def __new__(cls, *arguments: Any, **named: Any) -> Any:
            return true_datetime(*arguments, **named)

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return true_datetime.now(tz) + more

        @classmethod
        def today(cls) -> Any:
            return true_datetime.now() + more

        @classmethod
        def utcnow(cls) -> Any:
            return true_datetime.now(datetime.UTC).replace(tzinfo=None) + more

    class ShiftedDate(true_date, metaclass=SameKind):
        def __new__(cls, *arguments: Any, **named: Any) -> Any:
            return true_date(*arguments, **named)

        @classmethod
        def today(cls) -> Any:
            # Versions of Python that ask time.time for it are ahead already; twice is no less different.
            return true_date.today() + more

    setattr(datetime, "datetime", ShiftedDatetime)  # noqa: B010
    setattr(datetime, "date", ShiftedDate)  # noqa: B010
