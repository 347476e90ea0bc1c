"""h11's parser with bounds on the work of one turn: events, lines of a head, escapes, and chunks of a body."""

import string
from typing import Final

import h11
from h11._receivebuffer import ReceiveBuffer
from h11._util import RemoteProtocolError

from dovetail.ledger.limits import Limits

EVENTS_AT_ONCE: Final = 32
"""The events that one connection parses before others have their turn. A chunk is an event."""

_PLAIN: Final = (string.ascii_letters + string.digits + "-._~/?&=,").encode("ascii")
"""The bytes of a path or query that take no decoding and no encoding."""

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class Parser(h11.Connection):
    """A server's side of one connection.

    ``next_event`` says NEED_DATA after ``EVENTS_AT_ONCE`` events, and then ``is_cut`` is true: more is there to parse.
    Raises h11.RemoteProtocolError for what is no HTTP, and for input beyond the limits; ``refusal`` then says why.
    """

    def __init__(self, head_bytes_max: int, limits: Limits) -> None:
        super().__init__(h11.SERVER, head_bytes_max)
        self._limits = limits
        # h11 reads the lines of heads and of trailers from here, in one step that could not be interrupted.
        self._receive_buffer = _Lines(limits.head_lines_max, head_bytes_max)
        self._left = EVENTS_AT_ONCE
        self._chunks = self._bytes = 0
        self.refusal = f"this is no HTTP/1.1 request, or its head has over {head_bytes_max} bytes"

    @property
    def is_cut(self) -> bool:
        return not self._left

    def begin_turn(self) -> None:
        self._left = EVENTS_AT_ONCE

    def next_event(self) -> Event:
        if not self._left:
            return h11.NEED_DATA
        try:
            event = super().next_event()
        except _TooManyLines:
            lines_max = self._limits.head_lines_max
            self.refusal = f"the head or the trailers have over {lines_max} lines (limits.head_lines_max)"
            raise
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return event
        self._left -= 1
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            self._check_target(event.target)
        elif isinstance(event, h11.Data):
            self._check_chunks(event)
        return event

    def _check_target(self, target: bytes) -> None:
        escapes, escapes_max = len(target.translate(None, _PLAIN)), self._limits.target_escapes_max
        if escapes > escapes_max:
            # Decoding them, and encoding them for links, takes a microsecond each, in one step.
            self.refusal = (
                f"path and query have {escapes} bytes that are or need percent-encoding, {escapes_max} are allowed"
                " (limits.target_escapes_max)"
            )
            raise h11.RemoteProtocolError(self.refusal)

    def _check_chunks(self, data: h11.Data) -> None:
        self._chunks += data.chunk_end
        self._bytes += len(data.data)
        limits = self._limits
        if self._chunks > limits.body_chunks_unmeasured and self._bytes < self._chunks * limits.chunk_bytes_mean_min:
            self.refusal = (
                f"the body's first {self._chunks} chunks hold {self._bytes} bytes: from chunk"
                f" {limits.body_chunks_unmeasured} on, their mean must be at least {limits.chunk_bytes_mean_min} bytes"
                " (limits.chunk_bytes_mean_min); send larger chunks, or give a Content-Length"
            )
            raise h11.RemoteProtocolError(self.refusal)


class _TooManyLines(RemoteProtocolError):
    pass


class _Lines(ReceiveBuffer):
    def __init__(self, lines_max: int, bytes_max: int) -> None:
        super().__init__()
        self._lines_max = lines_max
        self._bytes_max = bytes_max

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = len(self)
        lines = super().maybe_extract_lines()
        # h11 itself measures only heads whose end has not arrived.
        if lines is not None and before - len(self) > self._bytes_max:
            raise RemoteProtocolError("too many bytes")
        if lines is not None and len(lines) > self._lines_max:
            raise _TooManyLines("too many lines")
        return lines
