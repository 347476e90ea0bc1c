"""``processors``: the node's own processor and the connected ones, their builds, and their counts."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import typer
from rich.table import Table

from dovetail.cli.options import Json, Url, Watch, check_watch, examples
from dovetail.cli.printing import make_table, print_json, print_table, short
from dovetail.cli.printing import watch as show_again
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.urls import DEFAULT_URL, misread

app = typer.Typer()

_HEADINGS: Final = (
    "FAMILY", "VERSION", "BUILD", "STATE", "IN FLIGHT", "DONE", "INVALID", "ERRORS", "MS P50 P95 P99", "PROTOCOL",
    "HEARD", "CONNECTION",
)  # fmt: skip
_WATCHED: Final = _HEADINGS.index("PROTOCOL")
"""The number of columns that --watch shows: names and changing values. A terminal has no room for more."""

_NONE_CONNECTED: Final = (
    "no processor is connected: start one with `dovetail processor MODULE:HANDLER --connect ENDPOINT`; the endpoint is"
    " the validator's, which `dovetail status` names"
)


@app.command(epilog=examples("dovetail processors", "dovetail processors --watch", "dovetail processors --json"))
def processors(watch: Watch = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """List the processors: which family, version and build each is, its state, what it holds and has done.

    The node judges some families itself: its own processor is listed first, with "in node" as its PROTOCOL. A connected
    processor of such a family gets no work; its STATE is "not needed", and you can end it.

    PROTOCOL is packed for many transactions in one message, 1.x for one at a time. IN FLIGHT counts the transactions
    that a processor holds, of those that it accepts at once. DONE, INVALID and ERRORS count transactions since it
    connected: applied, invalid, without a verdict. MS are percentiles of recent apply times. A draining processor gets
    no new work, and disconnects when it has finished its transactions.

    Exit code 1 if no processor is connected, beside the node's own; with --watch 0, when Ctrl-C ends it.
    """
    check_watch(watch, as_json)
    with DovetailClient(url) as client:
        if watch:
            show_again(lambda: _table(client))
            return
        found, rows = _read(client)
        if as_json:
            print_json(found)
        elif rows:
            print_table(_HEADINGS, rows)
        if all(entry.get("in_process") for entry in found):
            raise Refused(_NONE_CONNECTED)


class _Processors(NamedTuple):
    """The node's answer, and the rows of the table."""

    found: Sequence[dict[str, Any]]
    rows: list[Sequence[object]]


def _table(client: DovetailClient) -> Table:
    """The table that --watch shows. Raises Refused, also if there is no processor."""
    rows = _read(client).rows
    if not rows:
        raise Refused(_NONE_CONNECTED)
    return make_table(_HEADINGS[:_WATCHED], (row[:_WATCHED] for row in rows))


def _read(client: DovetailClient) -> _Processors:
    """Raises Refused if the answer cannot be read."""
    found = client.resource("status", "processors")
    try:
        return _Processors(found, [row for entry in found for row in _rows_of(entry)])
    except (LookupError, TypeError, AttributeError, ValueError):
        raise Refused(misread(client.url)) from None


def _rows_of(entry: dict[str, Any]) -> Iterator[Sequence[object]]:
    """A row for each family; the first one has the columns of the connection."""
    times, here = entry.get("apply_ms"), entry.get("in_process")
    connection = (
        entry["state"].replace("_", " "),
        f"{entry['in_flight']['transactions']} of {entry['max_occupancy']}",
        entry["done"],
        entry["invalid"],
        entry["internal_errors"],
        " ".join(f"{times[name]:.3g}" for name in ("p50", "p95", "p99")) if times else "-",
        "in node" if here else "packed" if entry["packed_version"] else "1.x",
        "-" if here else f"{entry['last_heard_s']:.1f} s ago",
        "-" if here else short(entry["connection_id"]),
    )
    for number, family in enumerate(entry["families"]):
        named = (family["family_name"], family["family_version"], family["build_id"] or "-")
        state, *counts = connection if number == 0 else ("",) * len(connection)
        yield (*named, "not needed" if family.get("idle") else state, *counts)
