"""JSON in pieces: equal to JSON in one piece, of known length, and never in memory twice."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import Message

from dovetail.rest_api.answers.pieces import PIECE_BYTES, Text, json_answer, pieces, whole
from dovetail.rest_api.answers.quota import ByteQuota
from tests.dovetail.rest_api.support import run

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**63) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=3), values, max_size=4),
    max_leaves=20,
)


def lazy(content: object) -> object:
    """The same content with iterators for lists and encoded JSON for strings."""
    if isinstance(content, list):
        return map(lazy, content)
    if isinstance(content, dict):
        return {name: lazy(value) for name, value in content.items()}
    return Text([msgspec.json.encode(content)]) if isinstance(content, str) else content


@given(PLAIN)
def test_pieces_join_to_the_same_json(content: object) -> None:
    assert b"".join(pieces(lazy(content)).pieces) == msgspec.json.encode(content)


def test_one_piece_encodes_iterators() -> None:
    assert whole({"a": map(str, range(3)), "b": iter([])}).pieces == [b'{"a":["0","1","2"],"b":[]}']


def sent(response: Response, method: str = "GET") -> tuple[dict[bytes, bytes], list[bytes]]:
    """Headers and chunks of a response."""
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(response({"type": "http", "method": method}, receive, send))
    assert [message.get("more_body", False) for message in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return dict(messages[0]["headers"]), [message["body"] for message in messages[1:]]


@pytest.mark.parametrize("items", [0, 1, 10, 10_000])
def test_an_answer_has_a_length_and_no_body_for_head(items: int) -> None:
    content = {"data": ["x" * 100] * items, "link": "l"}
    whole_text = msgspec.json.encode(content)

    def answer() -> Response:
        return json_answer({"data": iter(["x" * 100] * items), "link": "l"}, 200)

    headers, chunks = sent(answer())
    assert b"".join(chunks) == whole_text
    assert headers[b"content-length"] == str(len(whole_text)).encode()
    assert headers[b"content-type"] == b"application/json"
    assert max(map(len, chunks)) <= 2 * PIECE_BYTES
    if len(whole_text) > PIECE_BYTES:
        head_headers, head_chunks = sent(answer(), "HEAD")
        assert (head_headers, b"".join(head_chunks)) == (headers, b"")


def test_sent_pieces_are_freed() -> None:
    def items() -> Iterator[Text]:
        for number in range(1000):
            yield whole(f"{number:010}" * 1000)

    held: list[int] = []

    async def send(_: Message) -> None:
        held.append(tracemalloc.get_traced_memory()[0])

    async def receive() -> Message:
        raise AssertionError

    tracemalloc.start()
    try:
        response = json_answer({"data": items()}, 200)
        asyncio.run(response({"type": "http", "method": "GET"}, receive, send))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = 1000 * 10_003
    assert peak < 1.2 * size
    assert held[len(held) // 2] < 0.6 * size
    assert held[-1] < 0.1 * size


@pytest.mark.parametrize(("method", "end"), [("GET", "taken"), ("GET", "left"), ("HEAD", "taken")])
def test_the_quota_counts_an_answer_until_its_pieces_are_sent(method: str, end: str) -> None:
    quota = ByteQuota("answers", 1)
    held: list[int] = []

    async def send(message: Message) -> None:
        held.append(quota.bytes_held)
        if end == "left" and len(held) == 3:
            raise ConnectionError

    async def receive() -> Message:
        raise AssertionError

    text = "x" * (PIECE_BYTES - 2)
    answer = json_answer(iter([text] * 4), quota=quota)
    size = int(answer.headers["content-length"])

    async def test() -> None:
        with contextlib.suppress(ConnectionError):
            await answer({"type": "http", "method": method}, receive, send)

    run(test())
    # A piece is sent when the client has read most of the piece before.
    first = len(text) + 3
    expected = [size, size, size, *(size - count * first for count in (1, 2, 3, 4))]
    assert held == ([0, 0] if method == "HEAD" else expected[: len(held)])
    assert len(held) == {"left": 3, "taken": 2 if method == "HEAD" else 7}[end]
    assert quota.bytes_held == 0
