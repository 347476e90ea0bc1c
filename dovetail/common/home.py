"""Where a user's files are: keys and, unless told otherwise, the node's data. Names only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "DOVETAIL_HOME"


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """``~/.dovetail``, or what DOVETAIL_HOME names."""
    named = environ.get(HOME_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".dovetail"


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the node keeps its ledger unless told otherwise."""
    return home(environ) / "data"


def node_key_file(data_dir: Path) -> Path:
    """The key that a node seals its blocks with, unless its configuration names another."""
    return data_dir / "keys" / "validator.priv"


def shown(path: Path) -> str:
    """``path`` as a person types it: ``~`` for their own folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
