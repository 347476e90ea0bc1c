"""Writing leaves to a store before a node starts."""

import asyncio
from pathlib import Path

import pytest

from dovetail.bench.load import preload
from dovetail.bench.load.preload import PreloadHandler
from dovetail.common.keys import create_key
from dovetail.ledger.batch import verify_batch
from dovetail.ledger.block import is_sealed
from dovetail.ledger.limits import Limits
from dovetail.ledger.transaction import decode_transaction
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.nodes import EMPTY
from dovetail.validator.store import Store
from families.intkey.client import LEAF, NAMESPACE, intkey_address
from processor_sdk.testing import Ledger
from protos.transaction_receipt_pb2 import TransactionReceipt
from tests.dovetail.bench.inline_workers import InlineWorkers


def test_leaves_are_written_as_a_chain_that_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "_BLOCK_LEAVES", 40)
    monkeypatch.setattr(preload, "_JOB_BLOCKS", 2)
    create_key(tmp_path / "node.priv")
    reported: list[int] = []
    asyncio.run(preload.preload(InlineWorkers(), tmp_path / "store", tmp_path / "node.priv", "m", 110, reported.append))
    assert reported == [80, 30]
    leaves: dict[str, bytes | None] = {
        intkey_address(name): LEAF.encode({name: 1}) for name in (f"m-{number:x}" for number in range(110))
    }
    received_leaves: dict[str, bytes | None] = {}
    ledger = Ledger(PreloadHandler(), twice=False)
    store = Store(tmp_path / "store", Limits())
    try:
        assert store.head is not None
        assert (store.head.num, store.head.transaction_end, store.head.root.leaves) == (2, 3, 110)
        # The root depends on the leaves alone, so one update with all leaves gives the same root.
        assert store.head.root.hash == merkle.update(store.node, EMPTY, leaves, 1).root.hash
        for num in range(3):
            block = store.block(num)
            assert block is not None
            assert is_sealed(block.id, block.header_bytes)
            (raw,) = store.batches(block)
            (item,) = verify_batch(raw).transactions
            assert store.transaction_number(item.id) == num
            receipt = TransactionReceipt.FromString(store.transaction(num).receipt)
            received_leaves |= {change.address: change.value for change in receipt.state_changes}
            assert receipt.transaction_id == item.id
            assert ledger.apply(ledger.transaction(decode_transaction(item.raw).payload, outputs=[NAMESPACE]))
    finally:
        store.close()
    assert received_leaves == dict(ledger.state) == leaves
