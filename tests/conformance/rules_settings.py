"""Rows on settings of an operator: limits of the queue, bodies and pages, the API's timeout, trusted proxies."""

import json
from typing import Final
from urllib.parse import urlsplit

from tests.conformance.nodes import Nodes, Surrounded, surrounded
from tests.conformance.rules_answers import LISTS
from tests.conformance.rules_links import to_the_end
from tests.conformance.table import error
from tests.conformance.wire import Request
from tests.conformance.world import JSON, OCTETS, key_of
from tests.system.independent.client import make_batch_list

ROWS: list[Surrounded] = []


@surrounded(
    ROWS, "api/errors/31", "a full queue answers 429 with Retry-After and accepts nothing, until it has room again"
)
def _(nodes: Nodes) -> None:
    world = nodes.up(
        LIMITS_PENDING_BATCHES_MAX="3",
        LIMITS_PENDING_UNSERVED_PERCENT_MAX="100",
        LIMITS_PENDING_WAITING_PERCENT_MAX="100",
    )
    waits = world.waiting()
    held, release = world.held()
    world.accept(waits)
    world.accept(held)
    more = [world.new(), world.new()]
    answer = world.post(*more)
    error(31, "3")(answer, world)
    assert int(answer.headers["retry-after"]) >= 1
    assert world.words(*more) == ["UNKNOWN", "UNKNOWN"]
    filler = world.waiting()
    world.accept(filler)
    error(31)(world.post(release), world)
    # Pending and committed batches take no more room when they are submitted again.
    world.accept(waits, held, filler)
    assert world.words(waits, held, filler) == ["PENDING"] * 3


@surrounded(ROWS, "api/errors/31/room", "a decided batch frees its room in the queue")
def _(nodes: Nodes) -> None:
    world = nodes.up(
        LIMITS_PENDING_BATCHES_MAX="2",
        LIMITS_PENDING_UNSERVED_PERCENT_MAX="100",
        LIMITS_PENDING_WAITING_PERCENT_MAX="100",
    )
    held, release = world.held()
    world.accept(held)
    error(31)(world.post(world.new(), world.new()), world)
    world.commit(release)
    assert world.words(held, query="?wait=50") == ["COMMITTED"]
    world.commit(world.new(), world.new())


@surrounded(ROWS, "api/errors/31/transactions", "the queue has a limit of transactions too")
def _(nodes: Nodes) -> None:
    world = nodes.up(
        LIMITS_PENDING_TRANSACTIONS_MAX="3",
        LIMITS_PENDING_UNSERVED_PERCENT_MAX="100",
        LIMITS_PENDING_WAITING_PERCENT_MAX="100",
    )
    world.accept(world.batch(world.orphan(), world.orphan()))
    answer = world.post(world.batch(world.orphan(), world.orphan()))
    error(31, "3")(answer, world)
    assert int(answer.headers["retry-after"]) >= 1
    world.accept(world.waiting())


_BODY_BYTES: Final = 65_536
_OF_OPERATORS: Final = {
    "LIMITS_BODY_BYTES_MAX": str(_BODY_BYTES),
    "LIMITS_PAGE_ITEMS_DEFAULT": "2",
    "LIMITS_PAGE_ITEMS_MAX": "3",
    "REST_API_TRUSTED_PROXIES": "192.0.2.0/24",
}
"""Settings that do not disturb each other: their rows share a node."""


@surrounded(ROWS, "api/errors/36", "a body over the limit is refused before it is read whole")
def _(nodes: Nodes) -> None:
    _, world = nodes.shared_up(**_OF_OPERATORS)
    for path, kind in (("/batches", OCTETS), ("/batch_status", JSON)):
        with world.http.raw() as raw:
            # The header announces a body that is too large. The body is not sent.
            raw.send("POST", path, kind, ("Content-Length", str(_BODY_BYTES + 1)))
            error(36, str(_BODY_BYTES + 1), str(_BODY_BYTES))(raw.answer(), world)
        with world.http.raw() as raw:
            # The header does not announce the length of the body, and the body does not end.
            raw.send("POST", path, kind, ("Transfer-Encoding", "chunked"))
            raw.send_bytes(f"{_BODY_BYTES + 1:x}\r\n".encode() + b"x" * (_BODY_BYTES + 1) + b"\r\n")
            error(36, str(_BODY_BYTES))(raw.answer(), world)
        answer = world.http.ask(Request("POST", path, (kind,), b"x" * _BODY_BYTES))
        assert answer.status == 400
    payload = bytes(_BODY_BYTES - 2000)
    world.accept(world.batch(world.orphan(payload=payload)))


@surrounded(ROWS, "api/lists/count-limits", "the default and the maximum of count are settings")
def _(nodes: Nodes) -> None:
    _, world = nodes.shared_up(**_OF_OPERATORS)
    world.commit(world.batch(*(world.intkey("set", world.name(), 1) for _ in range(5))))
    for path in ("/transactions", "/state?address=1cf126"):
        joint = "&" if "?" in path else "?"
        assert len(world.http.get(path).json["data"]) == 2
        assert len(world.http.get(f"{path}{joint}count=5").json["data"]) == 3
        assert len(world.http.get(f"{path}{joint}max=4&count=5").json["data"]) == 3
    text = world.http.get("/status/config").body.decode()
    assert '"page_items_default":2' in text
    assert '"page_items_max":3' in text


@surrounded(
    ROWS, "api/lists/page-bytes", "a page of at least one item ends at its limit of bytes; next starts behind it"
)
def _(nodes: Nodes) -> None:
    for bytes_max, most in (("4500", 3), ("1", 1)):
        world = nodes.up(LIMITS_PAGE_BYTES_MAX=bytes_max)
        world.commit(*(world.new() for _ in range(4)))
        world.commit(*(world.new() for _ in range(4)))
        for path in LISTS:
            for query in ("", "?max=2", "?min=1", "?count=2", "?min=1&max=2"):
                page = world.http.get(path + query).json
                assert page["data"]
                if path == "/batches":
                    assert len(page["data"]) <= most
                first = to_the_end(world, page, "previous", {})[-1]
                assert first["paging"]["start_index"] == 0
                pages = to_the_end(world, first, "next", {})
                keys = [key_of(item) for entry in pages for item in entry["data"]]
                assert len(set(keys)) == len(keys) == page["paging"]["total_count"]
                back = to_the_end(world, pages[-1], "previous", {})
                assert [key_of(item) for entry in reversed(back) for item in entry["data"]] == keys
        page = world.http.get("/batches?max=3&count=4").json
        assert page["paging"]["start_index"] + len(page["data"]) == 4


@surrounded(ROWS, "seed/wait/own", "a wait without a number of seconds ends with 200 just before the API's timeout")
def _(nodes: Nodes) -> None:
    world = nodes.up(REST_API_TIMEOUT_S="2")
    batch = world.waiting()
    world.accept(batch)
    body, ids = make_batch_list([batch]), json.dumps([batch.id]).encode()
    for query in ("wait", "wait=", "wait=true", "wait=1.5"):
        with world.http.raw() as one, world.http.raw() as two, world.http.raw() as three:
            one.send("POST", f"/batches?{query}", OCTETS, ("Content-Length", str(len(body))), content=body)
            two.send("POST", f"/batch_status?{query}", JSON, ("Content-Length", str(len(ids))), content=ids)
            three.send("GET", f"/batch_status?id={batch.id}&{query}")
            for raw in (one, two, three):
                answer = raw.answer()
                assert (answer.status, answer.json["data"]) == (200, {batch.id: "PENDING"})


@surrounded(ROWS, "api/proxy/trusted", "forwarding headers count only from trusted_proxies")
def _(nodes: Nodes) -> None:
    _, world = nodes.shared_up(**_OF_OPERATORS)
    for headers in (
        (("X-Forwarded-Host", "a.example"),), (("X-Forwarded-Proto", "https"),), (("X-Forwarded-Path", "/p"),),
        (("Forwarded", "host=a.example;proto=https;path=/p"),), (("X-Forwarded-For", "192.0.2.1"),
                                                                ("X-Forwarded-Host", "a.example")),
        (("Forwarded", "for=192.0.2.1;host=a.example"),),
    ):  # fmt: skip
        answer = world.http.get("/blocks?count=1", *headers)
        parts = urlsplit(answer.json["link"])
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{world.http.url}/blocks"
