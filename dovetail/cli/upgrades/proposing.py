"""Proposes another value of the setting of the permitted families, and asks the user first."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import typer

from dovetail.cli.options import WAIT_S_MAX, number_option, text_argument
from dovetail.cli.printing import print_table
from dovetail.cli.submit import nonce, signer_of, submit, url_argument
from dovetail.cli.upgrades.changes import gap_of, lifted, value_of
from dovetail.cli.upgrades.proposals import rival
from dovetail.cli.upgrades.setting import Setting, read_setting, window_text
from dovetail.client import BatchStatus, DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable, program
from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import TRANSACTION_FAMILIES, FamilyVersion, value_digest
from families.settings.client import propose

WAIT_S_DEFAULT: Final = 60

Family = Annotated[str, text_argument("FAMILY", "The family's name.")]
WaitForCommit = Annotated[int, number_option("--wait", 1, WAIT_S_MAX, "How long to wait for the commit.", "SECONDS")]


class ProposeOptions(NamedTuple):
    """The options that all proposing commands share."""

    yes: bool
    key: str | None
    url: str
    wait_s: int
    as_json: bool


Change = Callable[["DovetailClient", Setting], "tuple[Permission, ...]"]
"""Returns the changed entries of a setting. Called before and after the user is asked. Raises Refused."""


def propose_change(
    before: Setting,
    change: Change,
    family: str,
    *,
    what: str,
    options: ProposeOptions,
    questions: Sequence[str] = (),
    extra: Mapping[str, object],
) -> None:
    """Ask the user, propose the result of ``change``, wait for the commit, and show how others vote.

    ``questions``: sentences to read before saying yes. Two may be added here: for blocks that would take no version of
    ``family`` and for ends that are lifted. With ``options.yes`` nobody is asked. Without a terminal nobody is asked if
    there are no questions. ``what`` names the change; ``extra`` joins the JSON document.

    Raises Refused, also if the setting changed meanwhile or differs from the proposal afterwards. Raises Abort if the
    user says no.
    """
    with DovetailClient(options.url) as client:
        entries = change(client, before)
    signer = signer_of(options.key)
    if before.keys and signer.public_key not in before.keys:
        raise Refused(
            f"{signer.public_key} is not authorized to change settings; sign with --key NAME of one of:"
            f" {', '.join(before.keys)}"
        )
    value = value_of(entries)
    _note_proposals(before, value, options.url)
    questions = [*questions, *_questions(before, entries, family)]
    if not options.as_json:
        _show(before, entries)
    for question in questions:
        note(printable(question))
    if not options.yes:
        confirm(f"propose {what}", must_ask=bool(questions))
    with DovetailClient(options.url) as client:
        again = read_setting(client)
        if not again.differs_only_in_head(before) or change(client, again) != entries:
            raise Refused(
                f"the setting has changed meanwhile, or a proposal for it; nothing is proposed. Look again: {program()}"
                f" upgrade status{url_argument(options.url)}"
            )
    base = value_digest(before.value)
    proposal = propose(signer, signer.public_key, TRANSACTION_FAMILIES, value, nonce(), base=base)
    shown: dict[str, object] = {"proposal_id": proposal.proposal_id}
    if options.as_json:
        shown |= {"value": value, "votes_needed": before.threshold, **extra}
    failures: list[Refused] = []

    def outcome(status: BatchStatus) -> dict[str, object]:
        committed = before.threshold == 1 and status.status == "COMMITTED"
        if committed:
            try:
                _check_in_force(entries, options.url)
            except Refused as error:
                failures.append(error)
        return {"in_force": committed and not failures} if options.as_json else {}

    try:
        submit(
            signer,
            proposal.transaction,
            url=options.url,
            wait_s=options.wait_s,
            output=None,
            as_json=options.as_json,
            extra=shown,
            outcome=outcome,
        )
    except KeyboardInterrupt:
        note(f"proposal {proposal.proposal_id} is submitted and stays open")
        raise
    if failures:
        raise failures[0]
    if before.threshold > 1 and not options.as_json:
        typer.echo(
            f"It takes effect when {before.threshold} of {len(before.keys)} keys have accepted it; yours has. Others"
            f" vote with:\n  {_vote_line(proposal.proposal_id, options.url)}"
        )


def _show(before: Setting, entries: tuple[Permission, ...]) -> None:
    def of(family: FamilyVersion, among: Sequence[Permission] | None) -> str:
        if among is None:
            return "permitted, as everything is"
        return window_text([entry for entry in among if entry.family == family])

    def ends(family: FamilyVersion) -> str:
        return "".join(f"; its end with block {end} is lifted" for end in lifted(before.entries or (), entries, family))

    families = dict.fromkeys(entry.family for entry in (*(before.entries or ()), *entries))
    rows = [(*family, of(family, before.entries), of(family, entries) + ends(family)) for family in families]
    if before.entries is None:
        rows.append(("all others", "", "permitted, as everything is", "not permitted"))
    typer.echo(f"The head is block {before.head_num}.")
    print_table(("FAMILY", "VERSION", "NOW", "THEN"), rows)


def _questions(before: Setting, entries: tuple[Permission, ...], family: str) -> list[str]:
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
    """Note the open proposals. Raises Refused if one of them proposes the same value."""
    for candidate in before.proposals:
        if candidate.proposal.value == value:
            raise Refused(
                f"proposal {candidate.proposal_id} asks for the same and is still voted on; accept that one:"
                f" {_vote_line(candidate.proposal_id, url)}"
            )
        note(rival(candidate))


def _vote_line(proposal_id: str, url: str) -> str:
    return f"{program()} settings vote {proposal_id[:16]} accept --wait 30{url_argument(url)}"


def confirm(what: str, *, must_ask: bool) -> None:
    """Ask whether to do ``what``, as in "propose this". Without a terminal, go on unless ``must_ask``.

    Ctrl-C raises KeyboardInterrupt, which ``typer.confirm`` takes for a no. Raises Refused if it must ask without a
    terminal, and Abort if the user says no.
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


def _check_in_force(entries: tuple[Permission, ...], url: str) -> None:
    """Raise Refused if the setting differs from the value that was just committed."""
    with DovetailClient(url) as client:
        if read_setting(client).entries != entries:
            raise Refused(
                "it was committed, but the setting is something else by now: somebody changed it again. Look again:"
                f" {program()} upgrade status{url_argument(url)}"
            )
