"""JSON that may be large, in pieces: made once, never joined, and let go piece by piece as the client takes it.

Knows no resource. A value that is an iterator becomes an array whose items are made when their turn comes, so neither
all objects of a block nor its text twice need to be in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dovetail.rest_api.answers.quota import Account

PIECE_BYTES: Final = 64 * 1024
"""How much goes out at once, and up to where JSON is made in one piece."""

Json = dict[str, object]
"""A JSON object before it is text."""

_TRIMMED_BYTES_MIN: Final = 1024


class Text:
    """JSON text as its pieces, in order; may stand for a value in other JSON."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


def _as_json(value: object) -> object:
    if isinstance(value, Text):
        return msgspec.Raw(b"".join(value.pieces))
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


_STANDS_FOR_MORE: Final = (Text, Iterator)
_encoder = msgspec.json.Encoder(enc_hook=_as_json)


def whole(content: object) -> Text:
    """``content`` in one piece."""
    return Text([_encoded(content)])


def pieces(content: object) -> Text:
    """``content`` in pieces of about ``PIECE_BYTES``, with only one item of an iterator held at a time."""
    return Text(list(_gathered(_walk(content))))


def json_answer(content: object, status: int = 200, *, account: Account | None = None) -> Response:
    """The answer whose body is ``content``; what stands in it as ``Text`` is taken as it is.

    ``account`` bounds what it holds over ``PIECE_BYTES``: only for what may be refused after its handler has run.
    """
    return text_answer(Text(list(_walk(content))), "application/json", status, account=account)


def text_answer(
    text: Text,
    media_type: str,
    status: int = 200,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    account: Account | None = None,
) -> Response:
    """The answer whose body is ``text``; one over ``PIECE_BYTES`` ends only when the client has taken most of it."""
    if text.size() <= PIECE_BYTES:
        return Response(b"".join(text.pieces), status, headers, media_type)
    return _PiecesResponse(text, media_type, status, headers, account)


class _PiecesResponse(Response):
    """A body of known length that is sent piece by piece; a slow client slows it down."""

    def __init__(
        self, text: Text, media_type: str, status: int, headers: Mapping[str, str], account: Account | None
    ) -> None:
        size = text.size()
        super().__init__(None, status, {**headers, "content-length": str(size)}, media_type)
        self._pieces = text.pieces
        # Without one that is shared, its own: alone, anything may be held.
        self._account = account or Account("one answer", size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            self._pieces.clear()
        held = Text(self._pieces).size()
        # An empty one is never too much.
        self._account.take(held)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sent = 0
            for piece in _gathered(_taken(self._pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                # It went out once the client had taken most of what went before.
                self._account.give_back(sent)
                held -= sent
                sent = len(piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._account.give_back(held)


def _walk(content: object) -> Iterator[bytes]:
    if isinstance(content, Text):
        yield from content.pieces
    elif isinstance(content, Iterator):
        opening = b"["
        for item in content:
            yield opening
            yield from _walk(item)
            opening = b","
        yield b"[]" if opening == b"[" else b"]"
    elif isinstance(content, dict) and any(isinstance(value, _STANDS_FOR_MORE) for value in content.values()):
        opening = b"{"
        for name, value in content.items():
            yield opening + _encoded(name) + b":"
            yield from _walk(value)
            opening = b","
        yield b"}"
    else:
        yield _encoded(content)


def _encoded(content: object) -> bytes:
    text = _encoder.encode(content)
    # The encoder leaves up to half of its buffer behind the text; a copy has none.
    return bytes(memoryview(text)) if len(text) > _TRIMMED_BYTES_MIN else text


def _taken(parts: list[bytes]) -> Iterator[bytes]:
    parts.reverse()
    while parts:
        yield parts.pop()


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same text in parts of at least ``PIECE_BYTES``, but for the last."""
    gathered: list[bytes] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(gathered)
            gathered.clear()
            size = 0
    if gathered:
        yield b"".join(gathered)
