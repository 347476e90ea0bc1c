"""A ZeroMQ socket in the event loop: its file descriptor is watched, and every waiting frame is taken in one sweep.

The descriptor tells of changes only: a send can swallow the news of a frame that came meanwhile. So every send makes
sure that another look is taken. No protocol here.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import zmq

_SWEEP_FRAMES_MAX: Final = 1_000
"""How many messages one sweep takes before the loop may look at other things."""

_NOW: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE: Final = int(zmq.POLLIN)


class DrainedSocket:
    """``on_readable`` is called in the loop when messages may wait; it takes them with ``received``."""

    def __init__(self, socket: zmq.Socket[bytes], on_readable: Callable[[], None]) -> None:
        self._socket = socket
        self._on_readable = on_readable
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.get(zmq.FD))
        self._look: asyncio.Handle | None = None
        self._looking = self._again = False
        self._closed = False
        self.user = ""
        """The user id that a connection was let in with: that of the last message; empty where it has none."""
        self._loop.add_reader(self._descriptor, self._take_look)
        self._look_again()

    def received(self) -> Iterator[list[bytes]]:
        """The waiting messages, at most a sweep's worth; the rest is announced again."""
        for _ in range(_SWEEP_FRAMES_MAX):
            try:
                yield self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
        self._look_again()

    def received_with_user(self) -> Iterator[list[bytes]]:
        """``received``; meanwhile ``user`` tells of each message who sent it."""
        for _ in range(_SWEEP_FRAMES_MAX):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self.user = _user_of(frames[-1])
            yield [frame.bytes for frame in frames]
        self._look_again()

    def send(self, frames: list[bytes]) -> None:
        """Send without waiting. Raises zmq.Again when the peer does not read, zmq.ZMQError when it is gone."""
        self._look_again()
        *first, last = frames
        for frame in first:
            self._socket.send(frame, _MORE)
        self._socket.send(last, _NOW)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._descriptor)
        if self._look is not None:
            self._look.cancel()
        self._socket.close(linger=0)

    def _look_again(self) -> None:
        if self._looking:
            self._again = True
        elif self._look is None:
            self._look = self._loop.call_soon(self._take_look)

    def _take_look(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._closed or not self._waits():
            return
        self._looking, self._again = True, False
        try:
            self._on_readable()
        finally:
            self._looking = False
            # Behind all that was sent meanwhile, and only a look that finds something costs the loop another round.
            if self._again and not self._closed and self._waits():
                self._look_again()

    def _waits(self) -> bool:
        return bool(int(self._socket.get(zmq.EVENTS)) & _READABLE)


def _user_of(frame: zmq.Frame) -> str:
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
