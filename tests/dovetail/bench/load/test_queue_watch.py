"""The watch over a node's queue."""

import asyncio

from dovetail.bench.connection import Target
from dovetail.bench.load.queue_watch import QueueWatch


def test_the_fullest_queue_is_kept() -> None:
    async def batches_max(*contents: bytes) -> int:
        watch = QueueWatch(Target.of("http://x"))
        for content in contents:
            watch.on_answer(0, b"HTTP/1.1 200 OK\r\n\r\n" + content)
        return watch.batches_max

    answers = (b'{"data": {"pending_batches": %d}}' % number for number in (3, 9, 4))
    assert asyncio.run(batches_max(*answers, b'{"error": {}}', b"[]", b"a page")) == 9
