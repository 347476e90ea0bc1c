"""How often the validator and its verifiers have Python look for garbage. Called once, by whoever starts the process.

What they hold are trees of values: they are freed when the last reference goes. The collector only looks for cycles,
and by default it does so at every 700 objects, thousands of times a second under load, over batches that are all in
use: a fifth of the validator's processor time (docs/explanation/performance.md). It must go on running: exceptions,
tasks and callbacks make cycles. Where peers can make cycles that hold what they sent, as HTTP
connections do, it stays as it is.
"""

import gc
from typing import Final

_OBJECTS_BETWEEN: Final = 50_000
"""Some 10 MiB of objects."""
_YOUNG_TO_MIDDLE: Final = 20
_MIDDLE_TO_OLD: Final = 100


def collect_seldom() -> None:
    """From now on look for cycles at every 50,000 objects, and never again among those that stand now."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN, _YOUNG_TO_MIDDLE, _MIDDLE_TO_OLD)
