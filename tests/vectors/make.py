"""Golden vectors: keys, addresses, batches, blocks and states, byte for byte, as JSON files beside this module.

``python -m tests.vectors.make`` writes the files. The makers are ``tests.system.independent`` and ``naive_trie``, which
share no code with the project. This module must not import the project's packages either.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.system.independent import client, secp256k1
from tests.system.independent import protobuf_wire as wire
from tests.vectors.naive_trie import NIBBLES, root_hash

FOLDER = Path(__file__).parent

SETTING_KEYS = (
    "sawtooth.settings.vote.authorized_keys",
    "sawtooth.settings.vote.approval_threshold",
    "sawtooth.settings.vote.proposals",
    "sawtooth.validator.transaction_families",
    "one",
    "one.two",
    "one.two.three",
    "one.two.three.four",
    "one.two.three.four.five..six",
    "",
    ".",
    "größe.日本",
)
INTKEY_NAMES = ("a", "abc", "twenty characters ok", "größe", "日本")
MESSAGES = (b"", b"a", b"All those moments will be lost in time", bytes(range(256)))


def keys() -> list[dict[str, Any]]:
    """Private keys, including the smallest and the largest, their public keys, and signatures of some messages."""
    privates = [f"{1:064x}", f"{2:064x}", f"{secp256k1.N - 1:064x}"]
    privates += [secp256k1.private_key_from(f"vector {number}") for number in range(5)]
    return [
        {
            "private_key": private,
            "public_key": secp256k1.public_key(private),
            "signatures": [
                {"message": message.hex(), "signature": secp256k1.sign(private, message)} for message in MESSAGES
            ],
        }
        for private in privates
    ]


def addresses() -> dict[str, Any]:
    """Namespaces and addresses of the bundled families."""
    names = ("intkey", "sawtooth_settings", "größe")
    return {
        "namespaces": {name: hashlib.sha512(name.encode()).hexdigest()[:6] for name in names},
        "intkey": {name: client.intkey_address(name) for name in INTKEY_NAMES},
        "settings": {key: _setting_address(key) for key in SETTING_KEYS},
    }


def batches() -> list[dict[str, Any]]:
    """Signed batches, whole and in parts."""
    return [_describe("plain", client.make_sample("vector")), _describe("odd", _odd_sample())]


def blocks() -> list[dict[str, Any]]:
    """Sealed block headers: the first block, a later block, and a block whose fields except the signer are defaults."""
    key = secp256k1.private_key_from("vector node")
    signer = secp256k1.public_key(key)
    made = []
    for num, previous, ids, consensus, root in (
        (0, "0" * 16, ["ab" * 64], b"solo", hashlib.sha256(b"").hexdigest()),
        (2**64 - 1, "cd" * 64, ["ab" * 64, "ef" * 64], bytes(range(256)), "12" * 32),
        (0, "", [], b"", ""),
    ):
        fields: list[tuple[int, wire.Value]] = [
            *wire.present([(1, num), (2, previous), (3, signer)]),
            *wire.repeated(4, ids),
            *wire.present([(5, consensus), (6, root)]),
        ]
        header = wire.encode(fields)
        made.append(
            {
                "private_key": key,
                "block_num": num,
                "previous_block_id": previous,
                "signer_pubkey": signer,
                "batch_ids": ids,
                "consensus": consensus.hex(),
                "state_root_hash": root,
                "header": header.hex(),
                "id": secp256k1.sign(key, header),
            }
        )
    return made


def states() -> list[dict[str, Any]]:
    """States and their roots: no leaf, one leaf, neighbours, empty values, many leaves in several namespaces."""
    zero = "0" * 70
    many = {client.intkey_address(str(number)): str(number).encode() for number in range(200)}
    many |= {_setting_address(key): key.encode() for key in SETTING_KEYS}
    return [
        {
            "name": name,
            "leaves": {address: base64.b64encode(value).decode() for address, value in sorted(leaves.items())},
            "root": root_hash(leaves).hex(),
        }
        for name, leaves in (
            ("empty", {}),
            ("one leaf", {client.intkey_address("a"): b"value"}),
            ("one leaf without bytes", {zero: b""}),
            ("all address bits differ", {zero: b"zero", "f" * 70: b"all"}),
            ("the last character differs", {zero[:-1] + nibble: nibble.encode() for nibble in NIBBLES}),
            ("a chain of branches", {"a" * depth + "b" * (70 - depth): bytes([depth]) for depth in range(70)}),
            ("many", many),
        )
    ]


def _setting_address(key: str) -> str:
    parts = [*key.split(".", 3), "", "", ""][:4]
    return "000000" + "".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts)


def _odd_sample() -> client.Sample:
    """A batch of one transaction with non-ASCII text, prefixes, dependencies and an empty payload."""
    key = secp256k1.private_key_from("vector odd")
    public = secp256k1.public_key(key)
    transaction = client.make_transaction(
        key,
        public,
        "größe",
        "2.0-β",
        ["", "00", "abcdef" + "0" * 64],
        ["abcdef"],
        b"",
        dependencies=["01" * 64, "fe" * 64],
        nonce="",
    )
    return client.Sample(client.make_batch(key, [transaction]), key, (key,))


def _describe(name: str, sample: client.Sample) -> dict[str, Any]:
    batch = sample.batch
    return {
        "name": name,
        "batch_key": sample.batch_key,
        "id": batch.id,
        "header": batch.header_bytes.hex(),
        "batch": batch.to_bytes().hex(),
        "batch_list": sample.batch_list.hex(),
        "transactions": [
            {
                "private_key": key,
                "id": transaction.id,
                "header": transaction.header_bytes.hex(),
                "fields": vars(transaction.header),
                "payload": transaction.payload.hex(),
                "transaction": transaction.to_bytes().hex(),
            }
            for key, transaction in zip(sample.transaction_keys, batch.transactions, strict=True)
        ],
    }


MADE: dict[str, Callable[[], Any]] = {
    "keys": keys,
    "addresses": addresses,
    "batches": batches,
    "blocks": blocks,
    "states": states,
}


def render(name: str) -> str:
    """The text of one file."""
    return json.dumps(MADE[name](), indent=1, ensure_ascii=False) + "\n"


def load(name: str) -> Any:
    """The content of one file."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for made in MADE:
        (FOLDER / f"{made}.json").write_text(render(made), encoding="utf-8")
