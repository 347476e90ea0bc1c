"""Applies changes to entries of state in address order, for lists in the SDK and the validator.

Also cuts a list into the pages of the protocol. No access rules and no reads here.
"""

from collections.abc import Iterable, Iterator, Mapping

from dovetail.ledger.limits import Limits
from protos import packed_pb2

Entry = tuple[str, bytes]
"""An address and its value."""

Change = tuple[str, bytes | None]
"""An address and its new value; None removes it."""


def changes_under(changes: Mapping[str, bytes | None], prefix: str) -> list[Change]:
    """A copy of the changes at addresses that begin with ``prefix``, in address order."""
    return sorted([(address, value) for address, value in changes.items() if address.startswith(prefix)])


def first_page(entries: Iterator[Entry], limits: Limits) -> packed_pb2.StateListResponse:
    """The first page of ``entries``: at least one entry, and more while they fit."""
    page = packed_pb2.StateListResponse(status="OK")
    data_bytes = 0
    for address, data in entries:
        data_bytes += len(address) + len(data)
        full = len(page.entries) >= limits.state_list_entries_max or data_bytes > limits.state_list_bytes_max
        if page.entries and full:
            page.more = True
            break
        page.entries.add(address=address, data=data)
    return page


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
