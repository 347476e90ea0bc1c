"""``settings``: lists the ledger's settings, and changes them by votes of the authorized keys."""

import contextlib
from enum import StrEnum
from typing import Annotated

import typer

from dovetail.cli.options import Head, Json, Key, Output, Url, Wait, examples, text_argument
from dovetail.cli.printing import print_json, print_table, short
from dovetail.cli.submit import nonce, signer_of, submit
from dovetail.cli.upgrades.changes import locks
from dovetail.cli.upgrades.proposals import Effects, effects
from dovetail.cli.upgrades.setting import open_proposals, read_setting
from dovetail.client import DovetailClient, decode_base64
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.permitted import decode_permitted_families
from dovetail.ledger.settings import NAMESPACE, PROPOSALS, TRANSACTION_FAMILIES, decode_setting
from families.settings.candidates import Candidate
from families.settings.client import propose as build_proposal
from families.settings.client import vote as build_vote

app = typer.Typer(help="The ledger's settings: propose, vote, list.", no_args_is_help=True)


class Answer(StrEnum):
    ACCEPT = "accept"
    REJECT = "reject"


@app.command(
    epilog=examples(
        "dovetail settings propose my.setting on --wait 30",
        "dovetail settings propose sawtooth.settings.vote.approval_threshold 2 --key alice",
    )
)
def propose(
    setting: Annotated[str, text_argument("KEY", "The setting, as in a.dotted.key.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value.")],
    wait: Wait = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    output: Output = None,
    force: Annotated[bool, typer.Option("--force", help="Propose even a value that would lock the settings.")] = False,
    as_json: Json = False,
) -> None:
    """Propose a change. It is signed by an authorized key, which thereby votes to accept it.

    With an approval threshold of 1 the change takes effect at once; else others vote on the proposal id that is
    printed.

    A value of sawtooth.validator.transaction_families that is malformed, or that keeps the settings family out of some
    block, is refused: no setting could be changed any more.
    """
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
    proposal: Annotated[str, text_argument("PROPOSAL", "The proposal's id, or an unmistakable beginning.")],
    answer: Annotated[Answer, typer.Argument(help="How to vote.", show_default=False)],
    wait: Wait = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Vote on an open proposal.

    Before accepting a proposal for the permitted families, the command shows its effects on stderr.
    """
    signer = signer_of(key)
    with DovetailClient(url) as client:
        candidate = _find(open_proposals(client), proposal)
        if answer is Answer.ACCEPT:
            changes, warnings = _effects(client, candidate)
            for line in (*changes, *warnings):
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
    """List the settings in force and the open proposals."""
    settings: dict[str, str] = {}
    with DovetailClient(url) as client:
        for leaf in client.items("state", address=NAMESPACE, head=head, count=1000):
            try:
                settings.update(decode_setting(decode_base64(leaf["data"])))
            except NotDecodable as error:
                raise Refused(f"the setting at {leaf['address']} is damaged: {error}") from None
        candidates = open_proposals(client, head)
        warnings = [
            (candidate, line) for candidate in candidates if not head for line in _effects(client, candidate).warnings
        ]
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
    for candidate, line in warnings:
        note(printable(f"{candidate.proposal_id[:16]}: {line}"))


def _effects(client: DovetailClient, candidate: Candidate) -> Effects:
    """The effects of a proposal for the permitted families; none for other settings.

    Also none if the current value is malformed, because the proposal may correct the value.
    """
    if candidate.proposal.setting == TRANSACTION_FAMILIES:
        with contextlib.suppress(Refused):
            return effects(read_setting(client), candidate)
    return Effects([], [])


def _check_lock(setting: str, value: str) -> None:
    """Raise Refused if a proposal would lock the settings."""
    if setting != TRANSACTION_FAMILIES:
        return
    try:
        # Checked from block 0 on, whatever the head is, because the proposal may be submitted later.
        locked = locks(decode_permitted_families(value), head_num=-1)
    except NotDecodable as error:
        locked = str(error)
    if locked:
        raise Refused(f"{locked}; if that is meant, say --force")


def _word(accept: bool) -> str:
    return (Answer.ACCEPT if accept else Answer.REJECT).value


def _find(candidates: tuple[Candidate, ...], wanted: str) -> Candidate:
    found = [candidate for candidate in candidates if candidate.proposal_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(candidate.proposal_id for candidate in found or candidates) or "none"
    if found:
        raise Refused(f"{printable(wanted)} begins several open proposals: {listed}")
    raise Refused(f"there is no open proposal {printable(wanted)}; open are: {listed}")
