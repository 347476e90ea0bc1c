"""The setting of the permitted families as it stands on chain, and proposing another value: for the commands here."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from dovetail.commands.options import WAIT_S_MAX, not_empty
from dovetail.commands.submit import nonce, signer_of, submit, url_argument
from dovetail.errors import Refused
from dovetail.output import note, print_table, program

if TYPE_CHECKING:
    from dovetail.client import DovetailClient
    from families.settings.candidates import Candidate
    from ledger.permitted import Permission
    from ledger.settings import FamilyVersion

WAIT_S_DEFAULT: Final = 60

Family = Annotated[str, typer.Argument(metavar="FAMILY", callback=not_empty, help="The family's name.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
WaitForCommit = Annotated[
    int,
    typer.Option("--wait", min=1, max=WAIT_S_MAX, metavar="SECONDS", help="How long to wait for the commit."),
]


class Setting(NamedTuple):
    """The setting as of one block.

    ``entries``: None where it is absent. ``proposals``: those for it that are still voted on. ``keys``: who may vote;
    ``threshold``: how many of them must accept.
    """

    head_num: int
    entries: "tuple[Permission, ...] | None"
    proposals: "tuple[Candidate, ...]"
    keys: tuple[str, ...]
    threshold: int


def read_setting(client: "DovetailClient") -> Setting:
    """As of the newest block. Raises Refused, also for a value that cannot be understood."""
    from dovetail.commands.settings import open_proposals
    from ledger.errors import NotDecodable
    from ledger.permitted import decode_permitted_families
    from ledger.settings import APPROVAL_THRESHOLD, AUTHORIZED_KEYS, TRANSACTION_FAMILIES

    ready = client.data("/readyz")
    try:
        head_num, head_id = int(ready["head_num"]), str(ready["head_id"])
    except (LookupError, TypeError, ValueError):
        raise Refused(f"{client.url}/readyz names no head") from None
    value = _value(client, TRANSACTION_FAMILIES, head_id)
    try:
        entries = None if value is None else decode_permitted_families(value)
    except NotDecodable as error:
        raise Refused(
            f"the setting cannot be understood, only the settings family is permitted: {error}; mend it with"
            f" `{program()} settings propose {TRANSACTION_FAMILIES} VALUE{url_argument(client.url)}`"
        ) from None
    proposals = tuple(
        candidate for candidate in open_proposals(client, head_id) if candidate.proposal.setting == TRANSACTION_FAMILIES
    )
    keys = (_value(client, AUTHORIZED_KEYS, head_id) or "").split(",")
    threshold = _value(client, APPROVAL_THRESHOLD, head_id) or "1"
    if not threshold.isascii() or not threshold.isdigit():
        raise Refused(f"the setting {APPROVAL_THRESHOLD} is {threshold!r}, no number of votes")
    return Setting(head_num, entries, proposals, tuple(key.strip() for key in keys if key.strip()), int(threshold))


def propose_change(
    before: Setting,
    entries: "Sequence[Permission]",
    *,
    what: str,
    key: str | None,
    url: str,
    wait_s: int,
    yes: bool,
    must_ask: bool = False,
    as_json: bool,
    extra: Mapping[str, object],
) -> None:
    """Show ``entries`` as a change of the setting, ask, propose them, wait for the commit, and say who votes on them.

    Nobody is asked with ``yes``, nor where there is no terminal; ``must_ask``: then ``yes`` must be said. ``what``
    names the change, ``extra`` joins the JSON document. Raises Refused, and Abort for a no.
    """
    from families.settings.client import propose
    from ledger.permitted import encode_permitted_families
    from ledger.settings import TRANSACTION_FAMILIES

    signer = signer_of(key)
    if before.keys and signer.public_key not in before.keys:
        raise Refused(
            f"{signer.public_key} is not authorized to change settings; sign with --key NAME of one of:"
            f" {', '.join(before.keys)}"
        )
    if not as_json:
        _show(before, entries)
    for candidate in before.proposals:
        note(
            f"proposal {candidate.proposal_id} for the same setting is still voted on: whichever of the two is accepted"
            " last undoes the other"
        )
    if not yes:
        _ask(what, must_ask=must_ask)
    value = encode_permitted_families(entries)
    proposal = propose(signer, signer.public_key, TRANSACTION_FAMILIES, value, nonce())
    said: dict[str, object] = {"proposal_id": proposal.proposal_id}
    if as_json:
        said |= {"value": value, "votes_needed": before.threshold, "in_force": before.threshold == 1, **extra}
    submit(signer, proposal.transaction, url=url, wait_s=wait_s, output=None, as_json=as_json, extra=said)
    if before.threshold > 1 and not as_json:
        typer.echo(
            f"It takes effect when {before.threshold} of {len(before.keys)} keys have accepted it; yours has. Others"
            f" vote with:\n  {program()} settings vote {proposal.proposal_id[:16]} accept --wait 30{url_argument(url)}"
        )


def window_text(entries: "Sequence[Permission]") -> str:
    """In which blocks these entries of one version permit it, and what it migrates first."""
    return "; ".join(map(_window, entries)) or "not permitted"


def _window(entry: "Permission") -> str:
    blocks = " ".join(
        text
        for text, given in (
            (f"from block {entry.from_block}", bool(entry.from_block)),
            (f"until block {entry.until_block}", entry.until_block is not None),
        )
        if given
    )
    return (blocks or "permitted") + (f", migrates {', '.join(entry.migrate)}" if entry.migrate else "")


def _show(before: Setting, entries: "Sequence[Permission]") -> None:
    def of(family: "FamilyVersion", among: "Sequence[Permission] | None") -> str:
        if among is None:
            return "permitted, as everything is"
        return window_text([entry for entry in among if entry.family == family])

    families = dict.fromkeys(entry.family for entry in (*(before.entries or ()), *entries))
    rows = [(*family, of(family, before.entries), of(family, entries)) for family in families]
    if before.entries is None:
        rows.append(("all others", "", "permitted, as everything is", "not permitted"))
    typer.echo(f"The head is block {before.head_num}.")
    print_table(("FAMILY", "VERSION", "NOW", "THEN"), rows)


def _ask(what: str, *, must_ask: bool) -> None:
    if sys.stdin.isatty():
        typer.confirm(f"Propose {what}?", abort=True, err=True)
    elif must_ask:
        raise Refused(f"nobody is there to ask whether to propose {what}; say --yes")


def _value(client: "DovetailClient", key: str, head: str) -> str | None:
    from dovetail.client import is_not_found
    from ledger.errors import NotDecodable
    from ledger.settings import decode_setting, setting_address

    try:
        return decode_setting(client.leaf(setting_address(key), head=head)).get(key)
    except NotDecodable as error:
        raise Refused(f"the setting {key} is damaged: {error}") from None
    except Refused as error:
        if not is_not_found(error):
            raise
        return None
