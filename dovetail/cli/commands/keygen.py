"""``keygen``: key pairs that sign transactions, and connection keys."""

import os
from typing import Annotated

import typer

from dovetail.cli.options import Json, examples, text_argument
from dovetail.cli.printing import print_json
from dovetail.common.home import shown
from dovetail.common.keys import CONNECTION_KEYS, create_connection_key, create_key, key_path

app = typer.Typer()


@app.command(
    epilog=examples(
        "dovetail keygen",
        "dovetail keygen alice",
        "dovetail keygen ./keys/node.priv",
        "dovetail keygen --connection intkey-1",
    )
)
def keygen(
    name: Annotated[
        str | None, text_argument("[NAME|PATH]", "A name under ~/.dovetail/keys, or a file. Default: your login name.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing key.")] = False,
    connection: Annotated[
        bool,
        typer.Option(
            "--connection",
            help="Make a connection key, for a validator, processor or REST API (docs/how-to/keys.md). A name is then"
            " one under ~/.dovetail/connection-keys.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a key pair: the private key readable by you alone, the public key beside it."""
    if connection:
        files = create_connection_key(key_path(name, os.environ, CONNECTION_KEYS), overwrite=force)
    else:
        files = create_key(key_path(name, os.environ), overwrite=force)
    if as_json:
        print_json({"private_key_file": str(files.private), "public_key": files.public_key})
    else:
        typer.echo(f"private key {shown(files.private)}\npublic key  {files.public_key} in {shown(files.public)}")
