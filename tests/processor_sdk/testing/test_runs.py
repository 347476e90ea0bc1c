"""The second run of an apply finds every common source of disagreement, and accepts correct handlers."""

import random

import pytest

from processor_sdk import Context, Transaction, TransactionHandler
from processor_sdk.testing import ApplyFailed, CannotRunTwice, Ledger, NonDeterministic
from tests.processor_sdk.testing.careless import (
    DIFFERENT,
    FINE,
    FORBIDDEN,
    LATER,
    Careless,
    Made,
    MadeAtATime,
    MadeByChance,
    MadeInAnOrder,
    MadeOnlyHere,
    MadeSomewhere,
    MadeWith,
    MadeWithALock,
)


@pytest.mark.parametrize("name", DIFFERENT)
def test_sources_of_disagreement_are_found_in_the_first_transaction(name: str) -> None:
    ledger = Ledger(Careless())
    with pytest.raises(NonDeterministic, match="ended differently when it ran again") as found:
        ledger.apply(ledger.transaction(name.encode()))
    assert "first run: " in str(found.value)
    assert not ledger.state


def test_random_numbers_that_a_module_seeded_at_import_are_found() -> None:
    ledger = Ledger(Careless())
    random.seed(7)
    with pytest.raises(NonDeterministic, match="write at abcdef"):
        ledger.apply(ledger.transaction(b"random"))


@pytest.mark.parametrize("name", LATER)
def test_data_that_an_earlier_transaction_left_is_found(name: str) -> None:
    ledger = Ledger(Careless())
    with pytest.raises(NonDeterministic, match="write at abcdef"):
        ledger.accepts([ledger.transaction(name.encode()) for _ in range(2)])


@pytest.mark.parametrize("does", FORBIDDEN)
def test_a_forbidden_action_is_named_with_its_place(does: str) -> None:
    ledger = Ledger(Careless())
    with pytest.raises(NonDeterministic) as found:
        ledger.apply(ledger.transaction(does.encode()))
    assert does in str(found.value)
    assert "careless.py:" in str(found.value)


@pytest.mark.parametrize("name", FINE)
def test_what_is_the_same_everywhere_passes(name: str) -> None:
    ledger = Ledger(Careless())
    ledger.accepts(ledger.transaction(name.encode()))


@pytest.mark.parametrize("handler", [MadeAtATime, MadeSomewhere, MadeByChance, MadeInAnOrder])
def test_values_that_a_handler_read_when_it_was_made_are_found(handler: type[Made]) -> None:
    # Reset the random state, as if no number had been drawn since the module was imported.
    random.seed(7)
    ledger = Ledger(handler())
    with pytest.raises(NonDeterministic, match="write at abcdef"):
        ledger.apply(ledger.transaction(b""))


@pytest.mark.parametrize("handler", [MadeWith(7), MadeWithALock()])
def test_handlers_are_made_as_a_node_does_or_as_the_test_did(handler: Made) -> None:
    ledger = Ledger(handler)
    ledger.accepts(ledger.transaction(b""))


def test_a_handler_that_cannot_be_made_elsewhere_is_refused_with_its_error() -> None:
    ledger = Ledger(MadeOnlyHere())
    with pytest.raises(CannotRunTwice, match=r"(?s)with an empty environment; it said:.*KeyError: 'PATH'"):
        ledger.apply(ledger.transaction(b""))


def test_a_run_that_ends_its_interpreter_is_reported_and_the_next_one_works() -> None:
    ledger = Ledger(Careless())
    with pytest.raises(NonDeterministic, match=r"ended its interpreter \(exit code 86\)"):
        ledger.apply(ledger.transaction(b"end the process"))
    ledger.accepts(ledger.transaction(b"sorted"))


def test_the_first_run_has_the_handler_of_the_test() -> None:
    handler = Careless()
    ledger = Ledger(handler, twice=False)
    ledger.accepts([ledger.transaction(b"on self") for _ in range(3)])
    assert len(handler.before) == 3


def test_a_handler_that_no_other_interpreter_can_make_is_refused() -> None:
    class Local(TransactionHandler[bytes]):
        family_name = "local"
        family_version = "1.0"
        namespaces = ("abcdef",)

        def apply(self, transaction: Transaction[bytes], context: Context) -> None:
            raise ZeroDivisionError("a bug")

    with pytest.raises(CannotRunTwice, match=r"define it at the top of a module.*twice=False"):
        Ledger(Local())
    ledger = Ledger(Local(), twice=False)
    with pytest.raises(ApplyFailed, match="gave no verdict: ZeroDivisionError: a bug") as failed:
        ledger.apply(ledger.transaction(b""))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
