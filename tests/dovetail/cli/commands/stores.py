"""Helpers of the tests of ``dovetail store``. Their fixtures are in ``conftest``."""

from pathlib import Path

from dovetail.validator.store import StoreReader

BLOCKS = 10
"""The number of blocks of the store in ``made``."""


def words(data: Path, *command: str) -> tuple[str, ...]:
    """A command line for the store in a data folder."""
    return ("store", *command, "--data-dir", str(data))


def head_of(store: Path) -> tuple[str, str]:
    """Id and state root of the newest block."""
    reader = StoreReader.open(store)
    try:
        assert reader.head is not None
        return reader.head.id, reader.head.state_root
    finally:
        reader.close()
