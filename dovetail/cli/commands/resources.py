"""``block``, ``batch``, ``transaction`` and ``state``: list and show what the ledger holds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Final, NamedTuple

import typer

from dovetail.cli.commands.batch_drop import EPILOG, batch_drop
from dovetail.cli.options import Count, Head, Json, Url, Wait, examples, text_argument
from dovetail.cli.printing import print_json, print_json_array, print_table, print_tree, short
from dovetail.cli.submit import followed, refuse_uncommitted
from dovetail.client import DovetailClient, Page
from dovetail.common.errors import Refused
from dovetail.common.output import note
from dovetail.common.urls import DEFAULT_URL

_COUNT_DEFAULT: Final = 100
_PAGE_ITEMS_MAX: Final = 1000
_DATA_CHARACTERS: Final = 60


class _Kind(NamedTuple):
    """One kind of resource: its path, and its columns in a table."""

    resource: str
    headings: tuple[str, ...]
    row: Callable[[Any], Sequence[object]]


_BLOCKS: Final = _Kind(
    "blocks",
    ("NUM", "BATCHES", "TRANSACTIONS", "STATE ROOT", "BLOCK ID"),
    lambda block: (
        block["header"]["block_num"],
        len(block["batches"]),
        sum(len(batch["transactions"]) for batch in block["batches"]),
        short(block["header"]["state_root_hash"]),
        block["header_signature"],
    ),
)
_BATCHES: Final = _Kind(
    "batches",
    ("TRANSACTIONS", "SIGNER", "BATCH ID"),
    lambda batch: (len(batch["transactions"]), short(batch["header"]["signer_pubkey"]), batch["header_signature"]),
)
_TRANSACTIONS: Final = _Kind(
    "transactions",
    ("FAMILY", "VERSION", "SIGNER", "TRANSACTION ID"),
    lambda transaction: (
        transaction["header"]["family_name"],
        transaction["header"]["family_version"],
        short(transaction["header"]["signer_pubkey"]),
        transaction["header_signature"],
    ),
)
_LEAVES: Final = _Kind("state", ("ADDRESS", "DATA (BASE64)"), lambda leaf: (leaf["address"], _cut(leaf["data"])))


def _cut(data: str) -> str:
    return data if len(data) <= _DATA_CHARACTERS else f"{data[:_DATA_CHARACTERS]}…"


app = typer.Typer()
block = typer.Typer(help="Blocks of the chain: list, show.", no_args_is_help=True)
batch = typer.Typer(help="Batches: list, show, the status of submitted ones, and drop.", no_args_is_help=True)
transaction = typer.Typer(help="Transactions: list, show.", no_args_is_help=True)
state = typer.Typer(help="The state that the chain has arrived at: list, show.", no_args_is_help=True)
for _name, _group in (("block", block), ("batch", batch), ("transaction", transaction), ("state", state)):
    app.add_typer(_group, name=_name)


@block.command(
    "list", epilog=examples("dovetail block list", "dovetail block list --count 5", "dovetail block list --json")
)
def block_list(url: Url = DEFAULT_URL, head: Head = None, count: Count = _COUNT_DEFAULT, as_json: Json = False) -> None:
    """List blocks, from the head back to genesis."""
    _list(_BLOCKS, url, count, as_json, head=head)


@block.command("show", epilog=examples("dovetail block show 0", "dovetail block show BLOCK_ID --json"))
def block_show(
    name: Annotated[str, text_argument("ID", "The block's id or its number.")],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show one block with its batches."""
    _show(_BLOCKS, name, url, as_json)


@batch.command("list", epilog=examples("dovetail batch list --count 10", "dovetail batch list --head 7 --json"))
def batch_list(url: Url = DEFAULT_URL, head: Head = None, count: Count = _COUNT_DEFAULT, as_json: Json = False) -> None:
    """List committed batches, the newest block's first."""
    _list(_BATCHES, url, count, as_json, head=head)


@batch.command("show", epilog=examples("dovetail batch show BATCH_ID"))
def batch_show(
    name: Annotated[str, text_argument("ID", "The batch's id.")], url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Show one committed batch with its transactions."""
    _show(_BATCHES, name, url, as_json)


@batch.command(
    "status", epilog=examples("dovetail batch status BATCH_ID", "dovetail batch status BATCH_ID OTHER_ID --wait 60")
)
def batch_status(
    ids: Annotated[list[str], text_argument("ID", "One or more batch ids.")],
    wait: Wait = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show the status of submitted batches.

    Without --wait the exit code is 0 whatever the answer; with it, 1 unless every batch is committed.
    """
    with DovetailClient(url) as client, followed(ids, url) if wait else nullcontext():
        outcome = list(client.batch_status(ids, wait_s=wait).values())
    if as_json:
        print_json({status.id: {"status": status.status, "details": status.details} for status in outcome})
    else:
        print_table(("STATUS", "WHY", "BATCH ID"), [(status.status, status.why, status.id) for status in outcome])
    if wait:
        refuse_uncommitted(outcome, wait, url)


batch.command("drop", epilog=EPILOG)(batch_drop)


@transaction.command("list", epilog=examples("dovetail transaction list", "dovetail transaction list --count 0 --json"))
def transaction_list(
    url: Url = DEFAULT_URL, head: Head = None, count: Count = _COUNT_DEFAULT, as_json: Json = False
) -> None:
    """List committed transactions, the newest block's first."""
    _list(_TRANSACTIONS, url, count, as_json, head=head)


@transaction.command("show", epilog=examples("dovetail transaction show TRANSACTION_ID"))
def transaction_show(
    name: Annotated[str, text_argument("ID", "The transaction's id.")], url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Show one committed transaction."""
    _show(_TRANSACTIONS, name, url, as_json)


@state.command(
    "list",
    epilog=examples("dovetail state list", "dovetail state list --address 1cf126", "dovetail state list --head 3"),
)
def state_list(
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="PREFIX", help="Only leaves under this prefix, an even number of hex characters."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    head: Head = None,
    count: Count = _COUNT_DEFAULT,
    as_json: Json = False,
) -> None:
    """List state leaves in ascending address order."""
    _list(_LEAVES, url, count, as_json, head=head, address=address)


@state.command("show", epilog=examples("dovetail state show ADDRESS", "dovetail state show ADDRESS --head 3 --json"))
def state_show(
    address: Annotated[str, text_argument("ADDRESS", "A full address of 70 hex characters.")],
    url: Url = DEFAULT_URL,
    head: Head = None,
    as_json: Json = False,
) -> None:
    """Show the bytes at one address, in base64."""
    _show(_LEAVES, address, url, as_json, head=head)


def _show(kind: _Kind, name: str, url: str, as_json: bool, head: str | None = None) -> None:
    with DovetailClient(url) as client:
        data = client.resource(kind.resource, name, head=head)
    if not isinstance(data, dict):
        data = {"address": name, "data": data}
    print_json(data) if as_json else print_tree(data)


def _list(kind: _Kind, url: str, count: int, as_json: bool, **params: str | None) -> None:
    with DovetailClient(url) as client:
        page_items = min(count or _PAGE_ITEMS_MAX, _PAGE_ITEMS_MAX)
        listing = _Listing(client.pages(kind.resource, count=page_items, **params), count)
        if as_json:
            print_json_array(listing)
        else:
            print_table(kind.headings, _rows(kind, listing))
    if listing.shown < listing.total:
        note(f"{listing.shown} of {listing.total}; --count 0 shows all")


def _rows(kind: _Kind, items: Iterable[dict[str, Any]]) -> list[Sequence[object]]:
    try:
        return [kind.row(item) for item in items]
    except (KeyError, TypeError) as error:
        raise Refused(f"an item of /{kind.resource} is not as the REST API documents it: {error!r}") from None


class _Listing:
    """The first ``count`` items (0: all) of a paged list, and the total number of items."""

    def __init__(self, pages: Iterator[Page], count: int) -> None:
        self._pages = pages
        self._count = count
        self.shown = 0
        self.total = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for page in self._pages:
            self.total = page.total_count
            for item in page.items:
                self.shown += 1
                yield item
                if self.shown == self._count:
                    return
