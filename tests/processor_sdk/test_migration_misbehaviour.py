"""Faulty migrations (raising, hanging, random, with wrong or too many writes) get an answer and change nothing.

``test_migration`` has correct migrations.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor_sdk import Context, InvalidTransaction, MigrationContext, Transaction, TransactionHandler
from processor_sdk.errors import InternalError, StateUnavailable
from protos import processor_pb2
from tests.processor_sdk.migrations import (
    ELSEWHERE,
    FAMILY,
    INSIDE,
    OUTSIDE,
    SLICE,
    Migrate,
    Moving,
    header,
    refused,
    run,
)
from tests.processor_sdk.router import Message, Validator
from tests.processor_sdk.running import Start
from tests.processor_sdk.scripts import INTERNAL, INVALID, NAMESPACE, OK, State


@pytest.fixture(autouse=True)
def _no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "processor_sdk.apply.dispatch")


def raises(error: BaseException) -> Migrate:
    def migrate(context: MigrationContext) -> NoReturn:
        context.set(INSIDE[0], b"lost")
        context.add_receipt_data(b"lost")
        raise error

    return migrate


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (InvalidTransaction("leaf 7 is beyond 2.0"), INVALID, "leaf 7 is beyond 2.0"),
        (InternalError("later"), INTERNAL, "InternalError: later"),
        (ZeroDivisionError("a bug"), INTERNAL, "ZeroDivisionError: a bug"),
        (SystemExit(3), INTERNAL, "SystemExit: 3"),
        (GeneratorExit(), INTERNAL, "GeneratorExit: "),
        (RecursionError("deep"), INTERNAL, "RecursionError: deep"),
        (MemoryError(), INTERNAL, "MemoryError: "),
        (StateUnavailable("lost"), INTERNAL, "StateUnavailable: lost"),
    ],
)
def test_whatever_migrate_raises_becomes_an_answer_and_leaves_nothing(
    error: BaseException, status: int, said: str
) -> None:
    response = refused(raises(error), {INSIDE[1]: b"old"})
    assert (response.status, response.message) == (status, said)


def swallowing(act: Callable[[MigrationContext], object]) -> Migrate:
    def migrate(context: MigrationContext) -> None:
        context.set(INSIDE[0], b"lost")
        with contextlib.suppress(InvalidTransaction):
            act(context)

    return migrate


@pytest.mark.parametrize(
    "act",
    [
        lambda context: context.set(OUTSIDE, b"x"),
        lambda context: context.set(ELSEWHERE, b"x"),
        lambda context: context.set(SLICE, b"x"),
        lambda context: context.set_many({INSIDE[1]: b"", OUTSIDE: b""}),
        lambda context: context.delete(OUTSIDE),
        lambda context: context.get(OUTSIDE),
        lambda context: list(context.list(NAMESPACE)),
        lambda context: list(context.list("")),
    ],
)
def test_access_outside_the_slice_is_refused_even_if_the_refusal_is_caught(
    act: Callable[[MigrationContext], object],
) -> None:
    assert refused(swallowing(act)).status == INVALID


def test_a_slice_outside_the_namespaces_is_read_and_not_written() -> None:
    def migrate(context: MigrationContext) -> None:
        assert [name for name, _ in context.leaves()] == [ELSEWHERE]
        context.set(ELSEWHERE, b"x")

    state = State({ELSEWHERE: b"old"})
    response = run(Moving(migrate), state, ("bbbbbb",))
    assert response.status == INVALID
    assert "the handler declares the namespaces" in response.message


def too_much(context: MigrationContext) -> None:
    for number in range(100):
        context.set(SLICE + f"{number:062x}", b"x" * 400_000)


def test_a_slice_that_writes_too_much_is_refused() -> None:
    response = refused(too_much)
    assert response.status == INVALID
    assert "one transaction may write" in response.message


def test_what_migrate_returns_must_be_nothing() -> None:
    response = refused(lambda context: "refused")
    assert (response.status, response.message) == (INTERNAL, "TypeError: migrate of moving returned str, not None")


operations = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "get", "leaves", "next", "list", "raise", "invalid", "event"]),
        st.sampled_from([*INSIDE, OUTSIDE, ELSEWHERE, SLICE, "", "zz", INSIDE[0].upper()]),
    ),
    max_size=12,
)


@given(operations, st.sets(st.sampled_from(INSIDE)))
def test_whatever_migrate_does_it_stays_in_its_slice_and_is_answered(
    script: list[tuple[str, str]], there: set[str]
) -> None:
    """A slice that is OK changes only its own addresses, as a plain dict predicts.

    A slice that is not OK changes nothing.
    """
    values = dict.fromkeys(there, b"old")
    expected = dict(values)

    def migrate(context: MigrationContext) -> None:
        leaves = context.leaves()
        given_ = []
        for operation, name in script:
            if operation == "set":
                context.set(name, b"new")
                expected[name] = b"new"
            elif operation == "delete":
                assert context.delete(name) == (name in expected)
                expected.pop(name, None)
            elif operation == "get":
                assert context.get(name) == expected.get(name)
            elif operation == "leaves":
                assert [leaf for leaf, _ in context.leaves()] == sorted(there)
            elif operation == "next":
                given_ += [leaf for leaf, _ in itertools.islice(leaves, 1)]
            elif operation == "list":
                assert dict(context.list(SLICE)) == expected
            elif operation == "raise":
                raise ZeroDivisionError
            elif operation == "invalid":
                raise InvalidTransaction("no")
            else:
                context.add_event("moving")
        assert [*given_, *(leaf for leaf, _ in leaves)] == sorted(there)

    state = State(values)
    response = run(Moving(migrate), state)
    words = {operation for operation, _ in script}
    touched = {name for operation, name in script if operation in ("set", "delete", "get")}
    fine = not words & {"raise", "invalid"} and touched <= set(INSIDE)
    assert "Assertion" not in response.message
    assert (response.status == OK) == fine
    assert state.values == (expected if fine else values)


class Hanging(TransactionHandler[bytes]):
    """Never finishes a slice."""

    family_name, family_version = FAMILY
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        """Do nothing."""

    def migrate(self, context: MigrationContext) -> None:
        while True:
            time.sleep(86_400)


def test_a_slice_that_hangs_is_answered_and_its_worker_replaced(validator: Validator, start: Start) -> None:
    start(handler=Hanging(), apply_timeout_ms=100)
    validator.accept()
    request = processor_pb2.TpProcessRequest(
        header_bytes=header(), signature="ab" * 64, context_id="ctx", batch_id="ba" * 64, migration=True
    )
    validator.send(Message.TP_PROCESS_REQUEST, "slice", request.SerializeToString())
    message = validator.receive(Message.TP_PROCESS_RESPONSE)
    answer = processor_pb2.TpProcessResponse.FromString(message.content)
    assert (answer.status, answer.message) == (INTERNAL, "apply of moving 2.0 took longer than 100 ms")
    validator.accept()
