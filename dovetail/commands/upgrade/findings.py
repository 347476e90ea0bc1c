"""How a rehearsal's findings are printed: tables for people, one JSON document for scripts. Nothing is judged here."""

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from dovetail.output import note, print_json, print_table, printable

if TYPE_CHECKING:
    from dovetail.rehearsal.differences import Difference
    from dovetail.rehearsal.migrating import SliceFindings
    from dovetail.rehearsal.progress import Progress
    from dovetail.rehearsal.run import Setup


def document(setup: "Setup", progress: "Progress") -> dict[str, Any]:
    """A rehearsal of history, for scripts."""
    import msgspec

    return {
        "handler": setup.handler,
        "family": setup.family.name,
        "version": setup.family.version,
        "blocks": [progress.first_block, progress.last_block],
        **msgspec.to_builtins(progress.findings),
    }


def tell(setup: "Setup", progress: "Progress") -> None:
    """A rehearsal of history, for people."""
    findings = progress.findings
    if findings.differences:
        rows = [
            (one.block_num, one.kind, one.address or "-", _side(one.old, one.old_events), _new(one), one.transaction_id)
            for one in findings.differences
        ]
        print_table(("BLOCK", "DIFFERENCE", "ADDRESS", "HISTORY", "NEW HANDLER", "TRANSACTION ID"), rows)
        typer.echo()
    counted = f"{findings.transactions:,} transactions of {setup.family} in blocks {progress.first_block} to"
    typer.echo(printable(f"{counted} {progress.last_block}, judged by {setup.handler}: {findings.differing:,} differ"))
    for kind, count in findings.kinds.items():
        typer.echo(f"  {kind}: {count:,}")
    hidden = sum(findings.kinds.values()) - len(findings.differences)
    if hidden:
        note(f"{hidden:,} more differences are only counted; --differences-max shows more")
    if not findings.transactions:
        note(f"no transaction of {printable(setup.family)} is in these blocks: check --family, --from and --blocks")


def _side(value: object, events: tuple[str, ...]) -> str:
    if events:
        return "; ".join(events)
    return "-" if value is None else str(value)


def _new(difference: "Difference") -> str:
    if difference.kind in ("invalid", "internal_error"):
        return difference.message
    return _side(difference.new, difference.new_events)


def tell_migration(what: str, found: list["SliceFindings"], shown_max: int, as_json: bool) -> None:
    """The rehearsal of a migration; ``what`` it was."""

    import msgspec

    changes = list(islice((change for one in found for change in one.changes), shown_max))
    totals = {
        name: sum(getattr(one, name) for one in found)
        for name in ("leaves", "added", "changed", "unchanged", "removed")
    }
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
        columns = ("leaves", "added", "changed", "unchanged", "removed")
        rows_of_slices = [
            (place, " ".join(one.prefixes), *(getattr(one, name) for name in columns), one.refused or "-")
            for place, one in enumerate(found, 1)
        ]
        print_table(("SLICE", "PREFIXES", *(name.upper() for name in columns), "REFUSED"), rows_of_slices)
        typer.echo()
    for one in refused[:shown_max]:
        typer.echo(printable(f"refused ({one.refused}) under {' '.join(one.prefixes)}: {one.message}"))
    counted = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    end = (
        f"{len(refused)} of {len(found)} slices are refused: nothing would be migrated" if refused else "it would pass"
    )
    typer.echo(printable(f"{what}: {counted} in {len(found)} slices; {end}"))
