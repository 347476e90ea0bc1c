"""Turns: who waits is called in order, and the event loop's other callbacks come in between."""

import asyncio
import itertools

from dovetail.rest_api.request import turns
from dovetail.rest_api.request.turns import Turns


def test_others_have_their_turn_between() -> None:
    async def test() -> list[str]:
        sharing, called = Turns(), list[str]()
        others = asyncio.Event()

        def busy(name: str, left: int) -> None:
            called.append(name)
            end = asyncio.get_running_loop().time() + turns.TURN_S
            while asyncio.get_running_loop().time() < end:
                pass
            if left:
                sharing.add(lambda: busy(name, left - 1))
            elif name == "b":
                others.set()

        def other() -> None:
            called.append("other")
            if not others.is_set():
                asyncio.get_running_loop().call_soon(other)

        sharing.add(lambda: busy("a", 2))
        sharing.add(lambda: busy("b", 2))
        other()
        await others.wait()
        return called

    called = asyncio.run(test())
    assert [name for name in called if name != "other"] == ["a", "b"] * 3
    assert all("other" in pair for pair in itertools.pairwise(called))


def test_one_that_fails_does_not_stop_the_rest() -> None:
    async def test() -> None:
        sharing, done = Turns(), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)

        def fail() -> None:
            raise RuntimeError

        sharing.add(fail)
        sharing.add(done.set)
        await asyncio.wait_for(done.wait(), 30)

    asyncio.run(test())
