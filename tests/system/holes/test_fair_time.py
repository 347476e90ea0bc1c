"""The REST API shares its time: whatever some clients send, the others have their answers soon."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.system.e2e.network import Network
from tests.system.e2e.process import DEADLINE_S

CLIENTS = 40
WAIT_S_MAX = 1.5
"""The longest wait of a probe. The code that lets a client keep the loop busy reaches many times this wait."""

_POST = b"POST /batches HTTP/1.1\r\nHost: node\r\nContent-Type: application/octet-stream\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_QUERY = quote("\N{EURO SIGN}" * 20_000).encode()
_IDS = json.dumps([""] * 2_000_000, separators=(",", ":")).encode()

ATTACKS: dict[str, tuple[bytes, int]] = {
    "one-byte chunks": (_CHUNKED + b"1\r\nx\r\n" * 50_000, CLIENTS),
    "chunks just large enough": (_CHUNKED + (b"40\r\n" + b"x" * 64 + b"\r\n") * 20_000, CLIENTS),
    "headers": ((b"GET /healthz HTTP/1.1\r\nHost: node\r\n" + b"a:b\r\n" * 35_000 + b"\r\n") * 2, CLIENTS),
    "trailers": (_CHUNKED + b"0\r\n" + b"a:b\r\n" * 35_000 + b"\r\n", CLIENTS),
    "pipelined requests": (b"GET /none HTTP/1.1\r\nHost: node\r\n\r\n" * 500, CLIENTS),
    "long queries": ((b"GET /blocks?id=" + _QUERY + b" HTTP/1.1\r\nHost: node\r\n\r\n") * 2, CLIENTS),
    "long queries without escapes": (
        (b"GET /blocks?a=" + b'"' * 180_000 + b" HTTP/1.1\r\nHost: node\r\n\r\n") * 2,
        CLIENTS,
    ),
    "long paths": ((b"GET /" + _QUERY + b" HTTP/1.1\r\nHost: node\r\n\r\n") * 2, CLIENTS),
    "JSON": (
        b"POST /batch_status HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(_IDS), _IDS),
        10,
    ),
    "protobuf": (_POST + b"Content-Length: 8388608\r\n\r\n" + b"\x0a\x00" * 4_194_304, 10),
}
"""What each client sends, and the number of clients."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    running = Network(tmp_path_factory.mktemp("node"), DOVETAIL_LOG_LEVEL="warning")
    try:
        running.up()
        yield running
    finally:
        running.close()


def _address(network: Network) -> tuple[str, int]:
    host, _, port = network.rest_bind.rpartition(":")
    return host, int(port)


def _send(address: tuple[str, int], content: bytes, piece_bytes: int) -> None:
    """Send the content, and read until the server closes the connection or all is answered."""
    with socket.create_connection(address, DEADLINE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def read() -> None:
            try:
                while client.recv(65_536):
                    pass
            except OSError:
                pass

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for start in range(0, len(content), piece_bytes):
                client.sendall(content[start : start + piece_bytes])
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        reader.join(DEADLINE_S)


def _longest_probe_s(network: Network, content: bytes, clients: int, piece_bytes: int = 1 << 30) -> float:
    """The longest time to an answer of GET /healthz, on a new connection each, while the clients send."""
    threads = [
        threading.Thread(target=_send, args=(_address(network), content, piece_bytes), daemon=True)
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    longest_s = 0.0
    end = time.monotonic() + DEADLINE_S
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        began = time.monotonic()
        probe = http.client.HTTPConnection(*_address(network), timeout=DEADLINE_S)
        probe.request("GET", "/healthz")
        assert probe.getresponse().status == 200
        probe.close()
        longest_s = max(longest_s, time.monotonic() - began)
    return longest_s


@pytest.mark.parametrize(("content", "clients"), ATTACKS.values(), ids=ATTACKS)
def test_probes_are_answered_soon(network: Network, content: bytes, clients: int) -> None:
    longest_s = _longest_probe_s(network, content, clients)
    print(f"longest wait: {longest_s:.2f} s")
    assert longest_s < WAIT_S_MAX


def test_probes_are_answered_soon_beside_tiny_segments(network: Network) -> None:
    content = _POST + b"X: " + b"a" * 5_000 + b"\r\nContent-Length: 8000\r\n\r\n" + b"x" * 8_000
    longest_s = _longest_probe_s(network, content, CLIENTS, piece_bytes=1)
    print(f"longest wait: {longest_s:.2f} s")
    assert longest_s < WAIT_S_MAX
