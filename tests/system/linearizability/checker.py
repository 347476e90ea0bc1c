"""Decides whether a history of concurrent operations on named counters is linearizable.

The module has histories, the rules of one intkey name, and the search. Nodes, HTTP, clocks and threads do not belong
here.

Names are checked separately: a history is linearizable if the history of every object is (Herlihy and Wing 1990,
Theorem 1). The search is Wing and Gong's (1993) with Lowe's memory of visited states (2017): it follows events in time
order. If an operation reaches its end without a place in the order, the search goes back.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

VALUE_MAX: Final = 2**32 - 1

Verb = Literal["set", "inc", "dec", "get"]
State = int | None
"""The value of a name; None if the name does not exist."""


class Operation(NamedTuple):
    """One operation of a client. All times come from the same monotonic clock.

    ``accepted``: whether a set, inc or dec was committed (True) or invalid (False). None: the outcome is unknown, so
    the operation may have taken effect at any time after ``invoked``, or never. ``value``: the operand, or the value
    that a get returned. ``responded``: None if ``accepted`` is None.
    """

    name: str
    verb: Verb
    value: State
    accepted: bool | None
    invoked: int
    responded: int | None
    client: int = 0


class Refutation(NamedTuple):
    """Why a history is not linearizable: no order of the operations on ``name`` keeps all rules.

    The longest order that keeps the rules has ``placed`` operations, which lead to ``state``. ``stuck``: the operations
    in progress at that point, of which none can come next.
    """

    name: str
    placed: int
    state: State
    stuck: tuple[Operation, ...]

    def __str__(self) -> str:
        lines = "".join(f"\n  {operation}" for operation in self.stuck)
        return (
            f"{self.name!r} is {self.state} after {self.placed} operations in any order, and none of these fit:{lines}"
        )


def refute(history: Iterable[Operation]) -> Refutation | None:
    """Why the history is not linearizable, if no name exists at its beginning; None if it is linearizable."""
    by_name: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_name[operation.name].append(operation)
    return next(filter(None, map(_refute_name, by_name.values())), None)


REFUSED: Final = object()


def step(state: State, operation: Operation) -> State | object:
    """Apply ``operation`` to ``state``. Returns the new state, or ``REFUSED`` if the recorded outcome is impossible.

    The rules are intkey's (WIRE.md, Families). If the outcome is unknown, the operation counts as accepted.
    """
    verb, value, accepted = operation.verb, operation.value, operation.accepted
    if verb == "get":
        return state if value == state else REFUSED
    assert value is not None, "set, inc and dec have an operand"
    after: State = None
    if verb == "set":
        after = value if state is None else None
    elif state is not None:
        after = state + value if verb == "inc" else state - value
    if after is not None and not 0 <= after <= VALUE_MAX:
        after = None
    if accepted is False:
        return state if after is None else REFUSED
    return REFUSED if after is None else after


class _Event:
    """The begin or end of an operation, in a linked list from which the search removes operations and restores them."""

    __slots__ = ("after", "before", "end", "index", "operation")

    def __init__(self, index: int, operation: Operation, end: "_Event | None") -> None:
        self.index = index
        self.operation = operation
        self.end = end
        """The end of the same operation. None if this event is an end, or if the operation did not end."""
        self.before: _Event | None = None
        self.after: _Event | None = None

    @property
    def is_begin(self) -> bool:
        return self.end is not None or self.operation.responded is None

    def take_out(self) -> None:
        for event in (self, self.end):
            if event is not None:
                assert event.before is not None
                event.before.after = event.after
                if event.after is not None:
                    event.after.before = event.before

    def put_back(self) -> None:
        for event in (self.end, self):
            if event is not None:
                assert event.before is not None
                event.before.after = event
                if event.after is not None:
                    event.after.before = event


def _events(operations: list[Operation]) -> _Event:
    """Link the events in time order, begins before ends of the same time. Returns an anchor before the first event."""
    timed: list[tuple[int, bool, int, _Event]] = []
    for index, operation in enumerate(operations):
        end = None
        if operation.responded is not None:
            end = _Event(index, operation, None)
            timed.append((operation.responded, True, index, end))
        timed.append((operation.invoked, False, index, _Event(index, operation, end)))
    last = top = _Event(-1, operations[0], None)
    for *_, event in sorted(timed, key=lambda entry: entry[:3]):
        last.after, event.before, last = event, last, event
    return top


def _refute_name(operations: list[Operation]) -> Refutation | None:
    top = _events(operations)
    unfinished = sum(operation.responded is not None for operation in operations)
    state: State = None
    placed = 0
    """The operations that have a place in the order, as the bits of a number."""
    tried: set[tuple[int, State]] = {(placed, state)}
    way: list[tuple[_Event, State]] = []
    furthest = Refutation(operations[0].name, -1, None, ())
    event = top.after
    while unfinished:
        assert event is not None, "an end stands behind every begin that is passed"
        if event.is_begin:
            after = step(state, event.operation)
            key = (placed | 1 << event.index, after)
            if after is not REFUSED and key not in tried:
                tried.add(key)  # type: ignore[arg-type]
                way.append((event, state))
                placed, state = key  # type: ignore[assignment]
                unfinished -= event.end is not None
                event.take_out()
                event = top.after
            else:
                event = event.after
            continue
        if len(way) > furthest.placed:
            furthest = Refutation(event.operation.name, len(way), state, _going_on(top, event))
        if not way:
            return furthest
        event, state = way.pop()
        placed &= ~(1 << event.index)
        unfinished += event.end is not None
        event.put_back()
        event = event.after
    return None


def _going_on(top: _Event, end: _Event) -> tuple[Operation, ...]:
    found = []
    event = top.after
    while event is not None and event is not end:
        found.append(event.operation)
        event = event.after
    return tuple(found)
