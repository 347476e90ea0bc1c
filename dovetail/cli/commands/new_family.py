"""``new-family``: the beginning of a transaction family. What it writes is in ``dovetail.cli.scaffold``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.options import Json, examples, some_path
from dovetail.cli.scaffold import Encoding, check_name, render, write_project
from dovetail.common.output import print_json, printable, program


def new_family(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the package and the family: lower-case letters, digits and '_'.")
    ],
    encoding: Annotated[
        Encoding, typer.Option("--encoding", help="How payloads and state entries are encoded.")
    ] = Encoding.CBOR,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="PATH", parser=some_path, help="A folder that is new or empty. Default: ./NAME."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a new transaction family: handler, payload, client, tests and unit file, as a project that works.

    Its tests pass as written; `dovetail up --family NAME.handler:Handler`, from its folder, runs it.
    """
    check_name(name)
    target = (folder or Path(name)).expanduser()
    files = render(name, encoding)
    write_project(target.absolute(), files)
    handler = f"{name}.handler:Handler"
    if as_json:
        print_json({"folder": str(target.absolute()), "handler": handler, "files": sorted(files)})
        return
    typer.echo(f"wrote the family {name} to {printable(target)}: {len(files)} files; its README.md says what they are")
    for line in (
        f"cd {shlex.quote(str(target))}",
        "pip install -e '.[test]'",
        "pytest",
        f"{program()} up --family {handler}",
        f"python -m {name} claim apples   (in a second terminal)",
    ):
        typer.echo(f"next   {printable(line)}")


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        "new-family",
        epilog=examples(
            "dovetail new-family tickets", "dovetail new-family tickets --encoding json --dir ./projects/tickets"
        ),
    )(new_family)
