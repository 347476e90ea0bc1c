"""``upgrade cancel``: calling a plan off before its block."""

from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.commands.options import Json, Key, Url, examples, not_empty
from dovetail.commands.submit import nonce, signer_of, submit, url_argument
from dovetail.commands.upgrade.proposing import (
    WAIT_S_DEFAULT,
    Family,
    Setting,
    WaitForCommit,
    Yes,
    propose_change,
    read_setting,
)
from dovetail.errors import Refused
from dovetail.output import program
from dovetail.urls import DEFAULT_URL

if TYPE_CHECKING:
    from families.settings.candidates import Candidate
    from ledger.settings import FamilyVersion


def cancel(
    family: Family,
    new: Annotated[str, typer.Argument(metavar="NEW", callback=not_empty, help="The version that is planned.")],
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """Call off the plan for NEW before its block.

    Proposes the setting without NEW, and without the ends that its plan set to older versions. A plan that is still
    voted on is voted against.
    """
    from dovetail.client import DovetailClient
    from dovetail.commands.upgrade.changes import called_off
    from ledger.settings import FamilyVersion

    version = FamilyVersion(family, new)
    with DovetailClient(url) as client:
        setting = read_setting(client)
    if not any(entry.family == version for entry in setting.entries or ()):
        candidates = [candidate for candidate in setting.proposals if version in _named_by(candidate)]
        if candidates:
            _vote_against(candidates, setting, key=key, url=url, wait_s=wait, as_json=as_json)
            return
    if setting.entries is None:
        raise Refused(f"{version} is not planned: the setting is absent, and no open proposal names it")
    entries = called_off(setting.entries, version, head_num=setting.head_num)
    propose_change(
        setting,
        entries,
        what=f"to call off {version}",
        key=key,
        url=url,
        wait_s=wait,
        yes=yes,
        as_json=as_json,
        extra={"head_num": setting.head_num},
    )


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(epilog=examples("dovetail upgrade cancel intkey 2.0"))(cancel)


def _named_by(candidate: "Candidate") -> "set[FamilyVersion]":
    from ledger.errors import NotDecodable
    from ledger.permitted import decode_permitted_families

    try:
        return {entry.family for entry in decode_permitted_families(candidate.proposal.value)}
    except NotDecodable:
        return set()


def _vote_against(
    candidates: "list[Candidate]", setting: Setting, *, key: str | None, url: str, wait_s: int, as_json: bool
) -> None:
    from families.settings.client import vote

    by_hand = f"{program()} settings vote PROPOSAL reject --wait 30{url_argument(url)}"
    ids = ", ".join(candidate.proposal_id for candidate in candidates)
    if len(candidates) > 1:
        raise Refused(f"{len(candidates)} open proposals name it, {ids}; vote against each: {by_hand}")
    (candidate,) = candidates
    signer = signer_of(key)
    if any(cast.public_key == signer.public_key for cast in candidate.votes):
        rejections = len(setting.keys) - setting.threshold + 1
        raise Refused(
            f"{signer.public_key} has voted on proposal {ids} already, and a vote stays; it falls when {rejections} of"
            f" {len(setting.keys)} keys reject it, each with: {by_hand}"
        )
    transaction = vote(
        signer, signer.public_key, candidate.proposal_id, candidate.proposal.setting, accept=False, nonce=nonce()
    )
    extra = {"proposal_id": candidate.proposal_id}
    submit(signer, transaction, url=url, wait_s=wait_s, output=None, as_json=as_json, extra=extra)
    if not as_json:
        typer.echo("The plan was still voted on; your vote is against it.")
