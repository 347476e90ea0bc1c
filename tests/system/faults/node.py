"""A node of single processes that a test kills and starts again, and clients that go on meanwhile.

What lives here: starting, killing, waiting until all of it serves again. What must not: what must hold afterwards.
"""

import signal
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import psutil

from dovetail.validator.crash_points import VARIABLE
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY, SETTINGS
from tests.system.e2e.process import DEADLINE_S, Process, ProcessFailed
from tests.system.faults.client import Client
from tests.system.faults.load import MIXED, Kind, Load

_QUICK = {
    "DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS": "1",
    "DOVETAIL_LIMITS_PROCESSOR_LOST_BACK_OFF_MS_MAX": "10",
}


class Node:
    """``environment``: variables for all processes.

    ``first_point``: a crash point at which the first validator ends; ``on_crash`` starts another.
    """

    def __init__(
        self,
        networks: Networks,
        environment: Mapping[str, str] = MappingProxyType({}),
        first_point: str = "",
        on_crash: Callable[["Node"], None] = lambda node: None,
    ) -> None:
        self.network = networks(**_QUICK, **environment)
        made = self.network.run("genesis", "--data-dir", str(self.network.data))
        if made.code:
            raise ProcessFailed(f"dovetail genesis: exit code {made.code}: {made.err}")
        self._serving = threading.Event()
        self.rest = self._start_rest()
        self.processors = {handler: self.network.processor(handler) for handler in (SETTINGS, INTKEY)}
        self.clients: list[Client] = []
        self._starts = 0
        self.validator = self.start_validator({VARIABLE: first_point})
        if first_point:
            on_crash(self)
        self.wait_until_up()
        for process in self.processors.values():
            process.wait_logged("ready")
        self.transcript = self.network.transcript

    def start_validator(self, variables: dict[str, str] | None = None) -> Process:
        """Start it, with these variables more, and do not wait."""
        self._starts += 1
        kept = self.network.environment
        self.network.environment = kept | (variables or {})
        try:
            self.validator = self.network.validator(f"validator {self._starts}")
        finally:
            self.network.environment = kept
        return self.validator

    def wait_until_up(self) -> None:
        """Until validator and REST API serve."""
        self.validator.wait_logged("ready")
        self._wait_until_serving()

    def start_armed(self, point: str) -> None:
        """Start a validator that ends at a crash point, such as ``sealed:2``."""
        self.start_validator({VARIABLE: point})

    def wait_for_crash(self, label: str) -> None:
        """Until the validator has ended there; it may have served meanwhile, or not."""
        code = self.validator.wait()
        self._serving.clear()
        assert code == -signal.SIGKILL, f"the validator ended with {code}, not at {label}"
        assert self.validator.err[-1] == f"crash point {label}"

    def kill_validator(self) -> None:
        """SIGKILL, now."""
        self.validator.kill()
        self._serving.clear()

    def restart_validator(self, variables: dict[str, str] | None = None) -> None:
        """Start it again, and wait until it serves."""
        self.start_validator(variables)
        self.wait_until_up()

    def restart_rest(self) -> None:
        """SIGKILL of the REST API, and another in its place."""
        self.rest.kill()
        self.rest = self._start_rest()
        self._wait_until_serving()

    def kill_verifiers(self) -> int:
        """SIGKILL of every process that checks signatures; how many there were."""
        children = psutil.Process(self.validator.pid).children()
        found = [child for child in children if "dovetail.validator.admission.verifier_process" in child.cmdline()]
        for child in found:
            child.kill()
        return len(found)

    def restart_processor(self) -> None:
        """SIGKILL of intkey's supervisor and worker, and others in their place."""
        process = self.processors[INTKEY]
        for child in process.descendants():
            child.kill()
        process.kill()
        self.processors[INTKEY] = self.network.processor(INTKEY)
        self.processors[INTKEY].wait_logged("ready")

    def client(self, load: Load, kinds: Collection[Kind] = MIXED) -> Client:
        """A client that runs."""
        made = Client(self.network.rest_url, load, self._wait_until_serving, kinds)
        self.clients.append(made)
        made.start()
        return made

    def finish(self) -> None:
        """Every client hands in no more, and hears the end of all it handed in."""
        for client in self.clients:
            client.finish(DEADLINE_S * 2)

    def end(self) -> None:
        """End all of it in order: processors first, which take leave of a validator that still answers."""
        for process in (*self.processors.values(), self.rest, self.validator):
            process.request_end()
            process.wait()

    def _wait_until_serving(self) -> None:
        if not self._serving.wait(DEADLINE_S * 2):
            raise ProcessFailed("the node did not come to serve again")

    def _start_rest(self) -> Process:
        rest = self.network.rest_api()
        self._serving.clear()
        threading.Thread(target=self._watch, args=(rest,), name="watch", daemon=True).start()
        return rest

    def _watch(self, rest: Process) -> None:
        """Clients go on while the REST API says that it has its validator, and wait otherwise."""
        seen = 0
        while True:
            try:
                line = rest.wait_for_line(r"connected to the validator|lost the validator", after=seen)
            except ProcessFailed:
                if rest.running:
                    continue
                return
            seen = rest.lines.index(line, seen) + 1
            if line.logged["event"] == "connected to the validator":
                self._serving.set()
            else:
                self._serving.clear()
