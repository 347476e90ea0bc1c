"""A server for tests of a benchmark's client side. The test decides the answer to each request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

Answer = Callable[[str, bytes], tuple[int, dict[str, str], object]]
"""From a request's target and body to status, further headers and content; status 0 closes the connection."""

T = TypeVar("T")


def against(answer: Answer, use: Callable[[str], Awaitable[T]]) -> T:
    """Run ``use`` with the server's URL."""
    return asyncio.run(_against(answer, use))


async def _against(answer: Answer, use: Callable[[str], Awaitable[T]]) -> T:
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[:-1]
                headers = dict(line.lower().split(": ", 1) for line in head[1:])
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                assert not body or headers["content-type"] == "application/octet-stream"
                status, extra, content = answer(head[0].split()[1], body)
                if not status:
                    break
                content_bytes = json.dumps(content).encode()
                lines = [f"HTTP/1.1 {status} Some Reason", *(f"{name}: {value}" for name, value in extra.items())]
                writer.write("\r\n".join((*lines, f"Content-Length: {len(content_bytes)}", "", "")).encode())
                await writer.drain()
                writer.write(content_bytes)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*serving)
