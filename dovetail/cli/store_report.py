"""Prints the findings of ``store check`` for people, and formats sizes."""

from pathlib import Path
from typing import Final

import typer

from dovetail.cli.printing import print_table
from dovetail.common.home import shown
from dovetail.common.output import printable
from dovetail.validator.maintenance.inspection import Inspection

_MIB: Final = 1024 * 1024


def print_check(seen: Inspection, path: Path) -> None:
    """Print a table of the store's tables, and a line for each other fact."""
    print_table(
        ("TABLE", "ENTRIES", "BYTES", "PAGES, BYTES", "DAMAGED"),
        [
            (name, table.entries, table.data_bytes, table.page_bytes, table.damaged)
            for name, table in seen.tables.items()
        ],
    )
    typer.echo(f"block {seen.head_num}: {seen.head_id}")
    if seen.states_from_block:
        typer.echo(f"states before block {seen.states_from_block} are pruned")
    typer.echo(
        f"file {mib(seen.file_bytes)}: {mib(seen.live_bytes)} in use, {mib(seen.free_bytes)} free in it; the map has"
        f" room for {mib(seen.map_bytes)}"
    )
    growth = per_million(seen)
    if growth is not None:
        typer.echo(f"{mib(growth)} a million transactions, as it is in use now")
    typer.echo("pages walked" if seen.pages_walked else "pages not walked: a validator wrote meanwhile")
    for fault in seen.faults:
        typer.echo(printable(f"pages: {fault}"))
    for name in seen.leftovers:
        typer.echo(f"{shown(path / name)} was left by a killed run; the next run removes it")
    for name in seen.put_aside:
        typer.echo(f"{shown(path / name)} is a damaged file that a repair kept")
    if seen.sound:
        typer.echo("sound, as far as this check goes: dovetail chain verify is thorough")


def per_million(seen: Inspection) -> int | None:
    """Bytes in use per million transactions; None without transactions."""
    return seen.live_bytes * 1_000_000 // seen.transactions if seen.transactions else None


def mib(data_bytes: int) -> str:
    """A size in MiB, for people."""
    return f"{data_bytes / _MIB:,.1f} MiB"
