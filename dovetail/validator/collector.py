"""Lets Python's cycle collector run less often in the validator and its verifiers. Called once at the start.

The data of these processes are trees, which reference counts free. By default the collector runs at every 700 new
objects: thousands of times a second under load, for a fifth of the validator's CPU time. It stays enabled, because
exceptions, tasks and callbacks form cycles. Do not use this in processes where peers can create cycles that hold data,
for example through HTTP connections.
"""

import gc
from typing import Final

_OBJECTS_BETWEEN: Final = 50_000
"""About 10 MiB of objects."""
_YOUNG_TO_MIDDLE: Final = 20
_MIDDLE_TO_OLD: Final = 100


def collect_seldom() -> None:
    """Collect at every 50,000 new objects, and never examine the present objects again."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN, _YOUNG_TO_MIDDLE, _MIDDLE_TO_OLD)
