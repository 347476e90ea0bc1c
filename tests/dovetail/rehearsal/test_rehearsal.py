"""Rehearsals of history, in this process: differences, and the state that each transaction sees."""

import multiprocessing
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.common.errors import Refused
from dovetail.common.workers import Workers
from dovetail.ledger import migration
from dovetail.ledger.building import SignedTransaction, build_transaction
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.rehearsal import run
from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.history import Span, span_of
from dovetail.rehearsal.migrating import migrate_slice, prefixes_for, slices_of, state_after
from dovetail.rehearsal.rehearser import Clock, Overtime, Rehearser
from dovetail.rehearsal.run import PIECE_TRANSACTIONS, Setup, pieces, rehearse, rehearse_migration
from dovetail.rehearsal.sources import sources_sha256
from dovetail.validator.store import StorageFailed, StoreReader
from dovetail.validator.store.records import StoredBatch
from families.intkey.addresses import NAMESPACE, intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import LEAF
from processor_sdk import TransactionHandler
from processor_sdk.apply.dispatch import ApplyResult, Dispatcher
from tests.dovetail.rehearsal import rehearsed
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER, Chain, Step
from tests.dovetail.validator.history.verified import entries, put

INTKEY = FamilyVersion("intkey", "1.0")
LIMITS = Limits()


def rehearsed_whole(
    folder: Path,
    handler: TransactionHandler[Any],
    shown: int = 100,
    timeout_ms: int = 60_000,
    family: FamilyVersion = INTKEY,
    limits: Limits = LIMITS,
) -> Findings:
    """The findings of all blocks of the store at ``folder``."""
    reader = StoreReader.open(folder)
    try:
        assert reader.head is not None
        return Rehearser(reader, handler, family, timeout_ms, limits).span(span_of(reader, 0, reader.head.num), shown)
    finally:
        reader.close()


def made(
    folder: Path, *blocks: list[list[Step]], handler: Callable[[], TransactionHandler[Any]] = IntkeyHandler
) -> None:
    chain = Chain(folder, handler())
    for block in blocks:
        chain.steps(*block)
    chain.close()


SET: Step = ("set", "a", 10)
BLOCKS: list[list[list[Step]]] = [
    [[SET], [("set", "b", 1)]],
    [[("dec", "a", 1), ("dec", "a", 2)], [("inc", "a", 3)]],
    [[("dec", "b", 1)]],
]
"""Blocks with three decs; the last one leaves 0."""


@pytest.mark.parametrize("handler", [IntkeyHandler, rehearsed.Lister])
def test_what_does_the_same_differs_in_nothing(tmp_path: Path, handler: type[IntkeyHandler]) -> None:
    made(tmp_path, *BLOCKS)
    assert rehearsed_whole(tmp_path, handler()) == Findings(6)


def test_a_write_differs(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = rehearsed_whole(tmp_path, rehearsed.DecByOneMore())
    assert (found.transactions, found.differing, found.kinds) == (6, 3, {"invalid": 1, "write_changed": 2})
    first, second, third = found.differences
    address = intkey_address("a")
    assert [(one.block_num, one.kind, one.address) for one in (first, second)] == [(1, "write_changed", address)] * 2
    assert first.old is not None
    assert first.new is not None
    assert (first.old.decoded, first.new.decoded) == ({"a": 9}, {"a": 8})
    assert second.old is not None
    # The second transaction of a batch reads the changes that the first made in history, not those of the new handler.
    assert (second.old.decoded, second.old.hex) == ({"a": 7}, LEAF.encode({"a": 7}).hex())
    assert (third.kind, third.message, third.old) == ("invalid", "no more to take", None)
    assert third.batch_id != first.batch_id == second.batch_id
    assert len({one.transaction_id for one in found.differences}) == 3


def test_events_and_receipt_data_differ(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS, handler=rehearsed.WithEvent)
    assert rehearsed_whole(tmp_path, rehearsed.WithEvent()) == Findings(6)
    found = rehearsed_whole(tmp_path, rehearsed.DecRaisesAnotherEvent())
    assert found.kinds == {"events": 3, "receipt_data": 3}
    event, data = found.differences[:2]
    assert event.old_events == ("intkey/dec [name=a]",)
    assert event.new_events == ("intkey/dec [name=a, by=1]",)
    assert data.old is not None
    assert (data.old.hex, data.new) == (b"a".hex(), None)
    found = rehearsed_whole(tmp_path, rehearsed.DecAddsData())
    assert found.kinds == {"receipt_data": 3}
    assert found.differences[0].new is not None
    assert (found.differences[0].old, found.differences[0].new.hex) == (None, b"more".hex())


def test_writes_are_missing_and_added(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    # History sets the entries that these decs remove. Removing a missing entry is no change.
    found = rehearsed_whole(tmp_path, rehearsed.DecWritesElsewhere())
    assert found.kinds == {"write_changed": 3}
    assert {one.new for one in found.differences} == {None}
    assert "the new handler removes it" in found.differences[0].message
    found = rehearsed_whole(tmp_path, rehearsed.DecWritesNothing())
    assert found.kinds == {"write_missing": 3}
    assert found.differences[0].old is not None


def test_an_added_write_differs(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS, handler=rehearsed.DecWritesNothing)
    found = rehearsed_whole(tmp_path, IntkeyHandler())
    assert found.kinds == {"write_added": 3}
    assert [one.new and one.new.decoded for one in found.differences] == [{"a": 9}, {"a": 8}, {"b": 0}]


def test_a_write_outside_is_invalid_and_a_mistake_an_internal_error(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = rehearsed_whole(tmp_path, rehearsed.DecWritesOutside())
    assert found.kinds == {"invalid": 3}
    assert "may not write" in found.differences[0].message
    found = rehearsed_whole(tmp_path, rehearsed.DecRaises())
    assert found.kinds == {"internal_error": 3}
    assert found.differences[0].message.startswith("KeyError: 'dec' (")
    assert "rehearsed.py, line" in found.differences[0].message


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = rehearsed_whole(tmp_path, rehearsed.Endless(), timeout_ms=20)
    assert found.kinds == {"internal_error": 3}
    assert "longer than 20 ms (" in found.differences[0].message
    assert "rehearsed.py, line" in found.differences[0].message


def test_only_some_are_shown_and_all_counted(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = rehearsed_whole(tmp_path, rehearsed.DecByOneMore(), shown=1)
    assert (found.differing, sum(found.kinds.values()), len(found.differences)) == (3, 3, 1)


def other(value: int, *addresses: str, signer: Signer = SIGNER, encoding: str = "") -> SignedTransaction:
    """A transaction of the other family. It writes an intkey leaf of "a" to the first address."""
    return build_transaction(
        signer,
        batcher_pubkey=SIGNER.public_key,
        family_name="other",
        family_version="1.0",
        inputs=(),
        outputs=addresses or (intkey_address("a"),),
        payload=LEAF.encode({"a": value}),
        payload_encoding=encoding,
        nonce=f"{value}",
    )


OTHER = FamilyVersion("other", "1.0")


def test_removing_a_missing_entry_is_no_change(tmp_path: Path) -> None:
    chain = Chain(tmp_path, rehearsed.OtherFamily())
    there, absent = intkey_address("there"), intkey_address("absent")
    chain.block([[other(1, there, absent)], [other(2, absent, there)]])
    chain.close()
    found = rehearsed_whole(tmp_path, rehearsed.OtherRemoves(), family=OTHER)
    assert (found.transactions, found.kinds) == (2, {"write_added": 1})
    assert (found.differences[0].address, found.differences[0].new) == (there, None)
    assert found.differences[0].message == "history does not write there; the new handler removes it"


def test_past_migrations_are_not_rehearsed_as_transactions(tmp_path: Path) -> None:
    chain = Chain(tmp_path, rehearsed.OtherFamily())
    well_known = Signer(migration.PRIVATE_KEY)
    chain.block([[other(1), other(2, signer=well_known, encoding=migration.PAYLOAD_ENCODING)]])
    chain.close()
    assert rehearsed_whole(tmp_path, rehearsed.OtherFamily(), family=OTHER) == Findings(1)


def test_what_other_families_write_is_seen(tmp_path: Path) -> None:
    """The other family writes in the same batch, in the same block, and in an earlier block."""
    chain = Chain(tmp_path, IntkeyHandler(), rehearsed.OtherFamily())

    chain.block([[other(100)], [chain.intkey("dec", "a", 1)]])
    chain.block([[chain.intkey("dec", "a", 1), other(50), chain.intkey("dec", "a", 1)]])
    chain.steps([("dec", "a", 1)])
    chain.close()
    assert rehearsed_whole(tmp_path, IntkeyHandler()) == Findings(4)
    found = rehearsed_whole(tmp_path, rehearsed.DecByOneMore())
    assert [one.old and one.old.decoded for one in found.differences] == [{"a": 99}, {"a": 98}, {"a": 49}, {"a": 48}]


def test_a_block_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    with pytest.raises(StorageFailed, match="no block 3"):
        Rehearser(reader, IntkeyHandler(), INTKEY, 1000, LIMITS).span(Span(0, 3, 0, 9), 1)
    reader.close()


def receipts_of(folder: Path) -> list[bytes]:
    reader = StoreReader.open(folder)
    assert reader.head is not None
    found = [reader.transaction(number).receipt for number in range(reader.head.transaction_end)]
    reader.close()
    return found


def test_a_receipt_that_is_too_large_is_invalid(tmp_path: Path) -> None:
    """The limit is exact to the byte, for writes, events, receipt data, and removals (which have no value)."""
    chain = Chain(tmp_path / "event", rehearsed.WithEvent())
    chain.steps([("set", "a", 10)], [("set", "a much longer name", 5)])
    chain.close()
    chain = Chain(tmp_path / "removes", rehearsed.OtherRemoves())
    there, more = intkey_address("there"), intkey_address("more")
    chain.block([[other(1, there, more), other(2, more, there)], [other(3, there, more)]])
    chain.close()
    for folder, handler, family in (
        ("event", rehearsed.WithEvent(), INTKEY),
        ("removes", rehearsed.OtherRemoves(), OTHER),
    ):
        sizes = sorted(map(len, receipts_of(tmp_path / folder)))
        assert sizes[-1] > sizes[0]
        most = Limits(receipt_bytes_max=sizes[-1])
        assert rehearsed_whole(tmp_path / folder, handler, limits=most, family=family) == Findings(len(sizes))
        less = Limits(receipt_bytes_max=sizes[-1] - 1)
        found = rehearsed_whole(tmp_path / folder, handler, limits=less, family=family)
        assert found.kinds == {"invalid": sizes.count(sizes[-1])}
        said = f"its receipt has {sizes[-1]} bytes, at most {sizes[-1] - 1} are kept"
        assert found.differences[0].message == said


def test_a_value_that_is_too_large_is_invalid(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    size = len(LEAF.encode({"a": 10}))
    assert rehearsed_whole(tmp_path, IntkeyHandler(), limits=Limits(state_value_bytes_max=size)) == Findings(6)
    found = rehearsed_whole(tmp_path, IntkeyHandler(), limits=Limits(state_value_bytes_max=size - 1))
    assert found.kinds == {"invalid": 6}
    assert found.differences[0].message.startswith(f"it wrote {size} bytes at {intkey_address('a')}")


def test_other_versions_are_counted(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    assert rehearsed_whole(tmp_path, IntkeyHandler(), family=FamilyVersion("intkey", "7.0")) == Findings(
        other_versions={"1.0": 6}
    )
    assert rehearsed_whole(tmp_path, rehearsed.OtherFamily(), family=OTHER) == Findings()


def test_two_alarms_end_one_apply_alone() -> None:
    clock = Clock(3_600_000)
    with clock.running():
        for _ in range(3):
            clock.begin()
            signal.raise_signal(signal.SIGALRM)
            clock.end()
        signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)
        clock.begin()
        signal.raise_signal(signal.SIGALRM)
        with pytest.raises(Overtime, match="longer than 3600000 ms"):
            signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("late", [False, True])
def test_an_alarm_outside_the_apply_ends_only_that_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """An alarm just before or just after the dispatcher's catch ends only that transaction."""
    made(tmp_path, *BLOCKS)
    run_apply = Dispatcher.run_apply
    alarms = 0

    def alarmed(*arguments: Any) -> ApplyResult:
        nonlocal alarms
        result = run_apply(*arguments) if late else None
        if alarms < 2:
            alarms += 1
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGALRM)
        return result or run_apply(*arguments)

    monkeypatch.setattr(Dispatcher, "run_apply", alarmed)
    found = rehearsed_whole(tmp_path, IntkeyHandler(), timeout_ms=3_600_000)
    assert (found.transactions, found.kinds) == (6, {"internal_error": 2})
    assert found.differences[0].message.startswith("Overtime: it took longer than 3600000 ms")


def grow(folder: Path, *block: list[Step]) -> None:
    """Commit one more block in another process, as a validator would."""
    process = multiprocessing.get_context("spawn").Process(target=made, args=(folder, list(block)))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_each_span_is_read_from_the_newest_snapshot(tmp_path: Path) -> None:
    """A validator's file grows while a reader holds an old snapshot."""
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    rehearser = Rehearser(reader, IntkeyHandler(), INTKEY, 60_000, LIMITS)
    parts = pieces(reader, Span(0, 3, 0, 6 + 2 * PIECE_TRANSACTIONS), 0)
    more: list[list[Step]] = [[("set", f"n{number}", 1)] for number in range(2 * PIECE_TRANSACTIONS)]
    grow(tmp_path, *more)
    assert rehearser.span(Span(3, 3, 6, 10), 1) == Findings(4)
    first = next(parts)
    grow(tmp_path, [("set", "more", 1)])
    assert reader.head is not None
    assert reader.head.num == 3
    assert (first, next(parts)) == (Span(0, 3, 0, 250), Span(3, 3, 250, 500))
    assert reader.head.num == 4
    reader.close()


def test_a_block_in_many_pieces_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    read: list[int] = []
    batch = reader.batch

    def reading(number: int) -> StoredBatch:
        read.append(number)
        return batch(number)

    monkeypatch.setattr(reader, "batch", reading)
    rehearser = Rehearser(reader, IntkeyHandler(), INTKEY, 60_000, LIMITS)
    for first, num in enumerate((0, 0, 1, 1, 1, 2)):
        assert rehearser.span(Span(num, num, first, first + 1), 1) == Findings(1)
    assert read == list(range(5))
    reader.close()


def test_a_slice_is_read_from_the_newest_snapshot(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    rehearser = Rehearser(reader, rehearsed.Doubles(), FamilyVersion("intkey", "2.0"), 60_000, LIMITS)
    grow(tmp_path, [("set", "more", 5)])
    assert migrate_slice(rehearser, 3, (NAMESPACE,), 9).leaves == 3
    reader.close()


@pytest.mark.parametrize("record", [None, b"", b"\x01\x46"], ids=["lost", "empty", "cut"])
@pytest.mark.parametrize("handler", [IntkeyHandler, rehearsed.Lister, rehearsed.RefusesWhateverHappens])
def test_a_damaged_store_is_not_the_handlers_doing(
    tmp_path: Path, handler: type[IntkeyHandler], record: bytes | None
) -> None:
    """The error names the store even if the handler catches the failed read."""
    made(tmp_path, *BLOCKS)
    for name, _ in entries(tmp_path, "nodes"):
        put(tmp_path, "nodes", name, record)
    with pytest.raises(StorageFailed, match=r"the state cannot be read \(.*`dovetail chain verify` shows"):
        rehearsed_whole(tmp_path, handler())


def test_a_migration_that_no_plan_may_name_is_not_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    handler = rehearsed.RefusesWhateverHappens()
    monkeypatch.setattr(handler, "namespaces", (NAMESPACE, "000000"))
    with pytest.raises(Refused, match=r"intkey 2\.0 would migrate 000000, where the ledger's own settings are"):
        prefixes_for(reader, 2, handler)
    reader.close()


@pytest.mark.parametrize("record", [None, b"\x01\x46"], ids=["lost", "cut"])
def test_a_damaged_store_is_not_the_migrations_doing(tmp_path: Path, record: bytes | None) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    rehearser = Rehearser(reader, rehearsed.RefusesWhateverHappens(), FamilyVersion("intkey", "2.0"), 60_000, LIMITS)
    before = state_after(reader, 2)
    node = reader.node

    def damaged(number: int) -> bytes:
        if record is None:
            raise StorageFailed("lost")
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "node", damaged)
        for failing in (
            lambda: slices_of(state_after(reader, 2), (NAMESPACE,)),
            lambda: prefixes_for(reader, 2, rehearsed.RefusesWhateverHappens()),
            lambda: migrate_slice(rehearser, 2, (NAMESPACE,), 9),
            lambda: rehearser.slice((NAMESPACE,), state_after(reader, 2)),
        ):
            with pytest.raises(StorageFailed, match="the state cannot be read"):
                failing()
    assert reader.node == node
    assert slices_of(before, (NAMESPACE,)) == [(NAMESPACE,)]
    reader.close()


@pytest.mark.parametrize(
    ("workers", "where"),
    [
        (1, "block 0, in one of the chain's transactions 2 to 3: nothing"),
        (2, "blocks 0 to 1: nothing"),
        (4, "blocks 0 to 2: nothing"),
        (9, "blocks 0 to 3: nothing"),
    ],
)
def test_a_worker_that_ended_may_have_had_any_piece_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, where: str
) -> None:
    """The error names the unfinished pieces that the worker may have had: as many as there are workers."""
    blocks: list[list[list[Step]]] = [[[("set", f"{block}-{number}", 1)] for number in range(4)] for block in range(4)]
    made(tmp_path, *blocks)
    monkeypatch.setattr(run, "PIECE_TRANSACTIONS", 2)
    handed_out: list[Any] = []

    def submit(pool: Workers, work: Callable[..., Any], setup: Setup, what: Any, *more: Any) -> "Future[Findings]":
        handed_out.append(what)
        future: Future[Findings] = Future()
        if len(handed_out) == 1:
            future.set_result(Findings(2))
        elif len(handed_out) < 4:
            future.set_exception(BrokenProcessPool())
        else:
            raise BrokenProcessPool
        return future

    monkeypatch.setattr(Workers, "submit", submit)
    reader = StoreReader.open(tmp_path)
    span = span_of(reader, 0, 3)
    setup = Setup(tmp_path, "any:Handler", INTKEY, 60_000, 9, LIMITS)
    done: list[int] = []
    with pytest.raises(Refused, match=f"the handler ended its process in {where}") as refused:
        rehearse(setup, reader, span, 0, Findings(), workers, lambda number, _: done.append(number))
    assert done == [2]
    assert ("--workers 1 tells" in str(refused.value)) == (workers > 1)
    reader.close()
    handed_out.clear()
    with pytest.raises(Refused, match="in the slice under ") as refused:
        rehearse_migration(setup, 3, [(f"1cf126{number:02x}",) for number in range(20)], workers, lambda _: None)
    under = [f"1cf126{number:02x}" for number in range(1, 1 + workers)]
    assert f"under {' or '.join(under)}: nothing" in str(refused.value)


def test_a_handler_in_an_archive_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"
    monkeypatch.syspath_prepend(archive)
    digests = []
    for body in ("pass", "most = 1", "most = 2", "pass"):
        with zipfile.ZipFile(archive, "w") as written:
            source = f"from families.intkey.handler import IntkeyHandler\nclass Handler(IntkeyHandler):\n    {body}\n"
            written.writestr("archived.py", source)
        digests.append(sources_sha256("archived:Handler"))
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]


STEPS = st.tuples(st.sampled_from(["set", "inc", "dec"]), st.sampled_from("abc"), st.integers(0, 3))
CHAINS = st.lists(st.lists(st.lists(STEPS, min_size=1, max_size=4), max_size=4), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(CHAINS)
def test_exactly_what_was_planted_differs(blocks: list[list[list[Step]]]) -> None:
    """A model of intkey gives the expected differences: which decs took effect, and the value after each."""
    values: dict[str, int] = {}
    expected: list[tuple[int, str, object, object]] = []
    transactions = 0
    for num, block in enumerate(blocks):
        for batch in block:
            after = dict(values)
            found: list[tuple[int, str, object, object]] = []
            for verb, name, value in batch:
                if (verb == "set") == (name in after):
                    break
                after[name] = after.get(name, 0) + (-value if verb == "dec" else value)
                if after[name] < 0:
                    break
                left = after[name]
                if verb == "dec" and left:
                    found.append((num, "write_changed", {name: left}, {name: left - 1}))
                elif verb == "dec":
                    found.append((num, "invalid", None, None))
            else:
                values = after
                expected += found
                transactions += len(batch)
    with tempfile.TemporaryDirectory() as folder:
        made(Path(folder), *blocks)
        assert rehearsed_whole(Path(folder), IntkeyHandler()) == Findings(transactions)
        result = rehearsed_whole(Path(folder), rehearsed.DecByOneMore())
    assert [
        (one.block_num, one.kind, one.old and one.old.decoded, one.new and one.new.decoded)
        for one in result.differences
    ] == expected
    assert (result.transactions, result.differing) == (transactions, len(expected))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 7), st.integers(0, 12))
def test_parts_come_to_the_whole(sizes: list[int], most: int, begin: int) -> None:
    """The findings of pieces add up to the whole: with one rehearser, with two in turn, or resumed within a block."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "PIECE_TRANSACTIONS", most)
        names = iter(range(100))
        blocks: list[list[list[Step]]] = [
            [[("set", f"n{name}", 5), ("dec", f"n{name}", 1), ("dec", f"n{name}", 1)] for name in islice(names, size)]
            for size in sizes
        ]
        made(Path(folder), *blocks)
        reader = StoreReader.open(Path(folder))
        rehearsers = [Rehearser(reader, rehearsed.DecByOneMore(), INTKEY, 60_000, LIMITS) for _ in range(4)]
        whole = span_of(reader, 0, len(sizes) - 1)
        complete = rehearsers[0].span(whole, 1_000)
        assert (complete.transactions, complete.differing) == (3 * sum(sizes), 2 * sum(sizes))
        cut = list(pieces(reader, whole, 0))
        assert [number for piece in cut for number in range(piece.first, piece.end)] == list(range(whole.end))
        assert {piece.transactions for piece in cut[:-1]} <= {most}
        one, turns = Findings(), Findings()
        for place, piece in enumerate(cut):
            one = one.plus(rehearsers[1].span(piece, 1_000), 1_000)
            turns = turns.plus(rehearsers[2 + place % 2].span(piece, 1_000), 1_000)
        assert one == turns == complete
        begin = min(begin, whole.end)
        rest = Findings()
        for piece in pieces(reader, whole, begin):
            rest = rest.plus(rehearsers[1].span(piece, 1_000), 1_000)
        before = rehearsers[1].span(whole._replace(end=begin, last_block=_block_of(reader, begin)), 1_000)
        assert before.plus(rest, 1_000) == complete
        reader.close()


def _block_of(reader: StoreReader, end: int) -> int:
    """The block that holds the transaction before number ``end``."""
    return reader.block_of_transaction(max(end - 1, 0)).num


def test_the_digest_of_a_handler_is_the_same_however_the_program_was_called() -> None:
    named = "families.intkey.v2.handler:IntkeyHandler"
    program = "import sys; from dovetail.rehearsal.sources import sources_sha256; print(sources_sha256(sys.argv[1]))"
    called = subprocess.run(
        [sys.executable, "-c", program, named],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert called.stdout.strip() == sources_sha256(named)
    with pytest.raises(Refused, match="has no handler class Nobody"):
        sources_sha256("families.intkey.v2.handler:Nobody")
