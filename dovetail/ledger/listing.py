"""Entries of state in address order, with changes laid over them: what the SDK and the validator both do for a list.

No access rules and no reading here: entries come in as iterators, changes as a mapping.
"""

from collections.abc import Iterable, Iterator, Mapping

Entry = tuple[str, bytes]
"""An address and what it holds."""

Change = tuple[str, bytes | None]
"""An address and its new value; None removes it."""


def changes_under(changes: Mapping[str, bytes | None], prefix: str) -> list[Change]:
    """What ``changes`` holds for addresses that begin with ``prefix``, in address order, as it is now."""
    return sorted([(address, value) for address, value in changes.items() if address.startswith(prefix)])


def overlaid(entries: Iterator[Entry], changes: Iterable[Change]) -> Iterator[Entry]:
    """``entries`` as they are after ``changes``; both in address order, and so is what comes out.

    Takes no more than one entry ahead of what it gives.
    """
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
