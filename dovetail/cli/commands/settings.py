"""``settings``: the ledger's own settings, changed by votes of the authorized keys."""

import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import Head, Json, Key, Output, Url, Wait, examples, not_empty
from dovetail.cli.submit import nonce, signer_of, submit
from dovetail.common.errors import Refused
from dovetail.common.output import note, print_json, print_table, printable, short
from dovetail.common.urls import DEFAULT_URL

if TYPE_CHECKING:
    from dovetail.cli.upgrades.proposals import Effects
    from dovetail.client import DovetailClient
    from families.settings.candidates import Candidate

app = typer.Typer(help="The ledger's settings: propose, vote, list.", no_args_is_help=True)


class Answer(StrEnum):
    """What a vote can say."""

    ACCEPT = "accept"
    REJECT = "reject"


@app.command(
    epilog=examples(
        "dovetail settings propose my.setting on --wait 30",
        "dovetail settings propose sawtooth.settings.vote.approval_threshold 2 --key alice",
    )
)
def propose(
    setting: Annotated[str, typer.Argument(metavar="KEY", callback=not_empty, help="The setting, as in a.dotted.key.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What it should become.")],
    wait: Wait = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    output: Output = None,
    force: Annotated[bool, typer.Option("--force", help="Propose also what would lock the settings.")] = False,
    as_json: Json = False,
) -> None:
    """Propose a change, signed by an authorized key, whose vote counts as accepting.

    With an approval threshold of 1 it takes effect at once; else others vote on the proposal id that is printed.

    A value of sawtooth.validator.transaction_families that cannot be understood, or that keeps the settings family out
    of some block, is refused: no setting could be changed any more.
    """
    from families.settings.client import propose as build_proposal

    if not force:
        _check_lock(setting, value)
    signer = signer_of(key)
    proposal = build_proposal(signer, signer.public_key, setting, value, nonce())
    submit(
        signer,
        proposal.transaction,
        url=url,
        wait_s=wait,
        output=output,
        as_json=as_json,
        extra={"proposal_id": proposal.proposal_id},
    )


@app.command(epilog=examples("dovetail settings list", "dovetail settings vote PROPOSAL accept --wait 30 --key bob"))
def vote(
    proposal: Annotated[
        str,
        typer.Argument(metavar="PROPOSAL", callback=not_empty, help="The proposal's id, or an unmistakable beginning."),
    ],
    answer: Annotated[Answer, typer.Argument(help="How to vote.", show_default=False)],
    wait: Wait = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Vote on an open proposal.

    What a proposal for the permitted families would change now is said on stderr before it is accepted.
    """
    from dovetail.client import DovetailClient
    from families.settings.client import vote as build_vote

    signer = signer_of(key)
    with DovetailClient(url) as client:
        candidate = _find(open_proposals(client), proposal)
        if answer is Answer.ACCEPT:
            changes, late = _effects(client, candidate)
            for line in (*changes, *late):
                note(printable(f"{candidate.proposal_id[:16]}: {line}"))
    transaction = build_vote(
        signer,
        signer.public_key,
        candidate.proposal_id,
        candidate.proposal.setting,
        accept=answer is Answer.ACCEPT,
        nonce=nonce(),
    )
    submit(
        signer,
        transaction,
        url=url,
        wait_s=wait,
        output=output,
        as_json=as_json,
        extra={"proposal_id": candidate.proposal_id},
    )


@app.command("list", epilog=examples("dovetail settings list", "dovetail settings list --json"))
def list_(url: Url = DEFAULT_URL, head: Head = None, as_json: Json = False) -> None:
    """List the settings in force and the proposals still voted on."""
    from dovetail.client import DovetailClient, decode_base64
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.settings import NAMESPACE, PROPOSALS, decode_setting

    settings: dict[str, str] = {}
    with DovetailClient(url) as client:
        for leaf in client.items("state", address=NAMESPACE, head=head, count=1000):
            try:
                settings.update(decode_setting(decode_base64(leaf["data"])))
            except NotDecodable as error:
                raise Refused(f"the setting at {leaf['address']} is damaged: {error}") from None
        candidates = open_proposals(client, head)
        late = [(candidate, line) for candidate in candidates if not head for line in _effects(client, candidate).late]
    settings.pop(PROPOSALS, None)
    if as_json:
        print_json(
            {
                "settings": dict(sorted(settings.items())),
                "proposals": [
                    {
                        "proposal_id": candidate.proposal_id,
                        "setting": candidate.proposal.setting,
                        "value": candidate.proposal.value,
                        "votes": {cast.public_key: _word(cast.accept) for cast in candidate.votes},
                    }
                    for candidate in candidates
                ],
            }
        )
        return
    print_table(("SETTING", "VALUE"), sorted(settings.items()))
    if candidates:
        typer.echo()
        print_table(
            ("PROPOSED SETTING", "VALUE", "VOTES", "PROPOSAL ID"),
            [
                (
                    candidate.proposal.setting,
                    candidate.proposal.value,
                    ", ".join(f"{short(cast.public_key)} {_word(cast.accept)}" for cast in candidate.votes),
                    candidate.proposal_id,
                )
                for candidate in candidates
            ],
        )
    for candidate, line in late:
        note(printable(f"{candidate.proposal_id[:16]}: {line}"))


def _effects(client: "DovetailClient", candidate: "Candidate") -> "Effects":
    """What a proposal would change now; nothing is said of other settings than the permitted families.

    Nor where that one cannot be understood: what mends it is voted on all the same.
    """
    from dovetail.cli.upgrades.proposals import Effects, effects
    from dovetail.cli.upgrades.proposing import read_setting
    from dovetail.ledger.settings import TRANSACTION_FAMILIES

    if candidate.proposal.setting == TRANSACTION_FAMILIES:
        with contextlib.suppress(Refused):
            return effects(read_setting(client), candidate)
    return Effects([], [])


def _check_lock(setting: str, value: str) -> None:
    """Raises Refused where a proposal would lock the settings."""
    from dovetail.cli.upgrades.changes import locks
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.permitted import decode_permitted_families
    from dovetail.ledger.settings import TRANSACTION_FAMILIES

    if setting != TRANSACTION_FAMILIES:
        return
    try:
        # From block 0 on: where the chain stands is not asked, the proposal may be meant for another day.
        locked = locks(decode_permitted_families(value), head_num=-1)
    except NotDecodable as error:
        locked = str(error)
    if locked:
        raise Refused(f"{locked}; if that is meant, say --force")


def _word(accept: bool) -> str:
    return (Answer.ACCEPT if accept else Answer.REJECT).value


def open_proposals(client: "DovetailClient", head: str | None = None) -> tuple["Candidate", ...]:
    """The proposals that are still voted on, oldest first. Raises Refused."""
    from dovetail.client import is_not_found
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.settings import PROPOSALS, setting_address
    from families.settings.client import candidates_in

    try:
        leaf = client.leaf(setting_address(PROPOSALS), head=head)
    except Refused as error:
        if not is_not_found(error):
            raise
        return ()
    try:
        return candidates_in(leaf)
    except NotDecodable as error:
        raise Refused(f"the open proposals are damaged: {error}") from None


def _find(candidates: tuple["Candidate", ...], wanted: str) -> "Candidate":
    found = [candidate for candidate in candidates if candidate.proposal_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(candidate.proposal_id for candidate in found or candidates) or "none"
    if found:
        raise Refused(f"{printable(wanted)} begins several open proposals: {listed}")
    raise Refused(f"there is no open proposal {printable(wanted)}; open are: {listed}")
