"""Tests the checker: hand-made histories with an obvious verdict, and small random histories against all orders."""

import random
from itertools import permutations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.system.linearizability.checker import REFUSED, VALUE_MAX, Operation, State, Verb, refute, step

COMMITTED, INVALID, UNKNOWN = True, False, None


def did(verb: Verb, value: State, begin: int, end: int | None, accepted: bool | None = COMMITTED) -> Operation:
    return Operation("n", verb, value, accepted, begin, end)


LINEARIZABLE: dict[str, list[Operation]] = {
    "nothing": [],
    "one after the other": [did("get", None, 0, 1), did("set", 5, 2, 3), did("inc", 2, 4, 5), did("get", 7, 6, 7)],
    "a get beside a set sees it": [did("set", 5, 0, 3), did("get", 5, 1, 2)],
    "a get beside a set does not see it": [did("set", 5, 0, 3), did("get", None, 1, 2)],
    "two gets beside a set, in this order": [did("set", 5, 0, 9), did("get", None, 1, 2), did("get", 5, 3, 4)],
    "one of two sets": [did("set", 5, 0, 3), did("set", 6, 1, 2, INVALID), did("get", 5, 4, 5)],
    "an inc that came before the set": [did("inc", 1, 0, 5, INVALID), did("set", 3, 1, 2), did("get", 3, 6, 7)],
    "below 0": [did("set", 3, 0, 1), did("dec", 4, 2, 3, INVALID), did("dec", 3, 4, 5), did("get", 0, 6, 7)],
    "over the largest": [did("set", VALUE_MAX, 0, 1), did("inc", 1, 2, 3, INVALID), did("inc", 0, 4, 5)],
    "an open one that took effect late": [
        did("set", 1, 0, 1),
        did("inc", 10, 2, None, UNKNOWN),
        did("get", 1, 3, 4),
        did("inc", 1, 5, 6),
        did("get", 12, 7, 8),
    ],
    "an open one that never took effect": [
        did("set", 1, 0, 1),
        did("inc", 10, 2, None, UNKNOWN),
        did("get", 1, 3, 4),
        did("get", 1, 5, 6),
    ],
    "an open set": [did("set", 4, 0, None, UNKNOWN), did("inc", 1, 1, 2), did("get", 5, 3, 4)],
    "at the same time": [did("set", 4, 0, 1), did("get", None, 1, 2)],
}

NOT_LINEARIZABLE: dict[str, list[Operation]] = {
    "a stale read": [did("set", 5, 0, 1), did("inc", 1, 2, 3), did("get", 5, 4, 5)],
    "a read from the future": [did("set", 5, 0, 1), did("get", 6, 2, 3), did("inc", 1, 4, 5)],
    "back and forth": [did("set", 5, 0, 9), did("get", 5, 1, 2), did("get", None, 3, 4)],
    "a lost update": [did("set", 5, 0, 1), did("inc", 1, 2, 5), did("inc", 2, 3, 6), did("get", 7, 7, 8)],
    "an update made twice": [did("set", 5, 0, 1), did("inc", 1, 2, 3), did("get", 7, 4, 5)],
    "two sets": [did("set", 5, 0, 3), did("set", 6, 1, 2)],
    "no set at all": [did("set", 5, 0, 3, INVALID), did("get", None, 1, 2)],
    "an inc of nothing": [did("inc", 5, 0, 1)],
    "a refusal without a reason": [did("set", 5, 0, 1), did("inc", 1, 2, 3, INVALID)],
    "a set that vanished": [did("set", 5, 0, 1), did("get", None, 2, 3)],
    "an open one that took effect twice": [did("set", 1, 0, 1), did("inc", 10, 2, None, UNKNOWN), did("get", 21, 3, 4)],
    "an open one that took effect too soon": [did("set", 1, 0, 1), did("get", 11, 2, 3), did("inc", 10, 4, None, None)],
    "an open one that came and went": [
        did("set", 1, 0, 1),
        did("inc", 10, 2, None, UNKNOWN),
        did("get", 11, 3, 4),
        did("get", 1, 5, 6),
    ],
}


@pytest.mark.parametrize("case", LINEARIZABLE)
def test_linearizable_histories_are_accepted(case: str) -> None:
    assert refute(LINEARIZABLE[case]) is None


@pytest.mark.parametrize("case", NOT_LINEARIZABLE)
def test_other_histories_are_refused(case: str) -> None:
    found = refute(NOT_LINEARIZABLE[case])
    assert found is not None
    assert found.name == "n"
    assert found.stuck


def test_a_refutation_names_the_bad_name_and_its_stuck_operations() -> None:
    good = [operation._replace(name="good") for operation in LINEARIZABLE["one after the other"]]
    found = refute(good + NOT_LINEARIZABLE["a stale read"])
    assert found is not None
    assert (found.name, found.placed, found.state) == ("n", 2, 6)
    assert found.stuck == (NOT_LINEARIZABLE["a stale read"][2],)
    assert "'n' is 6 after 2 operations" in str(found)


def _in_some_order(operations: list[Operation]) -> bool:
    """The definition: some order of all ended and some open operations agrees with their times and the rules."""
    ended = [operation for operation in operations if operation.responded is not None]
    opened = [operation for operation in operations if operation.responded is None]
    for mask in range(1 << len(opened)):
        chosen = ended + [operation for index, operation in enumerate(opened) if mask >> index & 1]
        if any(_keeps_time(order) and _follows(order) for order in permutations(chosen)):
            return True
    return False


def _keeps_time(order: tuple[Operation, ...]) -> bool:
    return not any(
        later.responded is not None and later.responded < earlier.invoked
        for index, earlier in enumerate(order)
        for later in order[index + 1 :]
    )


def _follows(order: tuple[Operation, ...]) -> bool:
    state: State = None
    for operation in order:
        after = step(state, operation)
        if after is REFUSED:
            return False
        state = after  # type: ignore[assignment]
    return True


_values = st.integers(0, 2)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Up to five operations with small values at random times, most of which return what a real counter would."""
    count = draw(st.integers(1, 5))
    points = draw(st.permutations(range(2 * count)))
    honest = draw(st.booleans())
    state: State = None
    made = []
    spans = sorted(sorted(points[2 * index : 2 * index + 2]) for index in range(count))
    # A correct counter applies each operation at some instant between its begin and its end.
    instants = [draw(st.integers(begin, end)) for begin, end in spans]
    for index in sorted(range(count), key=lambda index: (instants[index], spans[index])):
        begin, end = spans[index]
        verb: Verb = draw(st.sampled_from(("set", "inc", "dec", "get")))
        value: State = draw(_values)
        accepted: bool | None = True
        if verb == "get":
            value = state if honest else draw(st.none() | _values)
        else:
            after = step(state, Operation("n", verb, value, True, 0, 1))
            accepted = after is not REFUSED if honest else draw(st.booleans())
            if honest and after is not REFUSED:
                state = after  # type: ignore[assignment]
            if draw(st.integers(0, 3)) == 0:
                accepted = None
        made.append(did(verb, value, begin, None if accepted is None else end, accepted))
    if honest and draw(st.booleans()):
        spoilt = draw(st.integers(0, count - 1))
        made[spoilt] = made[spoilt]._replace(value=draw(_values))
    return made


@settings(max_examples=600)
@given(histories())
def test_the_verdict_equals_that_of_all_orders(history: list[Operation]) -> None:
    expected = _in_some_order(history)
    event("linearizable" if expected else "not linearizable")
    assert (refute(history) is None) == expected


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 120))
def test_the_history_of_a_real_counter_is_accepted(seed: int, clients: int, count: int) -> None:
    """The search ends for long histories of a correct counter with many open operations."""
    history = honest_history(seed, clients, count)
    assert refute(history) is None


def honest_history(seed: int, clients: int, count: int) -> list[Operation]:
    """The history of many clients of one counter.

    Each operation is applied at an instant between its begin and its end.
    """
    rng = random.Random(seed)
    going: list[tuple[int, Verb, int]] = []
    history: list[Operation] = []
    state: State = None
    now = 0
    while len(history) < count or going:
        now += 1
        if len(history) < count and len(going) < clients and rng.random() < 0.5:
            verb: Verb = rng.choice(("set", "inc", "inc", "dec", "get"))
            going.append((now, verb, rng.randint(0, 9)))
        elif going:
            invoked, verb, value = going.pop(rng.randrange(len(going)))
            # The operation is applied at this instant. Its answer comes after other operations have begun.
            if verb == "get":
                history.append(Operation("n", verb, state, True, invoked, now))
                continue
            operation = Operation("n", verb, value, True, invoked, now)
            after = step(state, operation)
            if after is not REFUSED:
                state = after  # type: ignore[assignment]
            if rng.random() < 0.05:
                operation = operation._replace(accepted=None, responded=None)
            else:
                operation = operation._replace(accepted=after is not REFUSED)
            history.append(operation)
    return history
