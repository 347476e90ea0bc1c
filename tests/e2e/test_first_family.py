"""docs/first-family.md, followed as a newcomer would: its commands run, its files written, in the order of the page.

Real: environments, installations from the copied sources, nodes, processors. Stood in for: the package index, by the
environment that runs the tests; and, where a test must not change the machine, ``sudo``, ``systemctl`` and the folders
/opt and /etc.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.network import ReservedPort
from tests.e2e.process import ROOT, Process

BLOCKS = re.findall(
    r"^```(\w+)(?: (excerpt|append))?(?: (\S+))?\n(.*?)^```$",
    (ROOT / "docs" / "first-family.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)
SOURCES = ("protos", "ledger", "processor_sdk", "families", "validator", "rest_api", "dovetail")
COMMAND_S_MAX = 300

# A new environment finds what the tests have, where the page's reader has an index to download from.
PYTHON3 = """#!/bin/sh
"{python}" "$@" || exit
for site in "$3"/lib/python*/site-packages; do printf '%s\\n' {sites} > "$site/index.pth"; done
"""
PYTEST = """#!/bin/sh
exec python -m pytest -p no:cacheprovider "$@"
"""
SUDO = """#!/bin/sh
PATH="{programs}:$PATH" exec "$@"
"""
SYSTEMCTL = """#!{python}
import os, re, shlex, socket, subprocess, sys
from pathlib import Path

folder, words = Path({folder!r}), sys.argv[1:]
pid_file = folder / "tickets.pid"
if words == ["enable", "--now", "tickets"]:
    unit = (folder / "etc/systemd/system/tickets.service").read_text()
    command = shlex.split(re.search("(?m)^ExecStart=(.*)$", unit)[1])
    command = [str(folder) + command[0], *command[1:]]
    command[command.index("tcp://127.0.0.1:4004")] = {validator!r}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified, open(folder / "tickets.log", "wb") as log:
        notified.bind({notified!r})
        notified.settimeout(120)
        environment = {{"NOTIFY_SOCKET": {notified!r}, "PATH": "/usr/bin:/bin"}}
        daemon = subprocess.Popen(command, cwd="/", env=environment, stdout=log, stderr=log, start_new_session=True)
        pid_file.write_text(str(daemon.pid))
        while b"READY=1" not in notified.recv(4096).split(b"\\n"):
            pass
elif words == ["is-active", "tickets"]:
    os.kill(int(pid_file.read_text()), 0)
    print("active")
elif words != ["daemon-reload"]:
    sys.exit(f"systemctl {{words}}")
"""


class Newcomer:
    """Whoever follows the page: two terminals, and what the last block of commands said."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = ReservedPort(), ReservedPort()
        validator, rest = (f"127.0.0.1:{port.number}" for port in self._ports)
        self._terminals = [[f"cd {folder}"], [f"cd {folder}"]]
        self._node: Process | None = None
        self.said = ""
        self._transcript: list[str] = []
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DOVETAIL_", "PYTHON", "PIP_"))
        }
        self._environment = kept | {
            "HOME": str(folder / "home"),
            "LOGNAME": "newcomer",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads "no" as: without isolation.
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "DOVETAIL_VALIDATOR_BIND": f"tcp://{validator}",
            "DOVETAIL_REST_API_BIND": rest,
            "DOVETAIL_URL": f"http://{rest}",
            "DOVETAIL_VALIDATOR_VERIFIER_PROCESSES": "1",
        }
        (folder / "home").mkdir()
        (folder / "etc/systemd/system").mkdir(parents=True)
        for source in SOURCES:
            shutil.copytree(ROOT / source, folder / "dovetail" / source, ignore=shutil.ignore_patterns("__pycache__"))
        for source in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / source, folder / "dovetail")
        sites = " ".join(f"'{sysconfig.get_path(kind)}'" for kind in ("purelib", "platlib"))
        values = {
            "python": sys.executable,
            "sites": sites,
            "programs": folder / "bin",
            "folder": str(folder),
            "validator": f"tcp://{validator}",
            "notified": str(folder / "notified"),
        }
        (folder / "bin").mkdir()
        for name, text in {"python3": PYTHON3, "pytest": PYTEST, "sudo": SUDO, "systemctl": SYSTEMCTL}.items():
            (folder / "bin" / name).write_text(text.format(**values))
            (folder / "bin" / name).chmod(0o755)

    @property
    def project(self) -> Path:
        return self._folder / "tickets"

    def type(self, block: str) -> None:
        """The lines of one block, in the terminal where the page is; each must end as the page says."""
        self.said = ""
        for line in block.splitlines():
            command, _, code = line.partition("  # exit code ")
            if command.startswith("dovetail up") and not code:
                self._start_node(command)
            else:
                self._run(command, int(code or 0))

    def _start_node(self, command: str) -> None:
        if self._node is not None:
            self._node.signal(signal.SIGINT)
            assert self._node.wait() == 130
            self._node.close()
        script = "; ".join([*self._terminals[0], f"exec {command}"])
        self._node = Process(command, ["bash", "-c", script], self._environment)
        self.said = self._node.wait_for_line("^ready ").text

    def _run(self, command: str, code: int) -> None:
        terminal = self._terminals[0 if self._node is None else 1]
        here = command.replace(" /opt/", f" {self._folder}/opt/").replace(" /etc/", f" {self._folder}/etc/")
        done = subprocess.run(
            ["bash", "-c", "; ".join([*terminal, here])],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
        )
        self._transcript.append(f"$ {command}\n{done.stdout}")
        assert done.returncode == code, self.transcript()
        self.said += done.stdout
        if command.startswith(("cd ", ". ")):
            terminal.append(command)

    def transcript(self) -> str:
        return "\n".join(self._transcript) + (self._node.text if self._node else "")

    def close(self) -> None:
        pid_file = self._folder / "tickets.pid"
        if pid_file.exists():
            daemon = psutil.Process(int(pid_file.read_text()))
            daemon.terminate()
            daemon.wait(60)
        if self._node is not None:
            self._node.close()
        for port in self._ports:
            port.close()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    made = Newcomer(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(900)
def test_the_page_can_be_followed(newcomer: Newcomer, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    for language, how, name, text in BLOCKS:
        file = newcomer.project / name
        if language == "sh":
            newcomer.type(text)
        elif language == "text":
            assert_said(newcomer.said, text)
        elif how == "excerpt":
            assert text in file.read_text(), f"{name} has not:\n{text}"
        elif how == "append":
            file.write_text(file.read_text() + text)
        else:
            assert language == "diff", text
            file.write_text(patched(file.read_text(), text))
    unit = newcomer.project / "deploy" / "tickets.service"
    assert "Type=notify" in unit.read_text()
    with capsys.disabled():
        print(f"\ndocs/first-family.md, followed: its commands took {time.monotonic() - started:.0f} s")


def assert_said(said: str, shown: str) -> None:
    """Every line of ``shown`` is one of ``said``, in this order; … stands for anything within a line."""
    lines = iter(said.splitlines())
    for wanted in shown.splitlines():
        matches = re.compile(".*".join(map(re.escape, wanted.split("…")))).fullmatch
        assert any(matches(line) for line in lines), f"not said: {wanted}\nbut:\n{said}"


def patched(text: str, diff: str) -> str:
    """``text`` with the added lines of ``diff``, whose other lines stand in it once, together."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    assert text.count(before) == 1, f"not there once:\n{before}"
    return text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
