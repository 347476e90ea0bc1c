"""The module search path for an interpreter that this process starts."""

import os
import sys
from typing import Final

_START_FOLDER: Final = os.getcwd()
"""The folder that an empty entry of ``sys.path`` meant at import time; a test may change the current folder."""

_LIBRARY: Final = os.path.dirname(os.__file__)


def absolute_path() -> tuple[str, ...]:
    """``sys.path`` with absolute entries, in its order."""
    return tuple(os.path.join(_START_FOLDER, entry).rstrip("/") or "/" for entry in sys.path)


def python_path() -> str:
    """The same path for PYTHONPATH, behind the standard library.

    In front of it, a project's types.py would shadow the standard module.
    """
    return os.pathsep.join([_LIBRARY, os.path.join(_LIBRARY, "lib-dynload"), *absolute_path()])
