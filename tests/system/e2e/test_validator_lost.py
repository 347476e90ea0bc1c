"""The REST API without its validator, several REST APIs at one validator, and a full queue."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.system.e2e.clients import Api, Author, error_of
from tests.system.e2e.conftest import Networks
from tests.system.e2e.metrics import metric, wait_for_metric
from tests.system.e2e.network import INTKEY, Network, ReservedPort
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.script_family import NAMESPACE, script
from tests.system.independent import client as ledger
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess
from tests.system.independent.client import Batch

_ABSENT = "e2e_late"
_TIMEOUT_S = 1
_GONE, _SILENT = 18, 17
_ALIVE_WITHOUT = {"/", "/healthz", "/metrics", "/docs", "/openapi.json"}
"""Paths that an API answers without the validator."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """For requests that stay open during the test."""
    with ThreadPoolExecutor(32) as made:
        yield made


class _Node:
    """A node of separate processes with a short timeout of its API, one committed and one waiting batch."""

    def __init__(self, networks: Networks, author: Author) -> None:
        self.network: Network = networks(DOVETAIL_REST_API_TIMEOUT_S=str(_TIMEOUT_S))
        self.parts = self.network.parts(INTKEY)
        self.api = networks.api(self.network)
        self.committed = author.batch(author.intkey("set", "n", 1))
        self.api.commit(self.committed)
        self.pending = author.batch(author.transaction(_ABSENT, script()))
        self.api.accept(self.pending)
        self.fresh = author.batch(author.intkey("inc", "n", 1))

    @property
    def rest(self) -> Process:
        return self.parts["rest-api"]

    def requests(self) -> dict[str, Callable[[], httpx.Response]]:
        """One request for every path of the API that needs the validator; each succeeds with a validator."""
        head = self.api.get("/blocks", count=1)["data"][0]["header_signature"]
        gets = [
            "/blocks",
            "/blocks/0",
            f"/blocks/{head}",
            "/batches",
            f"/batches/{self.committed.id}",
            "/transactions",
            f"/transactions/{self.committed.transactions[0].id}",
            "/state",
            f"/state/{ledger.intkey_address('n')}",
            "/state/1cf126",
            f"/batch_status?id={self.pending.id}",
            "/stats/validator",
            "/stats/gossip",
            "/status/config",
            "/status/families",
            "/status/system",
            "/readyz",
        ]
        # Each request has a client of its own, because all run at the same time.
        made: dict[str, Callable[[], httpx.Response]] = {path: self._get(path) for path in gets}
        made["POST /batches"] = lambda: self.api.post(self.fresh)
        made["POST /batch_status"] = lambda: self.api.http.post("/batch_status", json=[self.pending.id])
        return made

    def _get(self, path: str) -> Callable[[], httpx.Response]:
        return lambda: self.api.http.get(path)


def _all(pool: ThreadPoolExecutor, requests: dict[str, Callable[[], httpx.Response]]) -> dict[str, httpx.Response]:
    """Run all requests at the same time."""
    futures: dict[str, Future[httpx.Response]] = {name: pool.submit(request) for name, request in requests.items()}
    return {name: future.result(DEADLINE_S) for name, future in futures.items()}


def _assert_served(pool: ThreadPoolExecutor, requests: dict[str, Callable[[], httpx.Response]]) -> None:
    for name, answer in _all(pool, requests).items():
        assert answer.status_code in (200, 202), f"{name}: {answer.status_code} {answer.text[:300]}"


def _assert_refused(pool: ThreadPoolExecutor, requests: dict[str, Callable[[], httpx.Response]], code: int) -> None:
    for name, answer in _all(pool, requests).items():
        assert answer.status_code == 503, f"{name}: {answer.status_code} {answer.text[:300]}"
        assert error_of(answer)["code"] == code, name
        assert answer.headers["X-Request-Id"]


def _assert_alive(api: Api) -> None:
    for path in _ALIVE_WITHOUT:
        answer = api.http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text[:300]}"


def _connected(api: Api) -> bool:
    return metric(api, "dovetail_rest_validator_connected") == 1


class TestValidatorLost:
    """Every route answers 503 within the API's timeout, and recovers without a restart."""

    def test_gone(self, networks: Networks, author: Author, pool: ThreadPoolExecutor) -> None:
        node = _Node(networks, author)
        requests = node.requests()
        _assert_served(pool, requests)
        assert _connected(node.api)
        waiting = pool.submit(node.api.http.post, "/batch_status?wait=300", json=[node.pending.id])
        wait_for_metric(node.api, "dovetail_validator_waiters", 1)
        mark = len(node.rest.lines)
        node.parts["validator"].kill()
        answer = waiting.result(DEADLINE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (503, _GONE)
        node.rest.wait_logged("lost the validator", after=mark)
        _assert_refused(pool, requests, _GONE)
        _assert_alive(node.api)
        assert not _connected(node.api)
        node.network.validator("validator again").wait_logged("ready")
        node.rest.wait_logged("connected to the validator", after=mark)
        _assert_served(pool, requests)
        assert _connected(node.api)
        assert node.api.words(node.committed, node.pending) == ["COMMITTED", "PENDING"]

    def test_silent(self, networks: Networks, author: Author, pool: ThreadPoolExecutor) -> None:
        node = _Node(networks, author)
        requests = node.requests()
        validator = node.parts["validator"]
        validator.signal(signal.SIGSTOP)
        try:
            _assert_refused(pool, requests, _SILENT)
            _assert_alive(node.api)
            answer = node.api.http.post("/batch_status?wait=1", json=[node.pending.id])
            assert (answer.status_code, error_of(answer)["code"]) == (503, _SILENT)
        finally:
            validator.signal(signal.SIGCONT)
        _assert_served(pool, requests)
        # The validator now gets the batch that was sent while it was stopped. The client got a 503, and submits again.
        node.api.commit(node.fresh)
        assert node.api.intkey("n") == 2


class TestSeveralRestApis:
    """The API holds no state, so several APIs may serve one validator."""

    @pytest.fixture
    def ports(self) -> Iterator[list[ReservedPort]]:
        made = [ReservedPort() for _ in range(3)]
        yield made
        for port in made:
            port.close()

    def test_each_answers_as_the_others(self, networks: Networks, author: Author, ports: list[ReservedPort]) -> None:
        network = networks()
        network.parts(INTKEY)
        processes = [
            network.start("rest-api", "--bind", f"127.0.0.1:{port.number}", "--validator", network.validator_url)
            for port in ports
        ]
        apis = [Api(f"http://127.0.0.1:{port.number}") for port in ports]
        try:
            for process in processes:
                process.wait_logged("ready")
            waiting = author.batch(author.transaction(_ABSENT, script()))
            batches = [author.batch(author.intkey("set", f"n{number}", number)) for number in range(3)]
            for number, batch in enumerate(batches):
                apis[number].accept(batch)
                assert apis[(number + 1) % 3].settle(batch) == ["COMMITTED"]
            apis[0].accept(waiting)
            assert [api.words(waiting) for api in apis] == [["PENDING"]] * 3
            block = apis[0].chain()[-1]
            for path in (
                *("/blocks", "/blocks?count=2", "/batches", "/transactions", "/state", "/blocks/0", f"/blocks/{block}"),
                *(f"/batches/{batches[1].id}", f"/transactions/{batches[1].transactions[0].id}", "/blocks?count=0"),
                *(
                    f"/state/{ledger.intkey_address('n1')}",
                    f"/batch_status?id={waiting.id},{batches[0].id}",
                    "/nothing",
                ),
            ):
                assert len({_told(api, path) for api in apis}) == 1, path
            processes[0].kill()
            # The validator has the batch that one API accepted, so the other APIs know its status.
            with BareProcessor(network.validator_url, _ABSENT, "1.0", [NAMESPACE], _accept_all):
                assert apis[1].settle(waiting) == ["COMMITTED"]
            assert apis[2].words(waiting) == ["COMMITTED"]
            apis[2].commit(author.batch(author.intkey("inc", "n0", 1)))
            assert apis[1].intkey("n0") == 1
        finally:
            for api in apis:
                api.close()


def _told(api: Api, path: str) -> tuple[object, ...]:
    """The parts of an answer that must not depend on which API answers. All get the same Host, as behind one proxy."""
    answer = api.http.get(path, headers={"Host": "ledger.example"})
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")}
    return answer.status_code, tuple(headers.items()), answer.content


class TestFullQueue:
    """API.md: 429 code 31 with Retry-After, nothing of the list is accepted; known batches are accepted again."""

    _ROOM = 5

    def test_room_comes_back(self, networks: Networks, author: Author, pool: ThreadPoolExecutor) -> None:
        network = networks(
            DOVETAIL_LIMITS_PENDING_BATCHES_MAX=str(self._ROOM),
            DOVETAIL_LIMITS_PENDING_UNSERVED_PERCENT_MAX="100",
            DOVETAIL_LIMITS_PENDING_WAITING_PERCENT_MAX="100",
        )
        network.up()
        api = networks.api(network)
        accepted = [author.batch(author.transaction(_ABSENT, script())) for _ in range(self._ROOM)]
        refused = [author.batch(author.transaction(_ABSENT, script())) for _ in range(2)]
        api.accept(*accepted)
        # Many lists are sent at the same time: lists of new batches, and lists of known and new batches.
        lists: list[list[Batch]] = [refused[:1], refused, [accepted[0], refused[0]]] * 5
        for answer in pool.map(lambda batches: api.post(*batches, wait=int(DEADLINE_S)), lists):
            assert answer.status_code == 429, answer.text
            assert error_of(answer)["code"] == 31
            assert int(answer.headers["Retry-After"]) > 0
        assert api.words(*refused, *accepted) == ["UNKNOWN"] * 2 + ["PENDING"] * self._ROOM
        api.accept(*accepted)
        api.accept(accepted[2], accepted[2])
        assert api.get("/status/config")["data"]["limits"]["pending_batches_max"] == self._ROOM
        with BareProcessor(network.validator_url, _ABSENT, "1.0", [NAMESPACE], _accept_all):
            assert api.settle(*accepted) == ["COMMITTED"] * self._ROOM
            api.commit(*refused)
            # A committed batch is accepted again too, without a second effect.
            api.commit(*accepted[:3])
        genesis = 1
        assert api.get("/batches")["paging"]["total_count"] == genesis + self._ROOM + len(refused)


def _accept_all(request: ProcessRequest, state: StateAccess) -> None:
    """An apply that changes nothing."""
