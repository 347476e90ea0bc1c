"""A node of separate processes that a test kills and restarts, with clients that continue meanwhile.

This module starts and kills its processes, and waits until the node serves again. Checks of the result do not belong
here.
"""

import signal
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import psutil

from dovetail.validator.crash_points import VARIABLE
from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY
from tests.system.e2e.process import DEADLINE_S, Process, ProcessFailed
from tests.system.faults.client import Client
from tests.system.faults.load import MIXED, Kind, Load

_QUICK = {"DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS": "1", "DOVETAIL_LIMITS_PROCESSOR_LOST_BACK_OFF_MS_MAX": "10"}


class Node:
    """``environment``: variables for all processes.

    ``first_point``: the crash point of the first validator; ``on_crash`` starts another.
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
        self.processors = {INTKEY: self.network.processor(INTKEY)}
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
        """Start the validator with these additional variables, and do not wait."""
        self._starts += 1
        kept = self.network.environment
        self.network.environment = kept | (variables or {})
        try:
            self.validator = self.network.validator(f"validator {self._starts}")
        finally:
            self.network.environment = kept
        return self.validator

    def wait_until_up(self) -> None:
        """Wait until validator and REST API serve."""
        self.validator.wait_logged("ready")
        self._wait_until_serving()

    def start_armed(self, point: str) -> None:
        """Start a validator that ends at a crash point, such as ``sealed:2``."""
        self.start_validator({VARIABLE: point})

    def wait_for_crash(self, label: str) -> None:
        """Wait until the validator has ended at its crash point. It may have served before."""
        code = self.validator.wait()
        self._serving.clear()
        assert code == -signal.SIGKILL, f"the validator ended with {code}, not at {label}"
        assert self.validator.err[-1] == f"crash point {label}"

    def kill_validator(self) -> None:
        """Kill the validator with SIGKILL."""
        self.validator.kill()
        self._serving.clear()

    def restart_validator(self, variables: dict[str, str] | None = None) -> None:
        """Start the validator again, and wait until it serves."""
        self.start_validator(variables)
        self.wait_until_up()

    def restart_rest(self) -> None:
        """Kill the REST API with SIGKILL, and start another."""
        self.rest.kill()
        self.rest = self._start_rest()
        self._wait_until_serving()

    def kill_verifiers(self) -> int:
        """Kill every verifier process with SIGKILL. Returns how many there were."""
        children = psutil.Process(self.validator.pid).children()
        found = [child for child in children if "dovetail.validator.admission.verifier_process" in child.cmdline()]
        for child in found:
            child.kill()
        return len(found)

    def restart_processor(self) -> None:
        """Kill intkey's supervisor and worker with SIGKILL, and start others."""
        process = self.processors[INTKEY]
        for child in process.descendants():
            child.kill()
        process.kill()
        self.processors[INTKEY] = self.network.processor(INTKEY)
        self.processors[INTKEY].wait_logged("ready")

    def client(self, load: Load, kinds: Collection[Kind] = MIXED) -> Client:
        """Start a client."""
        made = Client(self.network.rest_url, load, self._wait_until_serving, kinds)
        self.clients.append(made)
        made.start()
        return made

    def finish(self) -> None:
        """Let every client stop submitting, and wait until its batches are settled."""
        for client in self.clients:
            client.finish(DEADLINE_S * 2)

    def end(self) -> None:
        """End all processes in order: processors first, so that they can unregister at the validator."""
        for process in (*self.processors.values(), self.rest, self.validator):
            process.request_end()
            process.wait()

    def _wait_until_serving(self) -> None:
        if not self._serving.wait(DEADLINE_S * 2):
            raise ProcessFailed("the node does not serve again")

    def _start_rest(self) -> Process:
        rest = self.network.rest_api()
        self._serving.clear()
        threading.Thread(target=self._watch, args=(rest,), name="watch", daemon=True).start()
        return rest

    def _watch(self, rest: Process) -> None:
        """Let clients continue while the REST API is connected to its validator. Otherwise let them wait."""
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
