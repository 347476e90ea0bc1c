"""Waits for batch statuses.

Each wait is answered once and freed once: by its time limit, its peer, the node's end or its batches.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.statuses import CORRELATION_CHARACTERS_MAX, Statuses
from dovetail.validator.core.execution.model import Rejected
from dovetail.validator.core.journal.model import invalid_batch
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.store import Store
from protos.client_batch_submit_pb2 import ClientBatchStatus
from tests.dovetail.validator.peers import run
from tests.dovetail.validator.support import LIMITS, commit, make_batch, make_id, open_store

ALICE, BOB = b"alice", b"bob"
LONG_S = 3_600
BATCHES = [make_batch(number) for number in range(4)]
IDS = [batch.id for batch in BATCHES]

Word = tuple[bytes, str, list[str]]
"""Identity, correlation id, and the names of the statuses of one answer."""


class Waits:
    """Statuses over a queue with all of BATCHES. ``said``: the answers."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.queue = PendingQueue(limits)
        for arrival, batch in enumerate(BATCHES):
            self.queue.add(arrival, batch)
        self.said: list[Word] = []
        self.answered = asyncio.Event()
        self.statuses = Statuses(self.queue, store, limits, self._answer)

    def _answer(self, identity: bytes, correlation_id: str, statuses: list[ClientBatchStatus] | None) -> None:
        assert statuses is not None
        words = [ClientBatchStatus.Status.Name(status.status) for status in statuses]
        self.said.append((identity, correlation_id, words))
        self.answered.set()

    async def commit(self, *batch_ids: BatchId) -> None:
        """Commit pending batches in one block, and answer all waits that this ends."""
        entries = [entry for entry in map(self.queue.get, batch_ids) if entry is not None]
        commit(self.store, [entry.batch for entry in entries])
        for entry in entries:
            self.queue.remove(entry)
        self.statuses.settled(batch_ids)
        await self.turns()

    async def turns(self) -> int:
        """Run the loop until every ended wait is answered. Returns the number of its turns."""
        turns = 0
        while self.statuses._turn is not None:
            await asyncio.sleep(0)
            turns += 1
        return turns

    def assert_nothing_held(self) -> None:
        """No trace of a wait is left."""
        statuses = self.statuses
        held = (
            statuses.waiters,
            statuses.peers,
            statuses._ids_held + statuses._unknown_held,
            statuses._of_batch,
            statuses._of_peer,
            statuses._ids_of_peer,
        )
        assert held == (0, [], 0, {}, {}, {})


Test = Callable[[Waits], Coroutine[Any, Any, None]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path)
    yield made
    made.close()


@pytest.fixture
def waiting(store: Store) -> Callable[..., None]:
    """Run a test over Waits in a loop, and check that no wait is left."""

    def run_test(test: Test, limits: Limits = LIMITS) -> None:
        async def whole() -> None:
            waits = Waits(store, limits)
            await test(waits)
            waits.assert_nothing_held()

        run(whole)

    return run_test


def test_a_wait_ends_with_its_last_batch(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "both", [IDS[0], IDS[1], IDS[0], "no id"], LONG_S)
        waits.statuses.wait(ALICE, "second", [IDS[1]], LONG_S)
        await waits.commit(IDS[0])
        assert waits.said == []
        assert waits.statuses.waiters == 2
        await waits.commit(IDS[1])
        committed = "COMMITTED"
        assert waits.said == [
            (ALICE, "both", [committed, committed, committed, "UNKNOWN"]),
            (ALICE, "second", [committed]),
        ]

    waiting(test)


@pytest.mark.parametrize("asked", [["no id"], [""], ["A" * 128], ["no id", "x" * 500]])
def test_what_can_be_no_id_is_not_waited_for(waiting: Callable[[Test], None], asked: list[str]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "one", asked, LONG_S)
        assert waits.said == [(ALICE, "one", ["UNKNOWN"] * len(asked))]

    waiting(test)


def test_what_is_decided_is_not_waited_for(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        entry = waits.queue.get(IDS[1])
        assert entry is not None
        waits.store.reject([invalid_batch(entry.batch, Rejected("dependency_missing", "it did not come"))], [])
        waits.queue.remove(entry)
        await waits.commit(IDS[0])
        waits.statuses.wait(ALICE, "both", IDS[:2], LONG_S)
        assert waits.said == [(ALICE, "both", ["COMMITTED", "INVALID"])]

    waiting(test)


def test_an_id_that_nobody_knows_is_waited_for(waiting: Callable[[Test], None]) -> None:
    """Specification, GET /batch_status, rule 1: waits until all requested batches are settled or the time is over."""

    async def test(waits: Waits) -> None:
        late = make_batch("late")
        waits.statuses.wait(ALICE, "late", [IDS[0], late.id], LONG_S)
        waits.statuses.wait(ALICE, "short", [make_id("never")], 0)
        await waits.commit(IDS[0])
        await waits.answered.wait()
        assert waits.said == [(ALICE, "short", ["UNKNOWN"])]
        waits.queue.add(len(BATCHES), late)
        await waits.commit(late.id)
        assert waits.said[1:] == [(ALICE, "late", ["COMMITTED"] * 2)]

    waiting(test)


def test_a_wait_ends_with_its_time(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "short", IDS[:2], 0)
        assert waits.said == []
        await waits.answered.wait()
        assert waits.said == [(ALICE, "short", ["PENDING"] * 2)]
        await waits.commit(*IDS[:2])
        assert len(waits.said) == 1

    waiting(test)


def test_waits_that_end_together_are_answered_in_slices(waiting: Callable[[Test], None]) -> None:
    """Some waits end by their batches, some by time.

    The loop runs other callbacks between the slices, and each wait is answered once.
    """

    async def test(waits: Waits) -> None:
        asked = [IDS[0], *(f"not an id {number}" for number in range(999))]
        names = [str(number) for number in range(20)]
        for timeout_s in (LONG_S, 0):
            for name in names:
                waits.statuses.wait(ALICE, name, asked, timeout_s)
            if timeout_s:
                waits.statuses.settled(IDS[:1])
                waits.statuses.cancel(ALICE, "17")
            else:
                await waits.answered.wait()
            assert 0 < len(waits.said) < len(names) / 2
            assert await waits.turns() >= 3
            left = [name for name in names if name != "17" or not timeout_s]
            assert [name for _, name, _ in waits.said] == left
            waits.said.clear()
            waits.answered.clear()

    waiting(test)


def test_closing_frees_all_and_answers_nobody(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        asked = [IDS[0], *(f"not an id {number}" for number in range(999))]
        for number in range(20):
            waits.statuses.wait(ALICE, f"ended {number}", asked, LONG_S)
        waits.statuses.wait(BOB, "waits", IDS[1:], 0)
        waits.statuses.settled(IDS[:1])
        assert len(waits.said) < 20
        waits.said.clear()
        waits.statuses.close()
        await waits.turns()
        assert waits.said == []

    waiting(test)


def test_a_cancel_frees_exactly_the_one_that_it_names(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        statuses = waits.statuses
        for identity in (ALICE, BOB):
            for name in ("first", "second"):
                statuses.wait(identity, name, IDS[:2], LONG_S)
        assert not statuses.cancel(ALICE, "third")
        assert not statuses.cancel(b"nobody", "first")
        assert statuses.waiters == 4
        assert statuses.cancel(ALICE, "first")
        assert not statuses.cancel(ALICE, "first")
        assert statuses.waiters == 3
        await waits.commit(*IDS[:2])
        names = [(identity, name) for identity, name, _ in waits.said]
        assert names == [(ALICE, "second"), (BOB, "first"), (BOB, "second")]
        assert not statuses.cancel(BOB, "first")

    waiting(test)


def test_a_canceled_wait_has_no_timer_left(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "canceled", IDS[:1], 0)
        waits.statuses.wait(ALICE, "kept", IDS[:1], 0)
        assert waits.statuses.cancel(ALICE, "canceled")
        await waits.answered.wait()
        assert [name for _, name, _ in waits.said] == ["kept"]

    waiting(test)


def test_a_peer_that_is_gone_waits_no_longer(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        for number, batch_id in enumerate(IDS):
            waits.statuses.wait(ALICE, str(number), [batch_id, IDS[0]], LONG_S)
        waits.statuses.wait(BOB, "0", IDS, LONG_S)
        assert waits.statuses.peers == [ALICE, BOB]
        assert waits.statuses.cancel_all(ALICE) == len(IDS)
        assert waits.statuses.cancel_all(ALICE) == 0
        assert waits.statuses.peers == [BOB]
        await waits.commit(*IDS)
        assert waits.said == [(BOB, "0", ["COMMITTED"] * 4)]

    waiting(test)


def test_a_name_used_again_answers_the_earlier_wait(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "same", IDS[:1], LONG_S)
        waits.statuses.wait(ALICE, "same", IDS[1:3], LONG_S)
        assert waits.said == [(ALICE, "same", ["PENDING"])]
        assert waits.statuses.waiters == 1
        await waits.commit(*IDS[:3])
        assert waits.said[1:] == [(ALICE, "same", ["COMMITTED"] * 2)]

    waiting(test)


def test_ten_thousand_wait_and_all_are_answered(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        for number in range(10_000):
            waits.statuses.wait(ALICE, str(number), IDS[:1], LONG_S)
        assert (waits.statuses.waiters, waits.said) == (10_000, [])
        await waits.commit(IDS[0])
        assert waits.said == [(ALICE, str(number), ["COMMITTED"]) for number in range(10_000)]

    waiting(test)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ([IDS[0], IDS[1], make_id("unknown"), "no id"], "fits"),
        ([make_id("unknown", number) for number in range(4)], "fits"),
    ],
)
def test_the_ids_that_are_held_are_bounded(waiting: Callable[..., None], asked: list[str], name: str) -> None:
    """Four ids fit, pending or not."""

    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, name, asked, LONG_S)
        assert waits.said == []
        waits.statuses.wait(ALICE, "no room", IDS[:1], LONG_S)
        assert waits.said == [(ALICE, "no room", ["PENDING"])]
        assert waits.statuses.cancel(ALICE, name)
        waits.statuses.wait(ALICE, "room again", IDS, LONG_S)
        assert len(waits.said) == 1
        waits.statuses.cancel(ALICE, "room again")
        waits.statuses.wait(ALICE, "five", [*IDS, "fifth"], LONG_S)
        assert [answered for _, answered, _ in waits.said] == ["no room", "five"]

    waiting(test, replace(LIMITS, status_ids_waited_for_max=4))


def test_one_peer_takes_the_room_of_no_other(waiting: Callable[..., None]) -> None:
    async def test(waits: Waits) -> None:
        waits.statuses.wait(ALICE, "two", IDS[:2], LONG_S)
        assert waits.said == []
        waits.statuses.wait(ALICE, "no room", IDS[:1], LONG_S)
        assert waits.said == [(ALICE, "no room", ["PENDING"])]
        waits.statuses.wait(BOB, "two", IDS[:2], LONG_S)
        assert waits.statuses.cancel(ALICE, "two")
        waits.statuses.wait(ALICE, "room again", IDS[2:], LONG_S)
        assert len(waits.said) == 1
        assert [waits.statuses.cancel_all(peer) for peer in (ALICE, BOB)] == [1, 1]

    waiting(test, replace(LIMITS, connection_ids_waited_for_max=2))


def test_what_nobody_knows_takes_no_room_from_what_is_pending(waiting: Callable[..., None]) -> None:
    async def test(waits: Waits) -> None:
        unknown = [make_id("unknown", number) for number in range(3)]
        waits.statuses.wait(ALICE, "held", unknown[:2], LONG_S)
        assert waits.said == []
        waits.statuses.wait(ALICE, "no room", unknown[2:], LONG_S)
        assert waits.said == [(ALICE, "no room", ["UNKNOWN"])]
        waits.statuses.wait(ALICE, "pending", [*IDS[:1], *unknown[2:]], LONG_S)
        assert len(waits.said) == 1
        assert waits.statuses.cancel(ALICE, "held")
        waits.statuses.wait(ALICE, "room again", unknown[2:], LONG_S)
        assert len(waits.said) == 1
        for name in ("pending", "room again"):
            assert waits.statuses.cancel(ALICE, name)

    waiting(test, replace(LIMITS, status_unknown_ids_waited_for_max=2))


def test_a_name_that_is_too_long_to_keep_is_answered_at_once(waiting: Callable[[Test], None]) -> None:
    async def test(waits: Waits) -> None:
        longest = "x" * CORRELATION_CHARACTERS_MAX
        waits.statuses.wait(ALICE, longest + "x", IDS[:1], LONG_S)
        assert len(waits.said) == 1
        waits.statuses.wait(ALICE, longest, IDS[:1], LONG_S)
        assert len(waits.said) == 1
        assert waits.statuses.cancel(ALICE, longest)

    waiting(test)
