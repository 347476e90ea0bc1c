"""Checks the page structure of the store's file: each page is either free or reached once.

If a page in use were also free, a later write could overwrite it. The contents of pages are checked elsewhere.
"""

from pathlib import Path

from dovetail.validator.history.verification.findings import Finding, Findings, shown
from dovetail.validator.store import StoreReader
from dovetail.validator.store.snapshot import page_faults


def check_pages(reader: StoreReader, path: Path, findings: Findings) -> bool:
    """Walk the pages of the file that ``reader`` has open. False, with no findings, if the file has changed
    meanwhile."""
    before = reader.written()
    faults = page_faults(path)
    if reader.written() != before:
        return False
    for fault in faults:
        findings.add(Finding(None, "pages", "file data.mdb", "pages as they are written", shown(fault)))
    return True
