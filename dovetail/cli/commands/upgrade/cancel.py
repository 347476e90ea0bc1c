"""``upgrade cancel``: calling a plan off before anything came of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import Json, Key, Url, examples, not_empty
from dovetail.cli.submit import nonce, signer_of, submit, url_argument
from dovetail.cli.upgrades.proposing import (
    WAIT_S_DEFAULT,
    Family,
    How,
    Setting,
    WaitForCommit,
    Yes,
    confirm,
    propose_change,
    read_setting,
)
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable, program
from dovetail.common.urls import DEFAULT_URL

if TYPE_CHECKING:
    from dovetail.cli.upgrades.node_families import Told
    from dovetail.client import DovetailClient
    from dovetail.ledger.permitted import Permission
    from dovetail.ledger.settings import FamilyVersion
    from dovetail.ledger.signing import Signer
    from families.settings.candidates import Candidate


def cancel(
    family: Family,
    new: Annotated[str, typer.Argument(metavar="NEW", callback=not_empty, help="The version that is planned.")],
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """Call off the plan for NEW, before its block or, where NEW migrates state, before its migration is made.

    Proposes the setting without NEW, and without the ends that its plan set to older versions: those with the block
    before NEW's first. Other ends stay, and so does what is in force of NEW.

    A plan that is still voted on is voted against instead, all that it proposes with it. A vote cannot be taken back,
    so that is asked.
    """
    from dovetail.cli.upgrades.changes import called_off, coming
    from dovetail.cli.upgrades.node_families import ask
    from dovetail.cli.upgrades.proposals import plans
    from dovetail.client import DovetailClient
    from dovetail.ledger.settings import FamilyVersion

    version, how = FamilyVersion(family, new), How(yes, key, url, wait, as_json)
    with DovetailClient(url) as client:
        setting = read_setting(client)
        asked = ask(client) if setting.entries else None
    candidates = [candidate for candidate in setting.proposals if plans(setting, candidate, version)]
    if candidates:
        accepted = asked and coming(
            setting.entries or (), version, head_num=setting.head_num, unmade=_unmade(asked, family)
        )
        if not accepted or not all(_has_voted(candidate, signer_of(key)) for candidate in candidates):
            _vote_against(candidates, setting, how)
            return
    if setting.entries is None:
        raise Refused(f"{version} is not planned: the setting is absent, and no open proposal plans it")

    def change(client: "DovetailClient", now: Setting) -> "tuple[Permission, ...]":
        return called_off(now.entries or (), version, head_num=now.head_num, unmade=_unmade(ask(client), family))

    questions = []
    told = asked.entry(*version) if asked else None
    if told and told["permission"] == "permitted" and told["migration"] == "due" and told["migrating_processors"]:
        questions.append(
            f"the migration of {version} is under way: where it is in a block before this, older versions misread what"
            " it wrote; stop the processors of it first"
        )
    propose_change(
        setting,
        change,
        family,
        what=f"to call off {version}",
        how=how,
        questions=questions,
        extra={"head_num": setting.head_num},
    )


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(epilog=examples("dovetail upgrade cancel intkey 2.0"))(cancel)


def _unmade(told: "Told", name: str) -> "set[tuple[FamilyVersion, int]]":
    from dovetail.ledger.settings import FamilyVersion

    return {(FamilyVersion(name, each["family_version"]), each.get("from_block", 0)) for each in told.unmade(name)}


def _has_voted(candidate: "Candidate", signer: "Signer") -> bool:
    return any(cast.public_key == signer.public_key for cast in candidate.votes)


def _vote_against(candidates: "list[Candidate]", setting: Setting, how: How) -> None:
    from dovetail.cli.upgrades.proposals import effects
    from dovetail.client import DovetailClient
    from families.settings.client import vote

    by_hand = f"{program()} settings vote PROPOSAL reject --wait 30{url_argument(how.url)}"
    ids = ", ".join(candidate.proposal_id for candidate in candidates)
    if len(candidates) > 1:
        raise Refused(f"{len(candidates)} open proposals plan it, {ids}; vote against each: {by_hand}")
    (candidate,) = candidates
    signer = signer_of(how.key)
    needed = len(setting.keys) - setting.threshold + 1
    if _has_voted(candidate, signer):
        raise Refused(
            f"{signer.public_key} has voted on proposal {ids} already, and a vote stays; it falls when {needed} of"
            f" {len(setting.keys)} keys reject it, each with: {by_hand}"
        )
    changes, late = effects(setting, candidate)
    for line in (*changes, *late):
        note(printable(f"{candidate.proposal_id[:16]}: {line}"))
    if not how.yes:
        confirm(f"vote against proposal {candidate.proposal_id}, a vote that stays", must_ask=True)
    transaction = vote(
        signer, signer.public_key, candidate.proposal_id, candidate.proposal.setting, accept=False, nonce=nonce()
    )
    extra = {"proposal_id": candidate.proposal_id}
    submit(signer, transaction, url=how.url, wait_s=how.wait_s, output=None, as_json=how.as_json, extra=extra)
    with DovetailClient(how.url) as client:
        still = [open_ for open_ in read_setting(client).proposals if open_.proposal_id == candidate.proposal_id]
    against = sum(not cast.accept for open_ in still for cast in open_.votes if cast.public_key in setting.keys)
    note(
        f"The plan is still voted on, your vote is against it: {against} of {needed} that let it fall."
        if still
        else "The plan was still voted on; it has fallen with your vote."
    )
