"""Thousands of waiting clients cost only memory, which is freed as they leave.

``DOVETAIL_TEST_WAITERS`` sets the number of clients, which the limit of open files bounds.
"""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil
import pytest

from tests.dovetail.rest_api.raw_http import Answer, read_answers
from tests.system.e2e.clients import Author
from tests.system.e2e.conftest import Networks
from tests.system.e2e.metrics import metric, wait_for_metric
from tests.system.e2e.network import INTKEY
from tests.system.e2e.process import DEADLINE_S
from tests.system.e2e.script_family import NAMESPACE, script
from tests.system.independent.bare_processor import BareProcessor, ProcessRequest, StateAccess

_WANTED, _ENOUGH = int(os.environ.get("DOVETAIL_TEST_WAITERS", "4000")), 2_000
_FILES_KEPT = 500
"""Files for everything but waiting clients, in the test's process and in the REST API's."""

_BATCHES = 100
_OPENED_AT_ONCE = 500
_REST_BYTES_MAX = 64 * 1024
_VALIDATOR_BYTES_MAX = 8 * 1024
_ABSENT = "e2e_late"


class _Waiter(asyncio.Protocol):
    """One client: sends its request, and keeps received bytes until the connection ends."""

    def __init__(self, request: bytes, ended: asyncio.Future[None]) -> None:
        self._request, self.ended = request, ended
        self.received = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


class _Crowd:
    """Clients of one REST API, in a loop that runs while they come, leave and are answered."""

    def __init__(self, runner: asyncio.Runner, port: int) -> None:
        self._runner, self._port = runner, port
        self.waiters: list[_Waiter] = []

    def come(self, requests: list[bytes]) -> None:
        """One client for each request."""
        for start in range(0, len(requests), _OPENED_AT_ONCE):
            self._runner.run(self._connect(requests[start : start + _OPENED_AT_ONCE]))

    def leave(self, every: int) -> None:
        """Close the connections of one in ``every`` clients."""
        leaving = self.waiters[::every]
        del self.waiters[::every]
        self._runner.run(self._end(leaving))

    def answers(self) -> list[Answer]:
        """The answers of the clients that stayed, once all have one."""
        self._runner.run(self._ended(self.waiters))
        return [answer for waiter in self.waiters for answer in read_answers(bytes(waiter.received))]

    async def _connect(self, requests: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        made = [_Waiter(request, loop.create_future()) for request in requests]
        await asyncio.gather(
            *(loop.create_connection(lambda waiter=waiter: waiter, "127.0.0.1", self._port) for waiter in made)  # type: ignore[misc]
        )
        self.waiters += made

    async def _end(self, leaving: list[_Waiter]) -> None:
        for waiter in leaving:
            waiter.transport.abort()
        await self._ended(leaving)

    async def _ended(self, waiters: list[_Waiter]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(waiter.ended for waiter in waiters))

    async def end(self) -> None:
        await self._end(self.waiters)


@contextmanager
def _crowd(rest_url: str) -> Iterator[_Crowd]:
    with asyncio.Runner() as runner:
        crowd = _Crowd(runner, int(urlsplit(rest_url).port or 0))
        try:
            yield crowd
        finally:
            runner.run(crowd.end())


@pytest.fixture
def count() -> Iterator[int]:
    """How many clients the limit of open files allows. The limit is raised for the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED + _FILES_KEPT
    given = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if given - _FILES_KEPT < _ENOUGH:
        pytest.skip(f"{hard} open files are too few for {_ENOUGH} clients")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, given), hard))
    yield given - _FILES_KEPT
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestWaiters:
    """Each request is one wait, which is freed when its client leaves. 10,000 waits cost only memory."""

    def test_crowd(self, networks: Networks, author: Author, count: int) -> None:
        network = networks()
        parts = network.parts(INTKEY)
        api = networks.api(network)
        batches = [author.batch(author.transaction(_ABSENT, script())) for _ in range(_BATCHES)]
        api.accept(*batches)
        api.commit(author.batch(author.intkey("set", "before", 1)))
        processes = {name: psutil.Process(parts[name].pid) for name in ("rest-api", "validator")}
        bytes_before = {name: process.memory_info().rss for name, process in processes.items()}

        def asked() -> float:
            return metric(api, "dovetail_validator_requests_total", type="CLIENT_BATCH_STATUS_REQUEST")

        asked_before = asked()
        with _crowd(network.rest_url) as crowd:
            crowd.come([_request(batches[number % _BATCHES].id) for number in range(count)])
            wait_for_metric(api, "dovetail_validator_waiters", count)
            # The API sends the validator one request for each client, and none while clients wait, come or leave.
            assert asked() - asked_before == count
            grown = {
                name: (process.memory_info().rss - bytes_before[name]) / count for name, process in processes.items()
            }
            print(f"{count} clients wait; bytes for each: {grown}")
            assert grown["rest-api"] <= _REST_BYTES_MAX
            assert grown["validator"] <= _VALIDATOR_BYTES_MAX

            # Other clients are served.
            assert api.get("/blocks", count=1)["data"]
            api.commit(author.batch(author.intkey("set", "meanwhile", 1)))
            assert api.intkey("meanwhile") == 1

            asked_before = asked()
            crowd.leave(2)
            wait_for_metric(api, "dovetail_validator_waiters", len(crowd.waiters))
            wait_for_metric(api, "dovetail_rest_validator_questions_in_flight", len(crowd.waiters))

            with BareProcessor(network.validator_url, _ABSENT, "1.0", [NAMESPACE], _accept_all):
                answers = crowd.answers()
            assert len(answers) == len(crowd.waiters) == count // 2
            for answer in answers:
                assert (answer.status, answer.body.count(b'":"COMMITTED"')) == (200, 1), answer
            assert metric(api, "dovetail_validator_waiters") == 0
            assert asked() == asked_before


def _request(batch_id: str) -> bytes:
    return f"GET /batch_status?id={batch_id}&wait=300 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode()


def _accept_all(request: ProcessRequest, state: StateAccess) -> None:
    """An apply that changes nothing."""
