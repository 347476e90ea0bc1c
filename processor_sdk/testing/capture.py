"""The exception with which an apply ended that gave no verdict: what dispatch logs, kept for whoever runs a test."""

import contextlib
import logging
from collections.abc import Iterator

from processor_sdk.apply import dispatch


@contextlib.contextmanager
def failures() -> Iterator[list[BaseException]]:
    """The exceptions that dispatch logs meanwhile, which are not logged elsewhere."""
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
