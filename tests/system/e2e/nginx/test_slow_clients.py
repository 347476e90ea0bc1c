"""Clients that send or read slowly through nginx: others stay served, and nothing of the slow ones remains."""

import contextlib
import socket
import time
from collections.abc import Callable

import psutil
import pytest

from tests.system.e2e.clients import Api, Author
from tests.system.e2e.conftest import Shared
from tests.system.e2e.nginx.proxy import NAME, Proxy
from tests.system.e2e.process import DEADLINE_S

# nginx has 512 connections a worker in tests; each client may use two.
CLIENTS = 100
ANSWERED_S_MAX = 10
RSS_BYTES_MAX = 64 << 20
# Connections between nginx and the API that stay open for the next clients, counted at both ends.
KEPT_MAX = CLIENTS // 2
_AGAIN_S = 0.05


def _slow_head(proxy: Proxy) -> socket.socket:
    connection = proxy.connect()
    connection.sendall(f"GET /blocks HTTP/1.1\r\nHost: {NAME}\r\nX-A: ".encode())
    return connection


def _slow_body(proxy: Proxy) -> socket.socket:
    return proxy.send(f"POST /batches HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 1000000\r\n", b"a" * 1000)


def _unread(proxy: Proxy) -> socket.socket:
    connection = proxy.send(f"GET /metrics HTTP/1.1\r\nHost: {NAME}\r\n")
    connection.setblocking(False)
    # More requests than answers fit in the buffers.
    with contextlib.suppress(OSError):
        connection.sendall(f"GET /no-such-path HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode() * 5000)
    return connection


def _idle(proxy: Proxy) -> socket.socket:
    connection = proxy.send(f"GET /blocks?count=1 HTTP/1.1\r\nHost: {NAME}\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    return connection


class Used:
    """What nginx and the node's processes have in use."""

    def __init__(self, proxy: Proxy, shared: Shared) -> None:
        found = [psutil.Process(pid) for pid in (proxy.pid, shared.up.pid)]
        found += [child for process in found for child in process.children(recursive=True)]
        self.descriptors = sum(process.num_fds() for process in found)
        self.rss_bytes = sum(process.memory_info().rss for process in found)


@pytest.mark.parametrize("slow", [_slow_head, _slow_body, _unread, _idle])
def test_slow_clients_hold_up_nobody_and_leave_nothing(
    proxy: Proxy, shared: Shared, author: Author, named: Callable[[str], str], slow: Callable[[Proxy], socket.socket]
) -> None:
    before = Used(proxy, shared)
    with contextlib.ExitStack() as held:
        for _ in range(CLIENTS):
            held.enter_context(slow(proxy))
        assert Used(proxy, shared).descriptors >= before.descriptors + CLIENTS - KEPT_MAX
        api: Api = proxy.api()
        held.callback(api.close)
        started = time.monotonic()
        assert api.http.get("/blocks?count=1", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
        with proxy.client(None) as client:
            assert client.get("/healthz").status_code == 200
        posted = api.post(author.batch(author.intkey("set", named("slow"), 1)), wait=int(DEADLINE_S))
        assert posted.status_code == 201, posted.text
        assert time.monotonic() - started < ANSWERED_S_MAX
    end = time.monotonic() + DEADLINE_S
    while (after := Used(proxy, shared)).descriptors > before.descriptors + KEPT_MAX:
        assert time.monotonic() < end, (before.descriptors, after.descriptors)
        time.sleep(_AGAIN_S)
    assert after.rss_bytes < before.rss_bytes + RSS_BYTES_MAX
