"""One client sends many times what the node can apply, without a pause; another client is still served.

``DOVETAIL_TEST_FLOOD_S``: the duration in seconds; 600 for a long test.
"""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dovetail.ledger.signing import Signer
from tests.system.e2e.clients import Api
from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S, Process
from tests.system.e2e.slow_family import HANDLER, counter, signed_lists

SECONDS = float(os.environ.get("DOVETAIL_TEST_FLOOD_S", "6"))
PENDING_MAX = 500
LIST_BATCHES = 50
CONNECTIONS = 8
SAMPLES = 40
FLOOD_MIN = 10
"""The client must send at least so many times the number of batches that the node accepts."""


class Flood:
    """Sends lists over several connections. A refused list is sent again at once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._lists = signed_lists(Signer("1" * 64), "flood", LIST_BATCHES)
        self.accepted: list[str] = []
        self.sent = 0

    async def run(self, ended: asyncio.Event) -> None:
        """Run until ``ended`` is set, and all answers are received."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._send(ended))

    async def _send(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            made = next(self._lists)
            while not ended.is_set():
                answer = await _post(self._client, made.body)
                self.sent += LIST_BATCHES
                if answer.status_code == 202:
                    self.accepted += made.batch_ids
                    break
                assert answer.status_code == 429, answer.text
                assert "retry-after" in answer.headers


class Polite:
    """Sends one batch with its own key, waits for it, sends the next."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._lists = signed_lists(Signer("2" * 64), "polite", 1)
        self.latencies_s: list[float] = []

    async def run(self, ended: asyncio.Event) -> None:
        """Run until ``ended`` is set, and the last batch is committed."""
        while not ended.is_set():
            began = time.monotonic()
            answer = await _post(self._client, next(self._lists).body, wait=int(DEADLINE_S) * 10)
            assert answer.status_code == 201, answer.text
            self.latencies_s.append(time.monotonic() - began)


async def _post(client: httpx.AsyncClient, body: bytes, **params: int) -> httpx.Response:
    headers = {"Content-Type": "application/octet-stream"}
    return await client.post("/batches", content=body, params=params, headers=headers)


def own_kib(process: Process) -> int:
    """The memory of a process, without pages that are mapped from files."""
    found = re.search(r"(?m)^RssAnon:\s+(\d+) kB$", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    network = Network(tmp_path, DOVETAIL_LIMITS_PENDING_BATCHES_MAX=str(PENDING_MAX))
    try:
        yield network
    except BaseException:
        print(network.transcript())
        raise
    finally:
        network.close()


@pytest.mark.timeout(300 + 2 * SECONDS)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_flood_is_refused_and_starves_nobody(network: Network) -> None:
    parts = network.parts(HANDLER)
    watched = [parts["validator"], parts["rest-api"]]
    memory: list[list[int]] = []

    async def scenario() -> tuple[Flood, Polite, dict[str, Any]]:
        limits = httpx.Limits(max_connections=CONNECTIONS + 2)
        async with httpx.AsyncClient(
            base_url=network.rest_url, timeout=DEADLINE_S * 10, trust_env=False, limits=limits
        ) as client:
            flood, polite = Flood(client), Polite(client)
            ended = asyncio.Event()
            flooding, polling = asyncio.create_task(flood.run(ended)), asyncio.create_task(polite.run(ended))
            for _ in range(SAMPLES):
                await asyncio.wait({flooding, polling}, timeout=SECONDS / SAMPLES, return_when=asyncio.FIRST_COMPLETED)
                assert [flooding.done(), polling.done()] == [False, False], [flooding, polling]
                memory.append([own_kib(process) for process in watched])
            ready = (await client.get("/readyz")).json()["data"]
            ended.set()
            await asyncio.gather(flooding, polling)
        return flood, polite, ready

    flood, polite, ready = asyncio.run(scenario())
    rate = (len(flood.accepted) + len(polite.latencies_s)) / SECONDS
    slowest_s = max(polite.latencies_s)
    print(
        f"{flood.sent / SECONDS:,.0f} batches/s sent, {rate:,.0f} accepted; {len(polite.latencies_s)} of somebody else,"
        f" the slowest in {slowest_s:.2f} s; KiB at half time and at the end: {memory[SAMPLES // 2]}, {memory[-1]}"
    )
    assert flood.sent >= FLOOD_MIN * len(flood.accepted)
    assert ready["status"] == "degraded"
    assert [held["condition"] for held in ready["conditions"]] == ["queue_full"]
    api = Api(network.rest_url)
    try:
        for start in range(0, len(flood.accepted), 1_000):
            ids = flood.accepted[start : start + 1_000]
            assert set(api.statuses(ids, wait=int(DEADLINE_S) * 10)["data"].values()) == {"COMMITTED"}
        # Each accepted batch is applied once, and refused batches are not applied.
        assert api.leaf(counter("flood")) == b"%d" % len(flood.accepted)
        assert api.leaf(counter("polite")) == b"%d" % len(polite.latencies_s)
    finally:
        api.close()
    # The polite client waits behind the batches that one key may hold in the queue. The factor of five allows for
    # blocks and slow machines.
    assert slowest_s < 5 * PENDING_MAX / rate
    for before, after in zip(memory[SAMPLES // 2], memory[-1], strict=True):
        assert after < before * 1.1 + 8 * 1024
