"""Follows docs/tutorial/first-family.md as a newcomer does: writes its files and runs its commands, in order.

Environments, installations from the copied sources, nodes and processors are real. Replaced are the package index, by
the environment of the tests, and ``sudo``, ``systemctl``, /opt and /etc, because a test must not change the machine.
"""

import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.e2e.page import Reader, blocks
from tests.system.e2e.process import ROOT

SOURCES = ("protos", "processor_sdk", "families", "dovetail")

# A new environment gets the packages of the tests. A reader downloads these packages from an index.
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


class Newcomer(Reader):
    """A reader with the sources, on a machine that must not be changed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.environment |= {
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # With 0, pip builds without isolation.
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        (folder / "etc/systemd/system").mkdir(parents=True)
        for source in SOURCES:
            shutil.copytree(ROOT / source, folder / "dovetail" / source, ignore=shutil.ignore_patterns("__pycache__"))
        for source in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / source, folder / "dovetail")
        values = {
            "python": sys.executable,
            "sites": " ".join(f"'{sysconfig.get_path(kind)}'" for kind in ("purelib", "platlib")),
            "programs": folder / "bin",
            "folder": str(folder),
            "validator": self.validator_url,
            "notified": str(folder / "notified"),
        }
        for name, text in {"python3": PYTHON3, "pytest": PYTEST, "sudo": SUDO, "systemctl": SYSTEMCTL}.items():
            self.install(name, text.format(**values))

    @property
    def project(self) -> Path:
        return self.folder / "tickets"

    def here(self, command: str) -> str:
        moved = super().here(command)
        return moved.replace(" /opt/", f" {self.folder}/opt/").replace(" /etc/", f" {self.folder}/etc/")

    def close(self) -> None:
        pid_file = self.folder / "tickets.pid"
        if pid_file.exists():
            daemon = psutil.Process(int(pid_file.read_text()))
            daemon.terminate()
            daemon.wait(60)
        super().close()


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
    for block in blocks("tutorial/first-family.md"):
        newcomer.follow(block, newcomer.project)
    unit = newcomer.project / "deploy" / "tickets.service"
    assert "Type=notify" in unit.read_text()
    with capsys.disabled():
        print(f"\ndocs/tutorial/first-family.md, followed: its commands took {time.monotonic() - started:.0f} s")
