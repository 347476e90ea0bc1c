"""What commands print: tables and indented text for people, JSON for scripts. Nothing here asks a server.

Ledger data is anybody's: whatever came from outside goes through ``printable`` before it reaches a terminal.
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer

from dovetail.common.errors import Refused

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

WATCH_S: Final = 1.0

_TABLE_COLUMNS: Final = 20_000
"""More than any row has: where there are too few, the short columns are the first to go."""
_SHORT_CHARACTERS: Final = 16


def printable(value: object) -> str:
    """``value`` as text in which nothing can steer a terminal: what is not printable stands as an escape."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def printable_lines(text: str) -> str:
    """``printable`` for what may have lines: they stay, and nothing but a line feed ends one."""
    return "\n".join(printable(line) for line in text.split("\n"))


def short(text: object) -> str:
    """The beginning of a long hex value, for tables in which it is not the column to copy from."""
    shown = printable(text)
    return shown if len(shown) <= _SHORT_CHARACTERS else f"{shown[:_SHORT_CHARACTERS]}…"


def print_json(value: object, *, err: bool = False) -> None:
    """One JSON document, on one line; ``err``: on stderr."""
    typer.echo(json.dumps(value), err=err)


def print_json_array(values: Iterable[object]) -> None:
    """One JSON array, an item a line, printed as the items come."""
    separator = "["
    for value in values:
        typer.echo(separator + json.dumps(value), nl=False)
        separator = ",\n "
    typer.echo("[]" if separator == "[" else "]")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table as wide as its content: a cut id cannot be copied, so a narrow terminal wraps instead."""
    from rich.console import Console

    table = make_table(headings, rows)
    for column in table.columns:
        column.no_wrap = True
    console = Console(width=_TABLE_COLUMNS, highlight=False)
    with console.capture() as rendered:
        console.print(table)
    # The last column too is padded to its width.
    typer.echo("\n".join(line.rstrip() for line in rendered.get().split("\n")), nl=False)


def make_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> "Table":
    """The same for a screen that is drawn again and again: cells wrap where it is narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def watch(look: Callable[[], "RenderableType"]) -> None:
    """Show what ``look`` gives, every second in place of the one before; Ctrl-C ends it.

    Where it raises Refused, that is shown instead: a node that does not answer is waited for.
    """
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="crop") as live:
        try:
            while True:
                try:
                    shown = Group(look(), "", "Ctrl-C ends this")
                except Refused as refused:
                    shown = Group(Text(printable_lines(f"{refused}; trying again, Ctrl-C ends this")))
                live.update(shown, refresh=True)
                # The REST API tells of no changes: it is asked again.
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return


def print_tree(value: Any, depth: int = 0) -> None:
    """Objects and arrays as indented ``name: value`` lines."""
    indent = "  " * depth
    entries = value.items() if isinstance(value, dict) else ((None, entry) for entry in value)
    for name, entry in entries:
        label = "-" if name is None else f"{printable(name)}:"
        if isinstance(entry, (dict, list)) and entry:
            typer.echo(f"{indent}{label}")
            print_tree(entry, depth + 1)
        else:
            typer.echo(f"{indent}{label} {_scalar(entry)}")


@contextmanager
def progress_bar(unit: str) -> Iterator["Progress"]:
    """A bar for long work on stderr, where that is a terminal; ``unit``: what its tasks count.

    Its tasks have a field ``words``, what else is to be said; ``refresh`` shows what was changed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}  {{task.fields[words]}}  left:", markup=False),
        TimeRemainingColumn(),
    )
    # A thread that drew it would take turns with the work.
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as bar:
        yield bar


def note(text: str) -> None:
    """A remark for people, on stderr: never in the way of a script that reads stdout, nor of one that reads nothing."""
    say_on(sys.stderr, text)


def say_on(stream: TextIO | None, text: str) -> None:
    """Say a line there; where it is closed, or nobody reads it any more, the process goes on all the same."""
    if stream is None:
        # Whoever started this closed it. To click it would mean stdout.
        return
    try:
        typer.echo(text, stream)
    except BrokenPipeError:
        unread(stream)


def unread(stream: TextIO) -> None:
    """Nobody reads ``stream`` any more: what it still holds, and all that is said there from now on, is for nobody."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def program() -> str:
    """How to start this program from another terminal: its bare name only where that finds it."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dovetail"
    found = shutil.which(script.name)
    return script.name if found and Path(found).samefile(script) else shlex.quote(str(script))


def _scalar(value: object) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value)
