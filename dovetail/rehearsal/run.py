"""A whole rehearsal: blocks handed to worker processes piece by piece, results put together in the chain's order.

Handlers run in worker processes alone: one that hangs or ends its process takes nothing else with it. What is judged
how is in ``judging``, what is kept on disk between two runs in ``progress``.
"""

import functools
import logging
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from dovetail.errors import Refused
from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.judging import Judge
from dovetail.rehearsal.migrating import SliceFindings, migrate_slice
from dovetail.workers import Workers
from ledger.settings import FamilyVersion
from processor_sdk.handler import TransactionHandler
from validator.store import StorageFailed, StoreReader

_PIECE_TRANSACTIONS: Final = 2_000
_PIECE_BLOCKS_MAX: Final = 500


class Setup(NamedTuple):
    """What each worker needs to know; passes from process to process. ``handler``: MODULE:HANDLER."""

    store: Path
    handler: str
    family: FamilyVersion
    apply_timeout_ms: int
    differences_max: int


class Span(NamedTuple):
    """Blocks ``first`` to ``last``."""

    first: int
    last: int


def handler_for(named: str, family: str) -> TransactionHandler[Any]:
    """The handler that MODULE:HANDLER names. Raises Refused where it is none of ``family``."""
    from dovetail.commands.processor import make_handlers

    made = make_handlers(named)
    for handler in made:
        if handler.family_name == family:
            return handler
    raise Refused(f"{named} is a handler of the family {made[0].family_name}, not of {family}; check --family")


def rehearse(
    setup: Setup, span: Span, findings: Findings, workers: int, on_piece: Callable[[int, Findings], None]
) -> Findings:
    """Judge the blocks of ``span`` again; ``findings``: of the blocks before it.

    ``on_piece`` is told, in order: the next block, and all that was found in the blocks before it. Raises Refused,
    StorageFailed.
    """
    waiting: deque[tuple[Span, Future[Findings]]] = deque()
    with _working(workers) as pool, closing(_pieces(setup.store, span)) as pieces:
        while True:
            while len(waiting) < 2 * workers and (piece := next(pieces, None)):
                waiting.append((piece, pool.submit(_judge_blocks, setup, piece)))
            if not waiting:
                return findings
            piece, future = waiting[0]
            found = _result(future, f"blocks {piece.first} to {piece.last}")
            waiting.popleft()
            findings = findings.plus(found, setup.differences_max)
            on_piece(piece.last + 1, findings)


def rehearse_migration(
    setup: Setup,
    block_num: int,
    slices: list[tuple[str, ...]],
    workers: int,
    on_slice: Callable[[SliceFindings], None],
) -> None:
    """Migrate the state after block ``block_num``, slice by slice; ``on_slice`` is told of each, in order."""
    with _working(workers) as pool:
        futures = [pool.submit(_migrate_slice, setup, block_num, prefixes) for prefixes in slices]
        for number, future in enumerate(futures):
            on_slice(_result(future, f"slice {number + 1} of {len(slices)} ({', '.join(slices[number])})"))


@contextmanager
def _working(workers: int) -> Iterator[Workers]:
    with Workers(workers) as pool:
        done = False
        try:
            yield pool
            done = True
        finally:
            # What they are at is of no use any more, and a handler that hangs would keep this process.
            for child in () if done else multiprocessing.active_children():
                child.terminate()


def _result(future: "Future[Any]", what: str) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        raise Refused(
            f"the handler ended its process in {what}: nothing of it may call os._exit or crash the interpreter"
        ) from None


def _pieces(store: Path, span: Span) -> Generator[Span, None, None]:
    """Blocks that follow each other, together some transactions: little enough to be seen moving on."""
    reader = StoreReader.open(store)
    try:
        first, transactions = span.first, 0
        for num in range(span.first, span.last + 1):
            block = reader.block(num)
            if block is None:
                raise StorageFailed(f"the store has no block {num}")
            transactions += block.transaction_count
            if transactions >= _PIECE_TRANSACTIONS or num - first + 1 >= _PIECE_BLOCKS_MAX or num == span.last:
                yield Span(first, num)
                reader.refresh()
                first, transactions = num + 1, 0
    finally:
        reader.close()


def _judge_blocks(setup: Setup, piece: Span) -> Findings:
    return _judge(setup).blocks(piece.first, piece.last, setup.differences_max)


def _migrate_slice(setup: Setup, block_num: int, prefixes: tuple[str, ...]) -> SliceFindings:
    return migrate_slice(_judge(setup), block_num, prefixes, setup.differences_max)


@functools.lru_cache(maxsize=1)
def _judge(setup: Setup) -> Judge:
    """The one of this worker process."""
    # What an apply prints or logs, a hundred thousand times, is no part of what it does.
    logging.disable()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lives)
    handler = handler_for(setup.handler, setup.family.name)
    return Judge(StoreReader.open(setup.store), handler, setup.family, setup.apply_timeout_ms)
