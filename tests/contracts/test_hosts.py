"""How processors and REST APIs resolve the host of their validator: IPv4, or IPv6 if the host has no IPv4 address."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
import zmq

from dovetail.ledger.hosts import needs_ipv6
from dovetail.rest_api.config import RestConfig
from dovetail.rest_api.upstream.validator import ValidatorConnection
from processor_sdk.worker.dealer import Dealer

WAIT_MS = 10_000
KNOWN = {"four": (socket.AF_INET,), "six": (socket.AF_INET6,), "both": (socket.AF_INET6, socket.AF_INET)}


def look_up(host: str, *_: object, **__: object) -> list[tuple[int, str]]:
    if host not in KNOWN:
        raise socket.gaierror(f"nobody knows {host}")
    return [(family, "the rest") for family in KNOWN[host]]


def test_a_name_without_an_ipv4_address_is_reached_by_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    asked = [*KNOWN, "nobody", "[::1]", "[fe80::1%eth9]"]
    assert [host for host in asked if needs_ipv6(f"tcp://{host}:4004")] == ["six", "[::1]", "[fe80::1%eth9]"]
    assert not needs_ipv6("ipc:///run/validator")


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a socket that listens on IPv6 only, without the brackets that mark an IPv6 address."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.set(zmq.IPV6, 1)
        try:
            router.bind("tcp://[::1]:*")
        except zmq.ZMQError as error:
            pytest.skip(f"this machine has no IPv6: {error}")
        yield f"tcp://::1:{router.get_string(zmq.LAST_ENDPOINT).rpartition(':')[2]}"


def test_a_processor_connects_by_ipv6(url: str) -> None:
    poller = zmq.Poller()
    dealer = Dealer(url, poller)
    dealer.open(None)
    try:
        assert poller.poll(WAIT_MS)
        assert next(dealer.events()) == zmq.Event.HANDSHAKE_SUCCEEDED
    finally:
        dealer.end(0)


def test_a_rest_api_connects_by_ipv6(url: str) -> None:
    async def test() -> None:
        validator = ValidatorConnection(RestConfig(validator=url))
        validator.open()
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                await validator.wait_connected()
        finally:
            validator.close()

    asyncio.run(test())
