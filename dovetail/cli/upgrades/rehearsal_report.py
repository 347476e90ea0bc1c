"""Prints the findings of a rehearsal: tables for people, one JSON document for scripts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec
import typer

from dovetail.cli.printing import print_json, print_table
from dovetail.common.output import note, printable
from dovetail.rehearsal.differences import Difference
from dovetail.rehearsal.migrating import SliceFindings
from dovetail.rehearsal.progress import Progress
from dovetail.rehearsal.run import Setup

_PARTICULARS: Final = re.compile(r"[0-9a-f]{8,}|[0-9]+")
"""Matches addresses and numbers. Refusals with the same reason differ in nothing else."""


def document(setup: Setup, progress: Progress, notes: list[str]) -> dict[str, Any]:
    """The findings of a rehearsal of history, for scripts; ``notes``: remarks on the whole."""
    return {
        "handler": setup.handler,
        "family": setup.family.name,
        "version": setup.family.version,
        "blocks": [progress.span.first_block, progress.span.last_block],
        "notes": notes,
        **msgspec.to_builtins(progress.findings),
    }


def print_findings(setup: Setup, progress: Progress) -> None:
    """Print the findings of a rehearsal of history for people."""
    findings = progress.findings
    if findings.differences:
        rows = [
            (one.block_num, one.kind, one.address or "-", _side(one.old, one.old_events), _new(one), one.transaction_id)
            for one in findings.differences
        ]
        print_table(("BLOCK", "DIFFERENCE", "ADDRESS", "HISTORY", "NEW HANDLER", "TRANSACTION ID"), rows)
        typer.echo()
    blocks = f"blocks {progress.span.first_block} to {progress.span.last_block}"
    counted = f"{counted_of(findings.transactions, 'transaction')} of {setup.family} in {blocks}"
    typer.echo(printable(f"{counted}, executed by {setup.handler}: {findings.differing:,} differ"))
    for kind, count in findings.kinds.items():
        typer.echo(f"  {kind}: {count:,}")
    hidden = sum(findings.kinds.values()) - len(findings.differences)
    if hidden:
        note(f"{hidden:,} more differences are only counted; --differences-max shows more")


def _side(value: object, events: tuple[str, ...]) -> str:
    if events:
        return "; ".join(events)
    return "-" if value is None else str(value)


def _new(difference: Difference) -> str:
    if difference.kind in ("invalid", "internal_error"):
        return difference.message
    return _side(difference.new, difference.new_events)


def print_migration(what: str, found: list[SliceFindings], shown_max: int, as_json: bool) -> None:
    """Print the findings of a rehearsed migration; ``what``: its description."""
    changes = list(islice((change for one in found for change in one.changes), shown_max))
    columns = ("leaves", "added", "changed", "unchanged", "removed")
    totals = {name: sum(getattr(one, name) for one in found) for name in columns}
    refused = [one for one in found if one.refused]
    if as_json:
        slices = [msgspec.to_builtins(replace(one, changes=())) for one in found]
        for one in slices:
            del one["changes"]
        shown_changes = msgspec.to_builtins(changes)
        print_json({"migration": what, **totals, "refused": len(refused), "slices": slices, "changes": shown_changes})
        return
    if changes:
        rows = [(one.address, _side(one.old, ()), _side(one.new, ())) for one in changes]
        print_table(("ADDRESS", "NOW", "AFTER THE MIGRATION"), rows)
        typer.echo()
    if len(found) > 1:
        rows_of_slices = [
            (place, " ".join(one.prefixes), *(getattr(one, name) for name in columns), one.refused or "-")
            for place, one in enumerate(found, 1)
        ]
        print_table(("SLICE", "PREFIXES", *(name.upper() for name in columns), "REFUSED"), rows_of_slices)
        typer.echo()
    for alike in islice(_by_reason(refused), shown_max):
        one, more = alike[0], len(alike) - 1
        typer.echo(printable(f"refused ({one.refused}) under {' '.join(one.prefixes)}: {one.message}"))
        if more:
            typer.echo(f"  and {counted_of(more, 'slice')} more for the same reason")
    counted = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    end = "it would pass"
    if refused:
        end = f"refused in {len(refused)} of {len(found)}: nothing would be migrated"
    typer.echo(printable(f"{what}: {counted} in {counted_of(len(found), 'slice')}; {end}"))


def _by_reason(refused: list[SliceFindings]) -> Iterator[list[SliceFindings]]:
    """Groups of refusals whose messages differ only in addresses and numbers."""
    alike: dict[tuple[str | None, str], list[SliceFindings]] = {}
    for one in refused:
        alike.setdefault((one.refused, _PARTICULARS.sub("", one.message)), []).append(one)
    yield from alike.values()


def counted_of(count: int, what: str) -> str:
    """``count`` with its noun; ``what`` is the singular of the noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
