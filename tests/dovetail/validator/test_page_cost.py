"""The cost of a page of any list on a long chain is the same at the front, in the middle and at the end.

Counts reads from LMDB (gets and cursor steps) and of trie nodes, not time. API.md, Lists: "Reading any page costs
O(count + log n), whatever the chain's length". ``DOVETAIL_TEST_CHAIN_BLOCKS`` sets the length, such as 100,000.
"""

import hashlib
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from dovetail.validator.client_api.queries import Queries
from dovetail.validator.store import Store
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_id, make_transaction, open_store

SMALL, LARGE = 1_000, int(os.environ.get("DOVETAIL_TEST_CHAIN_BLOCKS", "20000"))
COUNTS = (10, 100, 1_000)
RESOURCES = [ListRequest.BLOCKS, ListRequest.BATCHES, ListRequest.TRANSACTIONS, ListRequest.STATE]
PLACES = ("first", "middle", "last")

PER_ITEM: dict[int, int] = dict(zip(RESOURCES, (2, 3, 5, 2), strict=True))
"""Reads for each item: its own record, and those of its batch and block. A leaf needs less than one branch."""
PER_DOUBLING = 4
"""The beginning of a page, and each bound that is an id, may need a binary search over the chain."""

_MEMORY = Path("/dev/shm")
_CHAIN_BYTES_MAX = 2 * 1024**3


class Cost(NamedTuple):
    """The cost of one page. ``ms`` is only reported, never checked."""

    page: str
    operations: int
    ms: float


class _CountingReader:
    """An LMDB read transaction that counts gets and cursor steps."""

    def __init__(self, reader: Any, counted: "CountedChain", nodes: object) -> None:
        self._reader, self._counted, self._nodes = reader, counted, nodes

    def get(self, name: bytes, *, db: object) -> bytes | None:
        # Whether a node is cached depends on history, so calls for nodes are counted instead of reads.
        self._counted.operations += db is not self._nodes
        value: bytes | None = self._reader.get(name, db=db)
        return value

    def cursor(self, *, db: object) -> "_CountingCursor":
        return _CountingCursor(self._reader.cursor(db=db), self._counted)

    def abort(self) -> None:
        self._reader.abort()


class _CountingCursor:
    """Counts every call that moves the cursor, and every entry of an iteration."""

    def __init__(self, cursor: Any, counted: "CountedChain") -> None:
        self._cursor, self._counted = cursor, counted

    def __enter__(self) -> "_CountingCursor":
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cursor, name)
        if name in ("key", "value", "item", "close"):
            return found
        self._counted.operations += 1
        return self._each(found) if name.startswith("iter") else found

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = self._each(self._cursor.__iter__)()
        return found

    def _each(self, begin: Any) -> Any:
        def iterate(*arguments: Any, **named: Any) -> Iterator[Any]:
            for entry in begin(*arguments, **named):
                self._counted.operations += 1
                yield entry

        return iterate


class CountedChain:
    """``length`` blocks of one batch of one transaction, which writes a leaf of its own and often an older one too."""

    def __init__(self, folder: Path, length: int) -> None:
        self.operations = 0
        self.length = length
        self.store: Store = open_store(folder)
        self.addresses = [_address(num) for num in range(length)]
        for num in range(length):
            changes: dict[str, bytes | None] = {self.addresses[num]: b"%d" % num}
            if num % 4 == 3:
                changes[self.addresses[num * 7 % num]] = b"again %d" % num
            commit(self.store, [_batch(num)], changes)
        store: Any = self.store
        store._reader = _CountingReader(store._reader, self, store._tables["nodes"])
        read = self.store.node

        def node(number: int) -> bytes:
            self.operations += 1
            return read(number)

        store.node = node
        self.queries = Queries(self.store, LIMITS)

    def name(self, resource: int, head: int, index: int) -> str:
        """The id or address of the entry at ``index`` in a list at ``head``."""
        num = head - index
        if resource == ListRequest.BLOCKS:
            block = self.store.block(num)
            assert block is not None
            return block.id
        if resource == ListRequest.BATCHES:
            return make_id("batch", num)
        if resource == ListRequest.TRANSACTIONS:
            return make_id("transaction", num)
        return sorted(self.addresses[: head + 1])[index]

    def cost(self, resource: int, head: int, start: int, count: int, **bounds: str) -> Cost:
        """Read one page, which must hold ``count`` items from ``start`` on."""
        fields: dict[str, Any] = {"resource": resource, **bounds}
        request = ListRequest(head=self._head(head), count=count, **fields).SerializeToString()
        self.operations = 0
        began = time.perf_counter()
        answer = self.queries.answer(Envelope.LIST_REQUEST, request)[1]
        ms = (time.perf_counter() - began) * 1000
        operations = self.operations
        page = ListResponse.FromString(answer)
        assert (page.status, page.start_index, len(page.items)) == (ListResponse.OK, start, count), page.message
        assert page.total_count == head + 1
        named = ", ".join(f"{name} {value[:12]}" for name, value in bounds.items())
        return Cost(f"{count} from {start} of {head + 1} ({named})", operations, round(ms, 2))

    def _head(self, head: int) -> str:
        return "" if head == self.length - 1 else str(head)


def _address(num: int) -> str:
    return "1cf126" + hashlib.sha256(b"%d" % num).hexdigest()


def _batch(num: int) -> Any:
    return make_batch(num, make_transaction(num))


def _starts(total: int, count: int) -> list[int]:
    """The beginnings of the first, middle and last page of a list."""
    return [0, (total - count) // 2, total - count]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the chains: in memory if there is space, since durability does not matter here."""
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _CHAIN_BYTES_MAX:
        with TemporaryDirectory(dir=_MEMORY) as made:
            yield Path(made)
    else:
        yield tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[CountedChain]:
    made = CountedChain(folder / "small", SMALL)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def large(folder: Path) -> Iterator[CountedChain]:
    made = CountedChain(folder / "large", LARGE)
    yield made
    made.store.close()


def pages(chain: CountedChain, resource: int, head: int, count: int) -> dict[str, list[Cost]]:
    """The cost of the first, middle and last page of ``count`` items, by the kind of the pages' bounds."""
    total = head + 1
    costs: dict[str, list[Cost]] = {way: [] for way in ("min", "min id", "min and max id", "max", "max id")}
    for start in _starts(total, count):
        end = start + count - 1
        first, last = (chain.name(resource, head, index) for index in (start, end))
        ways: dict[str, dict[str, str]] = {
            "min": {"min": str(start)},
            "min id": {"min": first},
            "min and max id": {"min": first, "max": last},
            "max": {"max": str(end)},
            "max id": {"max": last},
        }
        for way, bounds in ways.items():
            costs[way].append(chain.cost(resource, head, start, count, **bounds))
    return costs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("head", [LARGE - 1, LARGE // 3], ids=["newest head", "old head"])
def test_every_page_costs_the_same_wherever_it_is(large: CountedChain, resource: int, count: int, head: int) -> None:
    for way, costs in pages(large, resource, head, count).items():
        operations = [cost.operations for cost in costs]
        assert max(operations) <= 2 * min(operations), f"{way}: {costs}"
        allowed = PER_ITEM[resource] * count + PER_DOUBLING * math.log2(LARGE)
        assert max(operations) <= allowed, f"{way}: more than {allowed:.0f} operations: {costs}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("resource", RESOURCES, ids=ListRequest.Resource.Name)
@pytest.mark.parametrize("count", [10, 100])
def test_many_times_the_chain_costs_steps_of_a_search_more(
    small: CountedChain, large: CountedChain, resource: int, count: int
) -> None:
    before, after = (pages(chain, resource, chain.length - 1, count) for chain in (small, large))
    # The number of branches between neighbouring leaves varies with the number of leaves, without growing.
    wavering = count if resource == ListRequest.STATE else 0
    allowed = PER_DOUBLING * math.log2(LARGE / SMALL) + wavering
    for way in before:
        for place, small_cost, large_cost in zip(PLACES, before[way], after[way], strict=True):
            grown = large_cost.operations - small_cost.operations
            assert grown <= allowed, f"{place} page by {way}: {small_cost} became {large_cost}"
