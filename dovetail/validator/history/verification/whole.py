"""Verifies a whole store, to find out whether a copy is sound."""

from collections.abc import Callable
from pathlib import Path

from dovetail.validator.history.verification.chain import Verification
from dovetail.validator.history.verification.findings import Finding, Findings
from dovetail.validator.history.verification.pages import check_pages
from dovetail.validator.history.verification.tables import check_tables
from dovetail.validator.history.verification.workers import CheckerDied, Checkers
from dovetail.validator.store import StorageFailed, StoreReader


def verify_whole(path: Path, processes: int, on_block: Callable[[int, int], None]) -> Findings:
    """The findings of the store at ``path``, to which no process may write. Raises StorageFailed.

    ``processes``: how many check signatures; 0: one for each core. ``on_block``: gets the number of checked blocks and
    the total.
    """
    findings = Findings()
    reader = StoreReader.open(path)
    try:
        with Checkers(processes) as checkers:
            check_pages(reader, path, findings)
            verification = Verification(reader, checkers, findings)
            check_tables(reader, checkers, findings)
            if verification.head < 0:
                findings.add(Finding(None, "blocks", "table blocks", "a block", "none"))
            for number, _ in enumerate(verification.blocks(), 1):
                on_block(number, verification.head + 1)
    except CheckerDied as died:
        raise StorageFailed(str(died)) from None
    finally:
        reader.close()
    return findings
