"""Compares the result of a replayed block with the stored one: verdicts, receipts, the state root.

``dovetail.validator.history.replay`` runs the block.
"""

from collections.abc import Callable
from typing import Final

from dovetail.ledger.batch import VerifiedBatch
from dovetail.validator.core.execution.model import Applied, Result, Withdrawn
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.merkle import ReadNode
from dovetail.validator.history.verification.batches import decode_receipt
from dovetail.validator.history.verification.chain import CheckedBlock
from dovetail.validator.history.verification.findings import REEXECUTE, Finding, difference, shown

_FOLLOWS: Final = ("waiting_for_processor", "waiting_for_dependency")
"""The reasons of a missing verdict whose cause is another batch of the block."""

_LOST: Final = "look into the log of its processor, and run the block with a build that does not end there"


def compare(block: CheckedBlock, run: BlockRun, read_node: ReadNode, add: Callable[[Finding], None]) -> None:
    """Add the differences between a finished execution of a sound block and the stored block.

    A batch without a verdict gets a finding of its own. Later batches may lack a verdict because of it, or differ
    because they ran without its writes. The later batches share one finding, and neither they nor the root can be
    compared.
    """
    same, withdrawn, unknown = True, False, 0
    for batch, stored, result in zip(block.batches, block.receipts, run.results(), strict=True):
        if isinstance(result, Applied) and list(result.receipts) == stored:
            continue
        same = False
        if isinstance(result, Withdrawn) and result.reason not in _FOLLOWS:
            withdrawn = True
            add(_verdict(block.num, batch, result))
        elif isinstance(result, Withdrawn) or withdrawn:
            withdrawn = True
            unknown += 1
        elif isinstance(result, Applied):
            for transaction, old, new in zip(batch.transactions, stored, result.receipts, strict=True):
                if old != new:
                    for finding in _compare_receipts(block.num, batch, transaction.id, old, new):
                        add(finding)
        else:
            add(_verdict(block.num, batch, result))
    if unknown:
        batches = f"{unknown} batch{'' if unknown == 1 else 'es'} of the block"
        found = f"{batches} could not be run, or only without an earlier batch's writes: they are not compared"
        add(Finding(block.num, "reexecution_not_run", f"block {block.num}", "all of its batches run", found, _LOST))
    if not same and not withdrawn:
        update = merkle.update(read_node, block.base, run.changes, 1)
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
    assert not isinstance(result, Applied), "applied batches are compared by their receipts"
    where = f"block {num}, batch {batch.id}"
    named = getattr(result, "transaction_id", None)
    where += f", transaction {named}" if named else ""
    if not isinstance(result, Withdrawn):
        return Finding(
            num, "reexecuted_verdict", where, "applied", shown(f"{result.reason}: {result.message}"), REEXECUTE
        )
    if result.reason == "processor_lost":
        found, advice = (
            f"its processor of {result.family} ended, or gave no answer in time, while it ran this batch alone",
            _LOST,
        )
    else:
        found, advice = f"{result.reason}: {result.message}", REEXECUTE
    return Finding(num, f"reexecution_{result.reason}", where, "applied", shown(found), advice)
