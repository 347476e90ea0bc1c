"""Lists by index against slices of the whole list, and the statuses of requests that cannot be answered."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.queries import Queries
from dovetail.validator.store import Store
from protos import block_pb2, client_state_pb2, state_context_pb2, transaction_pb2
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.chain import BLOCKS, Chain, Item
from tests.dovetail.validator.support import LIMITS, address, commit, make_batch, make_id, make_transaction, open_store

RESOURCES = [ListRequest.BLOCKS, ListRequest.BATCHES, ListRequest.TRANSACTIONS, ListRequest.STATE]
COUNTS = (0, 1, 2, 3, 100, 10**6)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    made = Chain(tmp_path_factory.mktemp("chain"))
    yield made
    made.store.close()


def opened(resource: int, raw: bytes) -> bytes:
    """The fields of an item in ``Chain.full``."""
    if resource == ListRequest.STATE:
        return state_context_pb2.TpStateEntry.FromString(raw).data
    if resource == ListRequest.BLOCKS:
        return block_pb2.Block.FromString(raw).header
    return raw


def expected_page(full: list[Item], first: int | None, last: int | None, count: int) -> tuple[int, list[Item]] | None:
    """API.md's rules on count, min and max, applied to a plain list; None if they refuse the request."""
    for named in (first, last):
        if named is not None and named >= len(full):
            return None
    if first is not None and last is not None and first > last:
        return None
    count = min(count or LIMITS.page_items_default, LIMITS.page_items_max)
    end = len(full) if last is None else last + 1
    start = max(0, end - count) if first is None and last is not None else first or 0
    return start, full[start : min(end, start + count)]


@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
@pytest.mark.parametrize("head", range(len(BLOCKS)))
def test_every_page_is_a_slice(chain: Chain, resource: int, head: int) -> None:
    full = chain.full(resource, head)
    names = [name for name, _ in full]
    places = [None, *range(len(full) + 1)]
    for first, last, count in itertools.product(places, places, COUNTS):
        for by_name in (False, True):
            named = ["" if place is None else names[place] if by_name and place < len(full) else str(place)
                     for place in (first, last)]  # fmt: skip
            for head_text in (str(head), chain.infos[head].id):
                response = chain.list(resource=resource, head=head_text, min=named[0], max=named[1], count=count)
                expected = expected_page(full, first, last, count)
                if expected is None:
                    assert response.status == ListResponse.INVALID_PAGING
                    assert response.message
                    continue
                start, page = expected
                assert response.status == ListResponse.OK
                assert [opened(resource, raw) for raw in response.items] == [value for _, value in page]
                assert (response.head_id, response.total_count) == (chain.infos[head].id, len(full))
                assert response.start_index == start


@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
@pytest.mark.parametrize("head", [1, len(BLOCKS) - 1])
def test_ids_choose_in_their_order(chain: Chain, resource: int, head: int) -> None:
    full = dict(chain.full(resource, head))
    later = [name for name, _ in chain.full(resource, len(BLOCKS) - 1) if name not in full]
    nothing = [make_id("nothing"), "", "0", "zz", "A" * 128, "f" * 70, *later]
    for ids in (list(full), list(full)[::-1], [*nothing, *full], nothing, list(full)[:1] * 2):
        chosen = [(name, full[name]) for name in ids if name in full]
        places = [None, *range(len(chosen))] if len(set(ids)) == len(ids) else [None]
        for first, last, count in itertools.product(places, places, COUNTS):
            texts = ["" if place is None else str(place) for place in (first, last)]
            response = chain.list(resource=resource, head=str(head), ids=ids, min=texts[0], max=texts[1], count=count)
            expected = expected_page(chosen, first, last, count)
            if expected is None:
                assert response.status == ListResponse.INVALID_PAGING
                continue
            assert response.status == ListResponse.OK
            assert [opened(resource, raw) for raw in response.items] == [value for _, value in expected[1]]
            assert (response.start_index, response.total_count) == (expected[0], len(chosen))


@pytest.mark.parametrize("prefix", ["", "00", "1cf126", "1cf126" + "0" * 60, address(1), address(77), "ff", "f" * 70])
def test_state_is_listed_under_a_prefix(chain: Chain, prefix: str) -> None:
    for head in range(len(BLOCKS)):
        full = chain.full(ListRequest.STATE, head, prefix)
        response = chain.list(resource=ListRequest.STATE, head=str(head), address=prefix)
        entries = [state_context_pb2.TpStateEntry.FromString(raw) for raw in response.items]
        assert [(entry.address, entry.data) for entry in entries] == full
        assert (response.status, response.total_count) == (ListResponse.OK, len(full))
        for index, (name, _) in enumerate(full):
            page = chain.list(resource=ListRequest.STATE, head=str(head), address=prefix, min=name, count=1)
            assert (page.start_index, len(page.items)) == (index, 1)


@pytest.mark.parametrize("prefix", ["0", "1cf12", "1CF126", "zz", "00" * 36, " "])
def test_addresses_that_are_none(chain: Chain, prefix: str) -> None:
    response = chain.list(resource=ListRequest.STATE, address=prefix)
    assert response.status == ListResponse.INVALID_ADDRESS
    assert repr(prefix[:80]) in response.message


@pytest.mark.parametrize(
    "head", [make_id("nothing"), "5", "-1", "x", " 0", "0x0", "9" * 19, "9" * 5_000, "\u0661", "A" * 128]
)
@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
def test_heads_that_are_none(chain: Chain, resource: int, head: str) -> None:
    response = chain.list(resource=resource, head=head)
    assert response.status == ListResponse.HEAD_NOT_FOUND
    assert "the chain ends at block 4" in response.message
    assert len(response.message) < 300


@pytest.mark.parametrize(
    "name", ["x", "-1", "1.0", "9" * 18, "9" * 128, "0" * 70, "a" * 70, "\u0661", make_id("none"), " 1"]
)
@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
@pytest.mark.parametrize("field", ["min", "max"])
def test_places_that_are_none(chain: Chain, resource: int, field: str, name: str) -> None:
    response = chain.list(resource=resource, **{field: name})
    assert response.status == ListResponse.INVALID_PAGING
    assert f"{field} {name[:140]!r} names nothing" in response.message


@pytest.mark.parametrize("resource", [0, 77, -1])
def test_a_list_of_nothing_known_is_refused(chain: Chain, resource: int) -> None:
    for fields in ({}, {"ids": [address(1)]}, {"min": "0"}):
        response = chain.list(resource=resource, **fields)
        assert response.status not in (ListResponse.OK, ListResponse.STATUS_UNSET)
        assert response.message
        assert not response.items


def test_an_id_beyond_the_head_is_no_place(chain: Chain) -> None:
    for resource in RESOURCES[:3]:
        name = chain.full(resource, 4)[0][0]
        assert chain.list(resource=resource, head="1", min=name).status == ListResponse.INVALID_PAGING


def test_without_a_chain_nothing_is_ready(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    queries = Queries(store, LIMITS)
    for resource in RESOURCES:
        content = ListRequest(resource=resource).SerializeToString()
        response = ListResponse.FromString(queries.answer(Envelope.LIST_REQUEST, content)[1])
        assert response.status == ListResponse.NOT_READY
    content = client_state_pb2.ClientStateGetRequest(address=address(1)).SerializeToString()
    answer = queries.answer(Envelope.CLIENT_STATE_GET_REQUEST, content)[1]
    state = client_state_pb2.ClientStateGetResponse.FromString(answer)
    assert state.status == client_state_pb2.ClientStateGetResponse.NOT_READY
    store.close()


def cut(chain: Chain, limits: Limits, **fields: Any) -> ListResponse:
    content = ListRequest(**fields).SerializeToString()
    return ListResponse.FromString(Queries(chain.store, limits).answer(Envelope.LIST_REQUEST, content)[1])


def test_a_page_ends_before_its_bytes_do_and_goes_on(chain: Chain) -> None:
    full = [value for _, value in chain.full(ListRequest.TRANSACTIONS, 4)]
    for page_bytes in (1, 3 * len(full[0]), 5 * len(full[0])):
        limits = replace(LIMITS, page_bytes_max=page_bytes)
        seen: list[bytes] = []
        while len(seen) < len(full):
            page = cut(chain, limits, resource=ListRequest.TRANSACTIONS, min=str(len(seen)))
            assert page.items
            assert page.start_index == len(seen)
            assert len(page.items) == 1 or sum(map(len, page.items)) <= page_bytes
            seen += page.items
        assert seen == full
        backwards: list[bytes] = []
        while len(backwards) < len(full):
            last = len(full) - len(backwards) - 1
            page = cut(chain, limits, resource=ListRequest.TRANSACTIONS, max=str(last))
            assert page.start_index + len(page.items) == last + 1
            backwards[:0] = page.items
        assert backwards == full


def test_a_page_has_at_most_its_items(chain: Chain) -> None:
    limits = replace(LIMITS, page_items_default=2, page_items_max=3)
    for count, length in ((0, 2), (1, 1), (3, 3), (4, 3), (2**32 - 1, 3)):
        assert len(cut(chain, limits, resource=ListRequest.TRANSACTIONS, count=count).items) == length


def test_a_page_reads_by_its_length_not_the_chains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    for num in range(300):
        commit(store, [make_batch(num)])
    reads: list[str] = []
    get = Store._get

    def counting(self: Store, table: str, name: bytes) -> bytes | None:
        reads.append(table)
        return get(self, table, name)

    monkeypatch.setattr(Store, "_get", counting)
    for resource in RESOURCES[:3]:
        for place in ("0", "150", "295"):
            reads.clear()
            request = ListRequest(resource=resource, min=place, count=2).SerializeToString()
            response = ListResponse.FromString(Queries(store, LIMITS).answer(Envelope.LIST_REQUEST, request)[1])
            assert len(response.items) == 2
            assert len(reads) < 40
    store.close()


class TestManyIds:
    """Each id is searched for once, and each batch is read once, whatever the order of the ids."""

    @pytest.fixture
    def large(self, tmp_path: Path) -> Iterator[tuple[Store, list[list[str]]]]:
        """Two batches, and the ids of the transactions of each."""
        store = open_store(tmp_path)
        batches = [make_batch(name, *(make_transaction((name, n)) for n in range(50))) for name in ("a", "b")]
        for batch in batches:
            commit(store, [batch])
        yield store, [[transaction.id for transaction in batch.transactions] for batch in batches]
        store.close()

    def test_batches_are_opened_once(
        self, large: tuple[Store, list[list[str]]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, (first, second) = large
        opened: list[int] = []
        searched: list[int] = []
        monkeypatch.setattr(store, "batch", _counting(store.batch, opened))
        monkeypatch.setattr(store, "block_of_transaction", _counting(store.block_of_transaction, searched))
        ids = [text for pair in zip(first, reversed(second), strict=True) for text in pair]
        for max_text in ("", "99"):
            opened.clear()
            request = ListRequest(resource=ListRequest.TRANSACTIONS, ids=ids, max=max_text)
            content = Queries(store, LIMITS).answer(Envelope.LIST_REQUEST, request.SerializeToString())[1]
            found = [_id_of(raw) for raw in ListResponse.FromString(content).items]
            assert found == ids
            assert len(opened) == 2
        assert searched == []

    def test_no_more_is_read_than_a_page_may_hold(
        self, large: tuple[Store, list[list[str]]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, (first, _) = large
        read: list[int] = []
        monkeypatch.setattr(store, "transaction", _counting(store.transaction, read))
        limits = replace(LIMITS, page_bytes_max=3 * len(make_transaction(("a", 10)).raw))
        request = ListRequest(resource=ListRequest.TRANSACTIONS, ids=first)
        content = Queries(store, limits).answer(Envelope.LIST_REQUEST, request.SerializeToString())[1]
        assert len(ListResponse.FromString(content).items) == 2
        assert len(read) <= 4

    @pytest.mark.parametrize("page_items", [1, 3, 7.5])
    @pytest.mark.parametrize("backwards", [False, True])
    def test_a_page_of_them_ends_before_its_bytes_do(
        self, large: tuple[Store, list[list[str]]], page_items: float, backwards: bool
    ) -> None:
        store, (first, second) = large
        ids = [text for pair in zip(reversed(first), second, strict=True) for text in pair]
        item_bytes = len(make_transaction(("a", 10)).raw)
        # Items take two thirds of a page's bytes. The rest is for their form in JSON.
        queries = Queries(store, replace(LIMITS, page_bytes_max=int(page_items * item_bytes * 1.5) + 10))
        seen: list[str] = []
        while len(seen) < len(ids):
            request = ListRequest(resource=ListRequest.TRANSACTIONS, ids=ids)
            if backwards:
                request.max = str(len(ids) - len(seen) - 1)
            else:
                request.min = str(len(seen))
            page = ListResponse.FromString(queries.answer(Envelope.LIST_REQUEST, request.SerializeToString())[1])
            found = [_id_of(raw) for raw in page.items]
            assert 1 <= len(found) <= page_items + 1
            seen = found + seen if backwards else seen + found
        assert seen == ids


def _counting(function: Any, calls: list[int]) -> Any:
    def counting(number: int) -> Any:
        calls.append(number)
        return function(number)

    return counting


def _id_of(raw: bytes) -> str:
    return transaction_pb2.Transaction.FromString(raw).header_signature
