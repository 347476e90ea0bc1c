"""Log files of bounded size that outlive removal and failures, and the file of stack traces."""

import io
import os
import sys
import traceback
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dovetail.common.errors import Refused
from dovetail.common.files import make_private_dir
from dovetail.common.home import home
from dovetail.common.output import printable, printable_lines
from dovetail.common.urls import shown_url

_TRACE_FILE_BYTES_MAX: Final = 1024 * 1024
_LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
_OLD_FILES_KEPT: Final = 3


class RotatingFile:
    """A log file of at most ``bytes_max`` bytes, with up to three older ones beside it (.1 is the youngest).

    After any failure the next write begins anew, so that a full disk or a lack of descriptors ends no log for ever.
    """

    def __init__(self, path: Path, bytes_max: int = _LOG_FILE_BYTES_MAX) -> None:
        """Raises OSError."""
        self.path = path
        self._bytes_max = bytes_max
        self._file: io.FileIO | None = None
        self._opened()

    def write(self, content: bytes | memoryview) -> int:
        """Append a beginning of ``content``, to a new file if this one would exceed its bound. Raises OSError.

        Returns how many bytes were written: a full disk may take only some.
        """
        file = self._opened()
        size = os.fstat(file.fileno()).st_size
        if size and size + len(content) > self._bytes_max:
            self.close()
            self._make_room()
            file = self._opened()
        return file.write(content)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _opened(self) -> io.FileIO:
        """The file at ``path``: anew if somebody has removed or renamed it."""
        if self._file is not None and not self._is_at_path(self._file):
            self.close()
        if self._file is None:
            with suppress(FileExistsError):
                self.path.parent.mkdir(mode=0o700)
            # Unbuffered, so that the last lines of a process are in the file when somebody reads it.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = open(descriptor, "ab", buffering=0)  # noqa: SIM115 (stays open)
        return self._file

    def _is_at_path(self, file: io.FileIO) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(file.fileno()))
        except OSError:
            return False

    def _make_room(self) -> None:
        """Rename the files up to the first free number, so that a repeated attempt moves none out that is kept."""
        free = next((number for number in range(1, _OLD_FILES_KEPT) if not self._old(number).exists()), _OLD_FILES_KEPT)
        for number in range(free, 1, -1):
            self._old(number - 1).replace(self._old(number))
        self.path.replace(self._old(1))

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
            written = 0
            content = entry.encode()
            while written < len(content):
                written += file.write(content[written:])
    except (OSError, Refused, RuntimeError):  # RuntimeError: the user has no home folder.
        return None
    return path
