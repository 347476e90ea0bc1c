"""``upgrade status``: which versions may enter which blocks, who is ready for them, and what would stall."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from dovetail.commands.options import Json, Url, examples
from dovetail.commands.submit import url_argument
from dovetail.commands.upgrade.outlook import outlook, stalls
from dovetail.commands.upgrade.proposing import read_setting, window_text
from dovetail.errors import Refused
from dovetail.output import make_table, print_json, print_table, program
from dovetail.output import watch as show_again
from dovetail.urls import DEFAULT_URL, shown_url

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dovetail.client import DovetailClient
    from families.settings.candidates import Candidate
    from ledger.permitted import Permission

_HEADINGS: Final = ("FAMILY", "VERSION", "PERMITTED", "MIGRATION", "PROCESSORS", "PENDING", "IF ITS BLOCK CAME NOW")
_PROPOSED: Final = ("PROPOSED", "VOTES", "PROPOSAL ID")


class _Seen(NamedTuple):
    """One look at the node. ``builds``: of each (family, version), how many processors of each build take its work."""

    head_num: int
    restricted: bool
    families: list[dict[str, Any]]
    builds: Mapping[tuple[str, str], Counter[str]]
    proposals: list[dict[str, Any]]
    stalls: list[str]


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Show which versions may enter which blocks, who is ready for them, and what would happen if their block came now.

    Exit code 0 when nothing would stall, 1 with the reasons while something would: a version that is permitted, or will
    be, whose work no processor here takes; a migration that nobody here can do, or that was refused.
    """
    from dovetail.client import DovetailClient

    if watch and (as_json or not sys.stdout.isatty()):
        raise typer.BadParameter("--watch is for a terminal; a script asks again, and looks at the exit code")
    with DovetailClient(url) as client:
        if watch:
            show_again(lambda: _screen(client))
            return
        seen = _look(client)
    if as_json:
        print_json(
            {
                "head_num": seen.head_num,
                "restricted": seen.restricted,
                "families": [_told(seen, family) for family in seen.families],
                "proposals": seen.proposals,
                "stalls": seen.stalls,
            }
        )
    else:
        typer.echo(_first_line(seen, url))
        print_table(_HEADINGS, _rows(seen))
        if seen.proposals:
            typer.echo()
            print_table(_PROPOSED, _proposed_rows(seen))
            typer.echo(f"vote with: {program()} settings vote PROPOSAL accept --wait 30{url_argument(url)}")
    if seen.stalls:
        raise Refused("\n".join(["something would stall:", *seen.stalls]))


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(
        epilog=examples("dovetail upgrade status", "dovetail upgrade status --watch", "dovetail upgrade status --json")
    )(status)


def _screen(client: "DovetailClient") -> "RenderableType":
    """What --watch shows. Raises Refused."""
    from rich.console import Group
    from rich.text import Text

    seen = _look(client)
    parts: list[RenderableType] = [Text(_first_line(seen, client.url)), make_table(_HEADINGS, _rows(seen))]
    if seen.proposals:
        parts += ["", make_table(_PROPOSED, _proposed_rows(seen))]
    return Group(*parts, "", "something would stall" if seen.stalls else "nothing would stall")


def _look(client: "DovetailClient") -> _Seen:
    """Raises Refused."""
    setting = read_setting(client)
    told = client.data("/status/families")
    builds: dict[tuple[str, str], Counter[str]] = {}
    try:
        for processor in client.resource("status", "processors"):
            for family in processor["families"] if processor["state"] == "takes_work" else ():
                name = family["family_name"], family["family_version"]
                builds.setdefault(name, Counter())[family["build_id"]] += 1
        head_num, restricted, families = told["head_num"], told["restricted"], told["families"]
        seen = _Seen(head_num, restricted, families, builds, [], stalls(families, head_num, restricted=restricted))
    except (LookupError, TypeError, AttributeError):
        raise Refused(f"{client.url} answered, but not as Dovetail's REST API does") from None
    for candidate in setting.proposals:
        votes = Counter(cast.accept for cast in candidate.votes if cast.public_key in setting.keys)
        seen.proposals.append(
            {
                "proposal_id": candidate.proposal_id,
                "changes": _changes(setting.entries, candidate),
                "votes_for": votes[True],
                "votes_against": votes[False],
                "votes_needed": setting.threshold,
            }
        )
    return seen


def _changes(entries: "tuple[Permission, ...] | None", candidate: "Candidate") -> list[str]:
    """What a proposal would change, a version each."""
    from ledger.errors import NotDecodable
    from ledger.permitted import decode_permitted_families

    try:
        proposed = decode_permitted_families(candidate.proposal.value)
    except NotDecodable as error:
        return [str(error)]
    changes = []
    for family in dict.fromkeys(entry.family for entry in (*proposed, *(entries or ()))):
        new = [entry for entry in proposed if entry.family == family]
        if new != [entry for entry in entries or () if entry.family == family]:
            changes.append(f"{family} {window_text(new)}")
    return changes


def _told(seen: _Seen, family: dict[str, Any]) -> dict[str, Any]:
    view = outlook(family, seen.head_num, restricted=seen.restricted)
    builds = seen.builds.get((family["family_name"], family["family_version"]), Counter())
    return {**family, "builds": dict(builds), "outlook": view.text, "stalls": view.stalls}


def _first_line(seen: _Seen, url: str) -> str:
    without = "" if seen.restricted else "; the setting is absent, so every version is permitted"
    return f"{shown_url(url)}: the head is block {seen.head_num}{without}"


def _rows(seen: _Seen) -> list[tuple[object, ...]]:
    return [
        (
            family["family_name"],
            family["family_version"],
            _permitted(family, seen.head_num),
            _migration(family),
            _processors(family, seen.builds.get((family["family_name"], family["family_version"]), Counter())),
            ", ".join(f"{count} {reason}" for reason, count in family["pending"].items()) or "-",
            outlook(family, seen.head_num, restricted=seen.restricted).text,
        )
        for family in seen.families
    ]


def _permitted(family: dict[str, Any], head_num: int) -> str:
    words = {"permitted": "now", "waiting": "", "ended": "no more", "not_permitted": "no"}
    parts = [words.get(family["permission"], "")]
    if family["permission"] == "waiting":
        parts.append(f"from block {family['from_block']}, {family['from_block'] - head_num} to go")
    if "until_block" in family:
        left = family["until_block"] - head_num
        parts.append(f"until block {family['until_block']}" + (f", {left} to go" if left > 0 else ""))
    return " ".join(filter(None, parts))


def _migration(family: dict[str, Any]) -> str:
    return f"{family['migration']}: {', '.join(family['migrates'])}" if family["migrates"] else "-"


def _processors(family: dict[str, Any], builds: "Counter[str]") -> str:
    text = str(family["processors"])
    named = [f"{count} of {build}" if count > 1 else build for build, count in sorted(builds.items()) if build]
    text += f" ({', '.join(named)})" if named else ""
    return text + (f", {family['migrating_processors']} migrating" if family["migrates"] else "")


def _proposed_rows(seen: _Seen) -> list[tuple[object, ...]]:
    return [
        (
            "; ".join(proposal["changes"]) or "no change",
            f"{proposal['votes_for']} of {proposal['votes_needed']} for, {proposal['votes_against']} against",
            proposal["proposal_id"],
        )
        for proposal in seen.proposals
    ]
