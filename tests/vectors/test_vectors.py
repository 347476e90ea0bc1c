"""The golden vectors: independent code generates the same files, and the project writes and reads the same bytes."""

import base64
from typing import Any

import pytest

from dovetail.ledger import addresses, settings, signing
from dovetail.ledger.batch import decode_batch_list, verify_batch
from dovetail.ledger.block import BlockHeader, decode_block_header, is_sealed, seal
from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.ledger.ids import BatchId, BlockId, PublicKey, StateRoot
from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.signing import Signer
from dovetail.ledger.transaction import TransactionHeader, decode_header, decode_transaction
from dovetail.validator.core.state import merkle
from dovetail.validator.core.state.nodes import EMPTY
from families.intkey.client import intkey_address
from tests.vectors import make


@pytest.mark.parametrize("name", make.MADE)
def test_files_are_what_independent_code_makes(name: str) -> None:
    assert (make.FOLDER / f"{name}.json").read_text(encoding="utf-8") == make.render(name)


@pytest.mark.parametrize("entry", make.load("keys"), ids=lambda entry: str(entry["public_key"])[:10])
def test_keys_and_signatures(entry: dict[str, Any]) -> None:
    signer = Signer(entry["private_key"])
    assert signer.public_key == entry["public_key"]
    for made in entry["signatures"]:
        message = bytes.fromhex(made["message"])
        assert signer.sign(message) == made["signature"]
        assert signing.verify(entry["public_key"], message, made["signature"])


def test_addresses() -> None:
    expected = make.load("addresses")
    for name, namespace in expected["namespaces"].items():
        assert addresses.namespace_of(name) == namespace
    for name, address in expected["intkey"].items():
        assert intkey_address(name) == address
    for key, address in expected["settings"].items():
        assert settings.setting_address(key) == address


def _header(fields: dict[str, Any]) -> TransactionHeader:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return TransactionHeader(**values)


@pytest.mark.parametrize("entry", make.load("batches"), ids=lambda entry: str(entry["name"]))
def test_batches_are_built(entry: dict[str, Any]) -> None:
    batcher = Signer(entry["batch_key"])
    transactions = []
    for made in entry["transactions"]:
        fields = dict(made["fields"])
        for computed in ("payload_sha512", "signer_pubkey"):
            del fields[computed]
        built = build_transaction(Signer(made["private_key"]), payload=bytes.fromhex(made["payload"]), **fields)
        assert (built.id, built.raw.hex()) == (made["id"], made["transaction"])
        transactions.append(built)
    batch = build_batch(batcher, transactions)
    assert (batch.id, batch.raw.hex()) == (entry["id"], entry["batch"])
    assert encode_batch_list([batch]).hex() == entry["batch_list"]


@pytest.mark.parametrize("entry", make.load("batches"), ids=lambda entry: str(entry["name"]))
def test_batches_are_read(entry: dict[str, Any]) -> None:
    (raw,) = decode_batch_list(bytes.fromhex(entry["batch_list"]))
    assert raw.hex() == entry["batch"]
    verified = verify_batch(raw)
    assert (verified.id, verified.raw) == (entry["id"], raw)
    for transaction, made in zip(verified.transactions, entry["transactions"], strict=True):
        header = _header(made["fields"])
        assert transaction.raw.hex() == made["transaction"]
        assert transaction[:-1] == (
            made["id"],
            FamilyVersion(header.family_name, header.family_version),
            header.inputs,
            header.outputs,
            header.dependencies,
        )
        assert decode_header(bytes.fromhex(made["header"])) == header
        opened = decode_transaction(transaction.raw)
        assert (opened.id, opened.header, opened.header_bytes.hex(), opened.payload.hex()) == (
            made["id"],
            header,
            made["header"],
            made["payload"],
        )


@pytest.mark.parametrize("entry", make.load("blocks"), ids=lambda entry: str(entry["id"])[:8])
def test_blocks(entry: dict[str, Any]) -> None:
    header = BlockHeader(
        block_num=entry["block_num"],
        previous_block_id=BlockId(entry["previous_block_id"]),
        signer_pubkey=PublicKey(entry["signer_pubkey"]),
        batch_ids=tuple(map(BatchId, entry["batch_ids"])),
        consensus=bytes.fromhex(entry["consensus"]),
        state_root_hash=StateRoot(entry["state_root_hash"]),
    )
    header_bytes = bytes.fromhex(entry["header"])
    assert decode_block_header(header_bytes) == header
    assert is_sealed(BlockId(entry["id"]), header_bytes)
    sealed = seal(Signer(entry["private_key"]), header, [b"one", b"two"])
    assert sealed == (entry["id"], header, header_bytes, (b"one", b"two"))


@pytest.mark.parametrize("entry", make.load("states"), ids=lambda entry: str(entry["name"]))
def test_state_roots(entry: dict[str, Any]) -> None:
    leaves = {address: base64.b64decode(value) for address, value in entry["leaves"].items()}
    nodes: dict[int, bytes] = {}
    update = merkle.update(nodes.__getitem__, EMPTY, leaves, 1)
    nodes.update(update.nodes)
    assert update.root.hash.hex() == entry["root"]
    assert update.root.leaves == len(leaves)
    for address, value in leaves.items():
        assert merkle.get(nodes.__getitem__, update.root, address) == value
