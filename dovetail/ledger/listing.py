"""Applies changes to entries of state in address order, for lists in the SDK and the validator.

No access rules and no reads here.
"""

from collections.abc import Iterable, Iterator, Mapping

Entry = tuple[str, bytes]
"""An address and its value."""

Change = tuple[str, bytes | None]
"""An address and its new value; None removes it."""


def changes_under(changes: Mapping[str, bytes | None], prefix: str) -> list[Change]:
    """A copy of the changes at addresses that begin with ``prefix``, in address order."""
    return sorted([(address, value) for address, value in changes.items() if address.startswith(prefix)])


def overlaid(entries: Iterator[Entry], changes: Iterable[Change]) -> Iterator[Entry]:
    """``entries`` after ``changes``. Arguments and result are in address order. Reads at most one entry ahead."""
    entry = next(entries, None)
    for address, value in changes:
        while entry is not None and entry[0] < address:
            yield entry
            entry = next(entries, None)
        if entry is not None and entry[0] == address:
            entry = next(entries, None)
        if value is not None:
            yield address, value
    if entry is not None:
        yield entry
        yield from entries
