"""Follows a page of the documentation as a reader does: writes its files, runs its commands, compares their output.

This module holds the blocks of a page, and the terminals of a reader. The contents of pages do not belong here.

A block's info string names its kind. ``sh`` is typed in the main terminal, ``sh NAME`` in the terminal of that name. A
program that keeps running blocks its terminal until ``# Ctrl-C``. ``text`` is output of the last ``sh`` block, in
order, with … for anything within a line. ``LANGUAGE FILE`` writes a file, ``LANGUAGE append FILE`` adds to it, ``diff
FILE`` changes it, ``LANGUAGE excerpt FILE`` quotes it. A command ends with exit code 0, or as ``# exit code N`` says.
"""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.system.e2e.network import ReservedPort
from tests.system.e2e.process import ROOT, Process

COMMAND_S_MAX: Final = 300
_URL: Final = "http://127.0.0.1:8080"
_STAYS: Final = re.compile(r"dovetail (up|processor|validator|rest-api)\b")


class Block(NamedTuple):
    """A fenced block."""

    language: str
    how: str
    name: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of docs/``page``, in order."""
    found = re.findall(
        r"^```(\w+)(?: (excerpt|append))?(?: (\S+))?\n(.*?)^```$",
        (ROOT / "docs" / page).read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return [Block(*block) for block in found]


class Reader:
    """A reader with terminals, a folder and a home of their own, and the output of the last commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = ReservedPort(), ReservedPort()
        validator, self._rest = (f"127.0.0.1:{port.number}" for port in self._ports)
        self.validator_url = f"tcp://{validator}"
        self._typed: dict[str, list[str]] = {}
        """Commands that changed the folder or environment of a terminal, by terminal."""
        self._running: dict[str, Process] = {}
        self._starting: list[str] = []
        self.said = ""
        self._transcript: list[str] = []
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DOVETAIL_", "PYTHON", "PIP_"))
        }
        kept.pop("NOTIFY_SOCKET", None)
        self.environment = kept | {
            "HOME": str(folder / "home"),
            "LOGNAME": "newcomer",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            # The terminal is wide enough for the rows of tables.
            "COLUMNS": "200",
            "DOVETAIL_LOG_FORMAT": "json",
            "DOVETAIL_VALIDATOR_BIND": self.validator_url,
            "DOVETAIL_PROCESSOR_CONNECT": self.validator_url,
            "DOVETAIL_REST_API_BIND": self._rest,
            "DOVETAIL_URL": f"http://{self._rest}",
            "DOVETAIL_VALIDATOR_VERIFIER_PROCESSES": "1",
        }
        (folder / "home").mkdir()
        (folder / "bin").mkdir()

    def install(self, name: str, program: str) -> None:
        """Put a script first on the search path."""
        (self.folder / "bin" / name).write_text(program)
        (self.folder / "bin" / name).chmod(0o755)

    def follow(self, block: Block, files: Path) -> None:
        """Do what ``block`` says; its files are under ``files``."""
        language, how, name, text = block
        file = files / name
        if language == "sh":
            self._type(text, name)
        elif language == "text":
            self._wait_until_ready()
            assert_said(self.said, text)
        elif language == "diff":
            file.write_text(_patched(file.read_text(), text))
        elif how == "excerpt":
            assert text in file.read_text(), f"{name} does not contain:\n{text}"
        else:
            assert name, f"neither a command nor a file:\n{text}"
            file.write_text((file.read_text() if how == "append" else "") + text)

    def _type(self, text: str, terminal: str) -> None:
        said_before = True
        for line in text.splitlines():
            command, _, code = line.partition("  # exit code ")
            assert command == "# Ctrl-C" or terminal not in self._running, f"a program runs where this is typed: {line}"
            if command == "# Ctrl-C":
                self._end(terminal)
            elif _STAYS.match(command) and not code:
                self._start(command, terminal)
            else:
                self._wait_until_ready()
                if said_before:
                    self.said, said_before = "", False
                self._run(command, int(code or 0), terminal)

    def _start(self, command: str, terminal: str) -> None:
        """Start a program, and wait until it is ready."""
        script = "; ".join([f"cd {self.folder}", *self._typed.get(terminal, ()), f"exec {command}"])
        self._running[terminal] = Process(command, ["bash", "-c", script], self.environment)
        self._transcript.append(f"$ {command} &")
        self._starting.append(terminal)

    def _end(self, terminal: str) -> None:
        self._wait_until_ready()
        process = self._running.pop(terminal)
        process.signal(signal.SIGINT)
        assert process.wait() == 130, self.transcript()
        process.close()

    def _wait_until_ready(self) -> None:
        while self._starting:
            process = self._running[self._starting[0]]
            # ``up`` reports its readiness as a line, and the parts report it as log entries.
            self.said = process.wait_for_line('^ready |"event": "ready"').text
            self._starting.pop(0)

    def _run(self, command: str, code: int, terminal: str) -> None:
        typed = self._typed.setdefault(terminal, [])
        done = subprocess.run(
            ["bash", "-c", "; ".join([f"cd {self.folder}", *typed, self.here(command)])],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
        )
        self._transcript.append(f"$ {command}\n{done.stdout}")
        assert done.returncode == code, self.transcript()
        self.said += done.stdout
        if command.startswith(("cd ", ". ", "export ")):
            typed.append(command)

    def here(self, command: str) -> str:
        """``command`` with the addresses of this test's node."""
        return command.replace(_URL, f"http://{self._rest}")

    def transcript(self) -> str:
        """All commands and their output."""
        return "\n".join([*self._transcript, *(f"=== {one.name}\n{one.text}" for one in self._running.values())])

    def close(self) -> None:
        # The newest first, so that processors can unregister at the validator.
        for process in reversed(self._running.values()):
            process.close()
        for port in self._ports:
            port.close()


def assert_said(said: str, shown: str) -> None:
    """Check that every line of ``shown`` is in ``said``, in this order; … stands for anything within a line."""
    lines = iter(said.splitlines())
    for wanted in shown.splitlines():
        matches = re.compile(".*".join(map(re.escape, wanted.split("…")))).fullmatch
        assert any(matches(line) for line in lines), f"not in the output: {wanted}\nwhich is:\n{said}"


def _patched(text: str, diff: str) -> str:
    """``text`` with the added lines of ``diff``, whose other lines must occur together exactly once."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    assert text.count(before) == 1, f"not there exactly once:\n{before}"
    return text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
