"""Logging of the processes, and the files that logs go to. What is logged is said where it happens.

What is logged may be anybody's: here it becomes text that neither steers a terminal nor passes for a line of its own.
"""

import logging
import os
import sys
import textwrap
import traceback
from collections.abc import MutableMapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.home import home
from dovetail.common.output import printable, printable_lines
from dovetail.common.urls import shown_url

if TYPE_CHECKING:
    from dovetail.node.log_lines import LogLines

_TRACE_FILE_BYTES_MAX: Final = 1024 * 1024
_LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
_OLD_FILES_KEPT: Final = 3
_TRACES: Final = ("exception", "stack")
_IDS: Final = ("transaction", "batch")
_ID_CHARACTERS_SHOWN: Final = 16


class LogFormat(StrEnum):
    """How a log line looks."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important line that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(log_format: LogFormat, level: LogLevel) -> "LogLines":
    """Send structlog's and the standard library's records to stderr: a line each, for people or as JSON.

    Each is written at once, unless a loop is run by what is returned.
    """
    import structlog

    from dovetail.node.log_lines import LogLines

    number = logging.getLevelNamesMapping()[level.upper()]
    stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (as long as the process); None where it is closed
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    renderers: list[Any]
    if log_format is LogFormat.JSON:
        renderers = [structlog.processors.JSONRenderer()]
    else:
        console = structlog.dev.ConsoleRenderer(
            colors=stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        renderers = [_shorten, _escape, console]
    lines = LogLines(stderr, [*shared, *renderers])
    structlog.configure(
        processors=[stamp, lines],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # First what a record was given beside its message (``extra``), so that nothing of it passes for ours.
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name, stamp, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    return lines


def _shorten(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Ids of 128 characters as people read them: their beginning."""
    for name in _IDS:
        value = event.get(name)
        if isinstance(value, str) and len(value) > _ID_CHARACTERS_SHOWN:
            event[name] = f"{value[:_ID_CHARACTERS_SHOWN]}…"
    return event


def _escape(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make every value of a record printable. The lines of traces stay lines, further in than any record begins."""
    for name, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if name in _TRACES:
            event[name] = textwrap.indent(printable_lines(text), "    ")
        elif not text.isprintable():
            event[name] = printable(text)
    return event


class RotatingFile:
    """An append-only log file of at most 10 MiB, with at most three older ones beside it (.1 is the youngest)."""

    def __init__(self, path: Path, bytes_max: int = _LOG_FILE_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._file = self._open()
        self._size = path.stat().st_size

    def write(self, content: bytes) -> None:
        """Append; a new file is begun first when this one would grow over its bound. Raises OSError."""
        if self._size and self._size + len(content) > self._bytes_max:
            self._file.close()
            for number in range(_OLD_FILES_KEPT - 1, 0, -1):
                older = self._old(number)
                if older.exists():
                    older.replace(self._old(number + 1))
            self.path.replace(self._old(1))
            self._file = self._open()
            self._size = 0
        self._file.write(content)
        self._size += len(content)

    def close(self) -> None:
        """No more writing."""
        self._file.close()

    def _open(self) -> Any:
        # Unbuffered: the last words of a process must be on disk when somebody looks for them.
        return open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def write_trace(error: BaseException) -> Path | None:
    """Append the stack trace of an unexpected exception to the user's log file, and say where that is.

    None when it cannot be written: this is the last thing said of an error, and must not raise another.
    """
    trace = printable_lines("".join(traceback.format_exception(error)))
    entry = f"{datetime.now(UTC).isoformat()} {printable(' '.join(map(shown_url, sys.argv)))}\n{trace}\n"
    try:
        path = home() / "logs" / "dovetail.log"
        make_private_dir(path.parent)
        file = RotatingFile(path, _TRACE_FILE_BYTES_MAX)
        try:
            file.write(entry.encode())
        finally:
            file.close()
    except (OSError, Refused, RuntimeError):  # RuntimeError: this user has no home folder.
        return None
    return path
