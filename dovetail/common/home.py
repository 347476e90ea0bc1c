"""The paths of a user's files: keys, and by default the node's data. Nothing here reads or writes them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "DOVETAIL_HOME"


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """``~/.dovetail``, or the folder that DOVETAIL_HOME names."""
    named = environ.get(HOME_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".dovetail"


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the node's ledger, if its configuration names none."""
    return home(environ) / "data"


def node_key_file(data_dir: Path) -> Path:
    """The file of the key that signs a node's blocks, if its configuration names none."""
    return data_dir / "keys" / "validator.priv"


def shown(path: Path) -> str:
    """``path`` for people, with ``~`` for the user's home folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
