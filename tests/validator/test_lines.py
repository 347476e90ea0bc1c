"""Log lines that wait: not written at once, in their order, and none is lost where the loop ends in order."""

import asyncio

from structlog.testing import capture_logs

from tests.validator.peers import run
from validator.lines import _BEHIND_S, Lines


def test_lines_are_written_behind_what_is_ready_and_in_their_order() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        lines = Lines(loop)
        with capture_logs() as written:
            for said in ([0, 1, 2], [3]):
                for number in said:
                    lines.say("said", number=number)
                assert len(written) == said[0]
                behind = asyncio.Event()
                loop.call_later(_BEHIND_S, behind.set)
                await behind.wait()
        assert written == [{"event": "said", "log_level": "info", "number": number} for number in range(4)]

    run(test)


def test_what_waits_is_written_at_the_end() -> None:
    async def test() -> None:
        lines = Lines(asyncio.get_running_loop())
        with capture_logs() as written:
            lines.say("last")
            lines.close()
        assert [line["event"] for line in written] == ["last"]

    run(test)
