"""Messages between the loop and a child process arrive whole and in order, and neither side blocks."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dovetail.validator.admission.pipe import Ends, Pipe, serve
from tests.dovetail.validator.peers import run

_HELD = 1024 * 1024
_HELD_TWICE = 2 * _HELD
"""A size that exceeds the capacity of two pipes."""


@contextmanager
def _process(ends: Ends, answer: Callable[[bytes], bytes]) -> Iterator[threading.Thread]:
    """The other side, in a thread without an event loop. Ends when the loop's side is closed."""
    thread = threading.Thread(target=serve, args=(ends.requests_in, ends.answers_out, answer))
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
        os.close(ends.requests_in)
        os.close(ends.answers_out)


def test_messages_of_every_size_come_back_whole_and_in_their_order() -> None:
    sizes = [0, 1, 7, 8, 9, 65_536, 3 * _HELD_TWICE, 0, 100, _HELD_TWICE]

    async def test() -> None:
        ends = Ends.new(_HELD)
        answers: list[bytes] = []
        done = asyncio.Event()

        def look() -> None:
            answers.extend(pipe.received())
            if len(answers) == len(sizes):
                done.set()

        with _process(ends, lambda message: message[::-1]):
            pipe = Pipe(asyncio.get_running_loop(), ends.requests_out, ends.answers_in, look)
            for number, size in enumerate(sizes):
                pipe.send(bytes([number]) * size + b"end")
            await done.wait()
            pipe.close()
        assert answers == [b"dne" + bytes([number]) * size for number, size in enumerate(sizes)]

    run(test)


def test_the_process_goes_on_while_nobody_takes_its_answers() -> None:
    """The answers exceed the pipe's capacity. After all requests are sent, the loop does not run for a while."""

    async def test() -> None:
        ends = Ends.new(_HELD)
        count, worked = 12, threading.Semaphore(0)
        taken: list[bytes] = []
        done = asyncio.Event()

        def answer(message: bytes) -> bytes:
            worked.release()
            return bytes(_HELD_TWICE)

        def look() -> None:
            taken.extend(pipe.received())
            if len(taken) == count:
                done.set()

        with _process(ends, answer):
            pipe = Pipe(asyncio.get_running_loop(), ends.requests_out, ends.answers_in, look)
            for _ in range(count):
                pipe.send(b"small")
            for _ in range(count):
                assert worked.acquire(timeout=20)
            assert taken == []
            await done.wait()
            pipe.close()

    run(test)


def test_a_process_that_is_gone_takes_nothing_and_costs_nothing() -> None:
    async def test() -> None:
        ends = Ends.new(_HELD)
        os.close(ends.requests_in)
        os.write(ends.answers_out, b"half")
        os.close(ends.answers_out)
        looks: list[list[bytes]] = []
        looked = asyncio.Event()

        def look() -> None:
            looks.append(list(pipe.received()))
            looked.set()

        pipe = Pipe(asyncio.get_running_loop(), ends.requests_out, ends.answers_in, look)
        pipe.send(bytes(_HELD_TWICE))
        pipe.send(b"again")
        await looked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert looks == [[]]
        assert pipe.ended
        pipe.close()

    run(test)


def test_a_message_that_somebody_failed_with_does_not_come_again() -> None:
    async def test() -> None:
        ends = Ends.new(_HELD)
        taken: list[bytes] = []
        failed, done = asyncio.Event(), asyncio.Event()

        def look() -> None:
            for message in pipe.received():
                if not failed.is_set():
                    failed.set()
                    break
                taken.append(message)
                done.set()

        with _process(ends, lambda message: message):
            pipe = Pipe(asyncio.get_running_loop(), ends.requests_out, ends.answers_in, look)
            pipe.send(b"first")
            await failed.wait()
            pipe.send(b"second")
            await done.wait()
            pipe.close()
        assert taken == [b"second"]

    run(test)
