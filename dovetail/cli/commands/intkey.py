"""``intkey``: named integers on the ledger, a family for trying a node."""

from enum import StrEnum
from typing import Annotated

import typer

from dovetail.cli.options import Head, Json, Key, Output, Url, Wait, examples
from dovetail.cli.printing import print_json, print_json_array, print_table
from dovetail.cli.submit import nonce, signer_of, submit
from dovetail.client import DovetailClient, decode_base64, is_not_found
from dovetail.common.errors import Refused
from dovetail.common.output import printable
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.errors import NotDecodable
from families.intkey.client import LEAF, NAMESPACE, intkey_address, intkey_transaction
from families.intkey.payload import Verb

app = typer.Typer(help="Named integers: set, inc, dec, show, list.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="1 to 20 characters.")]
_Value = Annotated[
    int, typer.Argument(metavar="VALUE", help="0 to 4294967295; in version 2.0: 0 to 18446744073709551615.")
]


class Encoding(StrEnum):
    CBOR = "cbor"
    JSON = "json"


class Version(StrEnum):
    V1 = "1.0"
    V2 = "2.0"


_Encoding = Annotated[
    Encoding | None,
    typer.Option(
        "--encoding", help="The payload's encoding. Default: cbor for version 1.0, json for 2.0.", show_default=False
    ),
]
_Version = Annotated[
    Version,
    typer.Option("--family-version", help="The version of the family's rules; both versions share their names."),
]


def _add(verb: Verb, help_text: str, *lines: str) -> None:
    """Add the command that submits a transaction with ``verb``."""

    @app.command(verb, help=help_text, epilog=examples(*lines))
    def submit_verb(
        name: _Name,
        value: _Value,
        wait: Wait = None,
        encoding: _Encoding = None,
        family_version: _Version = Version.V1,
        key: Key = None,
        url: Url = DEFAULT_URL,
        output: Output = None,
        as_json: Json = False,
    ) -> None:
        signer = signer_of(key)
        try:
            transaction = intkey_transaction(
                signer,
                signer.public_key,
                verb,
                name,
                value,
                nonce(),
                payload_encoding=None if encoding is None else f"application/{encoding}",
                family_version=family_version,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        submit(signer, transaction, url=url, wait_s=wait, output=output, as_json=as_json)


_add(
    "set",
    "Give a new name its value. A name that exists is refused when the transaction is executed.",
    "dovetail intkey set apples 5",
    "dovetail intkey set apples 5 --wait 30 --key alice",
    "dovetail intkey set stars 5000000000 --family-version 2.0 --wait 30",
    "dovetail intkey set apples 5 --output batches.bin",
)
_add(
    "inc",
    "Add to a name's value.",
    "dovetail intkey inc apples 2 --wait 30",
    "dovetail intkey inc apples 5000000000 --family-version 2.0 --wait 30",
)
_add("dec", "Subtract from a name's value.", "dovetail intkey dec apples 1 --wait 30")


@app.command(epilog=examples("dovetail intkey show apples", "dovetail intkey show apples --json"))
def show(name: _Name, url: Url = DEFAULT_URL, head: Head = None, as_json: Json = False) -> None:
    """Show the value of a name, whichever version set it."""
    with DovetailClient(url) as client:
        try:
            values = _decode(client.leaf(intkey_address(name), head=head))
        except Refused as error:
            if not is_not_found(error):
                raise
            values = {}
    if name not in values:
        raise Refused(f"intkey has no name {name!r}" + (f" as of block {head}" if head else ""))
    print_json({"name": name, "value": values[name]}) if as_json else typer.echo(f"{printable(name)}: {values[name]}")


@app.command("list", epilog=examples("dovetail intkey list", "dovetail intkey list --json"))
def list_(url: Url = DEFAULT_URL, head: Head = None, as_json: Json = False) -> None:
    """List all names and values, in the order of their addresses."""
    with DovetailClient(url) as client:
        leaves = client.items("state", address=NAMESPACE, head=head, count=1000)
        rows = ((name, value) for leaf in leaves for name, value in _decode(decode_base64(leaf["data"])).items())
        if as_json:
            print_json_array({"name": name, "value": value} for name, value in rows)
        else:
            print_table(("NAME", "VALUE"), rows)


def _decode(leaf: bytes) -> dict[str, int]:
    try:
        return LEAF.decode(leaf)
    except NotDecodable as error:
        raise Refused(f"a leaf of intkey is damaged: {error}") from None
