"""Prints the answers of commands: tables, trees and progress bars for people, JSON for scripts."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dovetail.common.errors import Refused
from dovetail.common.output import printable, printable_lines

WATCH_S: Final = 1.0

_TABLE_COLUMNS: Final = 20_000
"""A width that no row reaches. In a narrower console rich would shorten the columns."""
_SHORT_CHARACTERS: Final = 16


def short(text: object) -> str:
    """The beginning of a long hex value, for columns that nobody copies from."""
    shown = printable(text)
    return shown if len(shown) <= _SHORT_CHARACTERS else f"{shown[:_SHORT_CHARACTERS]}…"


def print_json(value: object, *, err: bool = False) -> None:
    """Print one JSON document on one line; with ``err`` on stderr."""
    typer.echo(json.dumps(value), err=err)


def print_json_array(values: Iterable[object]) -> None:
    """Print one JSON array, an item a line, while the items arrive."""
    separator = "["
    for value in values:
        typer.echo(separator + json.dumps(value), nl=False)
        separator = ",\n "
    typer.echo("[]" if separator == "[" else "]")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as wide as its content, so that every id can be copied whole; a narrow terminal wraps it."""
    table = make_table(headings, rows)
    for column in table.columns:
        column.no_wrap = True
    console = Console(width=_TABLE_COLUMNS, highlight=False)
    with console.capture() as rendered:
        console.print(table)
    # rich pads the last column too.
    typer.echo("\n".join(line.rstrip() for line in rendered.get().split("\n")), nl=False)


def make_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table for ``watch``: cells wrap if the terminal is narrow."""
    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def watch(look: Callable[[], RenderableType]) -> None:
    """Show the result of ``look`` every second, in place of the former one, until Ctrl-C.

    If ``look`` raises Refused, the reason is shown instead, and ``look`` is called again a second later.
    """
    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as live:
        try:
            while True:
                try:
                    shown = Group(look(), "", "Ctrl-C ends this")
                except Refused as refused:
                    shown = Group(Text(printable_lines(f"{refused}; trying again, Ctrl-C ends this")))
                live.update(shown, refresh=True)
                # The REST API pushes no changes.
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return


def print_tree(value: Any, depth: int = 0) -> None:
    """Print objects and arrays as indented ``name: value`` lines."""
    indent = "  " * depth
    entries = value.items() if isinstance(value, dict) else ((None, entry) for entry in value)
    for name, entry in entries:
        label = "-" if name is None else f"{printable(name)}:"
        if isinstance(entry, (dict, list)) and entry:
            typer.echo(f"{indent}{label}")
            print_tree(entry, depth + 1)
        else:
            typer.echo(f"{indent}{label} {printable(entry) if isinstance(entry, str) else json.dumps(entry)}")


@contextmanager
def progress_bar(unit: str) -> Iterator[Progress]:
    """A progress bar on stderr, if that is a terminal; ``unit``: what its tasks count.

    Its tasks have a field ``words`` for further text. ``refresh`` draws the bar.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}  {{task.fields[words]}}  left:", markup=False),
        TimeRemainingColumn(),
    )
    # No refreshing thread: it would compete with the work.
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as bar:
        yield bar
