"""Options that several commands share, with one wording each."""

from pathlib import Path
from typing import Annotated, Final

import typer

WAIT_S_MAX: Final = 3600

Url = Annotated[
    str,
    typer.Option("--url", envvar="DOVETAIL_URL", metavar="URL", help="Where the REST API is."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="DOVETAIL_KEY",
        metavar="NAME|PATH",
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Head = Annotated[str | None, typer.Option("--head", metavar="BLOCK", help="Read as of this block: an id or a number.")]
Count = Annotated[
    int, typer.Option("--count", min=0, metavar="N", help="Show at most N items; 0 for all, page after page.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file with the tables validator, rest_api, processor and limits."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder of the ledger. Default: ~/.dovetail/data."),
]


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they stand."""
    return "\n\n".join(("Examples:", *(f"`{line}`" for line in lines)))
