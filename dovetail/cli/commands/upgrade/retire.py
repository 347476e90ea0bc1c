"""``upgrade retire``: the last step of an upgrade, the end of the old version."""

from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli.options import Json, Key, Url, examples, not_empty
from dovetail.cli.upgrades.proposing import (
    WAIT_S_DEFAULT,
    Family,
    How,
    Setting,
    WaitForCommit,
    Yes,
    propose_change,
    read_setting,
)
from dovetail.common.errors import Refused
from dovetail.common.urls import DEFAULT_URL

if TYPE_CHECKING:
    from dovetail.client import DovetailClient
    from dovetail.ledger.permitted import Permission


def retire(
    family: Family,
    old: Annotated[str, typer.Argument(metavar="OLD", callback=not_empty, help="The version to end.")],
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="+N|BLOCK",
            callback=not_empty,
            help="The last block that may hold OLD: a number, or +N for N blocks behind the head.",
        ),
    ],
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """End a version, once its clients have moved.

    Later transactions of it are INVALID. Keep a processor of it for replay: history needs it.
    """
    from dovetail.cli.upgrades.changes import block_of, retired
    from dovetail.client import DovetailClient
    from dovetail.ledger.settings import FamilyVersion

    version = FamilyVersion(family, old)
    with DovetailClient(url) as client:
        setting = read_setting(client)
    if setting.entries is None:
        raise Refused(
            "the setting is absent, so everything is permitted and nothing can be ended; plan the next version with"
            " `dovetail upgrade plan`, which makes it"
        )
    until_block = block_of(until, "--until", setting.head_num)

    def change(_: "DovetailClient", now: Setting) -> "tuple[Permission, ...]":
        return retired(now.entries or (), version, until_block=until_block, head_num=now.head_num)

    propose_change(
        setting,
        change,
        family,
        what=f"the end of {version} with block {until_block}",
        how=How(yes, key, url, wait, as_json),
        extra={"head_num": setting.head_num, "until_block": until_block},
    )


def add_to(app: typer.Typer) -> None:
    """Put this command into the command line."""
    app.command(epilog=examples("dovetail upgrade retire intkey 1.0 --until +500"))(retire)
