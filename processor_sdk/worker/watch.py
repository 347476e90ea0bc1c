"""What a worker's connection does for the supervisor: heartbeats, the time limit of an apply, ending in time.

No sockets of the wire, no supervision: the other end of the pipe is ``processor_sdk.worker.supervisor``.
"""

import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection as Pipe
from typing import Final, NamedTuple, NoReturn

from processor_sdk.apply import dispatch
from processor_sdk.apply.progress import Applying, Family, FamilyCounts, Progress, Task
from protos import packed_pb2, processor_pb2, validator_pb2

BEAT_S: Final = 1.0
"""How often at least a worker says that it lives."""

OVERTIME_EXIT: Final = 70
"""Exit code of a worker whose apply took longer than its limit."""

LATE_EXIT: Final = 71
"""Exit code of a worker that could not finish in time what was in flight when it was stopped."""

STOP: Final = b"stop"
"""What the supervisor says."""

_INTERNAL_ERROR: Final = processor_pb2.TpProcessResponse.INTERNAL_ERROR

_log = logging.getLogger(__name__)


class Beat(NamedTuple):
    """What a worker says of itself. ``registered``: the validator has accepted all its families."""

    registered: bool
    in_flight: int
    counts: Mapping[Family, FamilyCounts]


class Watch:
    """The worker's end of the pipe. All times are seconds of ``time.monotonic``."""

    def __init__(self, pipe: "Pipe[Beat, bytes]", progress: Progress, *, limit_ms: int, stop_s_max: float) -> None:
        """``limit_ms``: how long one apply may take; ``stop_s_max``: how long ending may."""
        self._pipe = pipe
        self._progress = progress
        self._limit_ms = limit_ms
        self._limit_s = limit_ms / 1000
        self._stop_s_max = stop_s_max
        self._beat_at = 0.0
        self._stop_at: float | None = None
        self._late: Applying | None = None
        """The apply that took longer than its limit; only the apply thread ends applies, so beats count this one."""
        self._gone = False

    def fileno(self) -> int:
        """Readable when the supervisor has said something, or is gone."""
        return self._pipe.fileno()

    def told_to_stop(self) -> bool:
        """Whether what came, or the supervisor's end, means that this worker is to end."""
        try:
            return self._pipe.recv_bytes() == STOP
        except (EOFError, OSError):
            self._gone = True
            return True

    @property
    def supervisor_is_gone(self) -> bool:
        """Its end of the pipe is closed: there is nothing to be read any more."""
        return self._gone

    def stopping(self, now: float) -> None:
        """The worker ends in order from now on, within its bound."""
        self._stop_at = now + self._stop_s_max

    def next_at(self) -> float:
        """When there is something to be done."""
        times = [self._beat_at]
        if self._stop_at is not None:
            times.append(self._stop_at)
        applying = self._progress.current
        if applying is not None:
            times.append(applying.since + self._limit_s)
        return min(times)

    def beat(self, now: float, *, registered: bool, in_flight: int) -> None:
        """Say that this process lives, unless the supervisor does not listen: a beat must hold up nobody."""
        self._beat_at = now + min(BEAT_S, self._limit_s)
        room = select.poll()
        room.register(self._pipe, select.POLLOUT)
        if self._gone or not room.poll(0):
            return
        try:
            self._pipe.send(Beat(registered, in_flight, self._progress.counts(self._late)))
        except OSError:
            return  # It is gone; the pipe's end of file says so to whoever reads it.

    def due(self, now: float) -> bool:
        """Whether it is time for a beat."""
        return self._beat_at <= now

    def overtime(self, now: float) -> Applying | None:
        """The apply that has taken longer than its limit; now logged, with where it is, and counted in later beats."""
        late = self._progress.overtime(now, self._limit_s)
        if late is not None:
            stack = self._stack()
            where = f"; it is at {stack[-1].filename}, line {stack[-1].lineno}" if stack else ""
            extra = {**late.fields(), "stack": "".join(traceback.format_list(stack)).rstrip()}
            _log.error("%s; this worker ends%s", self._overtime_text(late), where, extra=extra)
            self._late = late
        return late

    def refusal(self, late: Applying, generation: int) -> tuple[validator_pb2.Message.MessageType, str, bytes] | None:
        """Message type, correlation id and content of the answer to a task of this one transaction.

        None for a task of several, or of another connection: without an answer the validator runs each batch alone and
        finds the one that takes so long.
        """
        task = late.task
        if task is None or not late.alone or task.generation != generation:
            return None
        return _refusal(task, self._overtime_text(late))

    def late(self, now: float) -> bool:
        """Whether the time for ending in order is over."""
        return self._stop_at is not None and self._stop_at <= now

    def leave(self, exit_code: int) -> NoReturn:
        """End this process: its apply thread cannot be ended otherwise."""
        logging.shutdown()
        os._exit(exit_code)

    def _overtime_text(self, late: Applying) -> str:
        return f"apply of {late.family} {late.version} took longer than {self._limit_ms} ms"

    def _stack(self) -> list[traceback.FrameSummary]:
        frame = sys._current_frames().get(self._progress.thread or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        # The author's part: what apply has called, not what has called apply.
        ours = [place for place, entry in enumerate(stack) if entry.filename == dispatch.__file__]
        return stack[ours[-1] + 1 if ours else 0 :]


def _refusal(task: Task, message: str) -> tuple[validator_pb2.Message.MessageType, str, bytes]:
    if task.message_type == validator_pb2.Message.PACKED_PROCESS_REQUEST:
        packed = packed_pb2.PackedProcessResponse()
        packed.units.add().results.add(status=_INTERNAL_ERROR, message=message)
        return validator_pb2.Message.PACKED_PROCESS_RESPONSE, task.correlation_id, packed.SerializeToString()
    single = processor_pb2.TpProcessResponse(status=_INTERNAL_ERROR, message=message)
    return validator_pb2.Message.TP_PROCESS_RESPONSE, task.correlation_id, single.SerializeToString()
