"""``settings``: the ledger's own settings, changed by votes of the authorized keys."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.commands.options import Head, Json, Key, Output, Url, Wait, examples, not_empty
from dovetail.commands.submit import nonce, signer_of, submit
from dovetail.errors import Refused
from dovetail.output import print_json, print_table, printable, short
from dovetail.urls import DEFAULT_URL

if TYPE_CHECKING:
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
    as_json: Json = False,
) -> None:
    """Propose a change, signed by an authorized key, whose vote counts as accepting.

    With an approval threshold of 1 it takes effect at once; else others vote on the proposal id that is printed.
    """
    from families.settings.client import propose as build_proposal

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
    """Vote on an open proposal."""
    from dovetail.client import DovetailClient
    from families.settings.client import vote as build_vote

    signer = signer_of(key)
    with DovetailClient(url) as client:
        candidate = _find(open_proposals(client), proposal)
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
    from ledger.errors import NotDecodable
    from ledger.settings import NAMESPACE, PROPOSALS, decode_setting

    settings: dict[str, str] = {}
    with DovetailClient(url) as client:
        for leaf in client.items("state", address=NAMESPACE, head=head, count=1000):
            try:
                settings.update(decode_setting(decode_base64(leaf["data"])))
            except NotDecodable as error:
                raise Refused(f"the setting at {leaf['address']} is damaged: {error}") from None
        candidates = open_proposals(client, head)
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


def _word(accept: bool) -> str:
    return (Answer.ACCEPT if accept else Answer.REJECT).value


def open_proposals(client: "DovetailClient", head: str | None = None) -> tuple["Candidate", ...]:
    """The proposals that are still voted on, oldest first. Raises Refused."""
    from dovetail.client import is_not_found
    from families.settings.client import candidates_in
    from ledger.errors import NotDecodable
    from ledger.settings import PROPOSALS, setting_address

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
