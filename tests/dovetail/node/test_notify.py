"""The notify protocol and the lifeline, between real sockets and pipes."""

import os
import threading
from pathlib import Path

import pytest

from dovetail.node.notify import (
    AGAIN_S,
    LIFELINE_FD,
    NOTIFY_SOCKET,
    ORPHAN_GRACE_S,
    Notifier,
    NotifyListener,
    watch_lifeline,
)
from processor_sdk.runtime import STOP_S_MAX_DEFAULT

pytestmark = pytest.mark.timeout(30)


def test_what_is_said_is_heard_in_order(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    environ = {NOTIFY_SOCKET: str(tmp_path / "s")}
    notifier = Notifier.from_environment(environ)
    assert environ == {}
    notifier.status("opening\nthe store")
    notifier.ready()
    notifier.stopping()
    assert listener.drain() == [{"STATUS": "opening the store"}, {"READY": "1", "STATUS": "ready"}, {"STOPPING": "1"}]
    assert listener.drain() == []
    listener.close()
    assert not (tmp_path / "s").exists()


def test_nobody_listening_is_no_error(tmp_path: Path) -> None:
    Notifier(None).ready()
    Notifier(str(tmp_path / "gone")).ready()


def test_a_listener_that_does_not_listen_holds_up_nobody_and_hears_the_rest_later(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    notifier = Notifier(str(tmp_path / "s"), clock=lambda: 0.0)
    for number in range(10_000):
        notifier.status(f"{number}")
    notifier.ready()
    notifier.stopping()
    said = listener.drain()
    assert [entry["STATUS"] for entry in said] == [str(number) for number in range(len(said))]
    notifier.alive()
    notifier.alive()
    assert listener.drain() == [{"STATUS": "ready", "READY": "1", "STOPPING": "1"}]
    listener.close()


def test_the_grace_of_an_orphan_is_longer_than_any_part_takes_to_end() -> None:
    assert ORPHAN_GRACE_S > STOP_S_MAX_DEFAULT


def test_a_long_status_is_cut_to_one_datagram(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    Notifier(str(tmp_path / "s")).status("x" * 100_000)
    assert listener.drain() == [{"STATUS": "x" * 400}]
    listener.close()


def test_rubbish_is_heard_as_nothing(tmp_path: Path) -> None:
    import socket

    listener = NotifyListener(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(tmp_path / "s"))
        sender.send(b"\xff\xfe no variable")
    assert listener.drain() == [{}]
    listener.close()


def test_the_end_of_the_lifeline_is_noticed() -> None:
    reading, writing = os.pipe()
    lost = threading.Event()
    environ = {LIFELINE_FD: str(reading)}
    watch_lifeline(environ, on_lost=lost.set)
    assert environ == {}
    assert not lost.is_set()
    os.close(writing)
    assert lost.wait(10)
    os.close(reading)


def test_without_a_lifeline_nothing_is_watched() -> None:
    # A thread of an earlier test may end meanwhile.
    before = set(threading.enumerate())
    watch_lifeline({})
    assert set(threading.enumerate()) <= before


def test_life_is_told_at_a_quarter_of_the_watchdogs_time_and_no_more_often(tmp_path: Path) -> None:
    listener = NotifyListener(tmp_path / "s")
    now = 0.0
    notifier = Notifier(str(listener.path), watchdog_s=20, clock=lambda: now)
    assert notifier.alive_s == 5
    for now in (100.0, 101.0, 104.0, 105.0, 109.0, 110.0):  # noqa: B007 (the notifier's clock)
        notifier.alive()
    assert listener.drain() == [{"WATCHDOG": "1"}] * 3
    listener.close()


@pytest.mark.parametrize(
    ("given", "alive_s"),
    [
        ({"WATCHDOG_USEC": "1000000"}, 0.25),
        ({"WATCHDOG_USEC": "30000000"}, AGAIN_S),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, 0.25),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, AGAIN_S),
        ({"WATCHDOG_USEC": "soon"}, AGAIN_S),
        ({}, AGAIN_S),
    ],
)
def test_the_watchdog_is_the_one_of_this_process(given: dict[str, str], alive_s: float) -> None:
    environ = {NOTIFY_SOCKET: "/nowhere", **given}
    assert Notifier.from_environment(environ).alive_s == alive_s
    assert environ == {}
