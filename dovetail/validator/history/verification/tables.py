"""Checks the tables beside the chain: pending batches and remembered INVALID ones.

``chain`` checks the chain and its indexes. These tables are covered by checksums and their order only.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final

import msgspec

from dovetail.validator.history.verification.batches import CheckedBatch
from dovetail.validator.history.verification.findings import DROP_PENDING, DROP_QUEUE, Finding, Findings, shown
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.history.verification.workers import Checkers, Entry
from dovetail.validator.store import StoreReader, records
from dovetail.validator.store.records import FORMAT_KEY, NUMBER_BYTES, PRUNED_KEY, QUEUE_KEY, TABLES

_ID_BYTES: Final = 64
_PIECE_BATCHES: Final = 64


def check_tables(reader: StoreReader, checkers: Checkers, findings: Findings) -> None:
    """Check the tables in the reader's snapshot. Raises CheckerDied."""
    for check in (_layout, _pending, _invalid, _invalid_transactions):
        try:
            check(reader, checkers, findings.add)
        except GARBLED as error:
            findings.add(Finding(None, "table", check.__name__.strip("_"), "a readable table", shown(error)))


def _layout(reader: StoreReader, _: Checkers, add: Callable[[Finding], None]) -> None:
    for table in sorted({*reader.tables()} - {name.encode() for name in TABLES}):
        add(Finding(None, "table", f"table {shown(table)}", "no such table", "one"))
    for name, record in reader.raw_entries("meta"):
        if name == QUEUE_KEY:
            if records.opened("meta", name, record) is None:
                where = f"meta {shown(name)}"
                add(Finding(None, "meta", where, "the bytes that were written", shown(record), DROP_QUEUE))
        elif name not in (FORMAT_KEY, PRUNED_KEY):
            add(Finding(None, "meta", f"meta {shown(name)}", "no such entry", shown(record)))


def _pending(reader: StoreReader, checkers: Checkers, add: Callable[[Finding], None]) -> None:
    arrivals: list[str] = []
    checks: list[Future[list[CheckedBatch]]] = []
    piece: list[Entry] = []
    for name, record in reader.raw_entries("pending"):
        arrivals.append(str(int.from_bytes(name, "big")))
        raw = records.opened("pending", name, record) or b""
        if not raw:
            where = f"pending entry {name.hex()}"
            add(Finding(None, "pending", where, "the bytes that were written", shown(record), DROP_PENDING))
        piece.append((raw, None))
        if len(piece) >= _PIECE_BATCHES:
            checks.append(checkers.check(piece))
            piece = []
    checks.append(checkers.check(piece))
    checked = [batch for check in checks for batch in check.result()]
    for arrival, batch in zip(arrivals, checked, strict=True):
        where = f"pending batch, arrival {arrival}"
        for fault in batch.faults:
            add(Finding(None, "pending", where, fault.expected, f"{fault.what}: {fault.found}", DROP_PENDING))
        if batch.migrates:
            add(Finding(None, "pending", where, "a client's batch", "a migration", DROP_PENDING))
        if batch.verified is not None and reader.batch_number(batch.verified.id) is not None:
            add(Finding(None, "pending", where, "a batch that is in no block", "one that is", DROP_PENDING))


def _invalid(reader: StoreReader, _: Checkers, add: Callable[[Finding], None]) -> None:
    for where, name, record in _remembered(reader, "invalid", add):
        try:
            batch_id = records.decode_invalid(record).batch_id
        except (msgspec.MsgspecError, *GARBLED) as error:
            add(Finding(None, "invalid", where, "what is remembered of an INVALID batch", shown(error)))
            continue
        if batch_id != name.hex():
            add(Finding(None, "invalid", where, f"batch {name.hex()}", shown(batch_id)))


def _invalid_transactions(reader: StoreReader, _: Checkers, add: Callable[[Finding], None]) -> None:
    for where, _name, record in _remembered(reader, "invalid_transactions", add):
        if len(record) != NUMBER_BYTES:
            add(Finding(None, "invalid_transactions", where, "a number alone", shown(record)))


def _remembered(reader: StoreReader, table: str, add: Callable[[Finding], None]) -> Iterator[tuple[str, bytes, bytes]]:
    """Place, id and record of each sound entry.

    Checks that each entry has exactly one entry in the order table, and the reverse.
    """
    order: dict[bytes, bytes | None] = {}
    for place, record in reader.raw_entries(f"{table}_order"):
        order[place] = records.opened(f"{table}_order", place, record)
        if order[place] is None:
            where = f"{table}_order {place.hex()}"
            add(Finding(None, table, where, "the bytes that were written", shown(record)))
    entries = 0
    for name, record in reader.raw_entries(table):
        entries += 1
        where = f"{table} {name.hex()}"
        if len(name) != _ID_BYTES:
            add(Finding(None, table, where, f"an id of {_ID_BYTES} bytes as its key", f"{len(name)} bytes"))
        content = records.opened(table, name, record)
        if content is None:
            add(Finding(None, table, where, "the bytes that were written", shown(record)))
            continue
        named = order.get(content[:NUMBER_BYTES])
        if named != name:
            add(Finding(None, table, where, "its place in their order", shown(named)))
        yield where, name, content
    if len(order) != entries:
        add(Finding(None, table, f"table {table}_order", f"{entries} entries", str(len(order))))
