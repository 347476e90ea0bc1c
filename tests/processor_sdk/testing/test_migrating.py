"""Migrations in the ledger in memory: slices, rules, atomicity, and the second run."""

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.limits import Limits
from dovetail.ledger.migration import BYTES_MAX, LEAVES_MAX, PUBLIC_KEY, SLICES
from dovetail.ledger.permitted import Permission, encode_permitted_families
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, encode_setting, setting_address
from processor_sdk import Context, InvalidTransaction, MigrationContext, Transaction, TransactionHandler
from processor_sdk.testing import ApplyFailed, Ledger, NonDeterministic, Verdict
from processor_sdk.testing.runs import Runs

NAMESPACE = "abcdef"
COUNT = NAMESPACE + "ff" * 32
MIDDLE = NAMESPACE + "5a" * 32
VERSION = FamilyVersion("counts", "2.0")


class Doubling(TransactionHandler[bytes]):
    """Version 2.0 doubles every number, and writes one mark at COUNT."""

    family_name, family_version = VERSION
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.set(NAMESPACE + "00" * 32, transaction.payload)

    def migrate(self, context: MigrationContext) -> None:
        for address, data in context.leaves():
            if data == b"refused":
                raise InvalidTransaction(f"{address} cannot be doubled")
            if data == b"bug":
                raise ZeroDivisionError
            context.set(address, data + data)
        if context.covers(COUNT):
            context.set(COUNT, b"2.0")


class Slicing(Doubling):
    """Writes values that depend on how the state is sliced."""

    def migrate(self, context: MigrationContext) -> None:
        for number, (address, _) in enumerate(context.leaves()):
            context.set(address, b"%d" % number)


class Careless(Doubling):
    """Uses data that is not in its slice."""

    def migrate(self, context: MigrationContext) -> None:
        for address, _ in context.leaves():
            context.set(address, b"%d" % random.randrange(2**64))


class Remembering(Doubling):
    """Keeps data from one slice to the next."""

    def __init__(self) -> None:
        self.slices = 0

    def migrate(self, context: MigrationContext) -> None:
        self.slices += 1
        if context.covers(COUNT):
            context.set(COUNT, b"%d" % self.slices)


class RememberingInTheMiddle(Remembering):
    def migrate(self, context: MigrationContext) -> None:
        self.slices += 1
        if context.covers(MIDDLE):
            context.set(MIDDLE, b"%d" % self.slices)


class Accumulating(Remembering):
    """Counts leaves across slices, and writes another value once the count is high."""

    def migrate(self, context: MigrationContext) -> None:
        for address, data in context.leaves():
            self.slices += 1
            context.set(address, b"many" if self.slices > 50 else data)


class Marking(Doubling):
    """Writes in every slice."""

    def migrate(self, context: MigrationContext) -> None:
        context.set(context.prefixes[0].ljust(70, "0"), b"")


def place(number: int) -> str:
    return f"{NAMESPACE}{number % 256:02x}{number:062x}"


def permitting(*permissions: Permission) -> dict[str, bytes]:
    value = encode_setting({TRANSACTION_FAMILIES: encode_permitted_families(permissions)})
    return {setting_address(TRANSACTION_FAMILIES): value}


def counts(number: int) -> dict[str, bytes]:
    return {place(at): b"x" for at in range(number)}


def test_a_small_state_is_migrated_in_one_slice() -> None:
    ledger = Ledger(Doubling(), state=counts(3))
    result = ledger.migrate()
    assert result.verdict is Verdict.OK
    assert len(result.receipts) == 1
    assert ledger.state == result.changes == {**{place(at): b"xx" for at in range(3)}, COUNT: b"2.0"}
    assert ledger.block_num == 1


def test_a_large_state_is_migrated_in_many_slices_with_what_is_elsewhere_untouched() -> None:
    elsewhere = {"abcdee" + "00" * 32: b"-", "abcdf0" + "00" * 32: b"-"}
    ledger = Ledger(Doubling(), state=counts(LEAVES_MAX + 1) | elsewhere, twice=False)
    result = ledger.migrate()
    assert len(result.receipts) == len(ledger.receipts) == SLICES
    assert ledger.state == {place(at): b"xx" for at in range(LEAVES_MAX + 1)} | elsewhere | {COUNT: b"2.0"}
    assert len(Ledger(Doubling(), state=counts(LEAVES_MAX), twice=False).migrate().receipts) == 1
    ledger = Ledger(Doubling(), state={place(at): bytes(BYTES_MAX // 2) for at in range(2)}, twice=False)
    assert len(ledger.migrate().receipts) == 1
    ledger = Ledger(Doubling(), state=counts(1) | {place(at): bytes(BYTES_MAX // 2) for at in (1, 2)}, twice=False)
    assert len(ledger.migrate().receipts) == SLICES


@pytest.mark.parametrize(("handler", "same"), [(Doubling, True), (Slicing, False)])
def test_both_ways_to_slice_can_be_compared(handler: type[Doubling], same: bool) -> None:
    states = []
    for sliced in (False, True):
        ledger = Ledger(handler(), state={place(at): b"x" for at in (1, 2, 700)}, twice=False)
        assert ledger.migrate(sliced=sliced)
        states.append(dict(ledger.state))
    assert (states[0] == states[1]) == same


def test_a_refusal_in_the_last_slice_leaves_nothing_and_it_may_be_tried_again() -> None:
    last = place(255)
    ledger = Ledger(Doubling(), state=counts(3) | {last: b"refused"}, twice=False)
    before = dict(ledger.state)
    result = ledger.migrate(sliced=True)
    assert (result.verdict, result.reason) == (Verdict.INVALID, "invalid_transaction")
    assert result.message == f"{last} cannot be doubled"
    assert (dict(ledger.state), ledger.receipts, ledger.block_num) == (before, {}, 0)
    ledger.state[last] = b"y"
    assert ledger.migrate(sliced=True).changes[last] == b"yy"


def test_a_bug_in_migrate_is_told_as_one() -> None:
    ledger = Ledger(Doubling(), state={place(1): b"bug"})
    with pytest.raises(ApplyFailed, match=r"the migrate of transaction .* of counts 2\.0 gave no verdict") as failed:
        ledger.migrate()
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_chance_in_migrate_is_found() -> None:
    ledger = Ledger(Careless(), state=counts(1))
    with pytest.raises(NonDeterministic, match=r"the migrate of .* ended differently when it ran again"):
        ledger.migrate()
    assert ledger.state == counts(1)


def test_data_that_a_slice_keeps_for_the_next_is_found() -> None:
    Ledger(Remembering()).migrate()
    with pytest.raises(NonDeterministic, match=f"write at {COUNT}"):
        Ledger(Remembering()).migrate(sliced=True)
    with pytest.raises(NonDeterministic, match=f"write at {MIDDLE}"):
        Ledger(RememberingInTheMiddle()).migrate(sliced=True)
    with pytest.raises(NonDeterministic, match=f"write at {place(174)}"):
        Ledger(Accumulating(), state={place(at): b"x" for at in range(100, 200)}).migrate(sliced=True)


def test_few_slices_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[tuple[str, ...]] = []
    monkeypatch.setattr(Runs, "check", lambda runs, batch_id, transaction, *rest: checked.append(transaction.inputs))
    assert Ledger(Doubling(), state=counts(2 * LEAVES_MAX)).migrate()
    assert [prefix for (prefix,) in checked] == [f"{NAMESPACE}{slice:02x}" for slice in (0, 63, 127, 191, 255)]
    checked.clear()
    assert Ledger(Marking(), state={place(7): b"x", place(9): b"x"}).migrate(sliced=True)
    assert [prefix for (prefix,) in checked] == [f"{NAMESPACE}{slice:02x}" for slice in (0, 1, 2, 3, 4, 7, 9, 255)]
    checked.clear()
    assert not Ledger(Doubling(), state=counts(100) | {place(77): b"refused"}).migrate(sliced=True)
    assert checked[-1] == (f"{NAMESPACE}{77:02x}",)


def test_receipts_of_slices_are_bounded() -> None:
    ledger = Ledger(Doubling(), state=counts(3), limits=Limits(receipt_bytes_max=200))
    assert "at most 200 are kept; have migrate write smaller values, or name finer prefixes" in ledger.migrate().message


def test_a_version_waits_for_its_block_and_then_for_its_migration() -> None:
    entry = Permission(VERSION, from_block=7, until_block=9, migrate=(NAMESPACE + "01",))
    ledger = Ledger(Doubling(), state=counts(3) | permitting(entry))
    for result in (ledger.apply(ledger.transaction(b"x")), ledger.migrate()):
        assert (result.verdict, result.reason) == (Verdict.PENDING, "waiting_for_activation")
        assert result.message == "counts 2.0 is permitted from block 7 on"
    ledger.block_num = 7
    result = ledger.apply(ledger.transaction(b"x"))
    assert (result.verdict, result.reason) == (Verdict.PENDING, "waiting_for_activation")
    assert result.message == "counts 2.0 is permitted when its migration is in a block"
    assert ledger.migrate().changes == {place(1): b"xx"}
    ledger.accepts(ledger.transaction(b"y"))
    again = ledger.migrate()
    assert (again.verdict, again.reason) == (Verdict.INVALID, "duplicate_transaction")
    ledger.block_num = 10
    ledger.refuses(ledger.transaction(b"z"), r"counts 2\.0 was permitted until block 9, this is block 10")
    assert ledger.migrate().reason == "family_not_permitted"


@pytest.mark.parametrize(
    ("prefixes", "said"),
    [
        ([NAMESPACE, place(1)], "names what lies under abcdef twice"),
        ([NAMESPACE, NAMESPACE], "names what lies under abcdef twice"),
        (["abcde"], "holds 'abcde', not an even number"),
        (NAMESPACE, "holds 'a', not an even number"),
        ([f"{NAMESPACE}{number:02x}" for number in range(17)], "no array of at most 16 prefixes"),
    ],
)
def test_prefixes_that_no_setting_can_hold_are_refused(prefixes: Sequence[str], said: str) -> None:
    with pytest.raises(NotDecodable, match=said):
        Ledger(Doubling(), twice=False).migrate(prefixes=prefixes)


def test_a_migration_is_done_once_by_the_same_plan() -> None:
    ledger = Ledger(Doubling(), state=counts(1), twice=False)
    first = ledger.migrate()
    for sliced in (False, True):
        again = ledger.migrate(sliced=sliced)
        assert (again.verdict, again.reason) == (Verdict.INVALID, "duplicate_transaction")
        assert again.message == f"transaction {first.receipts[0].transaction_id} is already committed"
    assert ledger.migrate(prefixes=[NAMESPACE + "00"]).changes == {place(0): b"xxxx"}
    ledger.state.update(permitting(Permission(VERSION, from_block=1, migrate=(NAMESPACE,))))
    waiting = ledger.apply(ledger.transaction(b"x"))
    assert waiting.message == "counts 2.0 is permitted when its migration is in a block"
    assert ledger.migrate(sliced=True).changes[place(0)] == b"x" * 8
    ledger.state.update(permitting(Permission(VERSION, from_block=2, migrate=(NAMESPACE,))))
    assert ledger.apply(ledger.transaction(b"x")).reason == "waiting_for_activation"


def test_a_version_with_several_entries_migrates_for_each() -> None:
    entries = [Permission(VERSION, start, None, (NAMESPACE + part,)) for start, part in ((1, "01"), (0, "00"))]
    ledger = Ledger(Doubling(), state=counts(2) | permitting(*entries), twice=False)
    assert ledger.migrate().changes == {place(0): b"xx"}
    assert ledger.apply(ledger.transaction(b"x")).reason == "waiting_for_activation"
    assert ledger.migrate().changes == {place(1): b"xx"}
    ledger.accepts(ledger.transaction(b"x"))
    assert ledger.migrate().reason == "duplicate_transaction"


def test_versions_that_migrate_the_same_state_do_so_in_the_order_of_their_blocks() -> None:
    class Tripling(Doubling):
        family_version = "3.0"
        migrate = Doubling.migrate

    later = FamilyVersion("counts", "3.0")
    apart = Permission(later, 0, None, (NAMESPACE + "02",))
    entries = [Permission(later, 1, None, (NAMESPACE + "00",)), Permission(VERSION, 0, None, (NAMESPACE,)), apart]
    ledger = Ledger(Doubling(), Tripling(), state=counts(3) | permitting(*entries), twice=False)
    ledger.block_num = 1
    first = ledger.migrate(version="3.0")
    assert first.message == "counts 3.0 migrates state that counts 2.0 has to migrate before"
    assert (first.verdict, first.reason) == (Verdict.PENDING, "waiting_for_activation")
    assert ledger.migrate(version="2.0")
    assert ledger.migrate(version="3.0").changes == {place(2): b"xxxx"}
    assert ledger.migrate(version="3.0").changes == {place(0): b"xxxx"}


class Staying(TransactionHandler[bytes]):
    family_name, family_version = VERSION
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None: ...


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (VERSION, r"this ledger's handler of counts 2\.0 declares no migrate; one that is inherited"),
        (FamilyVersion("counts", "9"), "this ledger has no handler for the family counts 9"),
    ],
)
def test_a_migration_without_a_processor_waits(family: FamilyVersion, said: str) -> None:
    for state in ({}, permitting(Permission(family, migrate=(NAMESPACE,)))):
        result = Ledger(Staying(), state=state).migrate(family=family.name, version=family.version)
        assert (result.verdict, result.reason) == (Verdict.PENDING, "waiting_for_processor")
        assert re.match(said, result.message)


def test_clients_cannot_make_migrations() -> None:
    ledger = Ledger(Doubling())
    fields: dict[str, Any] = {"signer": PUBLIC_KEY}
    with pytest.raises(RefusedBatch, match="the key of migrations, which only validators make"):
        ledger.transaction(b"", **fields)
