"""What the apply thread is at and what it has done: read by the keeper, the log and the supervisor.

Written by the apply thread alone, without locks: all that is known of an apply is one value, so that a reader sees one
apply or the next, never a mixture. No sockets, no processes.
"""

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from protos import processor_pb2

APPLY_BUCKETS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Upper bounds of the buckets in which applies are counted by their duration; one more holds the longer ones."""

FIELDS: Final = ("transaction", "batch", "family", "version")
"""What a log record made inside an apply says of it."""

Family = tuple[str, str]
"""Name and version."""

_Status = processor_pb2.TpProcessResponse
_COUNTED: Final = (_Status.OK, _Status.INVALID_TRANSACTION, _Status.INTERNAL_ERROR)


class FamilyCounts(NamedTuple):
    """What became of one family's transactions so far; ``buckets``: applies by duration, as in APPLY_BUCKETS_S."""

    ok: int = 0
    invalid: int = 0
    error: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(APPLY_BUCKETS_S) + 1)

    def plus(self, other: "FamilyCounts") -> "FamilyCounts":
        """Both together."""
        buckets = tuple(mine + its for mine, its in zip(self.buckets, other.buckets, strict=True))
        return FamilyCounts(
            self.ok + other.ok,
            self.invalid + other.invalid,
            self.error + other.error,
            self.seconds + other.seconds,
            buckets,
        )


class Task(NamedTuple):
    """A message of the validator that is to be answered; ``generation``: which life of the connection it came by."""

    generation: int
    message_type: int
    correlation_id: str
    content: bytes


class Applying(NamedTuple):
    """One apply that runs now. ``since``: when it began, put off by what it has waited for the validator.

    While it waits for the validator ``since`` is infinite: it has no time of its own then. ``alone``: no other
    transaction is in the validator's message, which is ``task``.
    """

    transaction: str
    batch: str
    family: str
    version: str
    since: float
    alone: bool
    task: Task | None

    def fields(self) -> dict[str, str]:
        """FIELDS with their values, as a log record's ``extra``."""
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
    """Where the applies of one process stand. ``clock``: seconds of a steady clock."""

    def __init__(self, families: Iterable[Family] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tallies = {family: _Tally() for family in families}
        self._current: tuple[str, str, Family, float, bool, Task | None] | None = None
        """What ``current`` makes an Applying of, which would take longer to make for each."""
        self.task: Task | None = None
        """What the next applies are of; that of the current one is in ``current``."""
        self.thread: int | None = None
        """The identifier of the thread that applies."""

    @property
    def current(self) -> Applying | None:
        """The apply that runs now."""
        current = self._current
        if current is None:
            return None
        transaction, batch, family, since, alone, task = current
        return Applying(transaction, batch, *family, since, alone, task)

    def now(self) -> float:
        """What the clock shows."""
        return self._clock()

    def begin(self, transaction: str, batch: str, family: Family, alone: bool, since: float) -> None:
        """An apply begins; ``since``: now, or when the one before it in the same message ended."""
        self._current = (transaction, batch, family, since, alone, self.task)

    def end(self, status: processor_pb2.TpProcessResponse.Status) -> float:
        """The apply has ended, with this answer; gives when. Counts nothing where none had begun."""
        now = self._clock()
        current = self._current
        if current is not None:
            self._current = None
            tally = self._tallies.get(current[2])
            if tally is not None:
                tally.add(status, now - current[3])
        return now

    def overtime(self, now: float, limit_s: float) -> Applying | None:
        """The apply that has run longer than ``limit_s``; the time that it waits for the validator is not its own."""
        applying = self.current
        return applying if applying is not None and now - applying.since > limit_s else None

    def wait_begins(self) -> float:
        """The apply waits for the validator from now on; its own seconds so far, for ``wait_ended``."""
        current = self._current
        if current is None:
            return 0.0
        self._current = (*current[:3], math.inf, *current[4:])
        return self._clock() - current[3]

    def wait_ended(self, own_s: float) -> None:
        """It goes on."""
        current = self._current
        if current is not None:
            self._current = (*current[:3], self._clock() - own_s, *current[4:])

    def counts(self, late: Applying | None = None) -> Mapping[Family, FamilyCounts]:
        """The counts of every family now; ``late``: an apply that counts as failed if it has not ended by now."""
        counts = {family: tally.counts() for family, tally in self._tallies.items()}
        # Asked after the counts were read: what still runs now is not among them.
        if late is not None and self._runs(late) and (late.family, late.version) in counts:
            failed = _Tally()
            failed.add(_Status.INTERNAL_ERROR, self._clock() - late.since)
            counts[late.family, late.version] = counts[late.family, late.version].plus(failed.counts())
        return counts

    def _runs(self, apply: Applying) -> bool:
        """Whether this very apply runs now, however long it has waited since."""
        current = self.current
        return current is not None and current.task is apply.task and current.transaction == apply.transaction


class ApplyFields(logging.Filter):
    """Gives each record that the apply thread makes inside an apply its FIELDS, and every record the worker's number.

    What a record has already stays as it is.
    """

    def __init__(self, progress: Progress, worker: int) -> None:
        super().__init__()
        self._progress = progress
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets every record pass."""
        record.__dict__.setdefault("worker", self._worker)
        applying = self._progress.current
        if applying is not None and record.thread == self._progress.thread:
            for name, value in applying.fields().items():
                record.__dict__.setdefault(name, value)
        return True
