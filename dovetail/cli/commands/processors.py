"""``processors``: the connected processors, their builds, and their counts."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

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
    """List the connected processors: which family, version and build each is, its state, what it holds and has done.

    PROTOCOL is packed for many transactions in one message, 1.x for one at a time. IN FLIGHT counts the transactions
    that a processor holds, of those that it accepts at once. DONE, INVALID and ERRORS count transactions since it
    connected: applied, invalid, without a verdict. MS are percentiles of recent apply times. A draining processor gets
    no new work, and disconnects when it has finished its transactions.

    Exit code 1 if no processor is connected; with --watch 0, when Ctrl-C ends it.
    """
    check_watch(watch, as_json)
    with DovetailClient(url) as client:
        if watch:
            show_again(lambda: make_table(_HEADINGS[:_WATCHED], (row[:_WATCHED] for row in _rows(client))))
        elif as_json:
            found = client.resource("status", "processors")
            print_json(found)
            if not found:
                raise Refused(_NONE_CONNECTED)
        else:
            print_table(_HEADINGS, _rows(client))


def _rows(client: DovetailClient) -> list[Sequence[object]]:
    """The rows of the table. Raises Refused, also if no processor is connected."""
    found = client.resource("status", "processors")
    try:
        rows = [row for entry in found for row in _rows_of(entry)]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise Refused(misread(client.url)) from None
    if not rows:
        raise Refused(_NONE_CONNECTED)
    return rows


def _rows_of(entry: dict[str, Any]) -> Iterator[Sequence[object]]:
    """A row for each family; the first one has the columns of the connection."""
    times = entry.get("apply_ms")
    connection = (
        entry["state"].replace("_", " "),
        f"{entry['in_flight']['transactions']} of {entry['max_occupancy']}",
        entry["done"],
        entry["invalid"],
        entry["internal_errors"],
        " ".join(f"{times[name]:.3g}" for name in ("p50", "p95", "p99")) if times else "-",
        "packed" if entry["packed_version"] else "1.x",
        f"{entry['last_heard_s']:.1f} s ago",
        short(entry["connection_id"]),
    )
    for number, family in enumerate(entry["families"]):
        named = (family["family_name"], family["family_version"], family["build_id"] or "-")
        yield (*named, *(connection if number == 0 else ("",) * len(connection)))
