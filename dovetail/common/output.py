"""Text for people's terminals, and notes on stderr. What commands print on stdout is in ``dovetail.cli.printing``.

Anybody can write to a ledger: text from outside goes through ``printable`` before it reaches a terminal.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TextIO

import typer


def printable(value: object) -> str:
    """``value`` as text that cannot control a terminal: each unprintable character becomes an escape."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def printable_lines(text: str) -> str:
    """``printable`` for each line of ``text``; only a line feed ends a line."""
    return "\n".join(printable(line) for line in text.split("\n"))


def note(text: str) -> None:
    """Print a line for people on stderr, apart from what scripts read on stdout."""
    note_on(sys.stderr, text)


def note_on(stream: TextIO | None, text: str) -> None:
    """Print a line on ``stream``. The process goes on if the stream is closed or has lost its reader."""
    if stream is None:
        # The process was started with this stream closed; typer would take None for stdout.
        return
    try:
        typer.echo(text, stream)
    except BrokenPipeError:
        ignore_stream(stream)


def ignore_stream(stream: TextIO) -> None:
    """Discard what ``stream`` still holds and all that is written to it from now on, because its reader is gone."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def program() -> str:
    """The command that starts this program from another terminal: its bare name if PATH finds the same file."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dovetail"
    found = shutil.which(script.name)
    return script.name if found and Path(found).samefile(script) else shlex.quote(str(script))
