"""Rows on GET and POST /batch_status: the four statuses, their details, and how a status changes."""

from tests.conformance.table import Row, assert_link, rule
from tests.conformance.world import UNKNOWN_ID, World

ROWS: list[Row] = []


@rule(ROWS, "seed/status/words", "COMMITTED, INVALID, PENDING and UNKNOWN, by both operations")
def _(world: World) -> None:
    committed, invalid, pending = world.new(), world.bad(), world.waiting()
    world.accept(committed, invalid, pending)
    world.words(committed, invalid, query="?wait=50")
    wanted = {committed.id: "COMMITTED", invalid.id: "INVALID", pending.id: "PENDING", UNKNOWN_ID: "UNKNOWN"}
    posted = world.status(*wanted)
    got = world.http.get(f"/batch_status?id={','.join(wanted)}").json
    assert posted["data"] == got["data"] == wanted
    assert posted["details"] == got["details"]
    assert list(got["data"]) == list(posted["data"]) == list(wanted)
    assert set(got["details"]) == {invalid.id, pending.id}


@rule(ROWS, "seed/GET-batch_status/members", "no head and no paging; details only if there are any")
def _(world: World) -> None:
    batch = world.new()
    world.commit(batch)
    answer = world.http.get(f"/batch_status?id={batch.id}")
    assert list(answer.json) == ["data", "link"]
    assert_link(answer.json["link"], world.http.url, f"/batch_status?id={batch.id}")
    assert list(world.http.get(f"/batch_status?id={UNKNOWN_ID}").json) == ["data", "link"]


@rule(ROWS, "seed/POST-batch_status/members", "POST /batch_status has no link, with 1, 16 or 1000 ids")
def _(world: World) -> None:
    for count in (1, 16, 1000):
        ids = [f"{number:0128x}" for number in range(1, count + 1)]
        content = world.status(*ids)
        assert list(content) == ["data"]
        assert content["data"] == dict.fromkeys(ids, "UNKNOWN")


@rule(ROWS, "seed/GET-batch_status/many", "GET /batch_status takes 1000 ids, separated by commas or in several id")
def _(world: World) -> None:
    ids = [f"{number:0128x}" for number in range(1, 1001)]
    assert list(world.http.get(f"/batch_status?id={','.join(ids)}").json["data"]) == ids
    assert list(world.http.get(f"/batch_status?id={ids[0]}&id={ids[1]}").json["data"]) == ids[:2]


@rule(ROWS, "api/status/twice", "an id that is named twice is one member")
def _(world: World) -> None:
    assert world.status(UNKNOWN_ID, UNKNOWN_ID)["data"] == {UNKNOWN_ID: "UNKNOWN"}
    assert world.http.get(f"/batch_status?id={UNKNOWN_ID},{UNKNOWN_ID}").json["data"] == {UNKNOWN_ID: "UNKNOWN"}


@rule(ROWS, "api/status/unknown/not-an-id", "a string that is no id is UNKNOWN with reason not_an_id, not an error")
def _(world: World) -> None:
    strings = ["x", "E" * 128, "e" * 127, "e" * 129, "é", "g" * 128]
    content = world.status(*strings, UNKNOWN_ID)
    assert content["data"] == dict.fromkeys([*strings, UNKNOWN_ID], "UNKNOWN")
    assert content["details"] == {text: {"reason": "not_an_id"} for text in strings}
    got = world.http.get("/batch_status?id=x,y")
    assert got.json["details"] == {"x": {"reason": "not_an_id"}, "y": {"reason": "not_an_id"}}


@rule(ROWS, "seed/status/unknown/waits", "a wait for an id that is not submitted yet lasts until its commit")
def _(world: World) -> None:
    batch = world.new()
    with world.http.raw() as raw:
        raw.send("GET", f"/batch_status?id={batch.id}&wait=50")
        answer = world.held_answer(raw, batch)
    assert (answer.status, answer.json["data"]) == (200, {batch.id: "COMMITTED"})


@rule(ROWS, "seed/status/unknown/runs-out", "a wait for an id that is never submitted ends with UNKNOWN")
def _(world: World) -> None:
    assert world.status(UNKNOWN_ID, query="?wait=1")["data"] == {UNKNOWN_ID: "UNKNOWN"}


@rule(ROWS, "api/status/unknown/waits-not", "a wait for a string that is no id ends at once")
def _(world: World) -> None:
    with world.http.raw() as raw:
        raw.send("GET", "/batch_status?id=x&wait=50")
        answer = raw.answer()
    assert (answer.status, answer.json["data"]) == (200, {"x": "UNKNOWN"})


@rule(ROWS, "api/status/invalid/transaction", "INVALID: reason, transaction_id, message and extended_data in base64")
def _(world: World) -> None:
    batch = world.bad()
    details = world.reject(batch)["details"][batch.id]
    assert list(details) == ["reason", "transaction_id", "message", "extended_data"]
    assert details["reason"] == "invalid_transaction"
    assert details["transaction_id"] == batch.transactions[1].id
    assert "does not exist" in details["message"]
    assert details["extended_data"] == ""


@rule(ROWS, "api/status/invalid/dependency", "an INVALID dependency makes the batch INVALID at once")
def _(world: World) -> None:
    bad = world.bad()
    assert world.reject(bad)["data"] == {bad.id: "INVALID"}
    follower = world.batch(world.intkey("set", world.name(), 1, dependencies=[bad.transactions[0].id]))
    content = world.reject(follower)
    assert content["data"] == {follower.id: "INVALID"}
    assert content["details"][follower.id]["reason"] == "dependency_invalid"


@rule(ROWS, "api/status/pending/processor", "PENDING waiting_for_processor names family and version")
def _(world: World) -> None:
    family = world.family()
    batch = world.batch(world.orphan(family))
    world.accept(batch)
    world.commit(world.new())
    assert world.status(batch.id)["details"] == {batch.id: {
        "reason": "waiting_for_processor", "family_name": family, "family_version": "1.0",
    }}  # fmt: skip


@rule(ROWS, "api/status/pending/dependency", "PENDING waiting_for_dependency names the dependency")
def _(world: World) -> None:
    batch, release = world.held()
    world.accept(batch)
    world.commit(world.new())
    assert world.status(batch.id)["details"] == {batch.id: {
        "reason": "waiting_for_dependency", "dependency": release.transactions[0].id,
    }}  # fmt: skip
    world.commit(release)
    assert world.words(batch, query="?wait=50") == ["COMMITTED"]


@rule(ROWS, "api/status/transitions", "UNKNOWN, then PENDING on acceptance, then COMMITTED, which is final")
def _(world: World) -> None:
    batch, release = world.held()
    assert world.words(batch) == ["UNKNOWN"]
    world.accept(batch)
    assert world.words(batch) == ["PENDING"]
    world.commit(release)
    assert world.words(batch, query="?wait=50") == ["COMMITTED"]
    assert world.words(batch) == ["COMMITTED"]


@rule(ROWS, "api/status/duplicate-transaction", "a batch with a transaction that another batch committed is INVALID")
def _(world: World) -> None:
    transaction = world.intkey("set", world.name(), 1)
    world.commit(world.batch(transaction))
    again = world.batch(transaction, world.intkey("set", world.name(), 1))
    content = world.reject(again)
    assert content["data"] == {again.id: "INVALID"}
    assert content["details"][again.id]["transaction_id"] == transaction.id
