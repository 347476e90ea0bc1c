"""Messages between the event loop and a process that it started, over two pipes: each its length, then itself.

A message wakes the process that it is for and no thread besides. Neither side ever waits with a message half sent, so
that each works on while the other is at something else; what bounds the unsent is how much may be asked at one time.
"""

import contextlib
import fcntl
import os
import select
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LENGTH: Final = struct.Struct("!Q")
_READ_BYTES: Final = 256 * 1024


class Ends(NamedTuple):
    """Descriptors of two new pipes; whoever made them closes them."""

    requests_out: int
    requests_in: int
    answers_out: int
    answers_in: int

    @classmethod
    def new(cls, held_bytes: int) -> "Ends":
        """``held_bytes``: what each holds where the system lets it. Raises OSError where no descriptors are left."""
        requests_in, requests_out = os.pipe()
        try:
            answers_in, answers_out = os.pipe()
        except OSError:
            os.close(requests_in)
            os.close(requests_out)
            raise
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            for end in (requests_out, answers_out):
                with contextlib.suppress(OSError):
                    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, held_bytes)
        return cls(requests_out, requests_in, answers_out, answers_in)


class _Side:
    """What both sides do: send as much as there is room for, take what is there."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = out, back
        os.set_blocking(out, False)
        os.set_blocking(back, False)
        self._unsent: deque[memoryview] = deque()
        self._read = bytearray()
        self.ended = False
        """Whether the other side is gone."""

    def received(self) -> Iterator[bytes]:
        """The messages that are there."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._back, _READ_BYTES):
                self._read += more
                yield from self._whole()
            self.ended = True

    def _whole(self) -> Iterator[bytes]:
        read = self._read
        while len(read) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(read)
            end = _LENGTH.size + length
            if end > len(read):
                break
            message = bytes(memoryview(read)[_LENGTH.size : end])
            # Before anybody sees it: whoever fails with it must not get it again.
            del read[:end]
            yield message

    def _put(self, message: bytes) -> None:
        self._unsent.append(memoryview(_LENGTH.pack(len(message)) + message))

    def _flush(self) -> bool:
        """Send what there is room for; whether nothing is left."""
        unsent = self._unsent
        try:
            while unsent:
                sent = os.write(self._out, unsent[0])
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            unsent.clear()
            self.ended = True
        return True


class Pipe(_Side):
    """The loop's side. ``on_readable`` is called in the loop when messages may be there, or the process has ended."""

    def __init__(self, loop: "AbstractEventLoop", out: int, back: int, on_readable: Callable[[], None]) -> None:
        """Both descriptors are its own from now on."""
        super().__init__(out, back)
        self._loop = loop
        self._on_readable = on_readable
        self._loop.add_reader(back, self._look)

    def send(self, message: bytes) -> None:
        """Send, at once or when there is room; nothing happens where the process has ended."""
        self._put(message)
        if len(self._unsent) == 1 and not self._flush():
            self._loop.add_writer(self._out, self._on_room)

    def close(self) -> None:
        """Let go of it: that is how the process learns that it is to end."""
        self._loop.remove_reader(self._back)
        self._loop.remove_writer(self._out)
        os.close(self._out)
        os.close(self._back)

    def _look(self) -> None:
        self._on_readable()
        if self.ended:
            # A pipe that has ended is readable for ever.
            self._loop.remove_reader(self._back)

    def _on_room(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._out)


def serve(requests: int, answers: int, answer: Callable[[bytes], bytes]) -> None:
    """The process's side: answer each message, in their order, until whoever sends them is gone."""
    side = _Side(answers, requests)
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while not side.ended:
        poll.register(answers, 0 if side._flush() else select.POLLOUT)
        poll.poll()
        for message in side.received():
            side._put(answer(message))
            side._flush()
