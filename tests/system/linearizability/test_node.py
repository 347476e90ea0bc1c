"""The operations of eight clients on a real node are linearizable while its processors or its validator are killed.

Set DOVETAIL_TEST_LINEARIZABLE_S to a number of seconds for a longer run of each.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.system.e2e.conftest import Networks
from tests.system.e2e.network import INTKEY, Network
from tests.system.e2e.process import Process
from tests.system.linearizability.checker import Operation, refute
from tests.system.linearizability.clients import NAMES, Recorder, run_clients

SECONDS = float(os.environ.get("DOVETAIL_TEST_LINEARIZABLE_S", "0"))
OPERATIONS = 500
OPERATIONS_FEW = 250
"""The number of operations of a short run. Kills of the validator have fewer, because its restart takes longer."""

OPERATIONS_A_KILL = (20, 80)
"""How many operations end between two disturbances, at least and at most."""

SEED = int(os.environ.get("DOVETAIL_TEST_LINEARIZABLE_SEED", "7"))
PROCESSORS = 2

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120 + 2 * SECONDS)]

_QUICK = {
    "DOVETAIL_LIMITS_INTERNAL_ERROR_BACK_OFF_MS": "1",
    "DOVETAIL_LIMITS_PROCESSOR_LOST_BACK_OFF_MS_MAX": "10",
    "DOVETAIL_REST_API_TIMEOUT_S": "2",
}


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Networks]:
    """Makes fresh nodes."""
    made = Networks(tmp_path)
    try:
        yield made
    finally:
        made.close()


class Killed:
    """A node of separate processes, which the test kills. ``kills``: the number of kills by kind."""

    def __init__(self, network: Network, seed: int) -> None:
        self._network = network
        self._rng = random.Random(seed)
        started = network.parts()
        self._validator, self._rest = started["validator"], started["rest-api"]
        self._processors = [self._start_processor() for _ in range(PROCESSORS)]
        for processor in self._processors:
            processor.wait_logged("ready")
        self.kills: Counter[str] = Counter()

    def kill_processors(self, recorder: Recorder) -> None:
        """Repeatedly kill a worker, a processor with its worker, or both processors.

        Start the killed processes again.
        """
        while recorder.wait_for_more(self._rng.randint(*OPERATIONS_A_KILL)):
            what = self._rng.choice(("worker", "processor", "both processors"))
            self.kills[what] += 1
            if what == "worker":
                processor = self._rng.choice(self._processors)
                mark = len(processor.lines)
                _kill(*processor.descendants())
                processor.wait_for_line(r"worker \d+ is process", after=mark)
                continue
            count = 1 if what == "processor" else PROCESSORS
            self._rng.shuffle(self._processors)
            for processor in self._processors[:count]:
                _kill(psutil.Process(processor.pid), *processor.descendants())
            self._processors[:count] = [self._start_processor() for _ in range(count)]
            for processor in self._processors[:count]:
                processor.wait_logged("ready")

    def kill_validator(self, recorder: Recorder) -> None:
        """Repeatedly kill the validator, and start a new one on the same folder and address."""
        while recorder.wait_for_more(self._rng.randint(*OPERATIONS_A_KILL)):
            self.kills["validator"] += 1
            recorder.set_down(True)
            mark = len(self._rest.lines)
            self._validator.kill()
            self._validator = self._network.validator()
            self._rest.wait_logged("connected to the validator", after=mark)
            recorder.set_down(False)

    def _start_processor(self) -> Process:
        return self._network.processor(INTKEY)


def _kill(*processes: psutil.Process) -> None:
    """Send SIGKILL to all processes at once."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _goes_on(operations: int) -> Callable[[int], bool]:
    """A function that gets the number of begun operations, and returns whether another operation follows."""
    if not SECONDS:
        return lambda begun: begun < operations
    end = time.monotonic() + SECONDS
    return lambda _: time.monotonic() < end


def _described(history: list[Operation], kills: Counter[str]) -> str:
    counts = Counter(
        f"{operation.verb} {({True: 'ok', False: 'invalid', None: 'unknown'})[operation.accepted]}"
        for operation in history
    )
    return f"seed {SEED}: {len(history)} operations, {dict(sorted(counts.items()))}, killed {dict(kills)}"


def _check(history: list[Operation], kills: Counter[str]) -> None:
    print(_described(history, kills))
    assert refute(history) is None, _described(history, kills)
    # Each verb must have accepted and refused operations, because a history without refusals would prove little.
    verbs = Counter((operation.verb, operation.accepted) for operation in history)
    for verb in ("set", "inc", "dec"):
        assert verbs[verb, True], verb
        assert verbs[verb, False], verb
    assert len({operation.name for operation in history}) >= NAMES
    assert sum(kills.values()) > 1


def test_while_processors_are_killed(networks: Networks) -> None:
    node = Killed(network := networks(**_QUICK), SEED)
    history = run_clients(network.rest_url, SEED, _goes_on(OPERATIONS), node.kill_processors)
    assert all(operation.accepted is not None for operation in history), (
        "a client has no answer because a processor ended"
    )
    _check(history, node.kills)


def test_while_the_validator_is_killed(networks: Networks) -> None:
    node = Killed(network := networks(**_QUICK), SEED)
    history = run_clients(network.rest_url, SEED, _goes_on(OPERATIONS_FEW), node.kill_validator)
    _check(history, node.kills)


class OneReadBehind(httpx.BaseTransport):
    """A cache in front of the node. It answers each read of a path with the result of the last read of that path."""

    _answers: dict[str, tuple[int, bytes]]
    _lock = threading.Lock()

    def __init__(self, answers: dict[str, tuple[int, bytes]]) -> None:
        self._answers = answers
        self._below = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._below.handle_request(request)
        if request.method != "GET":
            return answer
        body = answer.read()
        answer.close()
        with self._lock:
            status, kept = self._answers.get(request.url.path, (answer.status_code, body))
            self._answers[request.url.path] = (answer.status_code, body)
        return httpx.Response(status, content=kept)

    def close(self) -> None:
        self._below.close()


def test_stale_reads_of_a_cache_are_found(networks: Networks) -> None:
    """This test shows that the tests above can fail. Clients and node are the same, but reads are stale."""
    node = Killed(network := networks(**_QUICK), SEED)
    answers: dict[str, tuple[int, bytes]] = {}
    history = run_clients(network.rest_url, SEED, lambda begun: begun < 200, transport=lambda: OneReadBehind(answers))
    assert not node.kills
    found = refute(history)
    assert found is not None
    assert any(operation.verb == "get" for operation in found.stuck), found
