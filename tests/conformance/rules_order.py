"""Rows on the items of lists: their order, the head that bounds them, and the filter by ids."""

from functools import partial
from itertools import pairwise

from tests.conformance.rules_answers import LISTS
from tests.conformance.rules_links import walk
from tests.conformance.rules_lists import BY_ID, ask
from tests.conformance.table import Row, error, get, row, rule, status
from tests.conformance.world import UNKNOWN_ID, World, key_of

ROWS: list[Row] = []


@rule(ROWS, "api/lists/order/blocks", "blocks run from the head to genesis, each naming the one after it")
def _(world: World) -> None:
    blocks = ask(world, "/blocks", "&count=20")["data"]
    assert blocks[0]["header_signature"] == world.head
    for block, older in pairwise(blocks):
        assert block["header"]["previous_block_id"] == older["header_signature"]
        assert block["header"]["block_num"] == older["header"]["block_num"] + 1
    total = ask(world, "/blocks", "&count=1")["paging"]["total_count"]
    assert total == blocks[0]["header"]["block_num"] + 1
    last = ask(world, "/blocks", f"&min={total - 1}")["data"]
    assert [block["header"]["block_num"] for block in last] == [0]


@rule(ROWS, "api/lists/order/batches", "batches follow the order of blocks, and inside a block the block's order")
def _(world: World) -> None:
    blocks = ask(world, "/blocks", "&count=20")["data"]
    wanted = [batch_id for block in blocks for batch_id in block["header"]["batch_ids"]]
    found = [key_of(batch) for batch in ask(world, "/batches", "&count=20")["data"]]
    assert found == wanted[: len(found)]
    assert len(found) > 5
    assert [batch.id for batch in world.posted[4]] == [entry for entry in found if entry in
                                                       {batch.id for batch in world.posted[4]}]  # fmt: skip


@rule(ROWS, "api/lists/order/transactions", "transactions follow the order of blocks and batches")
def _(world: World) -> None:
    batches = ask(world, "/batches", "&count=20")["data"]
    wanted = [entry for batch in batches for entry in batch["header"]["transaction_ids"]]
    found = [key_of(entry) for entry in ask(world, "/transactions", "&count=20")["data"]]
    assert found == wanted[: len(found)]
    assert len(found) > 8


@rule(ROWS, "api/lists/order/state", "leaves run in ascending address order")
def _(world: World) -> None:
    for path in ("/state", "/state?address=1cf126", "/state?address={prefix}"):
        addresses = [leaf["address"] for leaf in ask(world, path, "")["data"]]
        assert addresses == sorted(set(addresses))
    assert addresses == list(world.leaves)


# Head


def _head_bounds(world: World, path: str) -> None:
    first = world.names["first_head"]
    answer = world.http.get(f"{path}?head={first}&count=5")
    assert answer.json["head"] == first
    later = {batch.id for batches in world.posted[1:] for batch in batches}
    ids = {key_of(item) for item in answer.json["data"]}
    for item in answer.json["data"]:
        ids |= set(item["header"].get("batch_ids", ()))
    own = {"/blocks": first, "/batches": world.names["other_batch"], "/transactions": world.names["other_transaction"]}
    assert own[path] in ids
    assert not ids & later
    num = world.http.get(f"/blocks/{first}").json["data"]["header"]["block_num"]
    by_num = world.http.get(f"{path}?head={num}&count=5").json
    assert (by_num["head"], by_num["data"], by_num["paging"]) == (
        first, answer.json["data"], answer.json["paging"],
    )  # fmt: skip


ROWS += [
    Row(
        f"api/lists/head{path}",
        "head, an id or a number, bounds the list; the answer's head is that block's id",
        partial(_head_bounds, path=path),
    )
    for path in BY_ID
]


@rule(ROWS, "api/lists/head/zero", "head=0 is genesis")
def _(world: World) -> None:
    page = world.http.get("/blocks?head=0").json
    assert [block["header"]["block_num"] for block in page["data"]] == [0]
    assert page["paging"] == {"start_index": 0, "total_count": 1}
    assert page["head"] == page["data"][0]["header_signature"]


@rule(ROWS, "seed/envelope/head", "without head, the list is read at the chain's current head")
def _(world: World) -> None:
    batch = world.new()
    world.commit(batch)
    for path in LISTS:
        page = world.http.get(f"{path}?count=1").json
        num = world.http.get(f"/blocks/{page['head']}").json["data"]["header"]["block_num"]
        assert num > int(world.names["head_num"])


# The filter by ids


def _by_id(world: World, path: str) -> None:
    keys = world.reference(path).keys
    asked = [keys[3], UNKNOWN_ID, keys[0], "not-an-id", keys[2]]
    page = ask(world, path, f"&id={','.join(asked)}")
    assert [key_of(item) for item in page["data"]] == [keys[3], keys[0], keys[2]]
    assert page["paging"] == {"start_index": 0, "total_count": 3}
    none = ask(world, path, f"&id={UNKNOWN_ID}")
    assert (none["data"], none["paging"]) == ([], {"start_index": 0, "total_count": 0})
    none = ask(world, path, "&id=nothing")
    assert none["data"] == []


def _by_id_paged(world: World, path: str) -> None:
    keys = world.reference(path).keys
    asked = [keys[3], keys[0], keys[2], keys[1]]
    for query, wanted in (
        ("&count=2", asked[:2]), ("&min=1", asked[1:]), ("&max=2&count=2", asked[1:3]),
        (f"&min={asked[1]}&max={asked[2]}", asked[1:3]), ("&count=1&min=3", asked[3:]),
    ):  # fmt: skip
        page = ask(world, path, f"&id={','.join(asked)}{query}")
        assert [key_of(item) for item in page["data"]] == wanted
        assert page["paging"]["total_count"] == 4
    for query in ("&min=4", f"&min={UNKNOWN_ID}", "&min=2&max=1", f"&min={asked[2]}&max={asked[0]}"):
        answer = world.http.get(f"{path}?head={world.head}&id={','.join(asked)}{query}")
        error(54)(answer, world)
    for count in (1, 2, 3, 4):
        walk(world, path, f"&id={','.join(asked)}&count={count}")
        walk(world, path, f"&id={','.join(asked)}&count={count}&max=1")
        walk(world, path, f"&id={','.join(asked)}&count={count}&min=1&max=2")


def _by_id_at_head(world: World, path: str) -> None:
    keys = world.reference(path).keys
    page = world.http.get(f"{path}?head={world.names['first_head']}&id={keys[0]}").json
    assert page["data"] == []


for _path in BY_ID:
    ROWS += [
        Row(
            f"api/lists/id{_path}",
            "id filters: the order is the caller's, unknown ids are dropped",
            partial(_by_id, path=_path),
        ),
        Row(
            f"api/lists/id-paged{_path}",
            "count, min and max apply to the filtered list, and its links lead to both ends",
            partial(_by_id_paged, path=_path),
        ),
        Row(f"api/lists/id-head{_path}", "an id of an item after head is dropped", partial(_by_id_at_head, path=_path)),
        row(f"api/errors/66{_path}/empty", "an empty id is refused", get(f"{_path}?id="), error(66)),
        row(f"api/errors/66{_path}/commas", "an id of only commas is refused", get(f"{_path}?id=,,"), error(66)),
        row(
            f"api/errors/66{_path}/1001",
            "over 1000 ids are refused",
            get(f"{_path}?id={','.join(str(number) for number in range(1001))}"),
            error(66, "1001", "1000"),
        ),
        row(
            f"api/lists/id{_path}/1000",
            "1000 ids are taken",
            get(f"{_path}?id={','.join(f'{number:0128x}' for number in range(1, 1001))}"),
            status(200),
        ),
    ]
