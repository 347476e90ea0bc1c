"""Lists, their paging and links, and single resources."""

import base64
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from dovetail.ledger.batch import decode_batch_list
from dovetail.ledger.building import encode_batch_list
from dovetail.ledger.limits import Limits
from dovetail.rest_api.config import RestConfig
from protos import (
    batch_pb2,
    block_pb2,
    client_batch_pb2,
    client_block_pb2,
    client_transaction_pb2,
    state_context_pb2,
    transaction_pb2,
)
from tests.dovetail.rest_api.support import (
    SIGNER,
    Answer,
    Api,
    ListRequest,
    ListResponse,
    Type,
    error_of,
    make_batch,
    make_block,
    run,
    running_api,
)

BATCH = make_batch("one", "two")


BLOCK, BLOCK_RAW = make_block(3, BATCH)


HEAD = BLOCK.id


MESSAGE = batch_pb2.Batch.FromString(BATCH.raw)


TRANSACTIONS = list(MESSAGE.transactions)


UNKNOWN = "e" * 128


def leaf(number: int) -> bytes:
    address = f"1cf126{number:064x}"
    return state_context_pb2.TpStateEntry(address=address, data=bytes([number])).SerializeToString()


LEAVES = [leaf(number) for number in range(10)]


def listing(answer: Answer) -> dict[int, tuple[int, Answer]]:
    return {Type.LIST_REQUEST: (Type.LIST_RESPONSE, answer)}


def page_of_leaves(content: bytes) -> ListResponse:
    """The page of the ten leaves that the validator answers with; min and max are indexes or addresses."""
    asked = ListRequest.FromString(content)
    addresses = [state_context_pb2.TpStateEntry.FromString(entry).address for entry in LEAVES]

    def index(name: str) -> int:
        return addresses.index(name) if name in addresses else int(name)

    first, last = index(asked.min or "0"), index(asked.max or "9")
    if not asked.min and asked.max:
        first = max(0, last + 1 - asked.count)
    items = LEAVES[first : min(last + 1, first + asked.count)]
    return ListResponse(status=ListResponse.OK, head_id=HEAD, items=items, start_index=first, total_count=len(LEAVES))


def always(*items: bytes, start: int = 0, total: int | None = None) -> Answer:
    def answer(_: bytes) -> ListResponse:
        count = len(items) if total is None else total
        return ListResponse(status=ListResponse.OK, head_id=HEAD, items=items, start_index=start, total_count=count)

    return answer


async def question_of(api: Api) -> ListRequest:
    return ListRequest.FromString((await api.validator.asked.get()).content)


def expected_transaction(message: transaction_pb2.Transaction) -> dict[str, Any]:
    header = transaction_pb2.TransactionHeader.FromString(message.header)
    return {
        "header": {
            "batcher_pubkey": SIGNER.public_key,
            "dependencies": [],
            "family_name": "intkey",
            "family_version": "1.0",
            "inputs": ["1cf126"],
            "nonce": header.nonce,
            "outputs": ["1cf126"],
            "payload_encoding": "application/cbor",
            "payload_sha512": header.payload_sha512,
            "signer_pubkey": SIGNER.public_key,
        },
        "header_signature": message.header_signature,
        "payload": base64.b64encode(message.payload).decode(),
    }


EXPECTED_TRANSACTIONS = [expected_transaction(message) for message in TRANSACTIONS]


EXPECTED_BATCH = {
    "header": {
        "signer_pubkey": SIGNER.public_key,
        "transaction_ids": [message.header_signature for message in TRANSACTIONS],
    },
    "header_signature": BATCH.id,
    "transactions": EXPECTED_TRANSACTIONS,
}


EXPECTED_BLOCK = {
    "header": {
        "batch_ids": [BATCH.id],
        "block_num": 3,
        "consensus": base64.b64encode(b"solo").decode(),
        "previous_block_id": "0" * 16,
        "signer_pubkey": SIGNER.public_key,
        "state_root_hash": "ab" * 32,
    },
    "header_signature": BLOCK.id,
    "batches": [EXPECTED_BATCH],
}


@pytest.mark.parametrize(
    ("path", "resource", "items", "expected"),
    [
        ("/blocks", ListRequest.BLOCKS, [BLOCK_RAW], [EXPECTED_BLOCK]),
        ("/batches", ListRequest.BATCHES, decode_batch_list(encode_batch_list([BATCH])), [EXPECTED_BATCH]),
        (
            "/transactions",
            ListRequest.TRANSACTIONS,
            [message.SerializeToString() for message in TRANSACTIONS],
            EXPECTED_TRANSACTIONS,
        ),
        ("/state", ListRequest.STATE, [leaf(5)], [{"address": f"1cf126{5:064x}", "data": "BQ=="}]),
    ],
)
def test_each_list_has_its_items_head_link_and_paging(
    path: str, resource: int, items: list[bytes], expected: list[dict[str, Any]]
) -> None:
    async def test() -> None:
        async with running_api(listing(always(*items))) as api:
            response = await api.http.get(path)
            assert response.status_code == 200
            assert list(response.json()) == ["data", "head", "link", "paging"]
            assert response.json() == {
                "data": expected,
                "head": HEAD,
                "link": f"http://node:8080{path}?head={HEAD}",
                "paging": {"start_index": 0, "total_count": len(items)},
            }
            assert await question_of(api) == ListRequest(resource=resource, count=100)  # type: ignore[arg-type]

    run(test())


def test_previous_and_next_lead_to_both_ends_and_back() -> None:
    async def test() -> None:
        async with running_api(listing(page_of_leaves)) as api:
            seen, link = [], "/state?count=4&address=1cf126&fields=x%20y"
            while link:
                page = (await api.http.get(link)).json()
                assert page["link"].startswith(
                    f"http://node:8080/state?head={HEAD}&count=4&address=1cf126&fields=x%20y"
                )
                seen.append([entry["data"] for entry in page["data"]])
                last, link = page, page["paging"].get("next")
            assert [len(entries) for entries in seen] == [4, 4, 2]
            back, link = [seen[-1]], last["paging"]["previous"]
            while link:
                page = (await api.http.get(link)).json()
                assert f"head={HEAD}" in link
                back.append([entry["data"] for entry in page["data"]])
                link = page["paging"].get("previous")
            assert [*chain(*reversed(back))] == [*chain(*seen)]

    run(test())


@pytest.mark.parametrize("last", ["6", f"1cf126{6:064x}", "006"])
def test_pages_between_min_and_max_end_at_max(last: str) -> None:
    async def test() -> None:
        async with running_api(listing(page_of_leaves)) as api:
            found, link = [], f"/state?min=1&max={last}&count=3"
            while link:
                page = (await api.http.get(link)).json()
                found.append(len(page["data"]))
                link = page["paging"].get("next")
            assert found == [3, 3]
            assert (await question_of(api)).max == last.lstrip("0") or last.startswith("1cf126")

    run(test())


@pytest.mark.parametrize(("query", "kept", "start"), [("", [0, 1], 0), ("?max=9", [8, 9], 8)])
def test_a_page_ends_before_its_json_is_too_large(query: str, kept: list[int], start: int) -> None:
    leaf_characters = len(f'{{"address":"{"0" * 70}","data":"AA=="}},')

    async def test() -> None:
        config = RestConfig(limits=Limits(page_bytes_max=2 * leaf_characters))
        async with running_api(listing(page_of_leaves), config=config) as api:
            page = (await api.http.get(f"/state{query}")).json()
            assert [base64.b64decode(entry["data"])[0] for entry in page["data"]] == kept
            assert page["paging"]["start_index"] == start
            assert ("next" in page["paging"], "previous" in page["paging"]) == (start == 0, start > 0)
        async with running_api(listing(page_of_leaves), config=RestConfig(limits=Limits(page_bytes_max=1))) as api:
            assert len((await api.http.get(f"/state{query}")).json()["data"]) == 1

    run(test())


def test_parameters_reach_the_validator_in_their_shortest_form() -> None:
    async def test() -> None:
        async with running_api(listing(always())) as api:
            await api.http.get(f"/blocks?head=007&min={'0' * 9999}4&max={UNKNOWN}&count={10**30}&count=1&head=9")
            assert await question_of(api) == ListRequest(
                resource=ListRequest.BLOCKS, head="7", min="4", max=UNKNOWN, count=1000
            )
            await api.http.get(f"/transactions?id={UNKNOWN},x&id={HEAD},,{UNKNOWN}")
            assert list((await question_of(api)).ids) == [UNKNOWN, HEAD]
            await api.http.get("/batches?id=x")
            assert list((await question_of(api)).ids) == ["0" * 128]
            await api.http.get(f"/state?address=1cf126&min=1cf126{0:064x}&id=x")
            question = await question_of(api)
            assert (question.address, question.min, list(question.ids)) == ("1cf126", f"1cf126{0:064x}", [])

    run(test())


@pytest.mark.parametrize(
    ("answered", "status", "code"),
    [
        (ListResponse.NOT_READY, 503, 15),
        (ListResponse.HEAD_NOT_FOUND, 404, 50),
        (ListResponse.INVALID_PAGING, 400, 54),
        (ListResponse.INVALID_ADDRESS, 400, 62),
        (ListResponse.INTERNAL_ERROR, 500, 10),
        (ListResponse.STATUS_UNSET, 500, 10),
    ],
)
def test_the_validators_refusal_of_a_list_becomes_its_code(
    answered: ListResponse.Status, status: int, code: int
) -> None:
    async def test() -> None:
        async with running_api(listing(lambda _: ListResponse(status=answered, message="block 9 was pruned"))) as api:
            # Only requests for state have an address.
            paths = ["/state/1cf126", f"/state/{'a' * 70}", *(["/blocks"] if code != 62 else [])]
            for path in paths:
                found = error_of(await api.http.get(path))
                assert found[:2] == (status, code)
                assert "block 9 was pruned" in found[2]

    run(test())


def test_state_at_an_address_is_its_bytes_and_under_a_prefix_a_list() -> None:
    address = f"1cf126{7:064x}"

    async def test() -> None:
        async with running_api(listing(always(leaf(7)))) as api:
            response = await api.http.get(f"/state/{address}?head=5")
            assert list(response.json().items()) == [
                ("data", "Bw=="),
                ("head", HEAD),
                ("link", f"http://node:8080/state/{address}?head=5"),
            ]
            assert await question_of(api) == ListRequest(resource=ListRequest.STATE, head="5", address=address, count=1)
            response = await api.http.get("/state/1cf126?count=9")
            assert response.json() == {
                "data": [{"address": address, "data": "Bw=="}],
                "head": HEAD,
                "link": f"http://node:8080/state/1cf126?head={HEAD}&count=9",
                "paging": {"start_index": 0, "total_count": 1},
            }

    run(test())


@pytest.mark.parametrize(
    ("path", "found"), [("/state/" + "a" * 70, False), ("/state/aa", False), ("/state?address=aa", True)]
)
def test_no_leaf_is_75_by_path_and_an_empty_list_by_query(path: str, found: bool) -> None:
    async def test() -> None:
        async with running_api(listing(always())) as api:
            response = await api.http.get(path)
            if found:
                assert response.json()["data"] == []
            else:
                assert error_of(response)[:2] == (404, 75)

    run(test())


BlockResponse = client_block_pb2.ClientBlockGetResponse


BatchResponse = client_batch_pb2.ClientBatchGetResponse


TransactionResponse = client_transaction_pb2.ClientTransactionGetResponse


BLOCK_ANSWER = BlockResponse(status=BlockResponse.OK, block=block_pb2.Block.FromString(BLOCK_RAW), head_id=HEAD)


BATCH_ANSWER = BatchResponse(status=BatchResponse.OK, batch=MESSAGE, head_id=HEAD)


TRANSACTION_ANSWER = TransactionResponse(status=TransactionResponse.OK, transaction=TRANSACTIONS[0], head_id=HEAD)


T1 = TRANSACTIONS[0].header_signature


@pytest.mark.parametrize(
    ("path", "asked", "answered", "answer", "expected", "missing_code"),
    [
        (f"/blocks/{BLOCK.id}", 104, 105, BLOCK_ANSWER, EXPECTED_BLOCK, 70),
        ("/blocks/3", 124, 105, BLOCK_ANSWER, EXPECTED_BLOCK, 70),
        (f"/batches/{BATCH.id}", 108, 109, BATCH_ANSWER, EXPECTED_BATCH, 71),
        (f"/transactions/{T1}", 112, 113, TRANSACTION_ANSWER, EXPECTED_TRANSACTIONS[0], 72),
    ],
)
def test_single_resources(
    path: str, asked: int, answered: int, answer: Any, expected: dict[str, Any], missing_code: int
) -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(asked, answered, answer)
            response = await api.http.get(path)
            assert list(response.json().items()) == [
                ("data", expected),
                ("head", HEAD),
                ("link", f"http://node:8080{path}"),
            ]
            for status in ("NO_RESOURCE", "INVALID_ID"):
                api.validator.answer(asked, answered, type(answer)(status=status, head_id=HEAD))
                found = error_of(await api.http.get(path))
                assert found[:2] == (404, missing_code)
                assert path.rsplit("/", 1)[1] in found[2]
            api.validator.answer(asked, answered, type(answer)(status="NO_RESOURCE"))
            assert error_of(await api.http.get(path)) == (503, 15, "the validator has no genesis block yet")
            api.validator.answer(asked, answered, type(answer)(status="INTERNAL_ERROR"))
            response = await api.http.get(path, headers={"x-request-id": "lost-7"})
            assert error_of(response)[:2] == (500, 10)
            assert "lost-7" in error_of(response)[2]
            api.validator.answer(asked, answered, type(answer)(status="INTERNAL_ERROR", message="it is damaged"))
            response = await api.http.get(path, headers={"x-request-id": "lost-8"})
            assert error_of(response) == (500, 10, "it is damaged (request lost-8)")

    run(test())


def broken_block() -> BlockResponse:
    return BlockResponse(status=BlockResponse.OK, block=block_pb2.Block(header=b"\xff"))


@pytest.mark.parametrize(
    ("path", "asked", "answered", "answer"),
    [
        ("/blocks/3", 124, 105, broken_block),
        ("/blocks/3", 124, 105, lambda: b"\xff"),
        ("/blocks/3", 124, 109, lambda: BLOCK_ANSWER),
        ("/blocks", 1010, 1011, lambda: ListResponse(status=ListResponse.OK, items=[b"\xff"], total_count=1)),
        (
            "/transactions",
            1010,
            1011,
            lambda: ListResponse(
                status=ListResponse.OK,
                items=[transaction_pb2.Transaction(header=b"\xff").SerializeToString()],
                total_count=1,
            ),
        ),
        ("/state/" + "a" * 70, 1010, 1011, lambda: ListResponse(status=ListResponse.OK, items=[b"\xff"])),
    ],
)
def test_an_undecodable_answer_is_20(path: str, asked: int, answered: int, answer: Callable[[], Any]) -> None:
    async def test() -> None:
        async with running_api() as api:
            api.validator.answer(asked, answered, answer())
            assert error_of(await api.http.get(path))[:2] == (500, 20)

    run(test())
