"""``processors``: who processes transactions, which builds they are, and how they do."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dovetail.cli.options import Json, Url, examples
from dovetail.common.errors import Refused
from dovetail.common.output import make_table, print_json, print_table, short
from dovetail.common.output import watch as show_again
from dovetail.common.urls import DEFAULT_URL, misread

if TYPE_CHECKING:
    from dovetail.client import DovetailClient

_HEADINGS: Final = (
    "FAMILY", "VERSION", "BUILD", "STATE", "IN FLIGHT", "DONE", "INVALID", "ERRORS", "MS P50 P95 P99", "PROTOCOL",
    "HEARD", "CONNECTION",
)  # fmt: skip
_WATCHED: Final = _HEADINGS.index("PROTOCOL")
"""So many columns are shown again and again: what changes, and names that a terminal has room for."""

_NOBODY: Final = (
    "no processor is connected: start one with `dovetail processor MODULE:HANDLER --connect ENDPOINT`; the endpoint is"
    " the validator's, which `dovetail status` names"
)


def processors(
    watch: Annotated[bool, typer.Option("--watch", help="Show them again every second, until Ctrl-C.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """List the connected processors: which family, version and build each is, its state, what it holds and has done.

    PROTOCOL is packed for many transactions in one message, 1.x for one at a time. IN FLIGHT is what it holds, of what
    it takes at once. DONE, INVALID and ERRORS count transactions since it connected: applied, refused, without a
    verdict. MS are percentiles of the milliseconds that a transaction took it lately. One that is draining gets no new
    work, and leaves when it has finished what it holds.

    Exit code 1 when nobody is connected; of --watch 0, when Ctrl-C ends it.
    """
    from dovetail.client import DovetailClient

    if watch and (as_json or not sys.stdout.isatty()):
        raise typer.BadParameter("--watch is for a terminal; a script asks again, and looks at the exit code")
    with DovetailClient(url) as client:
        if watch:
            show_again(lambda: make_table(_HEADINGS[:_WATCHED], (row[:_WATCHED] for row in _rows(client))))
        elif as_json:
            found = _listed(client)
            print_json(found)
            if not found:
                raise Refused(_NOBODY)
        else:
            print_table(_HEADINGS, _rows(client))


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        epilog=examples("dovetail processors", "dovetail processors --watch", "dovetail processors --json"),
    )(processors)


def _listed(client: "DovetailClient") -> Any:
    return client.resource("status", "processors")


def _rows(client: "DovetailClient") -> list[Sequence[object]]:
    """Raises Refused, also where nobody is connected."""
    found = _listed(client)
    try:
        rows = [row for entry in found for row in _rows_of(entry)]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise Refused(misread(client.url)) from None
    if not rows:
        raise Refused(_NOBODY)
    return rows


def _rows_of(entry: dict[str, Any]) -> Iterator[Sequence[object]]:
    """A row for each family; what holds for the connection stands in the first."""
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
