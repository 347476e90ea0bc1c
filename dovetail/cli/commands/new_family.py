"""``new-family``: writes a new transaction family, whose files are in ``dovetail.cli.scaffold``."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.options import Json, examples, path_option
from dovetail.cli.printing import print_json
from dovetail.cli.scaffold import Encoding, check_name, render, write_project
from dovetail.common.output import printable, program

app = typer.Typer()


@app.command(
    "new-family",
    epilog=examples(
        "dovetail new-family tickets", "dovetail new-family tickets --encoding json --dir ./projects/tickets"
    ),
)
def new_family(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the package and the family: lower-case letters, digits and '_'."),
    ],
    encoding: Annotated[
        Encoding, typer.Option("--encoding", help="How payloads and state entries are encoded.")
    ] = Encoding.CBOR,
    folder: Annotated[
        Path | None, path_option("--dir", "A folder that is new or empty. Default: ./NAME.", "PATH")
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
    typer.echo(f"wrote the family {name} to {printable(target)}: {len(files)} files; its README.md describes them")
    # Without an active environment, ``pip`` belongs to another environment, which has no Dovetail.
    activate = Path(sys.prefix) / "bin" / "activate"
    inactive = shutil.which("python") != str(activate.with_name("python")) and activate.is_file()
    for line in (
        *([f". {shlex.quote(str(activate))}"] if inactive else []),
        f"cd {shlex.quote(str(target))}",
        "pip install -e '.[test]'",
        "pytest",
        f"{program()} up --family {handler}",
        f"python -m {name} claim apples   (in a second terminal)",
    ):
        typer.echo(f"next   {printable(line)}")
