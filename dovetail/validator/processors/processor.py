"""One processor: its registrations, its tasks in flight, and its record. Most are connections, one is the node's own.

``registry`` sends its messages and reads its frames.
"""

from collections import deque
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Task, Verdict
from dovetail.validator.processors.assignment import Assignment, Outcomes, PackedAssignment
from dovetail.validator.processors.own import OWN_IDENTITY
from protos.node_pb2 import ProcessorStatus

STATES: Final = ("takes_work", "draining", "silent", "stuck")
OCCUPANCY_DEFAULT: Final = 10
_PACKED_IN_FLIGHT: Final = 2
"""Tasks in flight at a packed processor: it works on one while the other travels."""

_FOLLOWING_VERSION: Final = 2
"""The first version of packed execution in which a task may follow an unanswered one."""

_TASK_MS: Final = 25
"""The aim for the duration of a packed task: long enough to keep the processor busy while the validator writes a large
block, short enough that a lost task costs little work."""

_UNTIMED_TRANSACTIONS_MAX: Final = 256
_SLOW_TRANSACTIONS_MAX: Final = 16
"""The most transactions of a task whose family has no times yet, and of a task whose family is slow."""

_SLOW_TASK_MS: Final = 1_000
"""The most that a task of a slow family should take, so that no task comes near its deadline. One transaction always
fits."""

_SLOWER_MAX: Final = 4
"""A packed task may take so many times as long as its transactions took in the fastest recent task, and then the fixed
limit."""

_PACED_TASKS: Final = 8
_TOGETHER_MS: Final = 0.5
"""Answers with less time between them were read in one sweep."""

_TIMED_TASKS_MAX: Final = 1_000
_PERCENTILES: Final = (50, 95, 99)
_transactions_of = attrgetter("transactions")


_REGISTRATION_BYTES: Final = 1_024
"""Counted for each registration beside its texts: its entries in the tables of families and metrics."""

_NAMESPACE_BYTES: Final = 64
"""Counted for each namespace beside its characters."""


class Registered(NamedTuple):
    """A processor's registration for one family."""

    namespaces: tuple[str, ...]
    build_id: str = ""
    migrates: bool = False
    idle: bool = False
    """The node judges the family itself, and gives this processor no task of it."""

    def held_bytes(self, family: FamilyVersion) -> int:
        """The bytes that this registration of ``family`` counts for, about its bytes in memory."""
        # A character of a text that is not ASCII takes up to 4 bytes. Namespaces are hex.
        texts = 4 * (len(family.name) + len(family.version) + len(self.build_id))
        return _REGISTRATION_BYTES + texts + sum(map(len, self.namespaces)) + _NAMESPACE_BYTES * len(self.namespaces)


class Held(NamedTuple):
    """A task in flight. ``given_ms``: when the processor was given it."""

    assignment: Assignment
    given_ms: float


class Stuck(NamedTuple):
    """The oldest task that a processor did not answer in time, and when the processor lost it."""

    connection_id: str
    family: FamilyVersion
    build_id: str
    transactions: int
    lost_ms: float


class Holding(NamedTuple):
    """A task in flight: its processor, its family and size, and for how many milliseconds the processor has held it."""

    connection_id: str
    family: FamilyVersion
    transactions: int
    held_ms: float


class Processor:
    """The state of one processor. Times are milliseconds of the registry's clock."""

    def __init__(self, identity: bytes, now_ms: float) -> None:
        self.identity = identity
        self.families: dict[FamilyVersion, Registered] = {}
        """Only ``register`` changes it."""
        self.registered_bytes = 0
        """The sum of ``Registered.held_bytes``."""
        self.packed_version = 0
        """The version of packed execution; 0: the 1.x conversation."""
        self.raw_header = False
        self.occupancy = OCCUPANCY_DEFAULT
        self.draining = False
        """The processor unregistered, and finishes its tasks in flight."""
        self.silent = False
        """Pings went unanswered too long. The tasks are lost, and the processor gets no new ones before its next
        frame."""
        self.unreachable = False
        """A message could not be sent: the processor is dropped at the next tick."""
        self.held: dict[str, Held] = {}
        """Tasks in flight by context id, in the order of their newest messages. Only ``hold``, ``advance`` and
        ``release`` change it."""
        self.stuck: Stuck | None = None
        """The processor did not answer a task in time, and has answered none since. It gets no new tasks."""
        self.overdue: set[str] = set()
        """Correlation ids of the answers that the processor owes for lost tasks. They take up capacity, because the
        processor may still be at these tasks."""
        self._begun_ms = now_ms
        """When the processor could begin its oldest message: when it was given, or when the one before was answered."""
        self._answered_ms = now_ms
        self._held_alone = 0
        self.newest = ""
        """The context id of the newest task, which may be answered already."""
        self.record = Record()
        self.connected_ms = now_ms
        self.heard_ms = now_ms
        self.asked_ms = now_ms
        """When the last ping was sent."""
        self.pinged_ms: float | None = None
        """When the oldest unanswered ping was sent; None if there is none."""

    def bytes_with(self, family: FamilyVersion, registered: Registered) -> int:
        """What ``registered_bytes`` would be after ``register``."""
        if self.draining:
            return registered.held_bytes(family)
        before = self.families.get(family)
        replaced = before.held_bytes(family) if before else 0
        return self.registered_bytes - replaced + registered.held_bytes(family)

    def register(self, family: FamilyVersion, registered: Registered) -> None:
        """Add or replace a registration. One that follows an unregistration ends the earlier ones."""
        self.registered_bytes = self.bytes_with(family, registered)
        if self.draining:
            self.draining = False
            self.families.clear()
        self.families[family] = registered

    def takes(self, family: FamilyVersion, *, migration: bool = False) -> bool:
        """Whether the processor accepts tasks of ``family``; with ``migration``: tasks of its migration."""
        registered = self.families.get(family)
        inactive = self.draining or self.silent or self.stuck or self.unreachable
        if registered is None or registered.idle or inactive:
            return False
        return registered.migrates or not migration

    @property
    def in_process(self) -> bool:
        """Whether this is the node's own processor."""
        return self.identity == OWN_IDENTITY

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        if self.silent or self.unreachable:
            return "silent"
        if self.stuck:
            return "stuck"
        return "draining" if self.draining else "takes_work"

    @property
    def serves(self) -> tuple[FamilyVersion, ...]:
        """The registered families without idle ones; empty after unregistration."""
        if self.draining:
            return ()
        return tuple([family for family, registered in self.families.items() if not registered.idle])

    @property
    def capacity(self) -> int:
        """How many more tasks the processor accepts now.

        A packed processor gets no task behind one that runs alone: if the processor dies of that task, both would be
        lost.
        """
        unanswered = len(self.held) + len(self.overdue)
        if not self.packed_version:
            return self.occupancy - unanswered
        if self._held_alone:
            return 0
        return _PACKED_IN_FLIGHT - unanswered

    @property
    def takes_alone(self) -> bool:
        """Whether the processor accepts a task that must run alone. A 1.x processor runs at most one such task.

        If a processor died with two such tasks, both would count as the cause.
        """
        return bool(self.packed_version) or not self._held_alone

    @property
    def followed(self) -> Task | None:
        """The unanswered task that the next one may follow, reading its writes; None if there is none."""
        newest = self.held.get(self.newest)
        if newest is None or self.packed_version < _FOLLOWING_VERSION:
            return None
        task = newest.assignment.task
        return task if isinstance(newest.assignment, PackedAssignment) and not task.shadow else None

    def hold(self, context_id: str, held: Held) -> None:
        if not self.held:
            self._begun_ms = held.given_ms
        self.held[context_id] = held
        self._held_alone += held.assignment.task.alone

    def advance(self, context_id: str, now_ms: float) -> None:
        """Note an answer to a message of a task in flight. The task's next message, if any, is behind all others."""
        if next(iter(self.held)) == context_id:
            self._begun_ms = now_ms
        self._answered_ms = now_ms
        self.held[context_id] = self.held.pop(context_id)

    def answer_late(self, correlation_id: str, now_ms: float) -> bool:
        """Note an answer to a lost task, which was ahead of all tasks in flight; False if no task awaits it."""
        if correlation_id not in self.overdue:
            return False
        self.overdue.discard(correlation_id)
        self._begun_ms = self._answered_ms = now_ms
        return True

    def lose_overdue(self, now_ms: float, answer_ms_max: int) -> list[Task]:
        """Remove the tasks that should have been answered by now.

        Only the oldest message can be overdue: the others may wait in the processor for their turn.
        """
        lost: list[Task] = []
        while self.held:
            context_id, (assignment, _) = next(iter(self.held.items()))
            task, limit_ms = assignment.task, float(answer_ms_max)
            if isinstance(assignment, PackedAssignment):
                pace_ms = self.record.pace_ms(task.route) or 0.0
                limit_ms += _SLOWER_MAX * pace_ms * _transactions(task)
            if now_ms - self._begun_ms <= limit_ms:
                break
            lost.append(self.release(context_id))
            self.overdue.add(assignment.awaited)
            if self.stuck is None:
                registered = self.families.get(task.route)
                build_id = registered.build_id if registered else ""
                self.stuck = Stuck(self.identity.hex(), task.route, build_id, _transactions(task), now_ms)
            # A loss is no answer, so it does not start the time of the next task.
            for oldest in islice(self.held.values(), 1):
                self._begun_ms = max(oldest.given_ms, self._answered_ms)
        return lost

    def release(self, context_id: str) -> Task:
        task = self.held.pop(context_id).assignment.task
        self._held_alone -= task.alone
        return task

    def transactions_max(self, family: FamilyVersion) -> int:
        """The most transactions of ``family`` that the next task may have, by the processor's recent speed."""
        if not self.packed_version:
            return 1
        pace_ms = self.record.pace_ms(family)
        if pace_ms is None:
            most = _UNTIMED_TRANSACTIONS_MAX
        else:
            pace_ms = max(pace_ms, 1e-3)
            most = max(int(_TASK_MS / pace_ms), min(_SLOW_TRANSACTIONS_MAX, int(_SLOW_TASK_MS / pace_ms)))
        return max(1, min(most, self.occupancy // _PACKED_IN_FLIGHT))

    def longest_held(self, now_ms: float) -> Holding | None:
        """The oldest task in flight; None if there is none."""
        first = min(self.held.values(), key=attrgetter("given_ms"), default=None)
        if first is None:
            return None
        task = first.assignment.task
        return Holding(self.identity.hex(), task.route, _transactions(task), now_ms - first.given_ms)

    def status(self, now_ms: float) -> ProcessorStatus:
        status = ProcessorStatus(
            connection_id=self.identity.hex(),
            state=self.state.upper(),
            packed_version=self.packed_version,
            max_occupancy=self.occupancy,
            in_flight_tasks=len(self.held),
            in_flight_transactions=sum(_transactions(held.assignment.task) for held in self.held.values()),
            done=self.record.done,
            invalid=self.record.invalid,
            internal_errors=self.record.internal_errors,
            connected_s=(now_ms - self.connected_ms) / 1000,
            last_heard_s=0 if self.in_process else (now_ms - self.heard_ms) / 1000,
            in_process=self.in_process,
        )
        for family, registered in self.families.items():
            status.families.add(
                family_name=family.name,
                family_version=family.version,
                build_id=registered.build_id,
                migrates=registered.migrates,
                namespaces=registered.namespaces,
                idle=registered.idle,
            )
        times = self.record.apply_ms()
        if times is not None:
            status.apply_ms_p50, status.apply_ms_p95, status.apply_ms_p99 = times
        return status


class Record:
    """Counts and times of a processor's transactions, updated once a task."""

    def __init__(self) -> None:
        self.done = 0
        self.invalid = 0
        self.internal_errors = 0
        self._answered_ms = 0.0
        self._times: deque[tuple[float, int]] = deque(maxlen=_TIMED_TASKS_MAX)
        """For each of the newest tasks: the milliseconds per transaction, and the number of transactions."""
        self._paces: dict[FamilyVersion, deque[tuple[float, int]]] = {}
        """For each of the newest tasks: the milliseconds, and the number of answered transactions."""
        self._fastest_ms: dict[FamilyVersion, float] = {}
        """Milliseconds per transaction in the fastest task of ``_paces``."""

    def answered(self, held: Held, outcomes: Outcomes, now_ms: float) -> None:
        """Record the last answer to a task.

        The task's time begins when the processor got the task, or with the previous answer if that came later. A
        transaction that is only compared was counted at another processor.
        """
        if held.assignment.task.shadow:
            self._answered_ms = now_ms
            return
        units = held.assignment.task.units
        transactions = _transactions(held.assignment.task)
        last = [results[-1].verdict for results in outcomes if results]
        if last.count(Verdict.OK) == len(units) and sum(map(len, outcomes)) == transactions:
            self.done += transactions
        else:
            for unit, results in zip(units, outcomes, strict=True):
                self._count(len(unit.transactions), [result.verdict for result in results])
        begun_ms = max(held.given_ms, self._answered_ms)
        self._times.append(((now_ms - begun_ms) / transactions, transactions))
        self._pace(held.assignment.task.route, begun_ms, now_ms, sum(map(len, outcomes)))
        self._answered_ms = now_ms

    def _pace(self, family: FamilyVersion, begun_ms: float, now_ms: float, answered: int) -> None:
        paces = self._paces.setdefault(family, deque(maxlen=_PACED_TASKS))
        if paces and now_ms - begun_ms < _TOGETHER_MS:
            # Both answers were read in one sweep: only the end of both together is known.
            before_ms, before = paces.pop()
            paces.append((before_ms + now_ms - begun_ms, before + answered))
        else:
            paces.append((now_ms - begun_ms, answered))
        self._fastest_ms[family] = min(passed_ms / max(1, count) for passed_ms, count in paces)

    def pace_ms(self, family: FamilyVersion) -> float | None:
        """Milliseconds per transaction of ``family`` in the fastest of the newest tasks; None before the first task.

        The fastest task counts, because answers to other tasks may have waited while the validator was busy.
        """
        return self._fastest_ms.get(family)

    def _count(self, transactions: int, verdicts: list[Verdict]) -> None:
        """Count one unit: transactions after a failure did not run; a missing verdict is an internal error."""
        done = next((place for place, verdict in enumerate(verdicts) if verdict is not Verdict.OK), len(verdicts))
        self.done += done
        if done < len(verdicts) and verdicts[done] is Verdict.INVALID:
            self.invalid += 1
        elif done < transactions:
            self.internal_errors += 1

    def apply_ms(self) -> tuple[float, float, float] | None:
        """The 50th, 95th and 99th percentile of the time that a transaction took; None before the first task."""
        times = sorted(self._times)
        if not times:
            return None
        total = sum(count for _, count in times)
        percentiles: list[float] = []
        passed = 0
        for time_ms, count in times:
            passed += count
            while len(percentiles) < len(_PERCENTILES) and passed * 100 >= total * _PERCENTILES[len(percentiles)]:
                percentiles.append(time_ms)
        median, p95, p99 = percentiles
        return median, p95, p99


def _transactions(task: Task) -> int:
    return sum(map(len, map(_transactions_of, task.units)))
