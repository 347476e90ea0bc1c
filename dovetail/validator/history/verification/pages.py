"""The pages of the store's file: that each is reached once or free, so that no later write falls on what is needed.

What lies in the pages is checked elsewhere; a page that is in use and free at once harms nobody before it is written.
"""

from pathlib import Path

from dovetail.validator.history.verification.findings import Finding, Findings, shown
from dovetail.validator.store import StoreReader
from dovetail.validator.store.snapshot import page_faults


def check_pages(reader: StoreReader, path: Path, findings: Findings) -> bool:
    """Walk the pages of the file that ``reader`` has open at ``path``; False: it was written to, nothing is known."""
    before = reader.written()
    faults = page_faults(path)
    if reader.written() != before:
        return False
    for fault in faults:
        findings.add(Finding(None, "pages", "file data.mdb", "pages as they are written", shown(fault)))
    return True
