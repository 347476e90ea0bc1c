"""Configures the logging of a process: format, level, and escapes.

Log values may come from anybody. Escapes keep them from controlling a terminal and from looking like log lines.
"""

import logging
import os
import sys
import textwrap
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Final

import structlog

from dovetail import streams
from dovetail.common.output import printable, printable_lines
from dovetail.node.log_lines import LogLines

_TRACES: Final = ("exception", "stack")
_IDS: Final = ("transaction", "batch")
_ID_CHARACTERS_SHOWN: Final = 16


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(log_format: LogFormat, level: LogLevel) -> LogLines:
    """Write the records of structlog and of the standard library to stderr, one line each.

    Lines are written at once, except beside an event loop that runs in ``behind_loop`` of the result. From now on
    nothing in this process waits for a reader of stdout or stderr.
    """
    streams.unblock()
    number = logging.getLevelNamesMapping()[level.upper()]
    stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (stays open); stderr is None if closed
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
    streams.tell_as(lines.dropped)
    structlog.configure(
        processors=[stamp, lines],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # ExtraAdder first, so that a record's ``extra`` cannot replace a value that we add.
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name, stamp, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    return lines


def _shorten(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Shorten ids of 128 characters to their beginning."""
    for name in _IDS:
        value = event.get(name)
        if isinstance(value, str) and len(value) > _ID_CHARACTERS_SHOWN:
            event[name] = f"{value[:_ID_CHARACTERS_SHOWN]}…"
    return event


def _escape(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make every value of a record printable. Traces keep their lines, indented so that none looks like a record."""
    for name, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if name in _TRACES:
            event[name] = textwrap.indent(printable_lines(text), "    ")
        elif not text.isprintable():
            event[name] = printable(text)
    return event
