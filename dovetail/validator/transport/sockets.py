"""A ZeroMQ socket in the event loop: watches its file descriptor and reads all waiting messages in one sweep.

libzmq's descriptor is edge-triggered: a send can consume the signal of a message that arrives meanwhile. So every send
schedules another check. No protocol here.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import zmq

_SWEEP_FRAMES_MAX: Final = 1_000
"""The most messages that one sweep reads before the loop handles other events."""

_NOW: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE: Final = int(zmq.POLLIN)


class DrainedSocket:
    """Calls ``on_readable`` in the loop when messages may wait; the callback reads them with ``received``."""

    def __init__(self, socket: zmq.Socket[bytes], on_readable: Callable[[], None]) -> None:
        self._socket = socket
        self._on_readable = on_readable
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.get(zmq.FD))
        self._scheduled: asyncio.Handle | None = None
        self._checking = self._again = False
        self._closed = False
        self.user = ""
        """The ZAP user id of the last message's connection; empty if it has none."""
        self._loop.add_reader(self._descriptor, self._check)
        self.check_soon()

    def received(self) -> Iterator[list[bytes]]:
        """The waiting messages, at most ``_SWEEP_FRAMES_MAX``; the rest causes another ``on_readable``."""
        for _ in range(_SWEEP_FRAMES_MAX):
            try:
                yield self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
        self.check_soon()

    def received_with_user(self) -> Iterator[list[bytes]]:
        """Like ``received``; ``user`` is set to the sender of each message before it is yielded."""
        for _ in range(_SWEEP_FRAMES_MAX):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self.user = _user_of(frames[-1])
            yield [frame.bytes for frame in frames]
        self.check_soon()

    def send(self, frames: list[bytes]) -> None:
        """Send without waiting. Raises zmq.Again if the peer does not read, zmq.ZMQError if it is gone."""
        self.check_soon()
        *first, last = frames
        for frame in first:
            self._socket.send(frame, _MORE)
        self._socket.send(last, _NOW)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._descriptor)
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._socket.close(linger=0)

    def check_soon(self) -> None:
        """Call ``on_readable`` in the loop's next round if messages wait then."""
        if self._checking:
            self._again = True
        elif self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._check)

    def _check(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if self._closed or not self._is_readable():
            return
        self._checking, self._again = True, False
        try:
            self._on_readable()
        finally:
            self._checking = False
            # One check covers every send of the sweep. Another round of the loop is scheduled only if messages wait.
            if self._again and not self._closed and self._is_readable():
                self.check_soon()

    def _is_readable(self) -> bool:
        return bool(int(self._socket.get(zmq.EVENTS)) & _READABLE)


def _user_of(frame: zmq.Frame) -> str:
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
