"""The setting of the permitted families as it stands on chain, and proposing another value: for the commands here."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from dovetail.cli.options import WAIT_S_MAX, not_empty
from dovetail.cli.submit import nonce, signer_of, submit, url_argument
from dovetail.common.errors import Refused
from dovetail.common.output import note, print_table, printable, program

if TYPE_CHECKING:
    from dovetail.client import BatchStatus, DovetailClient
    from dovetail.ledger.permitted import Permission
    from dovetail.ledger.settings import FamilyVersion
    from families.settings.candidates import Candidate

WAIT_S_DEFAULT: Final = 60

Family = Annotated[str, typer.Argument(metavar="FAMILY", callback=not_empty, help="The family's name.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
WaitForCommit = Annotated[
    int,
    typer.Option("--wait", min=1, max=WAIT_S_MAX, metavar="SECONDS", help="How long to wait for the commit."),
]


class How(NamedTuple):
    """What the options say that all commands here have that propose something."""

    yes: bool
    key: str | None
    url: str
    wait_s: int
    as_json: bool


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

    def is_as(self, other: "Setting") -> bool:
        """Whether nothing but the head has changed."""
        return self[1:] == other[1:]


Change = Callable[["DovetailClient", Setting], "tuple[Permission, ...]"]
"""What a command makes of the setting: asked twice, before the question and after it. Raises Refused."""


def read_setting(client: "DovetailClient") -> Setting:
    """As of the newest block. Raises Refused, also for a value that cannot be understood."""
    from dovetail.cli.commands.settings import open_proposals
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.permitted import BLOCK_NUM_MAX, decode_permitted_families
    from dovetail.ledger.settings import APPROVAL_THRESHOLD, AUTHORIZED_KEYS, TRANSACTION_FAMILIES
    from families.settings.handler import is_threshold

    ready = client.data("/readyz")
    head_num, head_id = (ready.get("head_num"), ready.get("head_id")) if isinstance(ready, dict) else (None, None)
    if type(head_num) is not int or not 0 <= head_num <= BLOCK_NUM_MAX or not isinstance(head_id, str):
        raise Refused(f"{client.url}/readyz names no head")
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
    threshold = _value(client, APPROVAL_THRESHOLD, head_id)
    if threshold is not None and not is_threshold(threshold):
        raise Refused(f"the setting {APPROVAL_THRESHOLD} is {threshold[:80]!r}, no number of votes")
    return Setting(
        head_num, entries, proposals, tuple(key.strip() for key in keys if key.strip()), int(threshold or "1")
    )


def propose_change(
    before: Setting,
    change: Change,
    family: str,
    *,
    what: str,
    how: How,
    questions: Sequence[str] = (),
    extra: Mapping[str, object],
) -> None:
    """Ask, propose what ``change`` makes of ``before``, wait for the commit, and say who votes on it.

    Nobody is asked with ``yes``, nor where there is no terminal, unless there are ``questions``: what has to be known
    before saying yes. Two more come from here: that blocks would take no version of ``family``, and that ends are
    lifted. ``what`` names the change, ``extra`` joins the JSON document.

    Raises Refused: also when the setting changed while somebody thought, or is not what was proposed in the end. Raises
    Abort for a no.
    """
    from dovetail.cli.upgrades.changes import value_of
    from dovetail.client import DovetailClient
    from dovetail.ledger.settings import TRANSACTION_FAMILIES
    from families.settings.client import propose

    with DovetailClient(how.url) as client:
        entries = change(client, before)
    signer = signer_of(how.key)
    if before.keys and signer.public_key not in before.keys:
        raise Refused(
            f"{signer.public_key} is not authorized to change settings; sign with --key NAME of one of:"
            f" {', '.join(before.keys)}"
        )
    value = value_of(entries)
    _note_proposals(before, value, how.url)
    questions = [*questions, *_questions(before, entries, family)]
    if not how.as_json:
        _show(before, entries)
    for question in questions:
        note(printable(question))
    if not how.yes:
        confirm(f"propose {what}", must_ask=bool(questions))
    with DovetailClient(how.url) as client:
        again = read_setting(client)
        if not again.is_as(before) or change(client, again) != entries:
            raise Refused(
                f"the setting has changed meanwhile, or a proposal for it; nothing is proposed. Look again: {program()}"
                f" upgrade status{url_argument(how.url)}"
            )
    proposal = propose(signer, signer.public_key, TRANSACTION_FAMILIES, value, nonce())
    said: dict[str, object] = {"proposal_id": proposal.proposal_id}
    if how.as_json:
        said |= {"value": value, "votes_needed": before.threshold, **extra}
    undone: list[Refused] = []

    def outcome(status: "BatchStatus") -> dict[str, object]:
        committed = before.threshold == 1 and status.status == "COMMITTED"
        if committed:
            try:
                _check_in_force(entries, how.url)
            except Refused as error:
                undone.append(error)
        return {"in_force": committed and not undone} if how.as_json else {}

    try:
        submit(
            signer,
            proposal.transaction,
            url=how.url,
            wait_s=how.wait_s,
            output=None,
            as_json=how.as_json,
            extra=said,
            outcome=outcome,
        )
    except KeyboardInterrupt:
        note(f"proposal {proposal.proposal_id} is handed in and stands, whether it is waited for or not")
        raise
    if undone:
        raise undone[0]
    if before.threshold > 1 and not how.as_json:
        typer.echo(
            f"It takes effect when {before.threshold} of {len(before.keys)} keys have accepted it; yours has. Others"
            f" vote with:\n  {_vote_line(proposal.proposal_id, how.url)}"
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


def _show(before: Setting, entries: "tuple[Permission, ...]") -> None:
    from dovetail.cli.upgrades.changes import lifted

    def of(family: "FamilyVersion", among: "Sequence[Permission] | None") -> str:
        if among is None:
            return "permitted, as everything is"
        return window_text([entry for entry in among if entry.family == family])

    def ends(family: "FamilyVersion") -> str:
        return "".join(f"; its end with block {end} is lifted" for end in lifted(before.entries or (), entries, family))

    families = dict.fromkeys(entry.family for entry in (*(before.entries or ()), *entries))
    rows = [(*family, of(family, before.entries), of(family, entries) + ends(family)) for family in families]
    if before.entries is None:
        rows.append(("all others", "", "permitted, as everything is", "not permitted"))
    typer.echo(f"The head is block {before.head_num}.")
    print_table(("FAMILY", "VERSION", "NOW", "THEN"), rows)


def _questions(before: Setting, entries: "tuple[Permission, ...]", family: str) -> list[str]:
    from dovetail.cli.upgrades.changes import gap_of, lifted

    questions = []
    gap = gap_of(entries, family, before.head_num)
    if gap:
        first, last = gap
        blocks = f"from block {first} on" if last is None else f"in blocks {first} to {last}"
        questions.append(f"no version of {family} is permitted {blocks} then")
    for name in dict.fromkeys(entry.family for entry in entries):
        questions += [
            f"the end of {name} with block {end} is lifted: it has no end then"
            for end in lifted(before.entries or (), entries, name)
        ]
    return questions


def _note_proposals(before: Setting, value: str, url: str) -> None:
    """What is voted on already. Raises Refused where that is the same."""
    for candidate in before.proposals:
        if candidate.proposal.value == value:
            raise Refused(
                f"proposal {candidate.proposal_id} asks for the same and is still voted on; accept that one:"
                f" {_vote_line(candidate.proposal_id, url)}"
            )
        note(
            f"proposal {candidate.proposal_id} for the same setting is still voted on: whichever of the two is accepted"
            " last undoes the other"
        )


def _vote_line(proposal_id: str, url: str) -> str:
    return f"{program()} settings vote {proposal_id[:16]} accept --wait 30{url_argument(url)}"


def confirm(what: str, *, must_ask: bool) -> None:
    """Ask whether to do ``what``, as in "propose this"; ``must_ask``: not without somebody who answers.

    Not ``typer.confirm``, to which Ctrl-C is a no like any other: it ends the program with the code of Ctrl-C.

    Raises Refused where nobody is there, and Abort for a no.
    """
    what = printable(what)
    if not sys.stdin.isatty():
        if must_ask:
            raise Refused(f"nobody is there to ask whether to {what}; say --yes")
        return
    while True:
        typer.echo(f"{what[0].upper()}{what[1:]}? [y/N]: ", nl=False, err=True)
        answer = sys.stdin.readline().strip().lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise typer.Abort


def _check_in_force(entries: "tuple[Permission, ...]", url: str) -> None:
    """Raises Refused where the setting is something else than what was just committed."""
    from dovetail.client import DovetailClient

    with DovetailClient(url) as client:
        if read_setting(client).entries != entries:
            raise Refused(
                "it was committed, but the setting is something else by now: somebody changed it at the same time, and"
                f" the later change undid the earlier. Look again: {program()} upgrade status{url_argument(url)}"
            )


def _value(client: "DovetailClient", key: str, head: str) -> str | None:
    from dovetail.client import is_not_found
    from dovetail.ledger.errors import NotDecodable
    from dovetail.ledger.settings import decode_setting, setting_address

    try:
        return decode_setting(client.leaf(setting_address(key), head=head)).get(key)
    except NotDecodable as error:
        raise Refused(f"the setting {key} is damaged: {error}") from None
    except Refused as error:
        if not is_not_found(error):
            raise
        return None
