"""HTTP/1.1 as bytes: what a test sends, and what came back judged by a reader that forgives nothing.

What lives here: sockets and the form of answers. What must not: what an answer ought to say, or any of the project's
packages.
"""

import asyncio
import json
import re
from typing import Any, NamedTuple

DEADLINE_S = 30

_status_line = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*").fullmatch
_header_line = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([!-~](?:[ -~]*[!-~])?)?").fullmatch
_is_request_id = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch

ANSWER_HEADERS = {
    *("date", "content-type", "content-length", "x-request-id", "connection", "allow", "retry-after"),
    *("content-security-policy", "x-content-type-options"),
}
"""All that the API ever says."""


class Answer(NamedTuple):
    """One answer. Header names in lower case; none comes twice."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object, whose shape is checked."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert list(document) == ["error"]
        error = dict(document["error"])
        assert [type(error[name]) for name in ("code", "title", "message")] == [int, str, str]
        assert len(error) == 3
        return error


async def talk(port: int, *parts: bytes, half_close: bool = False) -> bytes:
    """Send the parts on one connection, and read until the server closes it; a reset counts as that too."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        received = bytearray()
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if half_close:
                writer.write_eof()
            while chunk := await reader.read(65_536):
                received += chunk
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
        return bytes(received)


def read_answers(received: bytes, *methods: str) -> list[Answer]:
    """All answers in the bytes of one connection; ``methods``: of the requests, where they are not all GET.

    Raises AssertionError for anything that is no whole HTTP/1.1 answer.
    """
    answers: list[Answer] = []
    while received:
        head, separator, received = received.partition(b"\r\n\r\n")
        assert separator, f"no end of the head: {head[:200]!r}"
        first, *lines = head.split(b"\r\n")
        status = _status_line(first)
        assert status is not None, f"no status line: {first[:200]!r}"
        headers: dict[str, str] = {}
        for line in lines:
            header = _header_line(line)
            assert header is not None, f"no header: {line[:200]!r}"
            name = header[1].decode().lower()
            assert name not in headers, f"twice: {name}"
            headers[name] = (header[2] or b"").decode()
        if status[1] == b"100":
            assert not headers
            continue
        method = methods[len(answers)] if len(answers) < len(methods) else "GET"
        bare = method == "HEAD" or status[1] == b"204"
        length = 0 if bare else int(headers["content-length"])
        assert len(received) >= length, f"{len(received)} of {length} bytes of the body"
        answers.append(Answer(int(status[1]), headers, received[:length]))
        received = received[length:]
    return answers


def check_answer(answer: Answer) -> None:
    """What holds for every answer of the API (API.md, Every response and Errors)."""
    assert answer.status < 500, answer
    assert _is_request_id(answer.headers["x-request-id"])
    assert set(answer.headers) <= ANSWER_HEADERS
    if answer.status >= 400 and answer.body:
        assert answer.error["message"]
