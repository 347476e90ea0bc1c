"""Where an interpreter that is started beside this one finds modules. Starts none."""

import os
import sys
from typing import Final

_START_FOLDER: Final = os.getcwd()
"""What an empty entry meant when the modules of the test were imported; a test may have gone elsewhere since."""

_LIBRARY: Final = os.path.dirname(os.__file__)


def absolute_path() -> tuple[str, ...]:
    """``sys.path`` in its order, as any folder may be the current one elsewhere."""
    return tuple(os.path.join(_START_FOLDER, entry).rstrip("/") or "/" for entry in sys.path)


def python_path() -> str:
    """The same as PYTHONPATH, behind the standard library: a types.py of the project must not stop an interpreter."""
    return os.pathsep.join([_LIBRARY, os.path.join(_LIBRARY, "lib-dynload"), *absolute_path()])
