"""Starts a process, keeps its output, and waits for lines of the output.

The meaning of lines, and the processes of a node, do not belong here. Every wait ends with a line, with the end of the
process, or at a deadline that only a failure reaches. Nothing waits for a fixed time.
"""

import contextlib
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

ROOT = Path(__file__).parents[3]
DEADLINE_S = 30.0
_AGAIN_S = 0.1


class ProcessFailed(Exception):
    """A process ended or continued unexpectedly.

    It is not an AssertionError, because a test that expects a failure would hide an AssertionError.
    """


class Line(NamedTuple):
    """One line that a process wrote; ``stream`` is ``out`` or ``err``."""

    stream: str
    text: str

    @property
    def logged(self) -> dict[str, Any]:
        """The members of a JSON log line, whatever stands before it; empty for any other line."""
        brace = self.text.find("{")
        try:
            return dict(json.loads(self.text[brace:])) if brace >= 0 else {}
        except ValueError:
            return {}


class Process:
    """One started process in a session of its own. A thread for each output stream keeps every line."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._open = 2
        self._readers = [
            threading.Thread(target=self._read, args=stream, daemon=True)
            for stream in (("out", self._process.stdout), ("err", self._process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def out(self) -> list[str]:
        """The lines on standard output so far."""
        return [line.text for line in list(self.lines) if line.stream == "out"]

    @property
    def err(self) -> list[str]:
        """The lines on standard error so far."""
        return [line.text for line in list(self.lines) if line.stream == "err"]

    @property
    def text(self) -> str:
        """Everything that the process wrote so far, in the order of arrival."""
        return "\n".join(f"{line.stream} {line.text}" for line in list(self.lines))

    def wait_for_line(self, pattern: str, *, after: int = 0) -> Line:
        """The first line, from index ``after`` on, in which ``pattern`` is found."""
        return self.wait_for_lines(pattern, 1, after=after)[0]

    def wait_for_lines(self, pattern: str, count: int, *, after: int = 0) -> list[Line]:
        """The first ``count`` lines, from index ``after`` on, in which ``pattern`` is found."""
        found = re.compile(pattern)
        return self._wait(lambda line: found.search(line.text) is not None, f"line /{pattern}/", after, count)

    def wait_logged(self, event: str, *, after: int = 0, **members: object) -> Line:
        """The first JSON log line of the event whose named members have these values."""
        wanted = {"event": event, **members}
        return self._wait(lambda line: wanted.items() <= line.logged.items(), f"log line {wanted}", after)[0]

    def count_logged(self, event: str, **members: object) -> int:
        """Count the JSON log lines so far that ``wait_logged`` would accept."""
        wanted = {"event": event, **members}
        return sum(wanted.items() <= line.logged.items() for line in list(self.lines))

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self._process.kill()
        self.wait()

    def request_end(self) -> None:
        """Send SIGTERM without waiting."""
        self._process.terminate()

    def terminate(self) -> int:
        """Send SIGTERM, and wait for the end. Returns the exit code."""
        self.request_end()
        return self.wait()

    def end_at_once(self) -> int:
        """Send SIGTERM repeatedly, because signals within half a second count as one. Returns the exit code."""
        for _ in range(int(DEADLINE_S / _AGAIN_S)):
            self.request_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_AGAIN_S)
                break
        return self.wait()

    def wait(self) -> int:
        """Wait for the end. Returns the exit code, or minus the signal that ended the process."""
        try:
            code = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} has not ended within {DEADLINE_S:g} s") from None
        for reader in self._readers:
            reader.join(DEADLINE_S)
        return code

    def close(self) -> None:
        """End the process and everything that it started. A process that does not end in time is killed."""
        descendants = self.descendants()
        self.request_end()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        # An ended descendant may be a zombie until its new parent reaps it.
        running = [process for process in descendants if not _has_ended(process)]
        _, alive = psutil.wait_procs(running, timeout=DEADLINE_S)
        for straggler in alive:
            straggler.kill()
        self.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def descendants(self) -> list[psutil.Process]:
        """The processes that this process started, directly or indirectly."""
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def part(self, name: str) -> psutil.Process:
        """The child of ``up`` that runs the part ``name`` (a command, or a word of its command line)."""
        for child in psutil.Process(self.pid).children():
            if any(name in word for word in child.cmdline()[3:5]):
                return child
        raise ProcessFailed(f"{self.name} runs no part {name}")

    def _wait(self, matches: Callable[[Line], bool], what: str, after: int, count: int = 1) -> list[Line]:
        found: list[Line] = []
        seen = after

        def settled() -> bool:
            nonlocal seen
            found.extend(line for line in self.lines[seen:] if matches(line))
            seen = max(seen, len(self.lines))
            return len(found) >= count or not self._open

        with self._changed:
            in_time = self._changed.wait_for(settled, DEADLINE_S)
        if len(found) < count:
            when = "before its end" if in_time else f"in {DEADLINE_S:g} s"
            raise ProcessFailed(f"{self.name}: {len(found)} of {count} times {what} {when}")
        return found[:count]

    def _read(self, stream: str, source: IO[str]) -> None:
        for text in source:
            with self._changed:
                self.lines.append(Line(stream, text.rstrip("\n")))
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
