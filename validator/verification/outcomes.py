"""What running a block again came to, beside what is stored of it: verdicts, receipts, the root.

How it is run is in ``validator.replay``.
"""

from collections.abc import Callable

from ledger.batch import VerifiedBatch
from validator.execution.executor import Execution
from validator.execution.model import Applied, Result, Withdrawn
from validator.state import merkle
from validator.state.merkle import ReadNode
from validator.verification.batches import decode_receipt
from validator.verification.chain import CheckedBlock
from validator.verification.findings import REEXECUTE, Finding, difference, shown


def compare(block: CheckedBlock, execution: Execution, read_node: ReadNode, add: Callable[[Finding], None]) -> None:
    """Add what is otherwise in a finished execution of a sound block than what is stored of it."""
    same = True
    for batch, stored, result in zip(block.batches, block.receipts, execution.results(), strict=True):
        if isinstance(result, Applied):
            for transaction, old, new in zip(batch.transactions, stored, result.receipts, strict=True):
                if old != new:
                    same = False
                    for finding in _compare_receipts(block.num, batch, transaction.id, old, new):
                        add(finding)
        else:
            same = False
            add(_verdict(block.num, batch, result))
    if not same:
        update = merkle.update(read_node, block.base, execution.changes, 1)
        if update.root.hash != block.root.hash:
            before, after = block.root.hash.hex(), update.root.hash.hex()
            add(Finding(block.num, "reexecuted_root", f"block {block.num}", before, after, REEXECUTE))


def _compare_receipts(num: int, batch: VerifiedBatch, transaction_id: str, old: bytes, new: bytes) -> list[Finding]:
    where = f"block {num}, batch {batch.id}, transaction {transaction_id}"
    before, after = decode_receipt(old), decode_receipt(new)
    found = []
    if before is not None and after is not None:
        for address in sorted(before.changes.keys() | after.changes.keys()):
            values = [
                ("nothing written" if address not in changes else "removed" if changes[address] is None
                 else shown(changes[address]))
                for changes in (before.changes, after.changes)
            ]  # fmt: skip
            if values[0] != values[1] or before.changes.get(address) != after.changes.get(address):
                at = f"{where}, address {address}"
                found.append(Finding(num, "reexecuted_state", at, values[0], values[1], REEXECUTE))
        if before.events != after.events:
            words = (shown(before.events), shown(after.events))
            found.append(Finding(num, "reexecuted_events", where, *words, REEXECUTE))
        if before.data != after.data:
            words = (shown(before.data), shown(after.data))
            found.append(Finding(num, "reexecuted_receipt_data", where, *words, REEXECUTE))
    return found or [Finding(num, "reexecuted_receipt", where, *difference(old, new), REEXECUTE)]


def _verdict(num: int, batch: VerifiedBatch, result: Result | None) -> Finding:
    assert result is not None, "a finished execution has a result for every batch"
    assert not isinstance(result, Applied), "what applied is compared by its receipts"
    what = "reexecuted_verdict" if not isinstance(result, Withdrawn) else f"reexecution_{result.reason}"
    where = f"block {num}, batch {batch.id}"
    named = getattr(result, "transaction_id", None)
    where += f", transaction {named}" if named else ""
    return Finding(num, what, where, "applied", shown(f"{result.reason}: {result.message}"), REEXECUTE)
