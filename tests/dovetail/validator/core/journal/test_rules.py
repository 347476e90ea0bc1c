"""The rules on blocks: permitted families, uniqueness, dependencies and migrations, each with its verdict."""

import json

import pytest

from dovetail.ledger import settings
from dovetail.ledger.batch import verify_batch, verify_migration, verify_transaction
from dovetail.ledger.building import SignedTransaction, build_batch, build_transaction
from dovetail.ledger.errors import RefusedBatch
from dovetail.ledger.ids import TransactionId
from dovetail.ledger.migration import PRIVATE_KEY
from dovetail.ledger.permitted import Permission, encode_permitted_families, permitted_families
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.validator.core.execution.model import Rejected, Withdrawn
from dovetail.validator.core.journal import migrations
from dovetail.validator.core.journal.rules import Body, begins_or_ends
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.core.state.view import Changed, Stored
from tests.dovetail.validator.support import make_batch, make_transaction, permitting

INTKEY = FamilyVersion("intkey", "1.0")
OLD, FAILED = make_transaction("committed"), make_transaction("judged invalid")
MISSING = make_transaction("never seen")


def body(state: dict[str, bytes] | None = None, block_num: int = 7, committed: frozenset[str] = frozenset()) -> Body:
    """The rules on top of a chain that holds OLD and ``committed``. FAILED is INVALID on this chain."""
    return Body(
        block_num, permitted_families((state or {}).get), {OLD.id, *committed}.__contains__, {FAILED.id}.__contains__
    )


def test_a_plain_batch_may_enter() -> None:
    assert body().check(make_batch("b", make_transaction("t"), make_transaction("u", family=("any", "")))) is None


def test_a_family_that_is_not_permitted() -> None:
    value = json.dumps([{"family": "b", "version": "2"}, {"family": "a", "version": "1"}])
    good, bad = make_transaction("good", family=("a", "1")), make_transaction("bad", family=("a", "2"))
    verdict = body(permitting(value)).check(make_batch("x", good, bad))
    assert verdict == Rejected(
        "family_not_permitted",
        "a 2 is not permitted; sawtooth.validator.transaction_families permits: a 1, b 2, sawtooth_settings 1.0",
        bad.id,
        family=FamilyVersion("a", "2"),
    )
    assert body(permitting(value)).check(make_batch("y", good)) is None


def test_a_refusal_lists_a_bounded_part_of_the_permitted() -> None:
    permitted = [{"family": f"family {number} " * 100, "version": "1.0"} for number in range(1_000)]
    verdict = body(permitting(json.dumps(permitted))).check(make_batch("b"))
    assert isinstance(verdict, Rejected)
    assert "more" in verdict.message
    assert len(verdict.message) < 4_000


SETTINGS = settings.SETTINGS


@pytest.mark.parametrize(
    "value",
    [
        "[]",
        '[{"family": "sawtooth_settings", "version": "2.0"}]',
        *(
            json.dumps([{"family": "sawtooth_settings", "version": "1.0", **members}])
            for members in (
                {"until_block": 6}, {"until_block": 7}, {"from_block": 8}, {"migrate": ["1cf126"]},
                {"from_block": 9, "migrate": ["000000"]},
            )
        ),
    ],
)  # fmt: skip
def test_a_value_that_shuts_out_the_settings_permits_its_repair(value: str) -> None:
    """A handler other than ours may have written the value. The repair may enter every block, without a migration."""
    refused, repair = make_batch("b"), make_batch("r", make_transaction("r", family=SETTINGS))
    for block_num in (0, 6, 7, 8, 9, 10_000):
        rules = body(permitting(value), block_num)
        verdict = rules.check(refused)
        assert isinstance(verdict, Rejected)
        assert "sawtooth_settings 1.0" in verdict.message
        assert (rules.check(repair), rules.due) == (None, [])


def test_a_repair_keeps_what_the_other_entries_permit() -> None:
    state = planned(Permission(SETTINGS, 0, 5), Permission(V1, 0, 10), Permission(V2, 11, None, ("1cf126",)))
    assert permitted_families(state.get) == (
        Permission(SETTINGS), Permission(V1, 0, 10), Permission(V2, 11, None, ("1cf126",)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "state",
    [
        permitting("intkey 1.0"),
        permitting('{"family": "intkey", "version": "1.0"}'),
        permitting(""),
        permitting('[{"family": "\\ud800", "version": "1.0"}]'),
        {settings.setting_address(settings.TRANSACTION_FAMILIES): b"\x0a\xff"},
    ],
)
def test_a_value_that_cannot_be_understood_permits_its_repair(state: dict[str, bytes]) -> None:
    repair = FamilyVersion(settings.FAMILY_NAME, settings.FAMILY_VERSION)
    assert permitted_families(state.get) == (Permission(repair),)
    assert isinstance(body(state).check(make_batch("b")), Rejected)
    assert body(state).check(make_batch("r", make_transaction("r", family=repair))) is None


def test_without_the_setting_all_families_are_permitted() -> None:
    assert permitted_families(permitting("[]").get) == (Permission(SETTINGS),)
    other_key_there: dict[str, bytes] = {
        settings.setting_address(settings.TRANSACTION_FAMILIES): settings.encode_setting({"k": "v"})
    }
    assert permitted_families(other_key_there.get) is None
    assert permitted_families(lambda address: None) is None


def test_a_committed_transaction_is_a_duplicate() -> None:
    verdict = body().check(make_batch("b", make_transaction("t"), OLD))
    assert verdict == Rejected("duplicate_transaction", f"transaction {OLD.id} is already committed", OLD.id)


def test_a_batch_waits_for_its_transaction_in_the_same_block() -> None:
    shared = make_transaction("shared")
    checked = body()
    checked.include(make_batch("first", shared))
    verdict = checked.check(make_batch("second", make_transaction("t"), shared))
    assert verdict == Withdrawn("waiting_for_dependency", dependency=shared.id)


@pytest.mark.parametrize("dependency", [OLD.id, make_transaction("own").id, make_transaction("included").id])
def test_dependencies_that_are_met(dependency: TransactionId) -> None:
    checked = body()
    checked.include(make_batch("before", make_transaction("included")))
    transaction = make_transaction("t", dependencies=[dependency])
    assert checked.check(make_batch("b", make_transaction("own"), transaction)) is None


@pytest.mark.parametrize("own", [1, 2])
def test_a_dependency_on_a_later_transaction_of_the_batch_is_not_met(own: int) -> None:
    later = make_transaction("later")
    transactions = [make_transaction("first"), make_transaction("t", dependencies=[later.id]), later]
    batch = make_batch("b", *transactions[-own - 1 :])
    assert body().check(batch) == Withdrawn("waiting_for_dependency", dependency=later.id)


def test_a_batch_waits_for_an_unknown_dependency() -> None:
    batch = make_batch("b", make_transaction("t", dependencies=[OLD.id, MISSING.id]))
    assert body().check(batch) == Withdrawn("waiting_for_dependency", dependency=MISSING.id)


def test_a_batch_with_an_invalid_dependency_is_invalid() -> None:
    transaction = make_transaction("t", dependencies=[FAILED.id])
    verdict = body().check(make_batch("b", make_transaction("other"), transaction))
    assert verdict == Rejected(
        "dependency_invalid", f"it depends on transaction {FAILED.id}, which was judged invalid", transaction.id
    )


def test_an_invalid_transaction_may_be_submitted_again() -> None:
    assert body().check(make_batch("again", FAILED)) is None


V1, V2 = FamilyVersion("intkey", "1.0"), FamilyVersion("intkey", "2.0")
NAMESPACE = "1cf126"


def planned(*permissions: Permission) -> dict[str, bytes]:
    return permitting(encode_permitted_families(permissions))


@pytest.mark.parametrize(("block_num", "enters"), [(0, True), (9, True), (10, True), (11, False), (10**9, False)])
def test_a_version_enters_until_its_last_block(block_num: int, enters: bool) -> None:
    transaction = make_transaction("t", family=V1)
    state = planned(Permission(V1, until_block=10), Permission(V2, from_block=11))
    verdict = body(state, block_num).check(make_batch("b", transaction))
    assert verdict == (
        None
        if enters
        else Rejected(
            "family_not_permitted",
            f"intkey 1.0 was permitted until block 10, this is block {block_num};"
            " sawtooth.validator.transaction_families permits: intkey 2.0 from block 11, sawtooth_settings 1.0",
            transaction.id,
            family=V1,
        )
    )


@pytest.mark.parametrize(("block_num", "enters"), [(0, False), (9, False), (10, True), (11, True)])
def test_a_version_waits_for_its_first_block(block_num: int, enters: bool) -> None:
    verdict = body(planned(Permission(V2, 10)), block_num).check(make_batch("b", make_transaction("t", family=V2)))
    why = "intkey 2.0 is permitted from block 10 on"
    assert verdict == (None if enters else Withdrawn("waiting_for_activation", V2, message=why))


def test_a_version_may_have_several_spans() -> None:
    state = planned(Permission(V1, 20, 29), Permission(V1, 0, 5), Permission(V1, 10, 15))
    batch = make_batch("b", make_transaction("t", family=V1))
    verdicts = [body(state, number).check(batch) for number in (5, 6, 10, 15, 16, 29, 30)]
    assert verdicts[0] is verdicts[2] is verdicts[3] is verdicts[5] is None
    for waits, first in ((verdicts[1], 10), (verdicts[4], 20)):
        assert isinstance(waits, Withdrawn)
        assert waits.message == f"intkey 1.0 is permitted from block {first} on"
    assert isinstance(verdicts[6], Rejected)


@pytest.mark.parametrize("number", range(12))
def test_the_blocks_at_which_something_changes(number: int) -> None:
    state = planned(Permission(V1, until_block=4), Permission(V2, 8))
    assert begins_or_ends(number, permitted_families(state.get)) is (number in (0, 5, 8))


def test_a_version_waits_until_its_migration_is_in_a_block() -> None:
    plan = Permission(V2, 10, migrate=(NAMESPACE,))
    batch = make_batch("b", make_transaction("t", family=V2))
    assert body(planned(plan), 9).due == []
    before = body(planned(plan), 10)
    assert before.due == [plan]
    why = "intkey 2.0 is permitted when its migration is in a block"
    assert before.check(batch) == Withdrawn("waiting_for_activation", V2, message=why)
    for transaction_id in migrations.transaction_ids_of(plan):
        after = body(planned(plan), 11, frozenset({transaction_id}))
        assert after.due == []
        assert after.check(batch) is None


@pytest.mark.parametrize("leaves", [0, 3, 2_000, 2_001])
def test_the_migration_itself_enters_once(leaves: int) -> None:
    plan = Permission(V2, 10, migrate=(NAMESPACE, "ab" * 35))
    changes: dict[str, bytes | None] = {f"{NAMESPACE}{number:064x}": b"v" for number in range(leaves)}
    state = Changed(Stored(lambda number: b"", EMPTY), changes)
    migration = migrations.batch_for(plan, state)
    assert len(migration.transactions) == (256 if leaves > 2_000 else 1)
    assert migrations.is_of(migration, plan)
    assert migration.transactions[0].id in migrations.transaction_ids_of(plan)
    due = body(planned(plan), 10)
    assert due.is_migration(migration)
    assert due.check(migration) is None
    assert isinstance(body(planned(plan), 9).check(migration), Withdrawn)
    done = body(planned(plan), 11, frozenset({migration.transactions[0].id}))
    assert not done.is_migration(migration)
    assert isinstance(done.check(migration), Rejected)


def test_a_migration_that_nobody_planned_may_not_enter() -> None:
    migration = migrations.batch_for(Permission(V2, migrate=(NAMESPACE,)), Stored(lambda number: b"", EMPTY))
    for plan in (Permission(V2), Permission(V2, migrate=("abcdef",)), Permission(V1, migrate=(NAMESPACE,))):
        assert not body(planned(plan), 10).is_migration(migration)


def test_nobody_else_makes_a_migration() -> None:
    migration = migrations.batch_for(Permission(V2, migrate=(NAMESPACE,)), Stored(lambda number: b"", EMPTY))
    with pytest.raises(RefusedBatch, match="the key of migrations, which only validators make"):
        verify_batch(migration.raw)
    mallory = Signer("11" * 32)
    forged = build_transaction(
        Signer(PRIVATE_KEY), batcher_pubkey=mallory.public_key, family_name="intkey", family_version="2.0",
        inputs=[NAMESPACE], outputs=[NAMESPACE], payload=b"", payload_encoding="", nonce="",
    )  # fmt: skip
    with pytest.raises(RefusedBatch, match="the key of migrations"):
        verify_batch(build_batch(mallory, [forged]).raw)
    with pytest.raises(RefusedBatch, match="the key of migrations"):
        verify_transaction(forged.raw)


def test_a_block_holds_one_form_of_a_migration() -> None:
    plan = Permission(V2, 10, migrate=(NAMESPACE,))
    changes: dict[str, bytes | None] = {f"{NAMESPACE}{number:064x}": b"v" for number in range(2_001)}
    few, many = (migrations.batch_for(plan, Changed(Stored(lambda number: b"", EMPTY), held)) for held in ({}, changes))
    assert few.id != many.id
    for first, second in ((few, many), (many, few)):
        checked = body(planned(plan), 10)
        assert checked.check(first) is None
        checked.include(first)
        assert not checked.is_migration(second)
        assert isinstance(checked.check(second), Withdrawn)


def test_a_batch_that_begins_like_a_migration_is_none() -> None:
    plan = Permission(V2, 10, migrate=(NAMESPACE,))
    real = migrations.batch_for(plan, Stored(lambda number: b"", EMPTY))
    signer = Signer(PRIVATE_KEY)
    more = build_transaction(
        signer, batcher_pubkey=signer.public_key, family_name="f", family_version="1", inputs=[], outputs=[],
        payload=b"", payload_encoding="", nonce="more",
    )  # fmt: skip
    first = SignedTransaction(real.transactions[0].id, real.transactions[0].raw)
    longer = verify_migration(build_batch(signer, [first, more]).raw)
    checked = body(planned(plan), 10)
    assert checked.is_migration(real)
    assert not checked.is_migration(longer)
    assert isinstance(checked.check(longer), Withdrawn)


def test_versions_on_the_same_state_migrate_one_after_the_other() -> None:
    v3 = FamilyVersion("intkey", "3.0")
    first, second = Permission(V2, 5, migrate=(NAMESPACE,)), Permission(v3, 7, migrate=(NAMESPACE + "ab", "0000ff"))
    elsewhere = Permission(FamilyVersion("other", "1"), 9, migrate=("abcdef",))
    state = planned(second, elsewhere, first)
    assert body(state, 10).due == [first, elsewhere]
    assert body(state, 10, frozenset(migrations.transaction_ids_of(first))).due == [second, elsewhere]
    # A version that ends without its migration does not block other versions.
    assert body(planned(second, first._replace(until_block=9)), 10).due == [second]


def test_all_spans_of_a_version_migrate_before_its_first_transaction() -> None:
    first, second = Permission(V2, 1, migrate=(NAMESPACE,)), Permission(V2, 3, migrate=("abcdef",))
    done = frozenset(migrations.transaction_ids_of(first))
    batch = make_batch("b", make_transaction("t", family=V2))
    assert body(planned(first, second), 2, done).check(batch) is None
    assert isinstance(body(planned(first, second), 3, done).check(batch), Withdrawn)
    assert body(planned(first, second), 3, done | {migrations.transaction_ids_of(second)[0]}).check(batch) is None
