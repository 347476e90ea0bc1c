"""Rows on single resources and the state: members, refusals, and state at an old head."""

import base64
from functools import partial
from hashlib import sha512
from typing import Any, Final

from tests.conformance.table import Row, assert_link, data_is, error, get, keys_are, link, members, row, rule, status
from tests.conformance.world import UNKNOWN_ID, World
from tests.system.independent import cbor_map
from tests.system.independent.client import Batch, Transaction, intkey_address

ROWS: list[Row] = [
    row("seed/blocks/{id}", "one block, by its id", get("/blocks/{block}"), members("data", "head", "link"),
        data_is("{block}"), link("/blocks/{block}")),
    row("api/blocks/{num}", "a block may be named by its number", get("/blocks/{block_num}"), data_is("{block}"),
        link("/blocks/{block_num}")),
    row("seed/batches/{id}", "one batch, by its id", get("/batches/{batch}"), data_is("{batch}"),
        link("/batches/{batch}")),
    row("seed/transactions/{id}", "one transaction, by its id", get("/transactions/{transaction}"),
        data_is("{transaction}"), link("/transactions/{transaction}")),
    row("seed/batches/filter", "batches by id, in the order asked", get("/batches?id={batch},{other_batch}"),
        keys_are("{batch}", "{other_batch}")),
    row("api/resources/link-query", "a single resource's link is its URL, with the caller's parameters",
        get("/batches/{batch}?fields=header&x=1"), link("/batches/{batch}?fields=header&x=1")),
]  # fmt: skip

NO_IDS: Final = ("x", "E" * 128, "e" * 127, "e" * 129, "g" * 128, "-1", "1.5", "%20", "%00", "%C3%A9", "..%2Fx")
for _path, _code in (("/blocks", 70), ("/batches", 71), ("/transactions", 72)):
    ROWS.append(row(f"api/errors/{_code}/unknown", "an unknown id is refused, and the message names it",
                    get(f"{_path}/{UNKNOWN_ID}"), error(_code, UNKNOWN_ID)))  # fmt: skip
    ROWS += [
        row(f"api/errors/{_code}/no-id/{text[:4]}{len(text)}", "a text that is no id is refused with a message",
            get(f"{_path}/{text}"), error(_code, "no", "id", "128"))
        for text in NO_IDS
        if "%2F" not in text
    ]  # fmt: skip
ROWS += [
    row(
        f"api/errors/70/number/{text[:12]}/{len(text)}",
        "a number that no block has is refused",
        get(f"/blocks/{text}"),
        error(70),
    )
    for text in ("1000000000", "9" * 19, "9" * 21, "9" * 400)
]


# Members


def _transaction_as_sent(found: Any, sent: Transaction) -> None:
    header = sent.header
    assert found == {
        "header": {
            "batcher_pubkey": header.batcher_pubkey,
            "dependencies": list(header.dependencies),
            "family_name": header.family_name,
            "family_version": header.family_version,
            "inputs": list(header.inputs),
            "nonce": header.nonce,
            "outputs": list(header.outputs),
            "payload_encoding": header.payload_encoding,
            "payload_sha512": sha512(sent.payload).hexdigest(),
            "signer_pubkey": header.signer_pubkey,
        },
        "header_signature": sent.id,
        "payload": base64.b64encode(sent.payload).decode(),
    }


def _batch_as_sent(found: Any, sent: Batch) -> None:
    assert list(found) == ["header", "header_signature", "transactions"]
    assert found["header"] == {
        "signer_pubkey": sent.header.signer_pubkey,
        "transaction_ids": list(sent.header.transaction_ids),
    }
    assert found["header_signature"] == sent.id
    for item, transaction in zip(found["transactions"], sent.transactions, strict=True):
        _transaction_as_sent(item, transaction)


@rule(ROWS, "seed/transactions/json", "a transaction in JSON has every member of its header, and its payload in base64")
def _(world: World) -> None:
    first = world.intkey("set", world.name(), 1)
    second = world.intkey("set", world.name(), 2, dependencies=[first.id])
    world.commit(world.batch(first, second))
    for sent in (first, second):
        _transaction_as_sent(world.http.get(f"/transactions/{sent.id}").json["data"], sent)


@rule(ROWS, "seed/batches/json", "a batch in JSON has its header, its id and its transactions")
def _(world: World) -> None:
    batch = world.batch(world.intkey("set", world.name(), 1), world.intkey("set", world.name(), 2))
    world.commit(batch)
    _batch_as_sent(world.http.get(f"/batches/{batch.id}").json["data"], batch)
    _batch_as_sent(world.http.get(f"/batches?id={batch.id}").json["data"][0], batch)


@rule(ROWS, "seed/blocks/json", "a block in JSON has the members of its header, its id and its batches")
def _(world: World) -> None:
    block = world.http.get(world.fill("/blocks/{block}")).json["data"]
    header = block["header"]
    assert set(block) == {"header", "header_signature", "batches"}
    assert list(header) == [
        "batch_ids", "block_num", "consensus", "previous_block_id", "signer_pubkey", "state_root_hash",
    ]  # fmt: skip
    assert isinstance(header["block_num"], int)
    base64.b64decode(header["consensus"], validate=True)
    assert header["batch_ids"] == [batch["header_signature"] for batch in block["batches"]]
    own = {batch.id: batch for batch in world.posted[4]}
    for found in block["batches"]:
        if found["header_signature"] in own:
            _batch_as_sent(found, own[found["header_signature"]])
    assert world.names["batch"] in header["batch_ids"]
    older = world.http.get(f"/blocks/{header['previous_block_id']}").json["data"]
    assert older["header"]["block_num"] == header["block_num"] - 1
    assert world.http.get(f"/blocks?id={block['header_signature']}").json["data"] == [block]


@rule(ROWS, "api/resources/pending", "a pending batch and its transactions are not found")
def _(world: World) -> None:
    batch = world.waiting()
    world.accept(batch)
    error(71, batch.id)(world.http.get(f"/batches/{batch.id}"), world)
    error(72, batch.transactions[0].id)(world.http.get(f"/transactions/{batch.transactions[0].id}"), world)


@rule(ROWS, "seed/batches/3-payload", "the payload has the hash that was signed")
def _(world: World) -> None:
    data = world.http.get(world.fill("/transactions/{transaction}")).json["data"]
    payload = base64.b64decode(data["payload"], validate=True)
    assert sha512(payload).hexdigest() == data["header"]["payload_sha512"]


# State


def _leaf(world: World, target: str) -> tuple[dict[str, Any], dict[str, Any]]:
    content = world.http.get(target).json
    return content, cbor_map.decode_map(base64.b64decode(content["data"], validate=True))


@rule(ROWS, "seed/state/{address}", "a leaf's bytes in base64, and the head at which they were read")
def _(world: World) -> None:
    name = world.name()
    world.commit(world.batch(world.intkey("set", name, 42)))
    target = f"/state/{intkey_address(name)}"
    content, leaf = _leaf(world, target)
    assert list(content) == ["data", "head", "link"]
    assert leaf == {name: 42}
    num = world.http.get(f"/blocks/{content['head']}").json["data"]["header"]["block_num"]
    assert num > int(world.names["head_num"])
    assert world.http.follow(content["link"]).json["data"] == content["data"]
    assert content["link"].startswith(world.http.url + target)


@rule(ROWS, "api/state/{address}/old-head", "state is read as it was at head, by id and by number")
def _(world: World) -> None:
    inc = world.posted[-1][0].transactions[0]
    address = inc.header.inputs[0]
    name = world.leaves[address]
    for head, value in (("{old_head}", 10), ("{head}", 15), ("{first_head}", 10), ("{head_num}", 15)):
        content, leaf = _leaf(world, world.fill(f"/state/{address}?head={head}"))
        assert leaf == {name: value}
        assert content["head"] == world.fill(head) or head == "{head_num}"
    assert content["head"] == world.head


@rule(ROWS, "api/state/{address}/before", "a leaf that was set after head is not found at head")
def _(world: World) -> None:
    address = world.posted[1][0].transactions[0].header.inputs[0]
    first = world.names["first_head"]
    error(75, address, first)(world.http.get(f"/state/{address}?head={first}"), world)
    assert world.http.get(f"/state/{address}?head={world.head}").status == 200


@rule(ROWS, "api/state/{prefix}", "a prefix lists the leaves under the prefix, with address and bytes, head and paging")
def _(world: World) -> None:
    content = world.http.get(world.fill("/state/{prefix}?head={head}")).json
    assert list(content) == ["data", "head", "link", "paging"]
    assert [leaf["address"] for leaf in content["data"]] == list(world.leaves)
    assert content["paging"] == {"start_index": 0, "total_count": 5}
    for leaf in content["data"]:
        assert list(leaf) == ["address", "data"]
        single = world.http.get(f"/state/{leaf['address']}?head={world.head}").json
        assert single["data"] == leaf["data"]
    listed = world.http.get(world.fill("/state?address={prefix}&head={head}")).json
    assert (listed["data"], listed["paging"]) == (content["data"], content["paging"])


@rule(ROWS, "api/state/{prefix}/old-head", "the leaves under a prefix as they were at head")
def _(world: World) -> None:
    first = world.posted[0][0].transactions[0].header.inputs[0]
    for path in ("/state?address={prefix}&", "/state/{prefix}?"):
        content = world.http.get(world.fill(f"{path}head={{first_head}}")).json
        assert [leaf["address"] for leaf in content["data"]] == [first]
        assert content["head"] == world.names["first_head"]


@rule(ROWS, "seed/state/address", "address limits the list to leaves under a prefix; an empty one lists all leaves")
def _(world: World) -> None:
    whole = world.http.get(world.fill("/state?head={head}&count=1")).json["paging"]["total_count"]
    assert world.http.get(world.fill("/state?head={head}&count=1&address=")).json["paging"]["total_count"] == whole
    family = world.http.get(world.fill("/state?head={head}&address=1cf126")).json
    assert 5 <= family["paging"]["total_count"] < whole
    assert all(leaf["address"].startswith("1cf126") for leaf in family["data"])
    one = world.http.get(world.fill("/state?head={head}&address={address}")).json
    assert [leaf["address"] for leaf in one["data"]] == [world.names["address"]]


ROWS += [
    row("api/state/list-empty", "a list under a prefix without leaves is empty",
        get("/state?address={absent}"), members("data", "head", "link", "paging"),
        lambda answer, _: _is_empty(answer.json)),
    row("api/errors/75/address", "an address without leaf is refused with its name", get("/state/{absent}"),
        error(75, "{absent}")),
    row("api/errors/75/prefix", "a prefix without leaves is refused with its name",
        get("/state/{prefix}ffffffffff"), error(75, "{prefix}ffffffffff")),
]  # fmt: skip


def _is_empty(content: Any) -> None:
    assert content["data"] == []
    assert content["paging"] == {"start_index": 0, "total_count": 0}


ROWS += [
    row(f"api/errors/62/{form}/{text[:8]}{len(text)}", "an address must be lower-case hex, even, at most 70",
        get(target.format(text)), error(62))
    for form, target in (("path", "/state/{}"), ("query", "/state?address={}"))
    for text in ("1CF126", "1cf12", "xyz!", "1" * 72, "1" * 71, "1" * 69, "%20", "0x", "%C3%A9%C3%A9", "1" * 4000)
]  # fmt: skip


def _by_address(world: World, path: str) -> None:
    absent = world.names["absent"]
    joint = "&" if "?" in path else "?"
    for query in (f"min={absent}", f"max={absent}", f"min={UNKNOWN_ID}", "min=00"):
        answer = world.http.get(world.fill(f"{path}{joint}head={{head}}&{query}"))
        if query != "min=00":
            error(54)(answer, world)


ROWS += [
    Row(f"api/errors/54{path}/address", "a min or max that is an address without leaf is refused",
        partial(_by_address, path=path))
    for path in ("/state?address={prefix}", "/state/{prefix}", "/state")
]  # fmt: skip


@rule(ROWS, "api/state/link", "the link of state under a prefix names the head and can be followed")
def _(world: World) -> None:
    answer = world.http.get(world.fill("/state/{prefix}?count=2"))
    assert_link(
        answer.json["link"], world.http.url, world.fill(f"/state/{{prefix}}?head={answer.json['head']}&count=2")
    )
    assert world.http.follow(answer.json["link"]).json == answer.json


ROWS.append(
    row("seed/state/{address}/reserved", "fields and omit are accepted", get("/state/{address}?fields=data&omit=x"),
        status(200))
)  # fmt: skip
