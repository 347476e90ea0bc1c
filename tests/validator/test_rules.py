"""What may enter a block: permitted families, uniqueness and dependencies, each with its verdict and its words."""

import json

import pytest

from ledger import settings
from ledger.ids import TransactionId
from ledger.permitted import permitted_families
from ledger.settings import FamilyVersion
from tests.validator.support import make_batch, make_transaction, permitting
from validator.execution.model import Rejected, Withdrawn
from validator.journal.rules import Body

INTKEY = FamilyVersion("intkey", "1.0")
OLD, FAILED = make_transaction("committed"), make_transaction("judged invalid")
MISSING = make_transaction("never seen")


def body(state: dict[str, bytes] | None = None) -> Body:
    """A chain that holds OLD, on which FAILED was judged invalid."""
    return Body((state or {}).get, {OLD.id}.__contains__, {FAILED.id}.__contains__)


def test_a_plain_batch_may_enter() -> None:
    assert body().check(make_batch("b", make_transaction("t"), make_transaction("u", family=("any", "")))) is None


def test_a_family_that_is_not_permitted() -> None:
    value = json.dumps([{"family": "b", "version": "2"}, {"family": "a", "version": "1"}])
    good, bad = make_transaction("good", family=("a", "1")), make_transaction("bad", family=("a", "2"))
    verdict = body(permitting(value)).check(make_batch("x", good, bad))
    assert verdict == Rejected(
        "family_not_permitted",
        "a 2 is not permitted; sawtooth.validator.transaction_families permits: a 1, b 2",
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


def test_an_empty_list_permits_none() -> None:
    verdict = body(permitting("[]")).check(make_batch("b"))
    assert isinstance(verdict, Rejected)
    assert verdict.message.endswith("permits: none")


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
    assert permitted_families(state.get) == frozenset({repair})
    assert isinstance(body(state).check(make_batch("b")), Rejected)
    assert body(state).check(make_batch("r", make_transaction("r", family=repair))) is None


def test_without_the_setting_all_families_are_permitted() -> None:
    assert permitted_families(permitting("[]").get) == frozenset()
    other_key_there: dict[str, bytes] = {
        settings.setting_address(settings.TRANSACTION_FAMILIES): settings.encode_setting({"k": "v"})
    }
    assert permitted_families(other_key_there.get) is None
    assert permitted_families(lambda address: None) is None


def test_a_committed_transaction_is_a_duplicate() -> None:
    verdict = body().check(make_batch("b", make_transaction("t"), OLD))
    assert verdict == Rejected("duplicate_transaction", f"transaction {OLD.id} is already committed", OLD.id)


def test_a_transaction_of_the_same_block_is_waited_for() -> None:
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
def test_a_dependency_on_what_comes_later_in_its_batch_is_not_met(own: int) -> None:
    later = make_transaction("later")
    transactions = [make_transaction("first"), make_transaction("t", dependencies=[later.id]), later]
    batch = make_batch("b", *transactions[-own - 1 :])
    assert body().check(batch) == Withdrawn("waiting_for_dependency", dependency=later.id)


def test_an_unknown_dependency_is_waited_for() -> None:
    batch = make_batch("b", make_transaction("t", dependencies=[OLD.id, MISSING.id]))
    assert body().check(batch) == Withdrawn("waiting_for_dependency", dependency=MISSING.id)


def test_an_invalid_dependency_makes_invalid() -> None:
    transaction = make_transaction("t", dependencies=[FAILED.id])
    verdict = body().check(make_batch("b", make_transaction("other"), transaction))
    assert verdict == Rejected(
        "dependency_invalid",
        f"it depends on transaction {FAILED.id}, which was judged invalid",
        transaction.id,
    )


def test_a_transaction_that_was_judged_invalid_may_come_again() -> None:
    assert body().check(make_batch("again", FAILED)) is None
