"""A whole rehearsal: gives pieces of history to worker processes and adds up the results in the chain's order.

Handlers run only in worker processes, so that a handler that hangs or exits harms nothing else. ``rehearser`` applies
the handler; ``progress`` keeps results on disk between two runs.
"""

import functools
import logging
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from dovetail.common.errors import Refused
from dovetail.common.workers import Workers
from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from dovetail.node.handlers import make_handlers
from dovetail.rehearsal.differences import Findings
from dovetail.rehearsal.history import Span, required_block
from dovetail.rehearsal.migrating import SliceFindings, migrate_slice
from dovetail.rehearsal.rehearser import Rehearser
from dovetail.validator.store import StoreReader
from processor_sdk.handler import TransactionHandler

P = ParamSpec("P")
T = TypeVar("T")

PIECE_TRANSACTIONS: Final = 250
"""The size of a piece for one worker. After Ctrl-C each worker repeats at most one piece."""


class Setup(NamedTuple):
    """The settings of the workers, passed to their processes. ``handler``: MODULE:HANDLER."""

    store: Path
    handler: str
    family: FamilyVersion
    apply_timeout_ms: int
    differences_max: int
    limits: Limits


def handler_for(named: str, family: str) -> TransactionHandler[Any]:
    """The handler named MODULE:HANDLER. Raises Refused if it is not of ``family``."""
    made = make_handlers(named)
    for handler in made:
        if handler.family_name == family:
            return handler
    raise Refused(f"{named} is a handler of the family {made[0].family_name}, not of {family}; check --family")


def rehearse(
    setup: Setup,
    store: StoreReader,
    span: Span,
    begin: int,
    findings: Findings,
    workers: int,
    on_piece: Callable[[int, Findings], None],
) -> Findings:
    """Rehearse the transactions of ``span`` from number ``begin`` on. ``findings``: those before ``begin``.

    ``on_piece`` is called after each piece, in order, with the next number and all findings before that number. Raises
    Refused and StorageFailed.
    """
    waiting: deque[tuple[Span, Future[Findings]]] = deque()
    coming = pieces(store, span, begin)
    with _working(workers) as pool:
        while True:
            while len(waiting) < 2 * workers and (piece := next(coming, None)):
                waiting.append((piece, _submit(pool, _rehearse_span, setup, piece)))
            if not waiting:
                return findings
            piece, future = waiting[0]
            try:
                found = future.result()
            except BrokenProcessPool:
                raise _ended(_place(_lost(waiting, workers)), workers) from None
            waiting.popleft()
            findings = findings.plus(found, setup.differences_max)
            on_piece(piece.end, findings)


def rehearse_migration(
    setup: Setup, block_num: int, slices: list[tuple[str, ...]], workers: int, on_slice: Callable[[SliceFindings], None]
) -> None:
    """Rehearse the migration of the state after block ``block_num``. Call ``on_slice`` for each slice, in order."""
    with _working(workers) as pool:
        futures = [(prefixes, _submit(pool, _migrate_slice, setup, block_num, prefixes)) for prefixes in slices]
        for number, (_, future) in enumerate(futures):
            try:
                found = future.result()
            except BrokenProcessPool:
                lost = " or ".join(", ".join(prefixes) for prefixes in _lost(futures[number:], workers))
                raise _ended(f"the slice under {lost}", workers) from None
            on_slice(found)


@contextmanager
def _working(workers: int) -> Iterator[Workers]:
    with Workers(workers) as pool:
        done = False
        try:
            yield pool
            done = True
        finally:
            # Unfinished work is useless now, and a handler that hangs would keep this process alive.
            for child in () if done else multiprocessing.active_children():
                child.terminate()


def _submit(pool: Workers, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> "Future[T]":
    """Submit ``work``. If a worker has ended, return a failed future, so that earlier results are reported first."""
    try:
        return pool.submit(work, *arguments, **named)
    except BrokenProcessPool as error:
        failed: Future[T] = Future()
        failed.set_exception(error)
        return failed


def _lost(handed_out: Iterable[tuple[T, "Future[Any]"]], workers: int) -> list[T]:
    """The work that a worker may have had when it ended: the first items without a result, one for each worker."""
    lost = (what for what, future in handed_out if isinstance(future.exception(), BrokenProcessPool))
    return list(islice(lost, workers))


def _ended(where: str, workers: int) -> Refused:
    hint = "; --workers 1 tells more exactly where" if workers > 1 else ""
    return Refused(
        f"the handler ended its process in {where}: nothing of it may call os._exit or crash the interpreter{hint}"
    )


def pieces(store: StoreReader, span: Span, begin: int) -> Iterator[Span]:
    """``span`` from transaction number ``begin`` on, in pieces small enough for a progress bar."""
    first, first_block = begin, -1
    for num in range(span.first_block, span.last_block + 1):
        block = required_block(store, num)
        while first < block.transaction_end:
            if first >= block.first_transaction:
                first_block = num
            end = min(first + PIECE_TRANSACTIONS, span.end)
            if end > block.transaction_end:
                break
            yield Span(first_block, num, first, end)
            store.refresh()
            first = end


def _place(lost: list[Span]) -> str:
    first, last = lost[0], lost[-1]
    if first.first_block == last.last_block:
        return f"block {first.first_block}, in one of the chain's transactions {first.first} to {last.end - 1}"
    return f"blocks {first.first_block} to {last.last_block}"


def _rehearse_span(setup: Setup, span: Span) -> Findings:
    return _rehearser(setup).span(span, setup.differences_max)


def _migrate_slice(setup: Setup, block_num: int, prefixes: tuple[str, ...]) -> SliceFindings:
    return migrate_slice(_rehearser(setup), block_num, prefixes, setup.differences_max)


@functools.lru_cache(maxsize=1)
def _rehearser(setup: Setup) -> Rehearser:
    """The Rehearser of this worker process."""
    # Output and log records of a hundred thousand applies are of no use.
    logging.disable()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lives)
    handler = handler_for(setup.handler, setup.family.name)
    return Rehearser(StoreReader.open(setup.store), handler, setup.family, setup.apply_timeout_ms, setup.limits)
