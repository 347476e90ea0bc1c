"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

WAIT_S_MAX: Final = 3600

T = TypeVar("T", str, None, list[str])


def not_empty(value: T) -> T:
    """A parameter's callback: an empty name or id is wrong usage, such as a script's unset variable."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise typer.BadParameter("it is empty")
    return value


def some_path(text: str) -> Path:
    """A parameter's parser: empty text is no path. Path would make it the current folder."""
    if not text:
        raise typer.BadParameter("it is empty")
    return Path(text)


Url = Annotated[
    str,
    typer.Option("--url", envvar="DOVETAIL_URL", metavar="URL", callback=not_empty, help="URL of the REST API."),
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
    typer.Option(
        "--wait",
        min=0,
        max=WAIT_S_MAX,
        metavar="SECONDS",
        help="Wait up to this long for the outcome: exit code 0 if committed, else 1 with the reason.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=some_path,
        help="Write the signed batch to FILE, in the format of POST /batches, and its id to stdout, instead of"
        " submitting it. With - the batch goes to stdout and its id to stderr.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Head = Annotated[
    str | None,
    typer.Option("--head", metavar="BLOCK", callback=not_empty, help="Read as of this block: an id or a number."),
]
Count = Annotated[
    int, typer.Option("--count", min=0, metavar="N", help="Show at most N items; 0 for all, page after page.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=some_path,
        help="TOML file with the tables validator, rest_api, processor and limits;"
        " every key is in configuration.md, in docs/reference.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", parser=some_path, help="Folder of the ledger. Default: ~/.dovetail/data."
    ),
]
Processes = Annotated[
    int,
    typer.Option("--processes", min=0, max=256, metavar="N", help="Processes that check signatures; 0: one per core."),
]
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
    Path | None,
    typer.Option(
        "--connection-key",
        metavar="FILE",
        parser=some_path,
        help="This process's secret connection key, made by keygen. Default: none.",
    ),
]
ValidatorKey = Annotated[
    Path | None,
    typer.Option(
        "--validator-key",
        metavar="FILE",
        parser=some_path,
        help="The validator's public connection key, if the validator asks for keys. Default: none.",
    ),
]


def check_watch(watch: bool, as_json: bool) -> None:
    """Raise BadParameter if ``--watch`` is given without a terminal or with ``--json``."""
    if watch and (as_json or not sys.stdout.isatty()):
        raise typer.BadParameter("--watch is for a terminal; a script repeats the command, and looks at the exit code")


def examples(*lines: str) -> str:
    """The end of a command's help: commands that can be typed as they are."""
    return "\n\n".join(("Examples:", *(f"`{line}`" for line in lines)))
