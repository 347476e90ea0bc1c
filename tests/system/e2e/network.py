"""A node of real processes with its own folder and ports.

This module starts the processes of a node, and sets their addresses and environment. Batches, protocols and rules of
the ledger do not belong here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.testing.running import ReservedPort as ReservedPort
from tests.system.e2e.process import DEADLINE_S, ROOT, Process, ProcessFailed

INTKEY = "families.intkey.handler:IntkeyHandler"

_TRANSCRIPT_CHARACTERS = 20_000


class Ran(NamedTuple):
    """The result of a command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Network:
    """One node's folder, addresses and processes. ``environment``: variables for all of its processes."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.home = folder / "home"
        self.data = folder / "data"
        self._validator_port, self._rest_port = ReservedPort(), ReservedPort()
        self.validator_url = f"tcp://127.0.0.1:{self._validator_port.number}"
        self.rest_bind = f"127.0.0.1:{self._rest_port.number}"
        self.rest_url = f"http://{self.rest_bind}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_")}
        self.environment = kept | {
            "DOVETAIL_HOME": str(self.home),
            "DOVETAIL_LOG_FORMAT": "json",
            "LOGNAME": "tester",
            # This number of workers is enough for a test's load, and starts faster than one worker for each core.
            "DOVETAIL_VALIDATOR_VERIFIER_PROCESSES": "1",
            **environment,
        }
        self.environment.pop("NOTIFY_SOCKET", None)
        self.processes: list[Process] = []
        self._ran: list[str] = []

    def start(self, *words: str, name: str = "") -> Process:
        """Start ``dovetail WORDS`` and leave it running."""
        process = Process(name or words[0], [sys.executable, "-m", "dovetail", *words], self.environment)
        self.processes.append(process)
        return process

    def run(self, *words: str) -> Ran:
        """Run ``dovetail WORDS`` to its end."""
        return self.run_command([sys.executable, "-m", "dovetail", *words])

    def run_command(self, command: list[str] | str) -> Ran:
        """Run any command line (a string: by the shell) to its end."""
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 2,
        )
        shown = command if isinstance(command, str) else " ".join(command[1:])
        self._ran.append(f"$ {shown}\n{done.stdout}{done.stderr}exit code {done.returncode}")
        return Ran(done.returncode, done.stdout, done.stderr)

    def call(self, *words: str) -> Ran:
        """``run`` against this node's REST API. The command must succeed."""
        ran = self.run(*words, "--url", self.rest_url)
        assert ran.code == 0, f"dovetail {' '.join(words)}: exit code {ran.code}: {ran.err}"
        return ran

    @property
    def up_words(self) -> tuple[str, ...]:
        """``up`` with this node's folder and addresses."""
        return ("up", "--data-dir", str(self.data), "--validator", self.validator_url, "--rest", self.rest_bind)

    def up(self, *words: str) -> Process:
        """``dovetail up --logs`` with this node's folder and addresses, ready."""
        process = self.start(*self.up_words, "--logs", *words)
        process.wait_for_line(r"^ready ")
        return process

    def validator(self, name: str = "validator") -> Process:
        """Start a validator alone."""
        words = ("validator", "--data-dir", str(self.data), "--bind", self.validator_url)
        return self.start(*words, name=name)

    def rest_api(self) -> Process:
        return self.start("rest-api", "--bind", self.rest_bind, "--validator", self.validator_url)

    def processor(self, *handlers: str) -> Process:
        name = handlers[0].rpartition(":")[2]
        return self.start("processor", *handlers, "--connect", self.validator_url, name=name)

    def parts(self, *handlers: str) -> dict[str, Process]:
        """Make the genesis batches, then start validator, REST API and processors of ``handlers``.

        Returns when all are ready.
        """
        made = self.run("genesis", "--data-dir", str(self.data))
        if made.code:
            raise ProcessFailed(f"dovetail genesis: exit code {made.code}: {made.err}")
        started = {"validator": self.validator(), "rest-api": self.rest_api()}
        started |= {handler: self.processor(handler) for handler in handlers}
        for process in started.values():
            process.wait_logged("ready")
        return started

    def transcript(self) -> str:
        """The newest output of all processes."""
        texts = [*self._ran, *(f"=== {process.name}\n{process.text}" for process in self.processes)]
        return "\n".join(text[-_TRANSCRIPT_CHARACTERS:] for text in texts)

    def close(self) -> None:
        # The newest processes end first, so that processors can unregister at the validator.
        for process in reversed(self.processes):
            process.close()
        self._validator_port.close()
        self._rest_port.close()
