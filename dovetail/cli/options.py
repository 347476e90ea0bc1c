"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

WAIT_S_MAX: Final = 3600

T = TypeVar("T", str, None, list[str])


def not_empty(value: T) -> T:
    """A parameter's callback that refuses an empty name or id, for example from a script's unset variable."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise typer.BadParameter("it is empty")
    return value


def some_path(text: str) -> Path:
    """A parameter's parser that refuses empty text, which ``Path`` would take for the current folder."""
    if not text:
        raise typer.BadParameter("it is empty")
    return Path(text)


def text_option(name: str, metavar: str, help: str) -> Any:
    """An option whose value must not be empty."""
    return typer.Option(name, metavar=metavar, callback=not_empty, help=help)


def text_argument(metavar: str, help: str) -> Any:
    """An argument whose value must not be empty."""
    return typer.Argument(metavar=metavar, callback=not_empty, help=help)


def path_option(name: str, help: str, metavar: str = "FILE") -> Any:
    """An option for a file or a folder."""
    return typer.Option(name, metavar=metavar, parser=some_path, help=help)


def number_option(name: str, least: float, most: float | None, help: str, metavar: str = "N") -> Any:
    """An option for a number from ``least`` to ``most``."""
    return typer.Option(name, min=least, max=most, metavar=metavar, help=help)


Url = Annotated[
    str, typer.Option("--url", envvar="DOVETAIL_URL", metavar="URL", callback=not_empty, help="URL of the REST API.")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="DOVETAIL_KEY",
        metavar="NAME|PATH",
        callback=not_empty,
        help="Key to sign with: a name under ~/.dovetail/keys, or a file. Default: your login name.",
    ),
]
Wait = Annotated[
    int | None,
    number_option(
        "--wait",
        0,
        WAIT_S_MAX,
        "Wait up to this long for the outcome: exit code 0 if committed, else 1 with the reason.",
        "SECONDS",
    ),
]
Output = Annotated[
    Path | None,
    path_option(
        "--output",
        "Write the signed batch to FILE, in the format of POST /batches, and its id to stdout, instead of"
        " submitting it. With - the batch goes to stdout and its id to stderr.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Head = Annotated[str | None, text_option("--head", "BLOCK", "Read as of this block: an id or a number.")]
Count = Annotated[int, number_option("--count", 0, None, "Show at most N items; 0 for all, page after page.")]
ConfigFile = Annotated[
    Path | None,
    path_option(
        "--config",
        "TOML file with the tables validator, rest_api, processor and limits;"
        " every key is in configuration.md, in docs/reference.",
    ),
]
DataDir = Annotated[Path | None, path_option("--data-dir", "Folder of the ledger. Default: ~/.dovetail/data.", "DIR")]
Processes = Annotated[int, number_option("--processes", 0, 256, "Processes that check signatures; 0: one per core.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show the answer again every second, until Ctrl-C.")]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure",
        help="Listen without keys on an address that is not loopback: all who reach it can execute transactions.",
        show_default=False,
    ),
]
ConnectionKey = Annotated[
    Path | None, path_option("--connection-key", "This process's secret connection key, made by keygen. Default: none.")
]
ValidatorKey = Annotated[
    Path | None,
    path_option(
        "--validator-key", "The validator's public connection key, if the validator asks for keys. Default: none."
    ),
]


def check_watch(watch: bool, as_json: bool) -> None:
    """Raise BadParameter if ``--watch`` is given without a terminal or with ``--json``."""
    if watch and (as_json or not sys.stdout.isatty()):
        raise typer.BadParameter("--watch is for a terminal; a script repeats the command, and looks at the exit code")


def examples(*lines: str) -> str:
    """The end of a command's help: commands that can be typed as they are."""
    return "\n\n".join(("Examples:", *(f"`{line}`" for line in lines)))
