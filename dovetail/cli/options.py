"""Options that several commands share, with one wording each."""

from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

WAIT_S_MAX: Final = 3600

T = TypeVar("T", str, None, list[str])


def not_empty(value: T) -> T:
    """A parameter's callback: a name or an id that is the empty text is wrong usage (a script's unset variable)."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise typer.BadParameter("it is empty")
    return value


def some_path(text: str) -> Path:
    """A parameter's parser: the empty text names no path, and must not come to mean the current folder."""
    if not text:
        raise typer.BadParameter("it is empty")
    return Path(text)


Url = Annotated[
    str,
    typer.Option("--url", envvar="DOVETAIL_URL", metavar="URL", callback=not_empty, help="Where the REST API is."),
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
        help="Wait so long for the verdict: exit code 0 when committed, 1 with the reason when not.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        parser=some_path,
        help="Write the signed batch there, as POST /batches takes it, and its id here, instead of submitting it. "
        "With - the batch goes to stdout and its id to stderr.",
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


Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure",
        help="Listen without keys on an address that is not loopback: whoever reaches it can judge transactions.",
        show_default=False,
    ),
]
ConnectionKey = Annotated[
    Path | None,
    typer.Option(
        "--connection-key",
        metavar="FILE",
        parser=some_path,
        help="Its own secret connection key, as keygen makes it. Default: none.",
    ),
]
ValidatorKey = Annotated[
    Path | None,
    typer.Option(
        "--validator-key",
        metavar="FILE",
        parser=some_path,
        help="The validator's public connection key, where that asks for keys. Default: none.",
    ),
]


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they stand."""
    return "\n\n".join(("Examples:", *(f"`{line}`" for line in lines)))
