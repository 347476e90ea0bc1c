"""HTTP/1.1 as bytes: a socket that sends them, and a strict parser for the answers.

The expected content of answers does not belong here, nor do imports of the project's packages.
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
"""Every header that the API sends."""


class Answer(NamedTuple):
    """One answer. Header names are in lower case and unique."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object; its shape is checked."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert list(document) == ["error"]
        error = dict(document["error"])
        assert [type(error[name]) for name in ("code", "title", "message")] == [int, str, str]
        assert len(error) == 3
        return error


async def talk(port: int, *parts: bytes, half_close: bool = False) -> bytes:
    """Send the parts on one connection, and read until the server closes or resets it."""
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
    """All answers in the bytes of one connection. ``methods``: the methods of the requests; GET if missing.

    Raises AssertionError for an invalid or incomplete HTTP/1.1 answer.
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
    """Check what API.md requires of every answer (Every response, Errors)."""
    assert answer.status < 500, answer
    assert _is_request_id(answer.headers["x-request-id"])
    assert set(answer.headers) <= ANSWER_HEADERS
    if answer.status >= 400 and answer.body:
        assert answer.error["message"]
