"""The connection to the validator: registers families, answers pings, receives tasks, sends answers and state calls.

The connection has no thread: ``processor_sdk.worker.shared_connection`` polls it, one thread at a time. No handlers.

Each life of the connection has its own DEALER socket with its own identity, so that no message of an old life is sent
in a new one. ``generation`` counts the lives. Answers that belong to an older generation are dropped.
"""

import logging
import random
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import zmq
from google.protobuf.message import DecodeError

from processor_sdk.apply.progress import Task
from processor_sdk.handler import TransactionHandler
from processor_sdk.worker.dealer import REFUSED, Dealer
from processor_sdk.worker.keys import Keys, handshake_failure
from processor_sdk.worker.registration import Registration, refusal, remark
from processor_sdk.worker.unregistration import Unregistration
from processor_sdk.worker.watch import LATE_EXIT, OVERTIME_EXIT, Watch
from protos import validator_pb2

STOP: Final = b"s"
_STOPS: Final = (STOP, bytes([signal.SIGTERM]), bytes([signal.SIGINT]))

TASKS_IN_FLIGHT_MAX: Final = 4096
LAST_ANSWERS_WAIT_MS: Final = 2_000
BACK_OFF_S_FIRST: Final = 0.1
BACK_OFF_S_MAX: Final = 5.0
OVERDUE_S: Final = 1.0  # After this time without an answer, the log says once that the processor waits.
WAKE_BYTES_MAX: Final = 64

_Message = validator_pb2.Message
_ANSWERS: Final[Mapping[int, "_Message.MessageType"]] = {
    _Message.TP_PROCESS_REQUEST: _Message.TP_PROCESS_RESPONSE,
    _Message.PACKED_PROCESS_REQUEST: _Message.PACKED_PROCESS_RESPONSE,
}
"""The message type that answers each type of task."""

_log = logging.getLogger(__name__)


class Connection:
    """Lasts until ``wake`` receives STOP or a signal's number and the tasks in flight are finished.

    ``watch``: the supervised worker's end of the supervisor's pipe. The worker also ends when the supervisor asks for
    it or has gone.
    """

    def __init__(
        self,
        url: str,
        handlers: Iterable[TransactionHandler[Any]],
        *,
        max_occupancy: int,
        build_id: str | None,
        wake: socket.socket,
        watch: Watch | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._url = url
        self._keys = keys
        self._handshake_failure = ""
        self._wake = wake
        self._watch = watch
        self._registrations = [Registration(handler, max_occupancy, build_id) for handler in handlers]
        self._asked: dict[str, Registration] = {}
        self._poller = zmq.Poller()
        self._poller.register(wake, zmq.POLLIN)
        if watch is not None:
            self._poller.register(watch.fileno(), zmq.POLLIN)
        self._dealer = Dealer(url, self._poller)
        self._connect_at: float | None = time.monotonic()
        self._overdue_at: float | None = self._connect_at + OVERDUE_S
        self._losses = 0
        self._established = False
        self.generation = 0
        """The number of earlier lives."""
        self.tasks: deque[Task] = deque()
        """Received tasks that wait for the apply thread."""
        self._in_flight = 0
        self._correlation = 0
        self._awaited = ""
        self.reply: validator_pb2.Message | None = None
        """The answer to the latest state call; None while the call waits."""
        self._stopping = False
        self._unregistration = Unregistration()
        self.registered = False
        """Whether the validator has accepted all families at least once."""

    @property
    def nothing_left(self) -> bool:
        """Whether the connection was stopped and has finished its work."""
        # After the answer to the last task, _ping_before_end has already sent another ping.
        return self._stopping and (
            not self._established or (self._in_flight == 0 and self._unregistration.until is None)
        )

    def poll(self, *, wait: bool) -> None:
        """Handle everything that has arrived and everything that is due. ``wait``: block until there is something."""
        ready = dict(self._poller.poll(self._timeout_ms() if wait else 0))
        if self._wake.fileno() in ready:
            self._read_wake()
        if self._dealer.has_messages(ready):
            self._drain_dealer()
        if self._dealer.has_events(ready):
            self._drain_monitor()
        if self._watch is not None and self._watch.fileno() in ready:
            self._read_supervisor(self._watch)
        self._run_timers(time.monotonic())

    def ask(self, task: Task, kind: "_Message.MessageType", content: bytes) -> None:
        """Send a state call of ``task``, unless its connection is lost. The answer will be in ``reply``."""
        self.reply = None
        self._awaited = self._next_correlation_id()
        if task.generation == self.generation:
            self._send(kind, self._awaited, content)

    def answer(self, task: Task, content: bytes) -> None:
        """Send the answer to ``task``, unless its connection is lost."""
        if task.generation == self.generation:
            self._in_flight -= 1
            self._unregistration.on_task_answered()
            self._send(_ANSWERS[task.message_type], task.correlation_id, content)
            self._ping_before_end(time.monotonic())

    def end(self, *, in_order: bool) -> None:
        """Close for good. ``in_order``: wait until the last messages have been sent."""
        self._dealer.end(LAST_ANSWERS_WAIT_MS if in_order and self._established else 0)

    def abandon(self) -> None:
        """Release everything, whatever the state in which a poll was interrupted."""
        self._dealer.abandon()

    def _timeout_ms(self) -> int | None:
        deadlines = [registration.retry_at for registration in self._registrations]
        deadlines += [self._connect_at, self._overdue_at, self._unregistration.until]
        deadlines.append(self._watch.next_at() if self._watch is not None else None)
        times = [at for at in deadlines if at is not None]
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else None

    def _run_timers(self, now: float) -> None:
        if self._connect_at is not None and self._connect_at <= now:
            self._connect_at = None
            if self._handshake_failure and self._keys is not None:
                # An operator may have corrected a file.
                self._keys, fault = self._keys.reload()
                if fault:
                    _log.error("%s; connecting with the keys from before", fault)
            self._dealer.open(self._keys)
        if self._overdue_at is not None and self._overdue_at <= now:
            self._overdue_at = None
            _log.warning("waiting for the validator at %s", self._url)
        for registration in self._registrations:
            if registration.retry_at is not None and registration.retry_at <= now:
                self._register(registration)
        self._unregistration.give_up(now)
        self._ping_before_end(now)
        if self._watch is not None:
            self._run_watch(self._watch, now)

    def _run_watch(self, watch: Watch, now: float) -> None:
        if watch.due(now):
            self._beat()
        overtime = watch.overtime(now)
        if overtime is not None:
            refused = watch.refusal(overtime, self.generation)
            if refused is not None:
                self._send(*refused)
            self._beat()
            self._dealer.end(LAST_ANSWERS_WAIT_MS)
            watch.exit_process(OVERTIME_EXIT)
        if watch.late(now):
            _log.error("not finished in time: %d tasks in flight are left to other processors", self._in_flight)
            watch.exit_process(LATE_EXIT)

    def _read_supervisor(self, watch: Watch) -> None:
        if watch.receive_stop():
            self._stop()
        if watch.supervisor_is_gone:
            self._poller.unregister(watch.fileno())

    def _beat(self) -> None:
        if self._watch is not None:
            registered = self._established and all(registration.done for registration in self._registrations)
            self._watch.beat(time.monotonic(), registered=registered, in_flight=self._in_flight)

    def _drain_monitor(self) -> None:
        for event in self._dealer.events():
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                _log.info("connected to the validator at %s", self._url)
                self._established = True
                self._handshake_failure = ""
                for registration in self._registrations:
                    self._register(registration)
            elif event == zmq.Event.DISCONNECTED:
                self._lose(self._handshake_failure or "the connection was closed")
            elif event in REFUSED:
                self._handshake_failure = handshake_failure(self._keys, event)

    def _lose(self, reason: str) -> None:
        """Drop all state of this life. A new life begins after a back-off."""
        self._dealer.close(0)
        delay_s = back_off_s(self._losses)
        _log.warning("lost the validator at %s: %s; connecting again in %.1f s", self._url, reason, delay_s)
        self._losses += 1
        self._connect_at = time.monotonic() + delay_s
        self._overdue_at = self._connect_at + OVERDUE_S
        self._established = False
        self.tasks.clear()
        self._in_flight = 0
        self.generation += 1
        self._asked.clear()
        for registration in self._registrations:
            registration.reset()
        self._beat()

    def _register(self, registration: Registration) -> None:
        registration.retry_at = None
        correlation_id = self._next_correlation_id()
        self._asked[correlation_id] = registration
        self._send(_Message.TP_REGISTER_REQUEST, correlation_id, registration.content)

    def _next_correlation_id(self) -> str:
        self._correlation += 1
        return f"connection-{self._correlation}"

    def _send(self, message_type: "_Message.MessageType", correlation_id: str, content: bytes = b"") -> None:
        message = _Message(message_type=message_type, correlation_id=correlation_id, content=content)
        if not self._dealer.send(message.SerializeToString()):
            self._lose("it takes no more messages")

    def _drain_dealer(self) -> None:
        for raw in self._dealer.received():
            try:
                message = _Message.FromString(raw)
            except DecodeError:
                _log.warning("%d bytes from the validator are no Message; dropped", len(raw))
                continue
            self._on_message(message)

    def _on_message(self, message: validator_pb2.Message) -> None:
        kind = message.message_type
        if kind == _Message.PING_REQUEST:
            self._send(_Message.PING_RESPONSE, message.correlation_id)
        elif kind == _Message.TP_REGISTER_RESPONSE:
            self._on_registered(message)
        elif kind in (_Message.TP_UNREGISTER_RESPONSE, _Message.PING_RESPONSE):
            self._unregistration.on_answer(message.correlation_id)
        elif kind in _ANSWERS:
            self._in_flight += 1
            if self._in_flight > TASKS_IN_FLIGHT_MAX:
                self._lose(f"it sent more than {TASKS_IN_FLIGHT_MAX} tasks without waiting for an answer")
                return
            self.tasks.append(Task(self.generation, kind, message.correlation_id, message.content))
        elif message.correlation_id == self._awaited:
            self.reply = message

    def _on_registered(self, message: validator_pb2.Message) -> None:
        registration = self._asked.pop(message.correlation_id, None)
        if registration is None:
            return
        self._overdue_at = None
        reason = refusal(message.content)
        if reason is None:
            registration.done = True
            if said := remark(message.content):
                _log.warning("%s is registered, but gets no work: %s", registration.family, said)
            if all(other.done for other in self._registrations):
                self._losses = 0
                self.registered = True
                self._beat()
        elif not self._stopping:
            delay_s = back_off_s(registration.refusals)
            registration.refusals += 1
            registration.retry_at = time.monotonic() + delay_s
            _log.error("registration of %s refused: %s; again in %.1f s", registration.family, reason, delay_s)

    def _read_wake(self) -> None:
        asked = self._wake.recv(WAKE_BYTES_MAX)
        if any(reason in asked for reason in _STOPS):
            self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._watch is not None:
            self._watch.stopping(time.monotonic())
        self._overdue_at = None
        _log.info("stopping: %d tasks in flight", self._in_flight)
        for registration in self._registrations:
            registration.retry_at = None
        if self._established:
            self._unregister(_Message.TP_UNREGISTER_REQUEST, time.monotonic())

    def _ping_before_end(self, now: float) -> None:
        if self._stopping and self._established and self._in_flight == 0 and self._unregistration.ping_due:
            self._unregister(_Message.PING_REQUEST, now)

    def _unregister(self, kind: "_Message.MessageType", now: float) -> None:
        correlation_id = self._next_correlation_id()
        self._unregistration.on_sent(correlation_id, now)
        self._send(kind, correlation_id)


def back_off_s(failures: int) -> float:
    """Seconds to wait: doubled with every failure up to a bound, and random so that many processors spread out."""
    longest_s = min(BACK_OFF_S_MAX, BACK_OFF_S_FIRST * float(1 << min(failures, 16)))
    return longest_s * random.uniform(0.5, 1.0)
