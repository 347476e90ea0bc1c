"""``upgrade plan``: proposes the next version of a family from a block on."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from dovetail.cli.options import Json, Key, Url, Yes, examples, text_argument, text_option
from dovetail.cli.submit import url_argument
from dovetail.cli.upgrades.changes import block_of, planned
from dovetail.cli.upgrades.node_families import NodeFamilies, committed_by_family, read_families
from dovetail.cli.upgrades.proposing import WAIT_S_DEFAULT, Family, ProposeOptions, WaitForCommit, propose_change
from dovetail.cli.upgrades.setting import Setting, read_setting
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.output import note, printable, program
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.errors import some_of
from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import FAMILY_NAME, FAMILY_VERSION, FamilyVersion
from dovetail.node.handlers import make_handlers
from processor_sdk.migration import INHERITED_MIGRATE

app = typer.Typer()

_SHOWN_MAX: Final = 10


@app.command(
    epilog=examples(
        "dovetail upgrade plan intkey 1.0 2.0 --at +100",
        "dovetail upgrade plan intkey 1.0 2.0 --at 1200 --until 5000 --yes",
        "dovetail upgrade plan intkey 2.0 3.0 --at +100 --migrate my_family:MyHandler",
    )
)
def plan(
    family: Family,
    old: Annotated[str, text_argument("OLD", "The version in use.")],
    new: Annotated[str, text_argument("NEW", "The version to come.")],
    at: Annotated[
        str,
        text_option(
            "--at", "+N|BLOCK", "The first block that may hold NEW: a number, or +N for N blocks after the head."
        ),
    ],
    until: Annotated[
        str | None,
        text_option(
            "--until",
            "+N|BLOCK",
            "The last block that may hold OLD. Default: no end; with --migrate the block before --at.",
        ),
    ] = None,
    migrate: Annotated[
        list[str] | None,
        text_option(
            "--migrate",
            "MODULE:HANDLER|PREFIX",
            "NEW migrates the state under this prefix, or under the handler's namespaces. May be repeated.",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        text_option("--also", "FAMILY:VERSION", "Permit this version, too, without limits. May be repeated."),
    ] = None,
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """Plan that NEW may enter blocks from a block on, and when OLD may no more.

    Shows what the setting sawtooth.validator.transaction_families becomes, asks, proposes it with an authorized key,
    and waits for the commit. Blocks are made only when there is work, so +100 may be a minute or a month.

    If the setting is absent everything is permitted. The plan then permits only versions that this node knows to be in
    use; add others with --also.
    """
    old_version, new_version = FamilyVersion(family, old), FamilyVersion(family, new)
    prefixes = _prefixes(migrate or (), new_version)
    added = [_family_version(text) for text in also or ()]
    with DovetailClient(url) as client:
        setting, families = read_setting(client), read_families(client)
        entries = setting.entries
        if entries is None:
            entries = _in_use(client, families, old_version, new_version, added)
    named = {entry.family for entry in entries}
    entries = (*entries, *(Permission(name) for name in dict.fromkeys(added) if name not in named))
    from_block = block_of(at, "--at", setting.head_num)
    until_block = None if until is None else block_of(until, "--until", setting.head_num)

    def change(_: DovetailClient, now: Setting) -> tuple[Permission, ...]:
        return planned(
            entries,
            old_version,
            new_version,
            from_block=from_block,
            until_block=until_block,
            migrate=prefixes,
            head_num=now.head_num,
        )

    questions = _questions(families, new_version, prefixes)
    if setting.entries is None:
        questions.append(
            "the setting is absent, so everything is permitted now; with the setting only its versions are"
        )
    propose_change(
        setting,
        change,
        family,
        what=f"{new_version} from block {from_block}",
        options=ProposeOptions(yes, key, url, wait, as_json),
        questions=questions,
        extra={"head_num": setting.head_num, "from_block": from_block},
    )
    if not as_json:
        typer.echo(
            f"Then: start processors of {new_version} beside every node ({program()} processor MODULE:HANDLER); who is"
            f" ready, and what would happen:\n  {program()} upgrade status --watch{url_argument(url)}"
        )


def _prefixes(named: Iterable[str], new: FamilyVersion) -> list[str]:
    """The prefixes that ``--migrate`` names, each once. Raises Refused."""
    prefixes: dict[str, None] = {}
    for text in named:
        if ":" not in text:
            prefixes[text] = None
            continue
        for handler in make_handlers(text):
            if (handler.family_name, handler.family_version) != new:
                raise Refused(f"--migrate {text} is for {handler.family_name} {handler.family_version}, not for {new}")
            if not handler.migrates:
                raise Refused(
                    f"--migrate {text} declares no migrate(self, context); leave --migrate out, or write it;"
                    f" {INHERITED_MIGRATE}"
                )
            prefixes |= dict.fromkeys(handler.namespaces)
    return list(prefixes)


def _family_version(text: str) -> FamilyVersion:
    name, _, version = text.rpartition(":")
    if not (name and version):
        raise typer.BadParameter(f"--also {text!r} is no FAMILY:VERSION, as in intkey:1.0")
    return FamilyVersion(name, version)


def _questions(families: NodeFamilies, new: FamilyVersion, prefixes: Sequence[str]) -> list[str]:
    """Facts about the node that the user should read before planning ``new``."""
    questions = []
    for entry in families.unmigrated(new.name):
        since = f" from block {entry['from_block']} on" if "from_block" in entry else ""
        state = "was refused" if entry["migration"] == "refused" else "is not made yet"
        questions.append(
            f"the migration of {new.name} {entry['family_version']}{since} {state}: {new} would come on top of it, or"
            " without it"
        )
    declared = families.namespaces.get(new.name, frozenset())
    outside = [prefix for prefix in prefixes if not prefix.startswith(tuple(declared))]
    if outside and declared:
        questions.append(
            f"--migrate {', '.join(outside)} is outside of what the connected processors of {new.name} declare:"
            f" {', '.join(sorted(declared))}"
        )
    elif outside:
        note(
            f"no processor of {new.name} is connected here, so nothing shows whether {', '.join(outside)} is its state"
        )
    known = families.entry(*new)
    if known and known["migrating_processors"] and not prefixes:
        questions.append(
            f"{known['migrating_processors']} connected processors of {new} migrate state, and this plan has no"
            " --migrate: it would come without its migration"
        )
    return questions


def _in_use(
    client: DovetailClient,
    families: NodeFamilies,
    old: FamilyVersion,
    new: FamilyVersion,
    added: Sequence[FamilyVersion],
) -> tuple[Permission, ...]:
    """Entries for all versions that this node knows to be in use. Raises Refused if ``old`` is not in use, or ``new``
    is.

    A version counts if a processor serves it or a transaction of it was committed. Pending batches do not count,
    because anybody may submit a batch of any name.
    """
    settings_family = FamilyVersion(FAMILY_NAME, FAMILY_VERSION)
    found = {settings_family, *added}
    for text, committed in committed_by_family(client).items():
        name, _, version = text.rpartition(":")
        if text == "other:":
            note("families beyond limits.family_labels_max are counted as one; add missing ones with --also")
        elif committed:
            found.add(FamilyVersion(name, version))
    if new in found and new != old:
        raise Refused(
            f"{new} is in use already, as everything is permitted while the setting is absent: its clients would be"
            " shut out until the plan's block"
        )
    known = [
        (FamilyVersion(each["family_name"], each["family_version"]), each["processors"]) for each in families.families
    ]
    found.update(name for name, processors in known if processors)
    unserved = sorted({str(name) for name, _ in known} - {str(name) for name in (*found, new)})
    if unserved:
        note(
            f"{len(unserved)} versions that no processor here serves, and of which nothing was committed, are left out;"
            f" add missing ones with --also: {printable(some_of(unserved, _SHOWN_MAX))}"
        )
    if old not in found:
        listed = ", ".join(sorted(printable(name) for name in found))
        raise Refused(
            f"{old} is not known here; served or committed is: {listed}. If it is right, add it:"
            f" --also {old.name}:{old.version}"
        )
    found.discard(new)
    return tuple(Permission(name) for name in sorted(found, key=lambda name: (name != settings_family, name)))
