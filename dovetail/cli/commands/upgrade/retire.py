"""``upgrade retire``: ends the old version, the last step of an upgrade."""

from typing import Annotated

import typer

from dovetail.cli.options import Json, Key, Url, Yes, examples, text_argument, text_option
from dovetail.cli.upgrades.changes import block_of, retired
from dovetail.cli.upgrades.proposing import WAIT_S_DEFAULT, Family, ProposeOptions, WaitForCommit, propose_change
from dovetail.cli.upgrades.setting import Setting, read_setting
from dovetail.client import DovetailClient
from dovetail.common.errors import Refused
from dovetail.common.urls import DEFAULT_URL
from dovetail.ledger.permitted import Permission
from dovetail.ledger.settings import FamilyVersion

app = typer.Typer()


@app.command(epilog=examples("dovetail upgrade retire intkey 1.0 --until +500"))
def retire(
    family: Family,
    old: Annotated[str, text_argument("OLD", "The version to end.")],
    until: Annotated[
        str,
        text_option(
            "--until", "+N|BLOCK", "The last block that may hold OLD: a number, or +N for N blocks after the head."
        ),
    ],
    yes: Yes = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    wait: WaitForCommit = WAIT_S_DEFAULT,
    as_json: Json = False,
) -> None:
    """End a version, once its clients have moved.

    Later transactions of this version are INVALID. Keep a processor of it: replaying the history needs it.
    """
    version = FamilyVersion(family, old)
    with DovetailClient(url) as client:
        setting = read_setting(client)
    if setting.entries is None:
        raise Refused(
            "the setting is absent, so everything is permitted and nothing can be ended; plan the next version with"
            " `dovetail upgrade plan`, which makes it"
        )
    until_block = block_of(until, "--until", setting.head_num)

    def change(_: DovetailClient, now: Setting) -> tuple[Permission, ...]:
        return retired(now.entries or (), version, until_block=until_block, head_num=now.head_num)

    propose_change(
        setting,
        change,
        family,
        what=f"the end of {version} with block {until_block}",
        options=ProposeOptions(yes, key, url, wait, as_json),
        extra={"head_num": setting.head_num, "until_block": until_block},
    )
