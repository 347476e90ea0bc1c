"""What the apply thread is at and what it has done: read by the connection's thread, the log and the supervisor.

Written by one thread without locks: a reader sees one apply or the next, never a mixture. No sockets, no processes.
"""

import logging
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
    """The message of the validator that is worked on."""

    generation: bytes
    message_type: int
    correlation_id: str


class Applying(NamedTuple):
    """One apply that runs now. ``since``: when it began, put off by what it has waited for the validator.

    ``alone``: no other transaction is in the validator's message.
    """

    transaction: str
    batch: str
    family: str
    version: str
    since: float
    alone: bool

    def fields(self) -> dict[str, str]:
        """FIELDS with their values, as a log record's ``extra``."""
        return {name: getattr(self, name) for name in FIELDS}


class _Tally:
    __slots__ = ("buckets", "seconds", "verdicts")

    def __init__(self) -> None:
        self.verdicts = [0] * len(_Status.Status.keys())
        self.seconds = 0.0
        self.buckets = [0] * (len(APPLY_BUCKETS_S) + 1)


class Progress:
    """Where the applies of one process stand. ``clock``: seconds of a steady clock."""

    def __init__(self, families: Iterable[Family] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tallies = {family: _Tally() for family in families}
        self._current: tuple[str, str, str, str, float, bool] | None = None
        """The members of an Applying, which would take longer to make."""
        self.waits = False
        """Whether the apply waits for the validator."""
        self.task: Task | None = None
        self.thread: int | None = None
        """The identifier of the thread that applies."""

    @property
    def current(self) -> Applying | None:
        """The apply that runs now."""
        current = self._current
        return Applying(*current) if current is not None else None

    def begin(self, transaction: str, batch: str, family: str, version: str, alone: bool) -> None:
        """An apply begins."""
        self._current = (transaction, batch, family, version, self._clock(), alone)

    def end(self, status: processor_pb2.TpProcessResponse.Status) -> None:
        """The apply has ended, with this answer; nothing where none had begun."""
        current = self._current
        if current is None:
            return
        self._current = None
        tally = self._tallies.get(current[2:4])
        if tally is None:
            return
        took_s = self._clock() - current[4]
        tally.verdicts[status] += 1
        tally.seconds += took_s
        tally.buckets[bisect_left(APPLY_BUCKETS_S, took_s)] += 1

    def overtime(self, now: float, limit_s: float) -> Applying | None:
        """The apply that has run longer than ``limit_s``; the time that it waits for the validator is not its own."""
        applying = self.current
        if applying is None or self.waits or now - applying.since <= limit_s:
            return None
        return applying

    def wait_begins(self) -> float:
        """The apply waits for the validator from now on; for ``wait_ended``."""
        self.waits = True
        return self._clock()

    def wait_ended(self, began: float) -> None:
        """It goes on."""
        applying = self.current
        if applying is not None:
            self._current = applying._replace(since=applying.since + self._clock() - began)
        self.waits = False

    def counts(self) -> Mapping[Family, FamilyCounts]:
        """The counts of every family now."""
        return {
            family: FamilyCounts(
                tally.verdicts[_Status.OK],
                tally.verdicts[_Status.INVALID_TRANSACTION],
                tally.verdicts[_Status.INTERNAL_ERROR],
                tally.seconds,
                tuple(tally.buckets),
            )
            for family, tally in self._tallies.items()
        }


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
