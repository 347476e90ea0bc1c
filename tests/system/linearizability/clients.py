"""Eight clients that set, inc, dec and read ten intkey names at once over HTTP, and the history of their operations.

The module has the clients, their choice of operations, and the meaning of answers. Processes, kills and the check of
the history (``checker``) do not belong here.
"""

import base64
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import httpx

from dovetail.ledger.building import build_batch, encode_batch_list
from dovetail.ledger.signing import Signer
from families.intkey.addresses import intkey_address
from families.intkey.client import intkey_transaction
from families.intkey.payload import LEAF
from tests.system.e2e.process import DEADLINE_S
from tests.system.linearizability.checker import VALUE_MAX, Operation, State, Verb

CLIENTS: Final = 8
NAMES: Final = 10
"""How many names are in use at a time."""

OPERATIONS_A_GENERATION: Final = 400
"""How many operations use the same names. intkey deletes no names, and most sets of existing names are invalid."""

_VERBS: Final[tuple[Verb, ...]] = ("get", "get", "get", "get", "inc", "inc", "inc", "dec", "dec", "set")
_WAIT_S: Final = int(DEADLINE_S) * 2

MakeTransport = Callable[[], httpx.BaseTransport]


class Step(NamedTuple):
    """The next operation of a client. A get ignores ``value``."""

    name: str
    verb: Verb
    value: int


def next_step(rng: random.Random, index: int) -> Step:
    """The operation with this number in the run, as this client's random numbers choose it."""
    name = f"g{index // OPERATIONS_A_GENERATION}-{rng.randrange(NAMES)}"
    verb = rng.choice(_VERBS)
    value = rng.randint(0, 99)
    if verb == "set" and rng.random() < 0.2:
        # Some incs must be refused too.
        value = VALUE_MAX - value
    return Step(name, verb, value)


class Recorder:
    """The history and the progress of a run. Before each operation, ``goes_on`` gets the number of begun operations."""

    def __init__(self, goes_on: Callable[[int], bool]) -> None:
        self._goes_on = goes_on
        self._changed = threading.Condition()
        self._begun = 0
        self._running = 0
        self._down = False
        self.history: list[Operation] = []
        self.failures: list[BaseException] = []

    def begin(self) -> int | None:
        """The number of the next operation; None if the run is over."""
        with self._changed:
            if self.failures or not self._goes_on(self._begun):
                return None
            self._begun += 1
            return self._begun - 1

    def end(self, operation: Operation | None) -> None:
        """Record the end of an operation; None for a get without an answer."""
        with self._changed:
            if operation is not None:
                self.history.append(operation)
            self._changed.notify_all()

    def enter(self) -> None:
        with self._changed:
            self._running += 1

    def leave(self, failure: BaseException | None) -> None:
        with self._changed:
            self._running -= 1
            if failure is not None:
                self.failures.append(failure)
            self._changed.notify_all()

    def set_down(self, down: bool) -> None:
        """Set whether the node is down. Meanwhile, clients without an answer do not ask again."""
        with self._changed:
            self._down = down
            self._changed.notify_all()

    def wait_for_node(self) -> None:
        """Wait until the node is up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._down or self.failures)

    def wait_for_more(self, count: int) -> bool:
        """Wait until so many more operations have ended. Returns False if the run ends before."""
        with self._changed:
            wanted = len(self.history) + count
            self._changed.wait_for(lambda: len(self.history) >= wanted or not self._running)
            return self._running > 0


class Client(threading.Thread):
    """One client with its own key, which does one operation after the other."""

    def __init__(self, number: int, url: str, seed: int, recorder: Recorder, transport: MakeTransport | None) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self._number = number
        self._rng = random.Random(f"{seed}/{number}")
        self._signer = Signer(f"{number + 1:064x}")
        self._recorder = recorder
        self._http = httpx.Client(
            base_url=url,
            timeout=_WAIT_S + DEADLINE_S,
            trust_env=False,
            verify=False,
            transport=transport() if transport else None,
        )
        recorder.enter()

    def run(self) -> None:
        failure: BaseException | None = None
        try:
            while (index := self._recorder.begin()) is not None:
                step = next_step(self._rng, index)
                self._recorder.end(self._get(step) if step.verb == "get" else self._change(step, index))
        except BaseException as error:
            failure = error
        finally:
            self._http.close()
            self._recorder.leave(failure)

    def _get(self, step: Step) -> Operation | None:
        invoked = time.monotonic_ns()
        answer = self._ask("GET", f"/state/{intkey_address(step.name)}")
        responded = time.monotonic_ns()
        if answer is None:
            return None
        value: State = None
        if answer.status_code == 404:
            assert answer.json()["error"]["code"] == 75, answer.text
        else:
            assert answer.status_code == 200, answer.text
            value = LEAF.decode(base64.b64decode(answer.json()["data"], validate=True)).get(step.name)
        return Operation(step.name, "get", value, True, invoked, responded, self._number)

    def _change(self, step: Step, index: int) -> Operation:
        assert step.verb != "get"
        signer = self._signer
        transaction = intkey_transaction(signer, signer.public_key, step.verb, step.name, step.value, f"{index}")
        batch = build_batch(signer, [transaction])
        invoked = time.monotonic_ns()
        answer = self._ask(
            "POST",
            "/batches",
            params={"wait": _WAIT_S},
            content=encode_batch_list([batch]),
            headers={"Content-Type": "application/octet-stream"},
        )
        accepted = self._verdict(answer, batch.id)
        if accepted is None:
            # A later answer may still give the outcome. The operation takes effect before that answer.
            accepted = self._verdict(self._ask("POST", "/batch_status", json=[batch.id]), batch.id)
        responded = None if accepted is None else time.monotonic_ns()
        return Operation(step.name, step.verb, step.value, accepted, invoked, responded, self._number)

    @staticmethod
    def _verdict(answer: httpx.Response | None, batch_id: str) -> bool | None:
        """Committed (True), invalid (False), or unknown (None)."""
        if answer is None:
            return None
        if answer.status_code == 201:
            return True
        assert answer.status_code == 200, answer.text
        return {"COMMITTED": True, "INVALID": False}.get(answer.json()["data"][batch_id])

    def _ask(self, method: str, path: str, **parts: Any) -> httpx.Response | None:
        """The answer; None if there is none with content: no connection, a timeout, 503."""
        answer: httpx.Response | None
        try:
            answer = self._http.request(method, path, **parts)
        except httpx.TransportError:
            answer = None
        if answer is None or answer.status_code == 503:
            self._recorder.wait_for_node()
            return None
        return answer


def run_clients(
    url: str,
    seed: int,
    goes_on: Callable[[int], bool],
    disturb: Callable[[Recorder], None] = lambda _: None,
    transport: MakeTransport | None = None,
) -> list[Operation]:
    """Run the clients, and return the history.

    Meanwhile ``disturb`` runs, until ``Recorder.wait_for_more`` returns False.
    """
    recorder = Recorder(goes_on)
    clients = [Client(number, url, seed, recorder, transport) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        disturb(recorder)
    except BaseException as error:
        recorder.enter()
        recorder.leave(error)
    for client in clients:
        client.join()
    if recorder.failures:
        raise recorder.failures[0]
    return recorder.history
