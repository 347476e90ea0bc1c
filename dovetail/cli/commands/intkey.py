"""``intkey``: named integers on the ledger, the family to try a node with."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import Head, Json, Key, Output, Url, Wait, examples
from dovetail.cli.submit import nonce, signer_of, submit
from dovetail.common.errors import Refused
from dovetail.common.output import print_json, print_json_array, print_table, printable
from dovetail.common.urls import DEFAULT_URL

if TYPE_CHECKING:
    from families.intkey.payload import Verb

app = typer.Typer(help="Named integers: set, inc, dec, show, list.", no_args_is_help=True)


_Name = Annotated[str, typer.Argument(metavar="NAME", help="1 to 20 characters.")]
_Value = Annotated[
    int, typer.Argument(metavar="VALUE", help="0 to 4294967295; of version 2.0: 0 to 18446744073709551615.")
]


class Encoding(StrEnum):
    """The payload encodings of the family."""

    CBOR = "cbor"
    JSON = "json"


class Version(StrEnum):
    """The versions of the family."""

    V1 = "1.0"
    V2 = "2.0"


_Encoding = Annotated[
    Encoding | None,
    typer.Option(
        "--encoding",
        help="The payload's encoding, which the transaction names. Default: cbor for version 1.0, json for 2.0.",
        show_default=False,
    ),
]
_Version = Annotated[
    Version,
    typer.Option("--family-version", help="The rules that are asked for; both know the same names."),
]


@app.command(
    "set",
    epilog=examples(
        "dovetail intkey set apples 5",
        "dovetail intkey set apples 5 --wait 30 --key alice",
        "dovetail intkey set stars 5000000000 --family-version 2.0 --wait 30",
        "dovetail intkey set apples 5 --output batches.bin",
    ),
)
def set_(
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
    """Give a new name its value. A name that exists is refused when the transaction is executed."""
    _submit("set", name, value, encoding, family_version, wait, key, url, output, as_json)


@app.command(
    epilog=examples(
        "dovetail intkey inc apples 2 --wait 30", "dovetail intkey inc apples 5000000000 --family-version 2.0 --wait 30"
    )
)
def inc(
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
    """Add to a name's value."""
    _submit("inc", name, value, encoding, family_version, wait, key, url, output, as_json)


@app.command(epilog=examples("dovetail intkey dec apples 1 --wait 30"))
def dec(
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
    """Subtract from a name's value."""
    _submit("dec", name, value, encoding, family_version, wait, key, url, output, as_json)


@app.command(epilog=examples("dovetail intkey show apples", "dovetail intkey show apples --json"))
def show(name: _Name, url: Url = DEFAULT_URL, head: Head = None, as_json: Json = False) -> None:
    """Show the value of a name, whichever version set it."""
    from dovetail.client import DovetailClient, is_not_found
    from families.intkey.client import intkey_address

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
    from dovetail.client import DovetailClient, decode_base64
    from families.intkey.client import NAMESPACE

    with DovetailClient(url) as client:
        leaves = client.items("state", address=NAMESPACE, head=head, count=1000)
        rows = ((name, value) for leaf in leaves for name, value in _decode(decode_base64(leaf["data"])).items())
        if as_json:
            print_json_array({"name": name, "value": value} for name, value in rows)
        else:
            print_table(("NAME", "VALUE"), rows)


def _decode(leaf: bytes) -> dict[str, int]:
    from dovetail.ledger.errors import NotDecodable
    from families.intkey.client import LEAF

    try:
        return LEAF.decode(leaf)
    except NotDecodable as error:
        raise Refused(f"a leaf of intkey is damaged: {error}") from None


def _submit(
    verb: "Verb",
    name: str,
    value: int,
    encoding: Encoding | None,
    family_version: Version,
    wait_s: int | None,
    key: str | None,
    url: str,
    output: Path | None,
    as_json: bool,
) -> None:
    from families.intkey.client import intkey_transaction

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
    submit(signer, transaction, url=url, wait_s=wait_s, output=output, as_json=as_json)
