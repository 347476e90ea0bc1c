"""Large JSON answers in pieces: encoded once, never joined, and freed piece by piece while the client reads.

An iterator becomes a JSON array, and its items are created one at a time. So memory never holds all objects of a
block, nor its text twice. Nothing here depends on a resource.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dovetail.rest_api.answers.quota import ByteQuota

PIECE_BYTES: Final = 64 * 1024
"""The size of one write, and the largest JSON that is encoded in one piece."""

ItemT = TypeVar("ItemT")

Json = dict[str, object]
"""A JSON object before it is encoded."""

_TRIMMED_BYTES_MIN: Final = 1024


class Text:
    """An encoded body as a list of pieces. If it is JSON, it may be a value in other JSON."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def size(self) -> int:
        return sum(map(len, self.pieces))


def _as_json(value: object) -> object:
    if isinstance(value, Text):
        return msgspec.Raw(b"".join(value.pieces))
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


_COMPOSED: Final = (Text, Iterator)
_encoder = msgspec.json.Encoder(enc_hook=_as_json)


def whole(content: object) -> Text:
    """Encode ``content`` as one piece."""
    return Text([_encoded(content)])


def pieces(content: object) -> Text:
    """Encode ``content`` in pieces of about ``PIECE_BYTES``, with one item of an iterator in memory at a time."""
    return Text(list(_gathered(_walk(content))))


def json_answer(content: object, status: int = 200, *, quota: ByteQuota | None = None) -> Response:
    """The HTTP answer with ``content`` as its body. ``Text`` inside ``content`` is not encoded again.

    ``quota`` counts an answer over ``PIECE_BYTES`` and may refuse it. So pass a quota only where a refusal is harmless
    after the handler has run.
    """
    return text_answer(Text(list(_walk(content))), "application/json", status, quota=quota)


def text_answer(
    text: Text,
    media_type: str,
    status: int = 200,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    quota: ByteQuota | None = None,
) -> Response:
    """The HTTP answer with ``text`` as its body, sent in pieces if it is larger than ``PIECE_BYTES``."""
    if text.size() <= PIECE_BYTES:
        return Response(b"".join(text.pieces), status, headers, media_type)
    return _PiecesResponse(text, media_type, status, headers, quota)


class _PiecesResponse(Response):
    """A body of known length, sent piece by piece at the speed of its client."""

    def __init__(
        self, text: Text, media_type: str, status: int, headers: Mapping[str, str], quota: ByteQuota | None
    ) -> None:
        size = text.size()
        super().__init__(None, status, {**headers, "content-length": str(size)}, media_type)
        self._pieces = text.pieces
        self._quota = quota or ByteQuota("one answer", size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            self._pieces.clear()
        held = Text(self._pieces).size()
        self._quota.reserve(held)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sent = 0
            self._pieces.reverse()
            for piece in _gathered(pop_all(self._pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                # This send has returned, so the client has read most of the previous piece.
                self._quota.release(sent)
                held -= sent
                sent = len(piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._quota.release(held)


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
    elif isinstance(content, dict) and any(isinstance(value, _COMPOSED) for value in content.values()):
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
    # The encoder's buffer may be half empty; a copy has the exact size.
    return bytes(memoryview(text)) if len(text) > _TRIMMED_BYTES_MIN else text


def pop_all(items: list[ItemT]) -> Iterator[ItemT]:
    """Yield the items from the last to the first, and drop each from the list."""
    while items:
        yield items.pop()


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts until each has at least ``PIECE_BYTES``; the last one may be smaller."""
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
