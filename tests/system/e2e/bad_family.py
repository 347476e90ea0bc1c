"""A family whose handler does the misdeed that a transaction's payload names.

A misdeed is one wrong thing that a handler may do. ``test_processor_bad_handlers`` has the expected outcome of each. A
second family in this module has no misdeeds.
"""

import asyncio
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha512
from pathlib import Path
from typing import Any, ClassVar

from processor_sdk import AuthorizationException, Context, InternalError, InvalidTransaction, TransactionHandler

FAMILY = "e2e_bad"
HANDLER = "tests.system.e2e.bad_family:BadHandler"
NAMESPACE = sha512(FAMILY.encode()).hexdigest()[:6]
LEAF = NAMESPACE + "1" * 64
"""The declared input and output of every transaction of a test."""

ELSEWHERE = NAMESPACE + "2" * 64
FOREIGN = "abcdef" + "2" * 64
GIBIBYTE = 1024**3
PRINTED_LINES = 500
THREADS = 5

Misdeed = Callable[[Context], object]


class Anything(BaseException):
    """An exception class that does not inherit from Exception."""


class Unprintable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


def _raises(error: BaseException | type[BaseException]) -> Misdeed:
    def misdeed(context: Context) -> None:
        context.set(LEAF, b"never")
        raise error

    return misdeed


def _returns(value: object) -> Misdeed:
    def misdeed(context: Context) -> object:
        context.set(LEAF, b"never")
        return value

    return misdeed


async def _coroutine() -> None:
    """A coroutine that is never awaited."""


def _exhausts_the_stack(context: Context) -> None:
    _exhausts_the_stack(context)


def _loops(_: Context) -> None:
    while True:
        pass


def _sleeps(_: Context) -> None:
    time.sleep(3600)


def _waits_for_nothing(_: Context) -> None:
    threading.Event().wait()


def _catches_everything(_: Context) -> None:
    while True:
        with suppress(BaseException):
            while True:
                pass


def _holds_the_interpreter(_: Context) -> None:
    # One call that lets no other thread run, so this process sends no heartbeat and answers no pings.
    re.match(r"(a+)+$", "a" * 64 + "b")


def _writes(address: str) -> Misdeed:
    return lambda context: context.set(address, b"never")


def _reads(address: str) -> Misdeed:
    return lambda context: context.set(LEAF, context.get(address) or b"never")


def _swallows_refusals(context: Context) -> None:
    with suppress(AuthorizationException):
        context.set(ELSEWHERE, b"never")
    with suppress(Exception):
        context.get(FOREIGN)
    context.set(LEAF, b"never")


def _deletes_outside(context: Context) -> None:
    context.delete(ELSEWHERE)


def _writes_a_text(context: Context) -> None:
    context.set(LEAF, "text")  # type: ignore[call-overload]


def _writes_too_much(context: Context) -> None:
    context.set(LEAF, bytes(5 * 1024 * 1024))


def _reports_too_much(context: Context) -> None:
    context.set(LEAF, b"never")
    for _ in range(5):
        context.add_receipt_data(bytes(1024 * 1024))


def _writes_more_than_a_message(context: Context) -> None:
    context.set(LEAF, bytes(40 * 1024 * 1024))


def _reports_more_than_a_message(context: Context) -> None:
    context.set(LEAF, b"never")
    for _ in range(40):
        context.add_receipt_data(bytes(1024 * 1024))


def _spoils_its_context(context: Context) -> None:
    # The attribute from which the SDK reads the writes.
    context.changes[LEAF] = "text"  # type: ignore[assignment]


def _allocates(context: Context) -> None:
    held = []
    while True:
        held.append(bytearray(GIBIBYTE))


def _prints(context: Context) -> None:
    for number in range(PRINTED_LINES):
        print(f"line {number} of a handler's output")
    sys.stdout.buffer.write(b"\xff\xfe past the text layer\n") if hasattr(sys.stdout, "buffer") else None
    os.write(1, b"past every layer\n")
    context.set(LEAF, b"printed")


def _closes_stdout(context: Context) -> None:
    sys.stdout.close()
    os.close(1)
    context.set(LEAF, b"closed")


def _closes_everything(_: Context) -> None:
    os.closerange(0, 256)


def _kills_itself(_: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _asks_itself_to_end(_: Context) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(3600)


def _breaks_memory(_: Context) -> None:
    ctypes.string_at(0)


def _exits(_: Context) -> None:
    os._exit(0)


def _starts_threads(context: Context) -> None:
    for _ in range(THREADS):
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    context.set(LEAF, b"threads")


def _forks(context: Context) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    context.set(LEAF, b"forked")


def _forks_and_goes_on_twice(context: Context) -> None:
    os.fork()
    context.set(LEAF, b"twice")


def _moves(context: Context) -> None:
    os.chdir("/")
    context.set(LEAF, b"moved")


def _runs_a_loop(context: Context) -> None:
    asyncio.run(_coroutine())
    context.set(LEAF, b"looped")


def _keeps_the_context(context: Context) -> None:
    # The thread writes after the apply has ended.
    begun = threading.Event()

    def later() -> None:
        begun.set()
        for number in range(100_000):
            context.changes[ELSEWHERE] = b"%d" % number

    threading.Thread(target=later, daemon=True).start()
    begun.wait()
    context.changes.clear()
    context.set(LEAF, b"kept")


def _silences_the_log(context: Context) -> None:
    import logging

    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers.clear()
    context.set(LEAF, b"silenced")


def _changes_the_handling_of_signals(context: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context.set(LEAF, b"deaf")


MISDEEDS: dict[str, Misdeed] = {
    "raises an Exception": _raises(ZeroDivisionError("by zero")),
    "raises a BaseException": _raises(Anything("any")),
    "raises SystemExit": _raises(SystemExit(3)),
    "raises KeyboardInterrupt": _raises(KeyboardInterrupt("no key was pressed")),
    "raises RecursionError": _exhausts_the_stack,
    "raises MemoryError": _raises(MemoryError),
    "raises GeneratorExit": _raises(GeneratorExit),
    "raises StopIteration": _raises(StopIteration),
    "raises an unprintable error": _raises(Unprintable()),
    "raises InternalError": _raises(InternalError("not now")),
    "raises a long message": _raises(InvalidTransaction("x" * 1_000_000, bytes(1_000_000))),
    "calls sys.exit": lambda _: sys.exit("enough"),
    "returns rubbish": _returns({"status": "OK"}),
    "returns a refusal": _returns(InvalidTransaction("returned, not raised")),
    "is a coroutine": lambda _: _coroutine(),
    "loops": _loops,
    "sleeps": _sleeps,
    "waits for nothing": _waits_for_nothing,
    "catches everything": _catches_everything,
    "holds the interpreter": _holds_the_interpreter,
    "writes outside": _writes(ELSEWHERE),
    "writes to another family": _writes(FOREIGN),
    "writes nowhere": _writes("no address"),
    "reads outside": _reads(ELSEWHERE),
    "deletes outside": _deletes_outside,
    "swallows refusals": _swallows_refusals,
    "writes a text": _writes_a_text,
    "writes too much": _writes_too_much,
    "reports too much": _reports_too_much,
    "writes more than a message": _writes_more_than_a_message,
    "reports more than a message": _reports_more_than_a_message,
    "spoils its context": _spoils_its_context,
    "allocates": _allocates,
    "prints": _prints,
    "closes stdout": _closes_stdout,
    "closes everything": _closes_everything,
    "kills itself": _kills_itself,
    "asks itself to end": _asks_itself_to_end,
    "breaks memory": _breaks_memory,
    "calls os._exit": _exits,
    "starts threads": _starts_threads,
    "forks": _forks,
    "forks and goes on twice": _forks_and_goes_on_twice,
    "moves": _moves,
    "runs a loop": _runs_a_loop,
    "keeps the context": _keeps_the_context,
    "silences the log": _silences_the_log,
    "is deaf to signals": _changes_the_handling_of_signals,
}


class BadHandler(TransactionHandler[Any]):
    """Does the misdeed that the payload names. With "behaves" it does nothing wrong.

    With "MISDEED while PATH" it does the misdeed only while the file exists, so that a test can mend the handler.
    """

    family_name: ClassVar[str] = FAMILY
    family_version: ClassVar[str] = "1.0"
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Any, context: Context) -> Any:
        name, _, while_there = transaction.payload.decode().partition(" while ")
        if name == "behaves" or (while_there and not Path(while_there).exists()):
            context.set(LEAF, b"behaved")
            return None
        return MISDEEDS[name](context)
