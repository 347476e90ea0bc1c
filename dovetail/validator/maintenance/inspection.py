"""Inspects a store's file: the contents and size of each table, free pages, and records with wrong checksums.

Compares no records with each other: that is verification's part.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.history.verification.pages import check_pages
from dovetail.validator.maintenance.child import OnStep, Step
from dovetail.validator.maintenance.staging import leftovers, put_aside
from dovetail.validator.store import StoreReader, records
from dovetail.validator.store.length import DATA
from dovetail.validator.store.records import FORMAT_KEY, TABLES
from dovetail.validator.store.snapshot import shown_key

_STEP_ENTRIES: Final = 10_000
_META_PAGES: Final = 2


class TableFigures(NamedTuple):
    """``data_bytes``: size of keys and records; ``page_bytes``: size of their pages; ``damaged``: damaged entries."""

    entries: int
    data_bytes: int
    page_bytes: int
    damaged: int


class Inspection(NamedTuple):
    """Sizes in bytes. ``free_bytes``: pages that are reused before the file grows.

    ``pages_walked``: False if a validator wrote meanwhile. ``faults``: faults of the page structure, in words.
    """

    head_num: int
    head_id: str
    state_root_hash: str
    transactions: int
    states_from_block: int
    file_bytes: int
    used_bytes: int
    free_bytes: int
    map_bytes: int
    readers: int
    tables: dict[str, TableFigures]
    pages_walked: bool
    faults: list[str]
    leftovers: list[str]
    put_aside: list[str]

    @property
    def sound(self) -> bool:
        return not self.faults and not any(table.damaged for table in self.tables.values())

    @property
    def live_bytes(self) -> int:
        return self.used_bytes - self.free_bytes


class Damage(NamedTuple):
    """The number of damaged records, and the first of them, in words."""

    records: int
    first: str

    def __str__(self) -> str:
        return f"{self.records} records are not what was written, the first is {self.first}"


def damage_of(reader: StoreReader, on_step: OnStep) -> Damage:
    """Compare every record with its checksum. Raises StorageFailed."""
    damaged, first = 0, ""
    for table, name, _, is_damaged in _all_records(reader, on_step, "comparing checksums, entries"):
        if is_damaged:
            first = first or f"entry {shown_key(name)} of the table {table}"
            damaged += 1
    return Damage(damaged, first)


def _all_records(reader: StoreReader, on_step: OnStep, title: str) -> Iterator[tuple[str, bytes, bytes, bool]]:
    """Table, key and record of every entry, and whether it is damaged."""
    total = sum(map(reader.count, TABLES))
    done = 0
    for table in TABLES:
        for name, record in reader.raw_entries(table):
            # The record of the format has no checksum.
            yield table, name, record, name != FORMAT_KEY and records.opened(table, name, record) is None
            done += 1
            if done % _STEP_ENTRIES == 0:
                on_step(Step(title, done, total))


def inspect_store(on_step: OnStep, store: Path) -> Inspection:
    """Inspect the store in a folder; a validator may run meanwhile. Raises StorageFailed."""
    with closing(StoreReader.open(store)) as reader:
        file = reader.file()
        data_bytes, damaged = Counter[str](), Counter[str]()
        for table, name, record, is_damaged in _all_records(reader, on_step, "reading, entries"):
            data_bytes[table] += len(name) + len(record)
            damaged[table] += is_damaged
        pages = {table: sum(reader.size(table)) for table in TABLES}
        live_pages = sum(pages.values())
        tables = {
            name: TableFigures(reader.count(name), data_bytes[name], pages[name] * file.page_bytes, damaged[name])
            for name in TABLES
        }
        total = sum(figures.entries for figures in tables.values())
        on_step(Step("walking pages, entries", total, total))
        findings = Findings()
        walked = check_pages(reader, store, findings)
        head = reader.head
        free_pages = file.used_pages - live_pages - file.main_pages - _META_PAGES
        return Inspection(
            head.num if head else -1,
            head.id if head else "",
            head.state_root if head else "",
            head.transaction_end if head else 0,
            reader.pruned.states_from,
            (store / DATA).stat().st_size,
            file.used_pages * file.page_bytes,
            max(0, free_pages) * file.page_bytes,
            file.map_bytes,
            file.readers,
            tables,
            walked,
            [finding.found for finding in findings.kept],
            [path.name for path in leftovers(store)],
            [path.name for path in put_aside(store)],
        )
