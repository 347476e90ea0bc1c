"""The current apply of a process and its counts so far, for the keeper thread, the log and the supervisor.

Only the apply thread writes here, without locks. All data of one apply is one value, so that a reader sees one apply or
the next and never a mixture. No sockets, no processes.
"""

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from protos import processor_pb2

APPLY_BUCKETS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds of the duration buckets, in seconds; one more bucket counts longer applies."""

FIELDS: Final = ("transaction", "batch", "family", "version")
"""The fields that a log record gets inside an apply."""

Family = tuple[str, str]
"""Name and version."""

_Status = processor_pb2.TpProcessResponse
_COUNTED: Final = (_Status.OK, _Status.INVALID_TRANSACTION, _Status.INTERNAL_ERROR)


class FamilyCounts(NamedTuple):
    """One family's transactions so far, by verdict. ``buckets``: applies by duration, as in APPLY_BUCKETS_S."""

    ok: int = 0
    invalid: int = 0
    error: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(APPLY_BUCKETS_S) + 1)

    def plus(self, other: "FamilyCounts") -> "FamilyCounts":
        buckets = tuple(mine + its for mine, its in zip(self.buckets, other.buckets, strict=True))
        return FamilyCounts(
            self.ok + other.ok,
            self.invalid + other.invalid,
            self.error + other.error,
            self.seconds + other.seconds,
            buckets,
        )


class Task(NamedTuple):
    """A validator's message to answer. ``generation``: the life of the connection that received it."""

    generation: int
    message_type: int
    correlation_id: str
    content: bytes


class Applying(NamedTuple):
    """The current apply. ``since``: its begin, moved later by the time that it waited for the validator.

    ``since`` is infinite while the apply waits for the validator. ``task``: the validator's message; ``alone``: the
    message holds no other transaction.
    """

    transaction: str
    batch: str
    family: str
    version: str
    since: float
    alone: bool
    task: Task | None

    def fields(self) -> dict[str, str]:
        """FIELDS with their values, for a log record's ``extra``."""
        return {name: getattr(self, name) for name in FIELDS}


class _Tally:
    __slots__ = ("buckets", "seconds", "verdicts")

    def __init__(self) -> None:
        self.verdicts = [0] * len(_Status.Status.keys())
        self.seconds = 0.0
        self.buckets = [0] * (len(APPLY_BUCKETS_S) + 1)

    def add(self, status: int, took_s: float) -> None:
        self.verdicts[status] += 1
        self.seconds += took_s
        # Most applies are short.
        self.buckets[bisect_left(APPLY_BUCKETS_S, took_s) if took_s > APPLY_BUCKETS_S[0] else 0] += 1

    def counts(self) -> FamilyCounts:
        ok, invalid, error = (self.verdicts[status] for status in _COUNTED)
        return FamilyCounts(ok, invalid, error, self.seconds, tuple(self.buckets))


class Progress:
    """The applies of one process. ``clock``: seconds of a monotonic clock."""

    def __init__(self, families: Iterable[Family] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tallies = {family: _Tally() for family in families}
        self._current: tuple[str, str, Family, float, bool, Task | None] | None = None
        """The fields of ``current``, as a plain tuple, because a tuple is cheaper to make for each apply."""
        self.task: Task | None = None
        """The task of the applies that begin next. The current apply's task is in ``current``."""
        self.thread: int | None = None
        """The identifier of the apply thread."""

    @property
    def current(self) -> Applying | None:
        current = self._current
        if current is None:
            return None
        transaction, batch, family, since, alone, task = current
        return Applying(transaction, batch, *family, since, alone, task)

    def now(self) -> float:
        return self._clock()

    def begin(self, transaction: str, batch: str, family: Family, alone: bool, since: float) -> None:
        """Begin an apply. ``since``: now, or the end of the apply before it in the same message."""
        self._current = (transaction, batch, family, since, alone, self.task)

    def end(self, status: processor_pb2.TpProcessResponse.Status) -> float:
        """End the apply with ``status`` and return the time. Counts nothing if no apply had begun."""
        now = self._clock()
        current = self._current
        if current is not None:
            self._current = None
            tally = self._tallies.get(current[2])
            if tally is not None:
                tally.add(status, now - current[3])
        return now

    def overtime(self, now: float, limit_s: float) -> Applying | None:
        """The current apply if it has run longer than ``limit_s``, not counting waits for the validator."""
        applying = self.current
        return applying if applying is not None and now - applying.since > limit_s else None

    def wait_begins(self) -> float:
        """Note that the apply begins to wait for the validator. Returns its own seconds so far, for ``wait_ended``."""
        current = self._current
        if current is None:
            return 0.0
        self._current = (*current[:3], math.inf, *current[4:])
        return self._clock() - current[3]

    def wait_ended(self, own_s: float) -> None:
        """Note that the apply goes on. ``own_s``: the result of ``wait_begins``."""
        current = self._current
        if current is not None:
            self._current = (*current[:3], self._clock() - own_s, *current[4:])

    def counts(self, late: Applying | None = None) -> Mapping[Family, FamilyCounts]:
        """The counts of every family. ``late``: an apply that counts as failed if it still runs."""
        counts = {family: tally.counts() for family, tally in self._tallies.items()}
        # Checked after the counts were read: an apply that still runs is not counted in them.
        if late is not None and self._runs(late) and (late.family, late.version) in counts:
            failed = _Tally()
            failed.add(_Status.INTERNAL_ERROR, self._clock() - late.since)
            counts[late.family, late.version] = counts[late.family, late.version].plus(failed.counts())
        return counts

    def _runs(self, apply: Applying) -> bool:
        """Whether ``apply`` still runs; ``since`` may have changed."""
        current = self.current
        return current is not None and current.task is apply.task and current.transaction == apply.transaction


class ApplyFields(logging.Filter):
    """Adds FIELDS to each record that the apply thread makes inside an apply, and the worker's number to every record.

    Fields that a record already has stay.
    """

    def __init__(self, progress: Progress, worker: int) -> None:
        super().__init__()
        self._progress = progress
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """True for every record."""
        record.__dict__.setdefault("worker", self._worker)
        applying = self._progress.current
        if applying is not None and record.thread == self._progress.thread:
            for name, value in applying.fields().items():
                record.__dict__.setdefault(name, value)
        return True
