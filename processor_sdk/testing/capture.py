"""Captures the exception of an apply that ended without a verdict; dispatch only logs it."""

import contextlib
import logging
from collections.abc import Iterator

from processor_sdk.apply import dispatch


@contextlib.contextmanager
def failures() -> Iterator[list[BaseException]]:
    """Collect the exceptions that dispatch logs during the block, instead of logging them."""
    found: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            found.append(record.exc_info[1])
        return False

    logger = logging.getLogger(dispatch.__name__)
    logger.addFilter(keep)
    try:
        yield found
    finally:
        logger.removeFilter(keep)
