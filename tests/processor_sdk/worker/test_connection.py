"""The connection, polled by the test's own thread: its state in the middle of a poll, and exceptions in a poll."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from processor_sdk.runtime import TransactionProcessor
from processor_sdk.worker import connection
from processor_sdk.worker.connection import Connection
from processor_sdk.worker.shared_connection import SharedConnection
from protos import validator_pb2
from tests.processor_sdk.router import WAIT_MS, Validator
from tests.processor_sdk.scripts import ScriptHandler, Spec, address


@pytest.fixture
def wires() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The socket pair that wakes the connection: the end to write to, and the end that the connection reads."""
    waker, wake = socket.socketpair()
    with waker, wake:
        yield waker, wake


@pytest.fixture
def link(validator: Validator, wires: tuple[socket.socket, socket.socket]) -> Connection:
    """A connection that the validator has accepted. The test need not close the connection."""
    made = Connection(validator.url, [ScriptHandler()], max_occupancy=1, build_id=None, wake=wires[1])
    accepting = threading.Thread(target=validator.accept)
    accepting.start()
    while not made.registered:
        made.poll(wait=True)
    accepting.join()
    return made


def test_in_the_middle_of_a_poll_the_connection_is_not_finished(
    link: Connection, validator: Validator, wires: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """The apply thread may read ``finished`` while a poll of the keeper has read STOP but has not unregistered yet."""
    shared = SharedConnection(link)
    seen: list[bool] = []

    def look(_record: logging.LogRecord) -> bool:
        seen.append(shared.finished)
        return True

    log = logging.getLogger(connection.__name__)
    caplog.set_level(logging.INFO, connection.__name__)
    log.addFilter(look)
    try:
        wires[0].send(connection.STOP)
        shared.next_task()
    finally:
        log.removeFilter(look)
    assert (seen, shared.finished) == ([False], False)
    validator.release()
    while not shared.finished:
        shared.next_task()
    shared.finish()
    link.abandon()


def test_an_interrupted_close_of_a_socket_blocks_nothing(
    link: Connection, validator: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget: Callable[[Any, Any], None] = zmq.Context._rm_socket

    def interrupted(context: Any, closing: Any) -> None:
        forget(context, closing)
        if closing.type == zmq.DEALER:
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(zmq.Context, "_rm_socket", interrupted)
    validator.close()
    with pytest.raises(KeyboardInterrupt):
        turn_for_ever(link)
    abandoning = threading.Thread(target=link.abandon, daemon=True)
    abandoning.start()
    abandoning.join(WAIT_MS / 1000)
    assert not abandoning.is_alive()


def turn_for_ever(link: Connection) -> None:
    while True:
        link.poll(wait=True)


class Bug(Exception):
    pass


class BuggyBesideAnApply(ScriptHandler):
    """Its apply lasts until the keeper thread has raised the bug's exception."""

    def __init__(self, begun: threading.Event, met: threading.Event) -> None:
        self._begun, self._met = begun, met

    def apply(self, transaction: Any, context: Any) -> None:
        self._begun.set()
        assert self._met.wait(WAIT_MS / 1000)


def test_a_bug_of_the_keeper_ends_the_serving(validator: Validator, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, met = threading.Event(), threading.Event()
    run_timers = Connection._run_timers

    def buggy(link: Connection, now: float) -> None:
        if begun.is_set():
            met.set()
            raise Bug
        run_timers(link, now)

    def play() -> None:
        validator.accept()
        validator.single("task", Spec((), (), []))

    monkeypatch.setattr(Connection, "_run_timers", buggy)
    playing = threading.Thread(target=play)
    playing.start()
    with pytest.raises(Bug):
        TransactionProcessor(validator.url).add(BuggyBesideAnApply(begun, met)).run_in_process()
    playing.join()


def test_a_bug_in_a_state_call_ends_the_serving(validator: Validator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is raised inside an apply, but it must not become a verdict on the transaction."""
    asked = threading.Event()
    run_timers = Connection._run_timers

    def buggy(link: Connection, now: float) -> None:
        if asked.is_set():
            asked.clear()
            raise Bug
        run_timers(link, now)

    def play() -> None:
        validator.accept()
        validator.single("task", Spec((address(1),), (), [["get", address(1)]]))
        validator.receive(validator_pb2.Message.TP_STATE_GET_REQUEST)
        asked.set()
        validator.send(validator_pb2.Message.PING_REQUEST, "ping")

    monkeypatch.setattr(Connection, "_run_timers", buggy)
    playing = threading.Thread(target=play)
    playing.start()
    with pytest.raises(Bug):
        TransactionProcessor(validator.url).add(ScriptHandler()).run_in_process()
    playing.join()
