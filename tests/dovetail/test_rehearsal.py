"""Rehearsals of history, in this process: what differs, what does not, and against which state."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.judging import Judge
from families.intkey.addresses import intkey_address
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import LEAF
from ledger import migration
from ledger.building import SignedTransaction, build_transaction
from ledger.settings import FamilyVersion
from ledger.signing import Signer
from processor_sdk import TransactionHandler
from tests.dovetail import rehearsed
from tests.dovetail.rehearsal_chain import SIGNER, Chain, Step
from validator.store import StorageFailed, StoreReader

INTKEY = FamilyVersion("intkey", "1.0")


def judged(
    folder: Path,
    handler: TransactionHandler[Any],
    shown: int = 100,
    timeout_ms: int = 60_000,
    family: FamilyVersion = INTKEY,
) -> Findings:
    """What all blocks of the store at ``folder`` have."""
    reader = StoreReader.open(folder)
    try:
        assert reader.head is not None
        return Judge(reader, handler, family, timeout_ms).blocks(0, reader.head.num, shown)
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
"""Three times dec, of which the last leaves 0."""


@pytest.mark.parametrize("handler", [IntkeyHandler, rehearsed.Lister])
def test_what_does_the_same_differs_in_nothing(tmp_path: Path, handler: type[IntkeyHandler]) -> None:
    made(tmp_path, *BLOCKS)
    assert judged(tmp_path, handler()) == Findings(6)


def test_a_write_differs(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = judged(tmp_path, rehearsed.DecByOneMore())
    assert (found.transactions, found.differing, found.kinds) == (6, 3, {"invalid": 1, "write_changed": 2})
    first, second, third = found.differences
    address = intkey_address("a")
    assert [(one.block_num, one.kind, one.address) for one in (first, second)] == [(1, "write_changed", address)] * 2
    assert first.old is not None
    assert first.new is not None
    assert (first.old.decoded, first.new.decoded) == ({"a": 9}, {"a": 8})
    assert second.old is not None
    # The second of its batch sees what history's first one left, not what the new handler would have left.
    assert (second.old.decoded, second.old.hex) == ({"a": 7}, LEAF.encode({"a": 7}).hex())
    assert (third.kind, third.message, third.old) == ("invalid", "no more to take", None)
    assert third.batch_id != first.batch_id == second.batch_id
    assert len({one.transaction_id for one in found.differences}) == 3


def test_events_and_receipt_data_differ(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS, handler=rehearsed.Told)
    assert judged(tmp_path, rehearsed.Told()) == Findings(6)
    found = judged(tmp_path, rehearsed.DecTellsOtherwise())
    assert found.kinds == {"events": 3, "receipt_data": 3}
    event, data = found.differences[:2]
    assert event.old_events == ("intkey/dec [name=a]",)
    assert event.new_events == ("intkey/dec [name=a, by=1]",)
    assert data.old is not None
    assert (data.old.hex, data.new) == (b"a".hex(), None)
    found = judged(tmp_path, rehearsed.DecAddsData())
    assert found.kinds == {"receipt_data": 3}
    assert found.differences[0].new is not None
    assert (found.differences[0].old, found.differences[0].new.hex) == (None, b"more".hex())


def test_writes_are_missing_and_added(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    # History sets what these remove: changed. That the others remove what is not there is no change.
    found = judged(tmp_path, rehearsed.DecWritesElsewhere())
    assert found.kinds == {"write_changed": 3}
    assert {one.new for one in found.differences} == {None}
    assert "the new handler removes it" in found.differences[0].message
    found = judged(tmp_path, rehearsed.DecWritesNothing())
    assert found.kinds == {"write_missing": 3}
    assert found.differences[0].old is not None


def test_an_added_write_differs(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS, handler=rehearsed.DecWritesNothing)
    found = judged(tmp_path, IntkeyHandler())
    assert found.kinds == {"write_added": 3}
    assert [one.new and one.new.decoded for one in found.differences] == [{"a": 9}, {"a": 8}, {"b": 0}]


def test_a_write_outside_is_invalid_and_a_mistake_an_internal_error(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = judged(tmp_path, rehearsed.DecWritesOutside())
    assert found.kinds == {"invalid": 3}
    assert "may not write" in found.differences[0].message
    found = judged(tmp_path, rehearsed.DecRaises())
    assert found.kinds == {"internal_error": 3}
    assert found.differences[0].message.startswith("KeyError: 'dec' (")
    assert "rehearsed.py, line" in found.differences[0].message


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = judged(tmp_path, rehearsed.Endless(), timeout_ms=20)
    assert found.kinds == {"internal_error": 3}
    assert "longer than 20 ms" in found.differences[0].message


def test_only_some_are_shown_and_all_counted(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    found = judged(tmp_path, rehearsed.DecByOneMore(), shown=1)
    assert (found.differing, sum(found.kinds.values()), len(found.differences)) == (3, 3, 1)


def other(value: int, *addresses: str, signer: Signer = SIGNER, encoding: str = "") -> SignedTransaction:
    """One of the other family: it writes an intkey leaf of "a" at the first address."""
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


def test_to_remove_what_is_not_there_is_no_change(tmp_path: Path) -> None:
    chain = Chain(tmp_path, rehearsed.OtherFamily())
    there, absent = intkey_address("there"), intkey_address("absent")
    chain.block([[other(1, there, absent)], [other(2, absent, there)]])
    chain.close()
    found = judged(tmp_path, rehearsed.OtherRemoves(), family=OTHER)
    assert (found.transactions, found.kinds) == (2, {"write_added": 1})
    assert (found.differences[0].address, found.differences[0].new) == (there, None)
    assert found.differences[0].message == "history does not write there; the new handler removes it"


def test_a_migration_of_the_past_is_no_clients_transaction(tmp_path: Path) -> None:
    chain = Chain(tmp_path, rehearsed.OtherFamily())
    well_known = Signer(migration.PRIVATE_KEY)
    chain.block([[other(1), other(2, signer=well_known, encoding=migration.PAYLOAD_ENCODING)]])
    chain.close()
    assert judged(tmp_path, rehearsed.OtherFamily(), family=OTHER) == Findings(1)


def test_what_other_families_write_is_seen(tmp_path: Path) -> None:
    """In the same batch, the same block and an earlier one."""
    chain = Chain(tmp_path, IntkeyHandler(), rehearsed.OtherFamily())

    chain.block([[other(100)], [chain.intkey("dec", "a", 1)]])
    chain.block([[chain.intkey("dec", "a", 1), other(50), chain.intkey("dec", "a", 1)]])
    chain.steps([("dec", "a", 1)])
    chain.close()
    assert judged(tmp_path, IntkeyHandler()) == Findings(4)
    found = judged(tmp_path, rehearsed.DecByOneMore())
    assert [one.old and one.old.decoded for one in found.differences] == [{"a": 99}, {"a": 98}, {"a": 49}, {"a": 48}]


def test_a_block_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    made(tmp_path, *BLOCKS)
    reader = StoreReader.open(tmp_path)
    with pytest.raises(StorageFailed, match="no block 3"):
        Judge(reader, IntkeyHandler(), INTKEY, 1000).blocks(0, 3, 1)
    reader.close()


STEPS = st.tuples(st.sampled_from(["set", "inc", "dec"]), st.sampled_from("abc"), st.integers(0, 3))
CHAINS = st.lists(st.lists(st.lists(STEPS, min_size=1, max_size=4), max_size=4), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(CHAINS)
def test_exactly_what_was_planted_differs(blocks: list[list[list[Step]]]) -> None:
    """Against a model of intkey: which decs took effect, and what each left."""
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
        assert judged(Path(folder), IntkeyHandler()) == Findings(transactions)
        result = judged(Path(folder), rehearsed.DecByOneMore())
    assert [
        (one.block_num, one.kind, one.old and one.old.decoded, one.new and one.new.decoded)
        for one in result.differences
    ] == expected
    assert (result.transactions, result.differing) == (transactions, len(expected))
