"""``upgrade cancel``: cancels a plan before it takes effect."""

from typing import Annotated

import typer

from dovetail.cli.options import Json, Key, Url, Yes, examples, text_argument
from dovetail.cli.submit import nonce, signer_of, submit, url_argument
from dovetail.cli.upgrades.changes import called_off, coming
from dovetail.cli.upgrades.node_families import NodeFamilies, read_families
from dovetail.cli.upgrades.proposals import effects, plans
from dovetail.cli.upgrades.proposing import (
    WAIT_S_DEFAULT,
    Family,
    ProposeOptions,
    WaitForCommit,
    confirm,
    propose_change,
)
from dovetail.cli.upgrades.setting import Setting, read_setting
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable, program
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from families.settings.candidates import Candidate
from families.settings.client import vote

app = typer.Typer()


@app.command(epilog=examples("dovetail upgrade cancel intkey 2.0"))
def cancel(
    family: Family,
    new: Annotated[str, text_argument("NEW", "The version that is planned.")],
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """Call off the plan for NEW, before its block or, where NEW migrates state, before its migration is made.

    Proposes the setting without NEW, and without the ends that its plan set to older versions: those with the block
    before NEW's first. Other ends stay, and so do entries of NEW that are in force.

    If votes on the plan are still open, this command votes against the proposal instead, with all its changes. It asks
    first, because a vote cannot be taken back.
    """
    version, options = FamilyVersion(family, new), ProposeOptions(yes, key, url, wait, as_json)
    with DovetailClient(url) as client:
        setting = read_setting(client)
        families = read_families(client) if setting.entries else None
    candidates = [candidate for candidate in setting.proposals if plans(setting, candidate, version)]
    if candidates:
        accepted = families and coming(
            setting.entries or (), version, head_num=setting.head_num, unmigrated=_unmigrated(families, family)
        )
        if not accepted or not all(_has_voted(candidate, signer_of(key)) for candidate in candidates):
            _vote_against(candidates, setting, options)
            return
    if setting.entries is None:
        raise Refused(f"{version} is not planned: the setting is absent, and no open proposal plans it")

    def change(client: DovetailClient, now: Setting) -> tuple[Permission, ...]:
        return called_off(
            now.entries or (), version, head_num=now.head_num, unmigrated=_unmigrated(read_families(client), family)
        )

    questions = []
    entry = families.entry(*version) if families else None
    if entry and entry["permission"] == "permitted" and entry["migration"] == "due" and entry["migrating_processors"]:
        questions.append(
            f"the migration of {version} is under way: if it enters a block before this change, older versions misread"
            " the migrated state; stop its processors first"
        )
    propose_change(
        setting,
        change,
        family,
        what=f"to call off {version}",
        options=options,
        questions=questions,
        extra={"head_num": setting.head_num},
    )


def _unmigrated(families: NodeFamilies, name: str) -> set[tuple[FamilyVersion, int]]:
    return {
        (FamilyVersion(name, each["family_version"]), each.get("from_block", 0)) for each in families.unmigrated(name)
    }


def _has_voted(candidate: Candidate, signer: Signer) -> bool:
    return any(cast.public_key == signer.public_key for cast in candidate.votes)


def _vote_against(candidates: list[Candidate], setting: Setting, options: ProposeOptions) -> None:
    by_hand = f"{program()} settings vote PROPOSAL reject --wait 30{url_argument(options.url)}"
    ids = ", ".join(candidate.proposal_id for candidate in candidates)
    if len(candidates) > 1:
        raise Refused(f"{len(candidates)} open proposals plan it, {ids}; vote against each: {by_hand}")
    (candidate,) = candidates
    signer = signer_of(options.key)
    needed = len(setting.keys) - setting.threshold + 1
    if _has_voted(candidate, signer):
        raise Refused(
            f"{signer.public_key} has voted on proposal {ids} already, and a vote stays; the proposal falls when"
            f" {needed} of {len(setting.keys)} keys reject it, each with: {by_hand}"
        )
    changes, warnings = effects(setting, candidate)
    for line in (*changes, *warnings):
        note(printable(f"{candidate.proposal_id[:16]}: {line}"))
    if not options.yes:
        confirm(f"vote against proposal {candidate.proposal_id}, a vote that stays", must_ask=True)
    transaction = vote(
        signer, signer.public_key, candidate.proposal_id, candidate.proposal.setting, accept=False, nonce=nonce()
    )
    extra = {"proposal_id": candidate.proposal_id}
    submit(
        signer, transaction, url=options.url, wait_s=options.wait_s, output=None, as_json=options.as_json, extra=extra
    )
    with DovetailClient(options.url) as client:
        remaining = [one for one in read_setting(client).proposals if one.proposal_id == candidate.proposal_id]
    against = sum(not cast.accept for one in remaining for cast in one.votes if cast.public_key in setting.keys)
    note(
        f"The plan is still voted on, your vote is against it: {against} of {needed} that let it fall."
        if remaining
        else "The plan was still voted on; it has fallen with your vote."
    )
