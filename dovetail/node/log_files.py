"""Log files of bounded size, and the file of stack traces."""

import os
import sys
import traceback
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.home import home
from dovetail.common.output import printable, printable_lines
from dovetail.common.urls import shown_url

_TRACE_FILE_BYTES_MAX: Final = 1024 * 1024
_LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
_OLD_FILES_KEPT: Final = 3


class RotatingFile:
    """A log file of at most ``bytes_max`` bytes, with up to three older ones beside it (.1 is the youngest)."""

    def __init__(self, path: Path, bytes_max: int = _LOG_FILE_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._file = self._open()
        self._size = path.stat().st_size

    def write(self, content: bytes) -> None:
        """Append ``content``, to a new file if this one would exceed its bound. Raises OSError."""
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
        self._file.close()

    def _open(self) -> Any:
        # Unbuffered, so that the last lines of a process are in the file when somebody reads it.
        return open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def write_trace(error: BaseException) -> Path | None:
    """Append the stack trace of an unexpected exception to the user's log file. Returns its path; None on failure."""
    trace = printable_lines("".join(traceback.format_exception(error)))
    entry = f"{datetime.now(UTC).isoformat()} {printable(' '.join(map(shown_url, sys.argv)))}\n{trace}\n"
    try:
        path = home() / "logs" / "dovetail.log"
        make_private_dir(path.parent)
        with closing(RotatingFile(path, _TRACE_FILE_BYTES_MAX)) as file:
            file.write(entry.encode())
    except (OSError, Refused, RuntimeError):  # RuntimeError: the user has no home folder.
        return None
    return path
