"""Rows on ``wait``: its forms on the three operations that have it, and the end of a wait."""

from functools import partial
from typing import Final

from tests.conformance.table import Row, assert_link, error, rule
from tests.conformance.wire import Raw
from tests.conformance.world import JSON, OCTETS, World
from tests.system.independent.client import Batch, make_batch_list

ROWS: list[Row] = []
OWN_WAIT: Final = ("?wait", "?wait=", "?wait=true", "?wait=abc", "?wait=1.5", "?wait=None", "?wait=0x5", "?wait=+")
SECONDS: Final = ("?wait=5", "?wait=50", "?wait=" + "9" * 40)
NO_WAIT: Final = ("", "?wait=false", "?wait=False", "?wait=FALSE", "?wait=0", "?wait=-0", "?wait=00")
NEGATIVE: Final = ("?wait=-1", "?wait=-" + "9" * 40)


def _accepted_at_once(world: World, query: str) -> None:
    batch = world.waiting()
    answer = world.post(batch, query=query)
    assert answer.status == 202
    assert list(answer.json) == ["link"]
    assert_link(answer.json["link"], world.http.url, f"/batch_status?id={batch.id}")
    assert world.http.follow(answer.json["link"]).json["data"] == {batch.id: "PENDING"}


def _send(world: World, raw: Raw, operation: str, query: str, batch: Batch) -> None:
    ids = f'["{batch.id}"]'.encode()
    if operation == "POST-batches":
        body = make_batch_list([batch])
        raw.send("POST", f"/batches{query}", OCTETS, ("Content-Length", str(len(body))), content=body)
    elif operation == "POST-batch_status":
        raw.send("POST", f"/batch_status{query}", JSON, ("Content-Length", str(len(ids))), content=ids)
    else:
        raw.send("GET", f"/batch_status?id={batch.id}{query.replace('?', '&')}")


def _held(world: World, operation: str, query: str) -> None:
    batch, release = world.held()
    if operation != "POST-batches":
        world.accept(batch)
    with world.http.raw() as raw:
        _send(world, raw, operation, query, batch)
        answer = world.held_answer(raw, release)
    if operation == "POST-batches":
        assert answer.status == 201, answer.shown()
    else:
        assert (answer.status, answer.json["data"]) == (200, {batch.id: "COMMITTED"})


def _at_once(world: World, operation: str, query: str) -> None:
    batch = world.waiting()
    world.accept(batch)
    with world.http.raw() as raw:
        _send(world, raw, operation, query, batch)
        answer = raw.answer()
    assert (answer.status, answer.json["data"]) == (200, {batch.id: "PENDING"})


def _negative(world: World, operation: str, query: str) -> None:
    batch = world.new()
    with world.http.raw() as raw:
        _send(world, raw, operation, query, batch)
        answer = raw.answer()
    error(55, "wait", "-")(answer, world)
    assert world.words(batch) == ["UNKNOWN"]


def _runs_out(world: World, operation: str) -> None:
    batch = world.waiting()
    world.accept(batch)
    with world.http.raw() as raw:
        _send(world, raw, operation, "?wait=1", batch)
        answer = raw.answer()
    assert (answer.status, answer.json["data"]) == (200, {batch.id: "PENDING"})


for _operation in ("POST-batches", "GET-batch_status", "POST-batch_status"):
    for _query in (*OWN_WAIT, *SECONDS):
        _number = "3" if _query in SECONDS else "4"
        ROWS.append(
            Row(f"seed/{_operation}/{_number}/{_query[:20]}", "the answer is held until all are decided",
                partial(_held, operation=_operation, query=_query))
        )  # fmt: skip
    ROWS += [
        Row(f"api/errors/55/{_operation}/{query[:20]}", "a negative wait is refused, and nothing is accepted",
            partial(_negative, operation=_operation, query=query))
        for query in NEGATIVE
    ]  # fmt: skip
    ROWS.append(Row(f"seed/{_operation}/runs-out", "a wait that ends early is 200 with PENDING",
                    partial(_runs_out, operation=_operation)))  # fmt: skip
ROWS += [
    Row(f"seed/POST-batches/1/{query or 'absent'}", "wait absent, false or 0: 202 at once, no data, a link",
        partial(_accepted_at_once, query=query))
    for query in NO_WAIT
] + [
    Row(f"seed/{operation}/no-wait/{query or 'absent'}", "wait absent, false or 0 does not wait",
        partial(_at_once, operation=operation, query=query))
    for operation in ("GET-batch_status", "POST-batch_status")
    for query in NO_WAIT
]  # fmt: skip


@rule(ROWS, "api/submission/wait-all", "the wait ends when every batch is decided, not at the first")
def _(world: World) -> None:
    batch, release = world.held()
    done = world.new()
    world.commit(done)
    world.accept(batch)
    with world.http.raw() as raw:
        raw.send("GET", f"/batch_status?id={done.id},{batch.id}&wait=50")
        answer = world.held_answer(raw, release)
    assert answer.json["data"] == {done.id: "COMMITTED", batch.id: "COMMITTED"}
