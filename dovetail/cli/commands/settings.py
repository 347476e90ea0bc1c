"""``settings``: lists the ledger's settings, and changes them by votes of the authorized keys."""

import contextlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from dovetail.cli.options import Head, Json, Key, Output, Url, Wait, examples, text_argument
from dovetail.cli.printing import print_json, print_table, short
from dovetail.cli.submit import nonce, signer_of, submit
from dovetail.cli.upgrades.proposals import Effects, cannot, effects, rival
from dovetail.cli.upgrades.setting import open_proposals, read_setting, read_values, refusal_of
from dovetail.client import DovetailClient, decode_base64
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.errors import NotDecodable
from dovetail.ledger.settings import NAMESPACE, PROPOSALS, TRANSACTION_FAMILIES, decode_setting, value_digest
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
    as_json: Json = False,
) -> None:
    """Propose a change. It is signed by an authorized key, which thereby votes to accept it.

    With an approval threshold of 1 the change takes effect at once; else others vote on the proposal id that is
    printed.

    The proposal is made against the setting's present value. If another proposal changes the setting first, this one
    cannot take effect any more, and has to be made anew. --output asks no node: what is written there is made against
    the value that it finds when it enters a block.

    Values after which nobody could change settings any more are refused: keys that cannot sign, a threshold above the
    number of keys, and permitted families that keep sawtooth_settings out of some block.
    """
    base = "" if output is not None else _base(url, setting, value)
    signer = signer_of(key)
    proposal = build_proposal(signer, signer.public_key, setting, value, nonce(), base=base)
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

    Before accepting a proposal for the permitted families, the command shows its effects on stderr. It does not accept
    a proposal that cannot take effect, as when the setting has changed since the proposal was made.
    """
    signer = signer_of(key)
    with DovetailClient(url) as client:
        candidate = _find(open_proposals(client), proposal)
        if answer is Answer.ACCEPT:
            refusal = _refusal(candidate, read_values(client, candidate.proposal.setting))
            if refusal is not None:
                raise Refused(f"proposal {candidate.proposal_id}: {cannot(refusal)}")
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
        refusals = {candidate.proposal_id: _refusal(candidate, settings) for candidate in candidates}
        warnings = [
            (candidate, line)
            for candidate in candidates
            for line in _warnings(client, candidate, refusals[candidate.proposal_id], head)
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
                        "refusal": refusals[candidate.proposal_id],
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


def _warnings(client: DovetailClient, candidate: Candidate, refusal: str | None, head: str | None) -> list[str]:
    if refusal is not None:
        return [cannot(refusal)]
    return [] if head else _effects(client, candidate).warnings


def _refusal(candidate: Candidate, values: Mapping[str, str]) -> str | None:
    """Why an open proposal cannot take effect; None if it can."""
    return refusal_of(candidate.proposal.setting, candidate.proposal.value, candidate.base, values)


def _base(url: str, setting: str, value: str) -> str:
    """The digest of the setting's present value. Raises Refused if the setting may not become ``value``.

    Notes the open proposals for the same setting.
    """
    with DovetailClient(url) as client:
        values = read_values(client, setting)
        base = value_digest(values.get(setting))
        refusal = refusal_of(setting, value, base, values)
        if refusal is not None:
            raise Refused(refusal)
        for candidate in open_proposals(client):
            if candidate.proposal.setting == setting:
                note(rival(candidate))
    return base


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
