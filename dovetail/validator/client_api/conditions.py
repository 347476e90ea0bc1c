"""The conditions that keep a node from working as it should, each with a sentence that says what to do.

Checked once a tick; /readyz, the metrics and the log report the same conditions. ``families`` reports what would stall
an upgrade.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.admission.submission import Submissions
from dovetail.validator.blocks.production import Work
from dovetail.validator.core.mempool.queue import PendingQueue
from dovetail.validator.processors.comparing import Comparisons, Side
from dovetail.validator.processors.registry import Processors
from dovetail.validator.store import Store

_SHOWN_MS: Final = 10_000
"""A condition holds this long after its last sign, because its cause may pause for a moment between two ticks.

The signs: a refusal, or a batch that waits for a processor.
"""

_FAMILIES_NAMED_MAX: Final = 3
_NAME_CHARACTERS_MAX: Final = 60
_CONNECTION_CHARACTERS_MAX: Final = 16
_ID_CHARACTERS_MAX: Final = 16

log = structlog.get_logger("validator.conditions")


class Kind(StrEnum):
    """The conditions, as clients, metrics and log lines name them."""

    QUEUE_FULL = "queue_full"
    STORAGE_FAILED = "storage_failed"
    STORE_DAMAGED = "store_damaged"
    NO_BLOCK = "no_block"
    PROCESSOR_MISSING = "processor_missing"
    PROCESSOR_STUCK = "processor_stuck"
    PROCESSORS_DIFFER = "processors_differ"


class Condition(NamedTuple):
    """A condition that holds. ``began_ms``: by the clock of ``Conditions``."""

    kind: Kind
    began_ms: int
    message: str


class _Refusals:
    """Derives the time of the last refusal from the number of refusals."""

    def __init__(self) -> None:
        self._number = 0
        self._last_ms: int | None = None

    def is_recent(self, number: int, now_ms: int) -> bool:
        """Whether the number has changed within the last ``_SHOWN_MS``."""
        if number != self._number:
            self._number, self._last_ms = number, now_ms
        return self._last_ms is not None and now_ms - self._last_ms <= _SHOWN_MS


class _Missing(NamedTuple):
    """The wait for a processor of a family.

    ``seen_ms``: when batches last waited. ``first``: the batch that had waited longest then.
    """

    began_ms: int
    seen_ms: int
    batches: int
    first: BatchId | None


class Conditions:
    """``work``: a method of block production; ``clock_ms``: milliseconds of a monotonic clock."""

    def __init__(
        self,
        store: Store,
        queue: PendingQueue,
        work: Callable[[], Work],
        processors: Processors,
        submissions: Submissions,
        comparisons: Comparisons,
        limits: Limits,
        clock_ms: Callable[[], float],
    ) -> None:
        self._store = store
        self._queue = queue
        self._work = work
        self._processors = processors
        self._submissions = submissions
        self._comparisons = comparisons
        self._limits = limits
        self._clock_ms = clock_ms
        self._queue_refused = _Refusals()
        self._store_refused = _Refusals()
        self._failure = ""
        self._progress = 0
        self._idle_ms = 0
        """How long there has been work since the last progress."""
        self._ticked_ms = int(clock_ms())
        self._missing: dict[FamilyVersion, _Missing] = {}
        """The families for which batches wait, or for which an unsettled batch waited before."""
        self._held: dict[Kind, Condition] = {}

    @property
    def held(self) -> list[Condition]:
        """The conditions that hold, as of the last tick."""
        return list(self._held.values())

    def seconds(self, condition: Condition) -> float:
        return (self._clock_ms() - condition.began_ms) / 1000

    def tick(self) -> None:
        """Check all conditions, and log those that began or ended. To be called at intervals."""
        now_ms = int(self._clock_ms())
        messages = {
            Kind.QUEUE_FULL: self._queue_full(now_ms),
            Kind.STORAGE_FAILED: self._storage_failed(now_ms),
            Kind.STORE_DAMAGED: self._store_damaged(),
            Kind.NO_BLOCK: self._no_block(now_ms),
            Kind.PROCESSOR_MISSING: self._processor_missing(now_ms),
            Kind.PROCESSOR_STUCK: self._processor_stuck(),
            Kind.PROCESSORS_DIFFER: self._processors_differ(),
        }
        for kind, message in messages.items():
            before = self._held.get(kind)
            if message is not None:
                self._held[kind] = Condition(kind, before.began_ms if before else now_ms, message)
                if before is None:
                    log.warning("condition began", condition=str(kind), message=message)
            elif before is not None:
                del self._held[kind]
                log.info("condition ended", condition=str(kind), seconds=(now_ms - before.began_ms) / 1000)

    def _queue_full(self, now_ms: int) -> str | None:
        refused = self._queue_refused.is_recent(self._submissions.refused_when_full, now_ms)
        if not refused and self._queue.quota.is_full() is None:
            return None
        limits = self._limits
        return (
            f"batches are refused with 429: {len(self._queue)} of at most {limits.pending_batches_max} are pending,"
            f" with {self._queue.quota.transactions} of at most {limits.pending_transactions_max} transactions; one key"
            f" may hold {limits.pending_share_percent_max} % of what others leave. What do they wait for (dovetail"
            " status)? Add processors, or raise the limits pending_*, or drop what nobody will serve (dovetail batch"
            " drop)"
        )

    def _storage_failed(self, now_ms: int) -> str | None:
        if self._store.failure is not None:
            self._failure = self._store.failure
            self._store.retry_write()
        refused = self._store_refused.is_recent(self._store.refused_writes, now_ms)
        if not refused and self._store.failure is None:
            return None
        free = self._store.free_bytes()
        room = "the free space of its disk is unknown" if free is None else f"{free} bytes are free on its disk"
        return (
            f"batches are refused with 503 or stay PENDING: {self._failure} ({room}). The node tries again by itself,"
            " and loses nothing meanwhile"
        )

    def _store_damaged(self) -> str | None:
        """Holds from the first damaged read until the validator ends: damage does not go away by itself.

        The node stays ready: sound records are still served, and refusing requests would not speed up a repair.
        """
        store = self._store
        if not store.damaged_reads:
            return None
        return (
            f"each request for damaged data gets a 500: {store.damage}. So far {store.damaged_reads} reads met damage."
            " Look after the disk and the memory of the machine; stop the validator, then `dovetail store repair`, or"
            " restore a backup"
        )

    def _no_block(self, now_ms: int) -> str | None:
        work = self._work()
        works = work.executes or self._queue.has_ready or self._queue.is_backing_off
        waits = bool(self._queue.waiting_for_processors())
        if self._store.head is None or self._store.failure is not None:
            # ``Node.reach_genesis`` reports the delays of block 0, and a refused write is a condition of its own.
            works = waits = False
        passed_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        if work.settled != self._progress or not (works or waits):
            self._progress = work.settled
            self._idle_ms = 0
        elif works:
            # A processor that connects and leaves without settling anything is no progress. The time of its absence
            # does not count here, because a missing processor is another condition.
            self._idle_ms += passed_ms
        if self._idle_ms < self._limits.no_block_ms_max:
            return None
        return (
            f"no batch was settled for {self._idle_ms // 1000} s, though {len(self._queue)} are pending and some could"
            f" be. {self._holder()}"
        )

    def _holder(self) -> str:
        """A sentence about the processor that holds the oldest task, and what to do."""
        held = self._processors.longest_held()
        if held is None:
            return "No processor holds any: the status of one (dovetail batch status) says how it was tried in vain"
        return (
            f"The processor with the connection {held.connection_id[:_CONNECTION_CHARACTERS_MAX]} has held"
            f" {held.transactions} transactions of {_shown(held.family)} for {held.held_ms // 1000:.0f} s (dovetail"
            " processors): see what its log says, and start it again if it hangs"
        )

    def _processor_missing(self, now_ms: int) -> str | None:
        if lacks := self._work().lacks:
            named = ", ".join(map(_shown, lacks[:_FAMILIES_NAMED_MAX]))
            return (
                f"a decided block waits for a processor of {named}, and no"
                " later block is committed before it. Start one (dovetail processor MODULE:HANDLER)"
            )
        waiting = self._queue.waiting_for_processors()
        known = {
            family: before
            for family, before in self._missing.items()
            if family in waiting or (before.first is not None and self._queue.get(before.first) is not None)
        }
        for family, batches in waiting.items():
            began_ms = known[family].began_ms if family in known else now_ms
            known[family] = _Missing(began_ms, now_ms, batches, self._queue.first_waiting(family))
        self._missing = known
        longest = self._limits.processor_missing_ms_max
        missing = [
            family
            for family, wait in known.items()
            if wait.seen_ms - wait.began_ms >= longest and now_ms - wait.seen_ms <= _SHOWN_MS
        ]
        if not missing:
            return None
        missing.sort(key=lambda family: (-known[family].batches, family))
        named = ", ".join(_shown(family) for family in missing[:_FAMILIES_NAMED_MAX])
        more = len(missing) - _FAMILIES_NAMED_MAX
        others = f" and {more} other families" if more > 0 else ""
        return (
            f"{sum(known[family].batches for family in missing)} batches wait for a processor of {named}{others}."
            " Start one (dovetail processor MODULE:HANDLER); families that are not wanted can be shut out"
            " (dovetail upgrade)"
        )

    def _processor_stuck(self) -> str | None:
        """Holds while a processor is stuck: until it answers a task, registers again or closes its connection."""
        stuck = self._processors.stuck()
        if not stuck:
            return None
        first = min(stuck, key=lambda each: each.lost_ms)
        build = f", build {_shortened(first.build_id)}" if first.build_id else ""
        others = f" So did {len(stuck) - 1} other processors." if len(stuck) > 1 else ""
        return (
            f"the processor with the connection {first.connection_id[:_CONNECTION_CHARACTERS_MAX]}{build} did not"
            f" answer {first.transactions} transactions of {_shown(first.family)} within task_answer_ms_max"
            f" ({self._limits.task_answer_ms_max} ms). They went to other processors, and it gets no new ones before it"
            f" answers.{others} See what its log says (dovetail processors), and start it again"
        )

    def _processors_differ(self) -> str | None:
        """Holds until one of the two processors no longer serves the family. The node cannot tell which is wrong."""
        differences = self._comparisons.differences()
        if not differences:
            return None
        newest = differences[-1]
        others = f", and processors of {len(differences) - 1} other families" if len(differences) > 1 else ""
        return (
            f"two processors of {_shown(newest.family)} judge differently{others}: for transaction"
            f" {newest.transaction_id[:_ID_CHARACTERS_MAX]}… of batch {newest.batch_id[:_ID_CHARACTERS_MAX]}…,"
            f" {_side(newest.first)}; {_side(newest.second)}. The log has the whole ids. End the processor with the"
            " wrong rules; if it has judged already, dovetail chain verify --reexecute finds the blocks"
        )


def _side(side: Side) -> str:
    build = f", build {_shortened(side.build_id)}" if side.build_id else ""
    return f"connection {side.connection_id[:_CONNECTION_CHARACTERS_MAX]}{build} answered {_shortened(side.answer)}"


def _shown(family: FamilyVersion) -> str:
    """A family in quotes and shortened, because submitters choose its name."""
    return _shortened(str(family))


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _NAME_CHARACTERS_MAX else f"{text[:_NAME_CHARACTERS_MAX]}…")
