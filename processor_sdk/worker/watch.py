"""The worker's side of supervision: heartbeats, the time limit of an apply, the deadline for stopping.

The other end of the pipe is ``processor_sdk.worker.supervisor``. No sockets to the validator.
"""

import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection as Pipe
from typing import Final, NamedTuple, NoReturn

from dovetail.streams import drain, lines_dropped
from processor_sdk.apply import dispatch
from processor_sdk.apply.progress import Applying, Family, FamilyCounts, Progress, Task
from protos import packed_pb2, processor_pb2, validator_pb2

BEAT_S: Final = 1.0
"""The longest time between two heartbeats of a worker."""

OVERTIME_EXIT: Final = 70
"""Exit code of a worker whose apply exceeded its time limit."""

LATE_EXIT: Final = 71
"""Exit code of a worker that was stopped and did not finish its tasks in time."""

STOP: Final = b"stop"
"""The supervisor's request to stop."""

_INTERNAL_ERROR: Final = processor_pb2.TpProcessResponse.INTERNAL_ERROR

_log = logging.getLogger(__name__)


class Beat(NamedTuple):
    """A worker's heartbeat. ``registered``: the validator has accepted all its families.

    ``lines_dropped``: how many lines of stdout and stderr the worker has dropped.
    """

    registered: bool
    in_flight: int
    counts: Mapping[Family, FamilyCounts]
    lines_dropped: int = 0


class Watch:
    """The worker's end of the pipe. All times are seconds of ``time.monotonic``."""

    def __init__(self, pipe: "Pipe[Beat, bytes]", progress: Progress, *, limit_ms: int, stop_s_max: float) -> None:
        """``limit_ms``: the time limit of one apply; ``stop_s_max``: the time for stopping."""
        self._pipe = pipe
        self._progress = progress
        self._limit_ms = limit_ms
        self._limit_s = limit_ms / 1000
        self._stop_s_max = stop_s_max
        self._beat_at = 0.0
        self._stop_at: float | None = None
        self._late: Applying | None = None
        """The apply that exceeded its limit. Only the apply thread counts applies, so heartbeats add this one."""
        self.supervisor_is_gone = False

    def fileno(self) -> int:
        """A descriptor that is readable when the supervisor has sent a message or has gone."""
        return self._pipe.fileno()

    def receive_stop(self) -> bool:
        """Whether the supervisor asked this worker to stop, or has gone."""
        try:
            return self._pipe.recv_bytes() == STOP
        except (EOFError, OSError):
            self.supervisor_is_gone = True
            return True

    def stopping(self, now: float) -> None:
        """Stopping begins now: set its deadline."""
        self._stop_at = now + self._stop_s_max

    def next_at(self) -> float:
        times = [self._beat_at]
        if self._stop_at is not None:
            times.append(self._stop_at)
        applying = self._progress.current
        if applying is not None:
            times.append(applying.since + self._limit_s)
        return min(times)

    def beat(self, now: float, *, registered: bool, in_flight: int) -> None:
        """Send a heartbeat, unless the pipe is full: a heartbeat must not block."""
        self._beat_at = now + min(BEAT_S, self._limit_s)
        room = select.poll()
        room.register(self._pipe, select.POLLOUT)
        if self.supervisor_is_gone or not room.poll(0):
            return
        try:
            self._pipe.send(Beat(registered, in_flight, self._progress.counts(self._late), lines_dropped()))
        except OSError:
            return  # The supervisor has gone; reading the pipe will show it.

    def due(self, now: float) -> bool:
        return self._beat_at <= now

    def overtime(self, now: float) -> Applying | None:
        """The apply that exceeded its limit. Logs where the apply is, and counts it in later heartbeats."""
        late = self._progress.overtime(now, self._limit_s)
        if late is not None:
            stack = self._stack()
            where = f"; it is at {stack[-1].filename}, line {stack[-1].lineno}" if stack else ""
            extra = {**late.fields(), "stack": "".join(traceback.format_list(stack)).rstrip()}
            _log.error("%s; this worker ends%s", self._overtime_text(late), where, extra=extra)
            self._late = late
        return late

    def refusal(self, late: Applying, generation: int) -> tuple[validator_pb2.Message.MessageType, str, bytes] | None:
        """Message type, correlation id and content of the answer to a task that holds only this transaction.

        Returns None for a task of several transactions or of an older connection. If there is no answer, the validator
        runs each batch alone and so finds the slow one.
        """
        task = late.task
        if task is None or not late.alone or task.generation != generation:
            return None
        return _refusal(task, self._overtime_text(late))

    def late(self, now: float) -> bool:
        """Whether the deadline for stopping has passed."""
        return self._stop_at is not None and self._stop_at <= now

    def exit_process(self, exit_code: int) -> NoReturn:
        """End this process, because a thread cannot be ended."""
        logging.shutdown()
        drain()
        os._exit(exit_code)

    def _overtime_text(self, late: Applying) -> str:
        return f"apply of {late.family} {late.version} took longer than {self._limit_ms} ms"

    def _stack(self) -> list[traceback.FrameSummary]:
        frame = sys._current_frames().get(self._progress.thread or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        # Only the frames that apply has called: the author's code.
        ours = [place for place, entry in enumerate(stack) if entry.filename == dispatch.__file__]
        return stack[ours[-1] + 1 if ours else 0 :]


def _refusal(task: Task, message: str) -> tuple[validator_pb2.Message.MessageType, str, bytes]:
    if task.message_type == validator_pb2.Message.PACKED_PROCESS_REQUEST:
        packed = packed_pb2.PackedProcessResponse()
        packed.units.add().results.add(status=_INTERNAL_ERROR, message=message)
        return validator_pb2.Message.PACKED_PROCESS_RESPONSE, task.correlation_id, packed.SerializeToString()
    single = processor_pb2.TpProcessResponse(status=_INTERNAL_ERROR, message=message)
    return validator_pb2.Message.TP_PROCESS_RESPONSE, task.correlation_id, single.SerializeToString()
