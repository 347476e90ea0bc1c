"""Builds and controls the library ``shim.c``, which stands between a process and its disk and clock.

This module handles the library and the shared file with its instructions. Stores and nodes do not belong here.
"""

import atexit
import errno
import functools
import mmap
import shutil
import struct
import subprocess
import tempfile
from enum import IntFlag
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")

_FIELDS: Final = ("kinds", "first", "times", "error", "part", "delay_us", "counted", "failed", "lost", "clock_s")
_NUMBER: Final = struct.Struct("=q")
FOR_EVER: Final = 2**40


class Calls(IntFlag):
    """Kinds of calls on the store's file."""

    WRITES = 1
    """Writes, except those to the head pages. Head pages exist already, so a full disk accepts writes to them."""

    SYNCS = 2
    TRUNCATES = 4
    HEADS = 8
    """Writes that sync themselves, as LMDB writes its head pages."""


class NoShim(Exception):
    """This system cannot build or load the library; the text says why."""


@functools.cache
def library() -> Path:
    """The built library. Raises NoShim."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoShim("there is no C compiler (cc, gcc)")
    folder = tempfile.TemporaryDirectory(prefix="dovetail-shim-")
    atexit.register(folder.cleanup)
    built = Path(folder.name) / "shim.so"
    done = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoShim(f"{compiler} does not build {SOURCE.name}: {done.stderr[-300:]}")
    return built


class Shim:
    """The shared file at ``path``, made if absent, for all processes that get ``environment``."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        self._path = path
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def close(self) -> None:
        self._shared.close()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that loads the library. Raises NoShim."""
        return {"LD_PRELOAD": str(library()), "FAULTS_CONTROL": str(self._path)}

    def fail(
        self, kinds: Calls, number: int = errno.ENOSPC, *, first: int = 1, times: int = FOR_EVER, part: int = 0
    ) -> None:
        """Count calls of these kinds from now on. From call number ``first`` on, let ``times`` calls fail.

        ``number``: the errno. With ``part``, a failing write succeeds in part: it writes one of so many parts, and
        reports that.
        """
        self._put("first", 0)
        for name, value in (("kinds", kinds), ("times", times), ("error", number), ("part", part)):
            self._put(name, value)
        self._put("counted", 0)
        self._put("failed", 0)
        self._put("first", first)

    def heal(self) -> None:
        """Let no further calls fail. Counting continues."""
        self._put("first", 0)

    def slow_down(self, delay_us: int) -> None:
        """Delay every write and sync by so much."""
        self._put("delay_us", delay_us)

    def step_clock(self, seconds: int) -> None:
        """Shift the wall clock by so much."""
        self._put("clock_s", seconds)

    @property
    def counted(self) -> int:
        """The number of calls since ``fail``, of the kinds that ``fail`` named."""
        return self._get("counted")

    @property
    def failed(self) -> int:
        """The number of calls that were made to fail since ``fail``."""
        return self._get("failed")

    def _put(self, name: str, value: int) -> None:
        _NUMBER.pack_into(self._shared, _FIELDS.index(name) * _NUMBER.size, value)

    def _get(self, name: str) -> int:
        value: int = _NUMBER.unpack_from(self._shared, _FIELDS.index(name) * _NUMBER.size)[0]
        return value
