"""Rows on POST /batches and the status of batches: acceptance, refusals, waits, effects."""

from dataclasses import replace
from functools import partial
from typing import Final

from tests.conformance.table import Row, assert_link, error, get, post_json, post_octets, row, rule
from tests.conformance.world import OCTETS, World
from tests.system.independent import client as ledger
from tests.system.independent import secp256k1
from tests.system.independent.client import Batch, make_batch_list, make_sample, mutations, variants

ROWS: list[Row] = []


# POST /batches: answers


@rule(ROWS, "seed/POST-batches/1/list", "the link of a 202 leads to the status of every batch of the list")
def _(world: World) -> None:
    batches = [world.new() for _ in range(3)]
    answer = world.post(*batches)
    assert answer.status == 202
    assert_link(answer.json["link"], world.http.url, f"/batch_status?id={','.join(batch.id for batch in batches)}")


@rule(ROWS, "seed/POST-batches/2", "if all batches commit during the wait: 201 with a link to these batches")
def _(world: World) -> None:
    batches = [world.new() for _ in range(3)]
    answer = world.commit(*batches)
    assert list(answer.json) == ["link"]
    assert_link(answer.json["link"], world.http.url, f"/batches?id={','.join(batch.id for batch in batches)}")
    found = world.http.follow(answer.json["link"]).json
    assert [item["header_signature"] for item in found["data"]] == [batch.id for batch in batches]


@rule(ROWS, "seed/POST-batches/3", "if the wait ends earlier: 200 with data and a link to /batch_status")
def _(world: World) -> None:
    waits, commits = world.waiting(), world.new()
    answer = world.post(waits, commits, query="?wait=1")
    assert answer.status == 200
    assert list(answer.json) == ["data", "details", "link"]
    assert answer.json["data"][waits.id] == "PENDING"
    assert list(answer.json["data"]) == [waits.id, commits.id]
    assert_link(answer.json["link"], world.http.url, f"/batch_status?id={waits.id},{commits.id}")


@rule(ROWS, "api/submission/wait-invalid", "an INVALID batch ends the wait at once with 200")
def _(world: World) -> None:
    good, bad = world.new(), world.bad()
    content = world.reject(good, bad)
    assert content["data"] == {good.id: "COMMITTED", bad.id: "INVALID"}


# Refusals


ROWS += [
    row("api/errors/34/empty-body", "an empty body is refused", post_octets("/batches", b""), error(34)),
    row("api/errors/34/no-batch", "a list without a batch is refused",
        post_octets("/batches", b"\xfa\x01\x01x"), error(34)),
    *(
        row(f"api/errors/35/{name}", "a body that is no BatchList is refused", post_octets("/batches", content),
            error(35))
        for name, content in (("text", b"hello"), ("cut", b"\x0a\x7f"), ("wrong-type", b"\x08\x01\x0a"),
                              ("json", b'{"batches": []}'), ("bad-batch", b"\x0a\x01\xff"))
    ),
    *(
        row(f"api/errors/46/{content.decode()[:24]}", "a body that is no JSON array of one or more ids is refused",
            post_json("/batch_status", content), error(46))
        for content in (b"", b"[]", b"{}", b'"x"', b"null", b"[1]", b'["a", 1]', b"[[]]", b"text", b'["a"', b"[null]")
    ),
    row("api/errors/46/1001", "over 1000 ids in a body are refused",
        post_json("/batch_status", b"[" + b",".join(b'"%d"' % number for number in range(1001)) + b"]"),
        error(46, "1001", "1000")),
    row("api/errors/46/not-utf8", "a body that is not UTF-8 is refused", post_json("/batch_status", b'["\xff"]'),
        error(46)),
    row("api/errors/66/absent", "GET /batch_status without id is refused", get("/batch_status"), error(66, "id")),
    row("api/errors/66/empty", "an empty id is refused", get("/batch_status?id="), error(66)),
    row("api/errors/66/bare", "a bare id is refused", get("/batch_status?id"), error(66)),
    row("api/errors/66/commas", "an id of commas alone is refused", get("/batch_status?id=,,,"), error(66)),
    row("api/errors/66/1001", "over 1000 ids are refused",
        get(f"/batch_status?id={','.join(str(number) for number in range(1001))}"), error(66, "1001", "1000")),
]  # fmt: skip

_SAMPLE: Final = make_sample("conformance")


def _forged(world: World, index: int) -> None:
    """A list of a good batch and a forged one is refused as a whole: the status of both batches is UNKNOWN."""
    sample = make_sample(f"conformance {world.run} {index}")
    name, batch_list, _ = list(mutations(sample.batch, batch_key=sample.batch_key,
                                         transaction_keys=sample.transaction_keys))[index]  # fmt: skip
    good = world.new()
    forged = ledger.read_batch_list(batch_list)[0]
    for content in (batch_list, make_batch_list([good]) + batch_list):
        answer = world.http.ask(post_octets("/batches", content))
        error(30)(answer, world)
        assert answer.error["message"], name
    assert world.words(good) == ["UNKNOWN"]
    if len(forged.id) == 128:
        data = world.status(forged.id)["data"]
        assert data == {forged.id: "UNKNOWN"}
    if forged.id == sample.batch.id:
        # After the refusal of a forged copy, the genuine batch is still accepted.
        world.commit(sample.batch)


ROWS += [
    Row(f"seed/batches/forged/{mutation.name}", f"the whole list is refused with code 30: {mutation.rule}",
        partial(_forged, index=index))
    for index, mutation in enumerate(
        mutations(_SAMPLE.batch, batch_key=_SAMPLE.batch_key, transaction_keys=_SAMPLE.transaction_keys)
    )
]  # fmt: skip


def _unusual(world: World, index: int) -> None:
    sample = make_sample(f"conformance {world.run} variant {index}")
    found = list(variants(sample.batch, batch_key=sample.batch_key, transaction_keys=sample.transaction_keys))[index]
    answer = world.http.ask(post_octets("/batches?wait=50", found.batch_list))
    assert answer.status == 201, answer.shown()


ROWS += [
    Row(f"seed/batches/good/{variant.name}", f"accepted and committed: {variant.rule}", partial(_unusual, index=index))
    for index, variant in enumerate(
        variants(_SAMPLE.batch, batch_key=_SAMPLE.batch_key, transaction_keys=_SAMPLE.transaction_keys)
    )
]


@rule(ROWS, "api/errors/30/message", "the message names the batch, the transaction and the error")
def _(world: World) -> None:
    batch = world.new()
    forged = replace(batch, transactions=(replace(batch.transactions[0], payload=b"other"),))
    answer = world.post(forged)
    error(30, batch.id, batch.transactions[0].id)(answer, world)


@rule(ROWS, "api/errors/36/announced", "a body whose announced length is over the limit is refused before it is sent")
def _(world: World) -> None:
    bytes_max = world.http.get("/status/config").json["data"]["rest_api"]["body_bytes_max"]
    with world.http.raw() as raw:
        raw.send("POST", "/batches", OCTETS, ("Content-Length", str(bytes_max + 1)))
        error(36, str(bytes_max), str(bytes_max + 1))(raw.answer(), world)


# Effects of a batch


@rule(ROWS, "seed/service/2", "a batch is applied whole or not at all; an invalid transaction makes it INVALID")
def _(world: World) -> None:
    name = world.name()
    batch = world.batch(world.intkey("set", name, 1), world.intkey("inc", world.name(), 1))
    assert world.reject(batch)["data"] == {batch.id: "INVALID"}
    error(75)(world.http.get(f"/state/{ledger.intkey_address(name)}"), world)
    error(71)(world.http.get(f"/batches/{batch.id}"), world)


@rule(ROWS, "seed/service/3", "transactions of a batch are applied in the order listed")
def _(world: World) -> None:
    name = world.name()
    first, second = world.intkey("set", name, 1), world.intkey("inc", name, 1)
    assert world.reject(world.batch(second, first))["details"]
    world.commit(world.batch(first, second))


@rule(ROWS, "seed/service/4", "any payload is accepted: only its family's processor reads it")
def _(world: World) -> None:
    world.accept(world.batch(world.orphan(payload=bytes(range(256)))), world.batch(world.orphan(payload=b"")))


@rule(ROWS, "seed/service/5", "transactions of several families may share one batch")
def _(world: World) -> None:
    world.accept(world.batch(world.intkey("set", world.name(), 1), world.orphan(), world.orphan()))


@rule(ROWS, "seed/service/6", "a transaction and its batch may be signed by different keys")
def _(world: World) -> None:
    sample = make_sample(f"conformance {world.run} keys")
    signers = {item.header.signer_pubkey for item in sample.batch.transactions} | {sample.batch.header.signer_pubkey}
    assert len(signers) == 3
    world.commit(sample.batch)


def _declared(world: World, name: str, inputs: list[str], outputs: list[str]) -> Batch:
    return world.batch(
        ledger.make_intkey_transaction(world.key, world.public_key, "set", name, 1, inputs=inputs, outputs=outputs)
    )


@rule(ROWS, "seed/batches/5", "declared inputs and outputs are enforced; a prefix stands for all addresses under it")
def _(world: World) -> None:
    name = world.name()
    address = ledger.intkey_address(name)
    for inputs, outputs in (([], [address]), ([address], []), ([address], ["000000"]), (["000000"], [address])):
        batch = _declared(world, name, inputs, outputs)
        assert world.reject(batch)["data"] == {batch.id: "INVALID"}
    world.commit(_declared(world, name, [address[:6]], [address[:20]]))


@rule(ROWS, "seed/batches/6", "transactions of one batch need no declared dependencies; across batches they hold")
def _(world: World) -> None:
    name = world.name()
    first = world.intkey("set", name, 1)
    world.commit(world.batch(first, world.intkey("inc", name, 1)))
    world.commit(world.batch(world.intkey("inc", name, 1, dependencies=[first.id])))


@rule(ROWS, "seed/batches/7", "batches that use the same address take effect in their order, dependencies or not")
def _(world: World) -> None:
    name = world.name()
    world.commit(*(world.batch(world.intkey(verb, name, value)) for verb, value in
                   (("set", 5), ("inc", 7), ("dec", 12), ("inc", 1))))  # fmt: skip


@rule(ROWS, "seed/versioning/1", "a version without processor waits, even if the family's other versions have one")
def _(world: World) -> None:
    batch = world.batch(
        ledger.make_intkey_transaction(world.key, world.public_key, "set", world.name(), 1, family_version="0.0.conf")
    )
    world.accept(batch)
    world.commit(world.new())
    content = world.status(batch.id)
    assert content["data"] == {batch.id: "PENDING"}
    assert content["details"] == {batch.id: {
        "reason": "waiting_for_processor", "family_name": "intkey", "family_version": "0.0.conf",
    }}  # fmt: skip


# Submitted again


@rule(ROWS, "api/submission/again/committed", "a committed batch is accepted again, without a second effect")
def _(world: World) -> None:
    name = world.name()
    world.commit(world.batch(world.intkey("set", name, 1)))
    batch = world.batch(world.intkey("inc", name, 1))
    world.commit(batch)
    leaf = world.http.get(f"/state/{ledger.intkey_address(name)}").json["data"]
    assert world.post(batch).status == 202
    world.commit(batch)
    assert world.http.get(f"/state/{ledger.intkey_address(name)}").json["data"] == leaf
    assert world.http.get(f"/batches?id={batch.id}").json["paging"]["total_count"] == 1


@rule(ROWS, "api/submission/again/pending", "a pending batch is accepted again, without a second effect")
def _(world: World) -> None:
    batch, release = world.held()
    world.accept(batch)
    world.accept(batch)
    world.accept(batch, batch)
    assert world.words(batch) == ["PENDING"]
    world.commit(release)
    world.commit(batch)


@rule(ROWS, "api/submission/again/invalid", "an INVALID batch is accepted again and executed again")
def _(world: World) -> None:
    name = world.name()
    batch = world.batch(world.intkey("inc", name, 1))
    assert world.reject(batch)["data"] == {batch.id: "INVALID"}
    world.commit(world.batch(world.intkey("set", name, 1)))
    assert world.words(batch) == ["INVALID"]
    world.commit(batch)
    assert world.words(batch) == ["COMMITTED"]


@rule(ROWS, "seed/batches/key-encoding", "the signature must belong to the named public key")
def _(world: World) -> None:
    other = secp256k1.public_key(secp256k1.private_key_from("somebody else"))
    forged = ledger.make_batch(world.key, world.new().transactions, signer_public_key=other)
    error(30)(world.post(forged), world)
