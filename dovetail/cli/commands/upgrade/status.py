"""``upgrade status``: the versions that may enter blocks, their processors, and what would stall."""

from collections import Counter
from typing import Any, Final, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from dovetail.cli.options import Json, Url, Watch, check_watch, examples
from dovetail.cli.printing import make_table, print_json, print_table
from dovetail.cli.printing import watch as show_again
from dovetail.cli.submit import url_argument
from dovetail.cli.upgrades.node_families import read_families
from dovetail.cli.upgrades.proposals import effects
from dovetail.cli.upgrades.readiness import in_progress, readiness, stalls
from dovetail.cli.upgrades.setting import read_setting
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.output import program
from dovetail.common.urls import DEFAULT_URL, shown_url

app = typer.Typer()

_HEADINGS: Final = ("FAMILY", "VERSION", "PERMITTED", "MIGRATION", "PROCESSORS", "PENDING", "IF ITS BLOCK CAME NOW")
_PROPOSED: Final = ("PROPOSED", "VOTES", "PROPOSAL ID")


class StatusUnknown(Refused):
    """The node gave no answer that shows whether something would stall."""

    exit_code = 3


class _Snapshot(NamedTuple):
    """The state of a node's upgrades. ``stalls`` and ``open``: a sentence for each stall and each unfinished task."""

    head_num: int
    restricted: bool
    families: list[dict[str, Any]]
    proposals: list[dict[str, Any]]
    stalls: list[str]
    open: list[str]


@app.command(
    epilog=examples("dovetail upgrade status", "dovetail upgrade status --watch", "dovetail upgrade status --json")
)
def status(watch: Watch = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show which versions may enter which blocks, who is ready for them, and what would happen if their block came now.

    Exit code 0 when nothing would stall and nothing is open. 1, with the reasons, while something would stall: a
    version, permitted now or later, without a processor here; a migration that no processor here can do, that was
    refused, or that the plan lacks. 1 too while something is open: votes on a proposal for the permitted families, also
    on one that cannot take effect any more because the setting has changed, or a migration that is in no block although
    its block has come. 3 when nothing answers, or the answer is malformed.
    """
    check_watch(watch, as_json)
    with DovetailClient(url) as client:
        if watch:
            show_again(lambda: _screen(client))
            return
        try:
            seen = _look(client)
        except Refused as error:
            raise StatusUnknown(str(error)) from None
    if as_json:
        print_json(seen._asdict() | {"families": [_with_readiness(seen, family) for family in seen.families]})
    else:
        typer.echo(_first_line(seen, url))
        print_table(_HEADINGS, _rows(seen))
        if seen.proposals:
            typer.echo()
            print_table(_PROPOSED, _proposed_rows(seen))
            typer.echo(f"vote with: {program()} settings vote PROPOSAL accept --wait 30{url_argument(url)}")
    if seen.stalls or seen.open:
        raise Refused("\n".join(_summary(seen)))


def _screen(client: DovetailClient) -> RenderableType:
    """The screen of --watch. Raises Refused."""
    seen = _look(client)
    parts: list[RenderableType] = [Text(_first_line(seen, client.url)), make_table(_HEADINGS, _rows(seen))]
    if seen.proposals:
        parts += ["", make_table(_PROPOSED, _proposed_rows(seen))]
    return Group(*parts, "", Text("\n".join(_summary(seen)) or "nothing would stall"))


def _summary(seen: _Snapshot) -> list[str]:
    stalled = ["something would stall:", *seen.stalls] if seen.stalls else []
    return [*stalled, "something is not done:", *seen.open] if seen.open else stalled


def _look(client: DovetailClient) -> _Snapshot:
    """The current state of the node's upgrades. Raises Refused."""
    setting, node = read_setting(client), read_families(client)
    head_num, restricted, families = node.head_num, node.restricted, node.families
    seen = _Snapshot(
        head_num,
        restricted,
        families,
        [],
        stalls(families, head_num, restricted=restricted),
        in_progress(families, head_num, restricted=restricted),
    )
    for candidate in setting.proposals:
        votes = Counter(cast.accept for cast in candidate.votes if cast.public_key in setting.keys)
        changes, warnings = effects(setting, candidate)
        seen.proposals.append(
            {
                "proposal_id": candidate.proposal_id,
                "changes": changes,
                "late": warnings,
                "votes_for": votes[True],
                "votes_against": votes[False],
                "votes_needed": setting.threshold,
            }
        )
        seen.open.append(f"proposal {candidate.proposal_id} has {votes[True]} of {setting.threshold} votes")
    return seen


def _with_readiness(seen: _Snapshot, family: dict[str, Any]) -> dict[str, Any]:
    view = readiness(family, seen.head_num, restricted=seen.restricted)
    return {**family, "outlook": view.text, "stalls": view.stalls}


def _first_line(seen: _Snapshot, url: str) -> str:
    without = "" if seen.restricted else "; the setting is absent, so every version is permitted"
    return f"{shown_url(url)}: the head is block {seen.head_num}{without}"


def _rows(seen: _Snapshot) -> list[tuple[object, ...]]:
    return [
        (
            family["family_name"],
            family["family_version"],
            _permitted(family, seen.head_num),
            _migration(family),
            _processors(family),
            ", ".join(f"{count} {reason}" for reason, count in family["pending"].items()) or "-",
            readiness(family, seen.head_num, restricted=seen.restricted).text,
        )
        for family in seen.families
    ]


def _permitted(family: dict[str, Any], head_num: int) -> str:
    permission = family["permission"]
    if permission in ("ended", "not_permitted"):
        return f"until block {family['until_block']}, no more" if "until_block" in family else "no"
    parts = ["now"] if permission == "permitted" else []
    if permission == "waiting":
        parts.append(f"from block {family['from_block']}, {family['from_block'] - head_num} to go")
    if "until_block" in family:
        parts.append(f"until block {family['until_block']}, {family['until_block'] - head_num} to go")
    return " ".join(parts)


def _migration(family: dict[str, Any]) -> str:
    return f"{family['migration']}: {', '.join(family['migrates'])}" if family["migrates"] else "-"


def _processors(family: dict[str, Any]) -> str:
    text = str(family["processors"])
    builds = sorted(family["builds"].items())
    named = [f"{count} of {build}" if count > 1 else build for build, count in builds if build]
    text += f" ({', '.join(named)})" if named else ""
    return text + (f", {family['migrating_processors']} migrating" if family["migrates"] else "")


def _proposed_rows(seen: _Snapshot) -> list[tuple[object, ...]]:
    return [
        (
            "; ".join([*proposal["changes"], *proposal["late"]]) or "no change",
            f"{proposal['votes_for']} of {proposal['votes_needed']} for, {proposal['votes_against']} against",
            proposal["proposal_id"],
        )
        for proposal in seen.proposals
    ]
