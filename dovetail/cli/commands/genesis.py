"""``genesis``: a node's first files without a running node."""

import os

import typer

from dovetail.cli.options import ConfigFile, DataDir, Json, Key, examples
from dovetail.cli.printing import print_json
from dovetail.common.errors import Refused
from dovetail.common.home import shown
from dovetail.common.keys import key_path
from dovetail.common.output import note
from dovetail.node.config import Config, Flag, load
from dovetail.node.genesis import Prepared, has_ledger, prepare

app = typer.Typer()


@app.command(epilog=examples("dovetail genesis", "dovetail genesis --data-dir ./ledger --key alice"))
def genesis(config: ConfigFile = None, data_dir: DataDir = None, key: Key = None, as_json: Json = False) -> None:
    """Make a node's first files without starting it: keys where they are missing, and the genesis.

    The genesis makes the key the one that may change the ledger's settings. A folder that has a ledger is refused.
    """
    settings = load(config_file=config, flags={"validator.data_dir": Flag("--data-dir", data_dir)})
    folder = settings.validator.data_dir
    if has_ledger(folder):
        raise Refused(f"{shown(folder)} has a ledger already: its genesis stays as it is")
    prepared = prepare_node(settings, key, quiet=as_json)
    if as_json:
        print_json({"genesis": str(prepared.genesis), "authorized_key": prepared.authorized_key})


def prepare_node(settings: Config, key: str | None, *, quiet: bool = False) -> Prepared:
    """Make the files that are missing, and report them on stderr unless ``quiet``. Raises Refused."""
    config, user_key = settings.validator, key_path(key, os.environ)
    prepared = prepare(config.data_dir, config.key_file, user_key, make_user_key=key is None)
    if quiet:
        return prepared
    for path in prepared.keys:
        not_authorized = path == user_key and prepared.genesis is None
        but = "; it may not change this ledger's settings unless it is authorized" if not_authorized else ""
        note(f"made the key {shown(path)}{but}")
    if prepared.genesis is not None:
        note(f"made the genesis {shown(prepared.genesis)}; settings are changed with key {prepared.authorized_key}")
    return prepared
