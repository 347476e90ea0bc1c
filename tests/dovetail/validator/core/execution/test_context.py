"""A transaction's view of state in the 1.x conversation, compared with a dictionary. Refused accesses are INVALID."""

from collections import deque
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Event
from dovetail.validator.core.execution.context import TransactionContext, Unauthorized
from dovetail.validator.core.execution.model import TransactionOutcome, Verdict
from tests.dovetail.validator.support import address, make_transaction, view_of

READABLE, WRITABLE, BOTH = address(1), address(2), address(3)
ELSEWHERE, SETTINGS_LEAF = address(4, "abcdef"), address(4, "000000")
LIMITS = Limits()
BASE = {READABLE: b"readable", WRITABLE: b"writable"}


def make_context(namespaces: tuple[str, ...] = ("1cf126",), limits: Limits = LIMITS) -> TransactionContext:
    transaction = make_transaction("t", inputs=[READABLE, BOTH], outputs=[WRITABLE, BOTH, ELSEWHERE, SETTINGS_LEAF])
    return TransactionContext(transaction, view_of(BASE), namespaces, limits)


def test_reads_return_each_address_once() -> None:
    context = make_context()
    assert list(context.get([READABLE, BOTH, READABLE])) == [(READABLE, b"readable"), (BOTH, None)]
    assert list(context.get([])) == []
    context.set([(BOTH, b"")])
    assert list(context.get([BOTH])) == [(BOTH, b"")]


@pytest.mark.parametrize("refused", [WRITABLE, ELSEWHERE, "", READABLE[:-2], READABLE.upper(), READABLE + "00"])
def test_a_read_outside_the_inputs_is_refused_whole(refused: str) -> None:
    context = make_context()
    with pytest.raises(Unauthorized):
        context.get([READABLE, refused])
    outcome = context.outcome(Verdict.OK, "", b"")
    assert outcome.verdict is Verdict.INVALID
    assert "outside its inputs" in outcome.message or "is no address" in outcome.message
    assert not outcome.changes


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (READABLE, "outside its outputs"),
        ("zz", "which is no address"),
        (ELSEWHERE, "outside its processor's namespaces"),
        (SETTINGS_LEAF, "only sawtooth_settings writes"),
    ],
)
@pytest.mark.parametrize("deleting", [False, True])
def test_a_write_elsewhere_is_refused_whole(refused: str, said: str, deleting: bool) -> None:
    context = make_context()
    write = (
        partial(context.delete, [WRITABLE, refused])
        if deleting
        else partial(context.set, [(BOTH, b"x"), (refused, b"")])
    )
    with pytest.raises(Unauthorized, match=said):
        write()
    assert list(context.get([BOTH])) == [(BOTH, None)]
    context.set([(BOTH, b"later")])
    outcome = context.outcome(Verdict.OK, "", b"")
    assert (outcome.verdict, outcome.changes) == (Verdict.INVALID, {})
    assert said in outcome.message


def test_the_writes_of_a_transaction_are_bounded() -> None:
    most = 2 * 70 + 100
    context = make_context(limits=replace(LIMITS, transaction_changes_bytes_max=most))
    context.set([(BOTH, bytes(50)), (WRITABLE, bytes(50))])
    with pytest.raises(Unauthorized, match=f"one transaction may write {most}"):
        context.set([(BOTH, bytes(51))])
    assert context.outcome(Verdict.OK, "", b"").verdict is Verdict.INVALID


def test_no_namespace_permits_no_write() -> None:
    with pytest.raises(Unauthorized):
        make_context(()).set([(BOTH, b"x")])


def test_the_processors_own_verdict_stands() -> None:
    context = make_context()
    context.set([(BOTH, b"x")])
    assert context.outcome(Verdict.INVALID, "no", b"more") == TransactionOutcome(Verdict.INVALID, "no", b"more")
    assert context.outcome(Verdict.ERROR, "broken", b"") == TransactionOutcome(Verdict.ERROR, "broken")
    with pytest.raises(Unauthorized):
        context.get([ELSEWHERE])
    assert context.outcome(Verdict.INVALID, "no", b"").message == "no"
    assert context.outcome(Verdict.ERROR, "broken", b"").verdict is Verdict.INVALID


def test_an_outcome_holds_changes_events_and_data_in_order() -> None:
    context = make_context()
    events = [Event("one", (("k", "v"),), b"d"), Event("two")]
    for event in events:
        context.add_event(event)
    context.add_receipt_data(b"first")
    context.add_receipt_data(b"second")
    context.set([(BOTH, b"new")])
    context.delete([WRITABLE])
    assert context.outcome(Verdict.OK, "ignored", b"ignored") == TransactionOutcome(
        Verdict.OK, "", b"", {BOTH: b"new", WRITABLE: None}, tuple(events), (b"first", b"second")
    )


@pytest.mark.parametrize(
    "event", [Event("x" * 1_000), Event("", (("", ""),) * 1_000), Event("")], ids=lambda e: e[0][:1]
)
def test_every_event_counts(event: Event) -> None:
    context = make_context(limits=replace(LIMITS, receipt_bytes_max=10_000))
    with pytest.raises(Unauthorized, match="bytes, at most 10000 are kept"):
        deque(map(context.add_event, [event] * 200))
    assert context.outcome(Verdict.OK, "", b"").verdict is Verdict.INVALID


def test_empty_receipt_data_counts() -> None:
    context = make_context(limits=replace(LIMITS, receipt_bytes_max=10_000))
    with pytest.raises(Unauthorized, match="bytes, at most 10000 are kept"):
        deque(map(context.add_receipt_data, [b""] * 200))


def test_a_value_that_was_overwritten_or_removed_does_not_count() -> None:
    context = make_context(limits=replace(LIMITS, transaction_changes_bytes_max=200))
    for number in range(20):
        context.set([(BOTH, b"%060d" % number)])
    context.delete([BOTH])
    context.set([(WRITABLE, b"x" * 50)])
    assert context.outcome(Verdict.OK, "", b"").verdict is Verdict.OK


_names = st.lists(st.sampled_from([WRITABLE, BOTH]), max_size=3)
_steps = st.one_of(
    st.tuples(
        st.just("set"), st.lists(st.tuples(st.sampled_from([WRITABLE, BOTH]), st.binary(max_size=2)), max_size=3)
    ),
    st.tuples(st.just("delete"), _names),
    st.tuples(st.just("get"), st.lists(st.sampled_from([READABLE, BOTH]), max_size=3)),
)


@given(st.lists(_steps, max_size=8))
def test_the_view_is_a_dictionary(steps: list[tuple[str, list[object]]]) -> None:
    context = make_context()
    model: dict[str, bytes] = dict(BASE)
    for kind, arguments in steps:
        if kind == "set":
            entries: list[tuple[str, bytes]] = arguments  # type: ignore[assignment]
            assert context.set(entries) == [name for name, _ in entries]
            model.update(entries)
            continue
        names: list[str] = arguments  # type: ignore[assignment]
        if kind == "get":
            assert dict(context.get(names)) == {name: model.get(name) for name in names}
        else:
            assert context.delete(names) == names
            for name in names:
                model.pop(name, None)
    merged: dict[str, bytes | None] = {**BASE, **context.outcome(Verdict.OK, "", b"").changes}
    assert {name: value for name, value in merged.items() if value is not None} == model
