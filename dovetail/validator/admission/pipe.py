"""Messages between the event loop and a child process over two pipes. Each message follows its length.

A message wakes its recipient and no helper thread. Neither side blocks with a message half sent, so each can work while
the other is busy. The callers bound the unsent messages by the number of requests in flight.
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
    """The descriptors of two new pipes, which the caller closes."""

    requests_out: int
    requests_in: int
    answers_out: int
    answers_in: int

    @classmethod
    def new(cls, held_bytes: int) -> "Ends":
        """``held_bytes``: the capacity of each pipe, if the system allows. Raises OSError if descriptors run out."""
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
    """The common part of both sides: non-blocking sends and reads."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = out, back
        os.set_blocking(out, False)
        os.set_blocking(back, False)
        self._unsent: deque[memoryview] = deque()
        self._read = bytearray()
        self.ended = False
        """Whether the other side has ended."""

    def received(self) -> Iterator[bytes]:
        """The messages that have arrived."""
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
            # Delete the message before the yield: if its recipient fails, the message must not come again.
            del read[:end]
            yield message

    def _put(self, message: bytes) -> None:
        self._unsent.append(memoryview(_LENGTH.pack(len(message)) + message))

    def _flush(self) -> bool:
        """Send as much as the pipe takes. Returns whether nothing is left."""
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
    """The event loop's side. Calls ``on_readable`` when messages may have arrived or the process has ended."""

    def __init__(self, loop: "AbstractEventLoop", out: int, back: int, on_readable: Callable[[], None]) -> None:
        """Takes ownership of both descriptors."""
        super().__init__(out, back)
        self._loop = loop
        self._on_readable = on_readable
        self._loop.add_reader(back, self._can_read)

    def send(self, message: bytes) -> None:
        """Send at once or when the pipe has space. Does nothing if the process has ended."""
        self._put(message)
        if len(self._unsent) == 1 and not self._flush():
            self._loop.add_writer(self._out, self._can_write)

    def close(self) -> None:
        """Close the pipes, which makes the process end."""
        self._loop.remove_reader(self._back)
        self._loop.remove_writer(self._out)
        os.close(self._out)
        os.close(self._back)

    def _can_read(self) -> None:
        self._on_readable()
        if self.ended:
            # An ended pipe stays readable for ever.
            self._loop.remove_reader(self._back)

    def _can_write(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._out)


def serve(requests: int, answers: int, answer: Callable[[bytes], bytes]) -> None:
    """The process's side: answer each message in order until the other side ends."""
    side = _Side(answers, requests)
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while not side.ended:
        poll.register(answers, 0 if side._flush() else select.POLLOUT)
        poll.poll()
        for message in side.received():
            side._put(answer(message))
            side._flush()
