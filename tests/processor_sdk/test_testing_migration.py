"""Migrations in the ledger in memory: slices, rules, all or nothing, and what another interpreter finds."""

import random
from typing import Any

import pytest

from ledger.errors import RefusedBatch
from ledger.limits import Limits
from ledger.migration import LEAVES_MAX, PUBLIC_KEY, SLICES
from ledger.permitted import Permission, encode_permitted_families
from ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, encode_setting, setting_address
from processor_sdk import Context, InvalidTransaction, MigrationContext, Transaction, TransactionHandler
from processor_sdk.testing import ApplyFailed, Ledger, NonDeterministic, Verdict

NAMESPACE = "abcdef"
COUNT = NAMESPACE + "ff" * 32
VERSION = FamilyVersion("counts", "2.0")


class Doubling(TransactionHandler[bytes]):
    """Version 2.0 holds every number twice, and says once, at COUNT, that it does."""

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
    """What it writes depends on how the state is sliced."""

    def migrate(self, context: MigrationContext) -> None:
        for number, (address, _) in enumerate(context.leaves()):
            context.set(address, b"%d" % number)


class Careless(Doubling):
    """Knows what it must not."""

    def migrate(self, context: MigrationContext) -> None:
        for address, _ in context.leaves():
            context.set(address, b"%d" % random.randrange(2**64))


class Remembering(Doubling):
    """Carries something from one slice to the next."""

    def __init__(self) -> None:
        self.slices = 0

    def migrate(self, context: MigrationContext) -> None:
        self.slices += 1
        if context.covers(COUNT):
            context.set(COUNT, b"%d" % self.slices)


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


def test_what_one_slice_leaves_on_the_handler_for_the_next_is_found() -> None:
    Ledger(Remembering()).migrate()
    with pytest.raises(NonDeterministic, match=f"write at {COUNT}"):
        Ledger(Remembering()).migrate(sliced=True)


def test_receipts_of_slices_are_bounded() -> None:
    ledger = Ledger(Doubling(), state=counts(3), limits=Limits(receipt_bytes_max=200))
    assert "at most 200 are kept" in ledger.migrate().message


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


def test_prefixes_that_overlap_are_migrated_once() -> None:
    ledger = Ledger(Doubling(), state=counts(3), twice=False)
    outer, inner = NAMESPACE + "01", place(1)
    assert ledger.migrate(prefixes=[inner, outer, inner, outer]).changes == {inner: b"xx"}
    assert ledger.migrate(prefixes=[outer]).reason == "duplicate_transaction"


def test_a_handler_without_migrate_says_so() -> None:
    class Staying(TransactionHandler[bytes]):
        family_name, family_version = VERSION
        namespaces = (NAMESPACE,)

        def apply(self, transaction: Transaction[bytes], context: Context) -> None: ...

    assert "declares no migrate" in Ledger(Staying(), twice=False).migrate().message


def test_nobody_else_makes_a_migration() -> None:
    ledger = Ledger(Doubling())
    fields: dict[str, Any] = {"signer": PUBLIC_KEY}
    with pytest.raises(RefusedBatch, match="the key of migrations, which only validators make"):
        ledger.transaction(b"", **fields)
