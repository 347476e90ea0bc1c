"""Transactions, batches and batch lists by the specification's field numbers: valid ones, and ones that break one rule.

Every part can be replaced before serialization, so that a test corrupts one piece only. HTTP and sockets do not
belong here. This module must not import the project's packages.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.system.independent import cbor_map, secp256k1
from tests.system.independent import protobuf_wire as wire

INTKEY_FAMILY = "intkey"
INTKEY_VERSION = "1.0"
INTKEY_NAMESPACE = hashlib.sha512(INTKEY_FAMILY.encode()).hexdigest()[:6]
INTKEY_ENCODING = "application/cbor"


@dataclass(frozen=True)
class TransactionHeader:
    """The header's fields under the specification's names."""

    batcher_pubkey: str = ""
    dependencies: tuple[str, ...] = ()
    family_name: str = ""
    family_version: str = ""
    inputs: tuple[str, ...] = ()
    nonce: str = ""
    outputs: tuple[str, ...] = ()
    payload_encoding: str = ""
    payload_sha512: str = ""
    signer_pubkey: str = ""

    def fields(self) -> list[tuple[int, wire.Value]]:
        return [
            *wire.present([(1, self.batcher_pubkey)]),
            *wire.repeated(2, self.dependencies),
            *wire.present([(3, self.family_name), (4, self.family_version)]),
            *wire.repeated(5, self.inputs),
            *wire.present([(6, self.nonce)]),
            *wire.repeated(7, self.outputs),
            *wire.present([(8, self.payload_encoding), (9, self.payload_sha512), (10, self.signer_pubkey)]),
        ]

    def encode(self) -> bytes:
        return wire.encode(self.fields())

    @classmethod
    def decode(cls, data: bytes) -> "TransactionHeader":
        fields = wire.decode(data)
        return cls(
            batcher_pubkey=wire.get_text(fields, 1),
            dependencies=tuple(wire.get_all_text(fields, 2)),
            family_name=wire.get_text(fields, 3),
            family_version=wire.get_text(fields, 4),
            inputs=tuple(wire.get_all_text(fields, 5)),
            nonce=wire.get_text(fields, 6),
            outputs=tuple(wire.get_all_text(fields, 7)),
            payload_encoding=wire.get_text(fields, 8),
            payload_sha512=wire.get_text(fields, 9),
            signer_pubkey=wire.get_text(fields, 10),
        )


@dataclass(frozen=True)
class Transaction:
    """A transaction in its serialized parts.

    With ``dataclasses.replace``, a test corrupts one part and keeps the others.
    """

    header_bytes: bytes
    signature: str
    payload: bytes

    @property
    def id(self) -> str:
        return self.signature

    @property
    def header(self) -> TransactionHeader:
        return TransactionHeader.decode(self.header_bytes)

    def to_bytes(self) -> bytes:
        return wire.encode(wire.present([(1, self.header_bytes), (2, self.signature), (3, self.payload)]))

    def resigned(self, private_key: str, header_bytes: bytes) -> "Transaction":
        """The same payload under another header, signed."""
        return replace(self, header_bytes=header_bytes, signature=secp256k1.sign(private_key, header_bytes))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Transaction":
        fields = wire.decode(data)
        return cls(wire.get_bytes(fields, 1), wire.get_text(fields, 2), wire.get_bytes(fields, 3))


@dataclass(frozen=True)
class BatchHeader:
    """The batch header's fields."""

    signer_pubkey: str = ""
    transaction_ids: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return wire.encode([*wire.present([(1, self.signer_pubkey)]), *wire.repeated(2, self.transaction_ids)])

    @classmethod
    def decode(cls, data: bytes) -> "BatchHeader":
        fields = wire.decode(data)
        return cls(wire.get_text(fields, 1), tuple(wire.get_all_text(fields, 2)))


@dataclass(frozen=True)
class Batch:
    """A batch in its serialized parts. With ``dataclasses.replace``, a test corrupts one part and keeps the others."""

    header_bytes: bytes
    signature: str
    transactions: tuple[Transaction, ...]

    @property
    def id(self) -> str:
        return self.signature

    @property
    def header(self) -> BatchHeader:
        return BatchHeader.decode(self.header_bytes)

    def to_bytes(self) -> bytes:
        return wire.encode(
            [
                *wire.present([(1, self.header_bytes), (2, self.signature)]),
                *wire.repeated(3, [transaction.to_bytes() for transaction in self.transactions]),
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Batch":
        fields = wire.decode(data)
        transactions = tuple(Transaction.from_bytes(item) for item in wire.get_all_bytes(fields, 3))
        return cls(wire.get_bytes(fields, 1), wire.get_text(fields, 2), transactions)


def make_transaction(
    private_key: str,
    batcher_public_key: str,
    family_name: str,
    family_version: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    payload: bytes,
    *,
    dependencies: Iterable[str] = (),
    nonce: str | None = None,
    payload_encoding: str | None = None,
    payload_sha512: str | None = None,
    signer_public_key: str | None = None,
) -> Transaction:
    """Build and sign.

    Without ``nonce``, it is random. Without ``payload_encoding``, the field is absent, as in 1.x clients.
    """
    header = TransactionHeader(
        batcher_pubkey=batcher_public_key,
        dependencies=tuple(dependencies),
        family_name=family_name,
        family_version=family_version,
        inputs=tuple(inputs),
        nonce=secrets.token_hex(16) if nonce is None else nonce,
        outputs=tuple(outputs),
        payload_encoding=payload_encoding or "",
        payload_sha512=hashlib.sha512(payload).hexdigest() if payload_sha512 is None else payload_sha512,
        signer_pubkey=secp256k1.public_key(private_key) if signer_public_key is None else signer_public_key,
    )
    header_bytes = header.encode()
    return Transaction(header_bytes, secp256k1.sign(private_key, header_bytes), payload)


def make_batch(
    private_key: str,
    transactions: Iterable[Transaction],
    *,
    signer_public_key: str | None = None,
    transaction_ids: Iterable[str] | None = None,
    header_bytes: bytes | None = None,
) -> Batch:
    """Build and sign. Each keyword replaces a value that would otherwise follow from the key and the transactions."""
    carried = tuple(transactions)
    if header_bytes is None:
        header_bytes = BatchHeader(
            secp256k1.public_key(private_key) if signer_public_key is None else signer_public_key,
            tuple(transaction.id for transaction in carried) if transaction_ids is None else tuple(transaction_ids),
        ).encode()
    return Batch(header_bytes, secp256k1.sign(private_key, header_bytes), carried)


def make_batch_list(batches: Iterable[Batch]) -> bytes:
    """The body of POST /batches."""
    return wire.encode(wire.repeated(1, [batch.to_bytes() for batch in batches]))


def read_batch_list(data: bytes) -> list[Batch]:
    """The batches of a serialized list."""
    return [Batch.from_bytes(item) for item in wire.get_all_bytes(wire.decode(data), 1)]


def intkey_address(name: str) -> str:
    return INTKEY_NAMESPACE + hashlib.sha512(name.encode()).hexdigest()[-64:]


def intkey_payload(verb: str, name: str, value: int) -> bytes:
    return cbor_map.encode({"Verb": verb, "Name": name, "Value": value})


def make_intkey_transaction(
    private_key: str,
    batcher_public_key: str,
    verb: str,
    name: str,
    value: int,
    *,
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    payload: bytes | None = None,
    dependencies: Iterable[str] = (),
    nonce: str | None = None,
    payload_encoding: str | None = INTKEY_ENCODING,
    family_version: str = INTKEY_VERSION,
) -> Transaction:
    """An intkey transaction that by default reads and writes the address of its name."""
    address = intkey_address(name)
    return make_transaction(
        private_key,
        batcher_public_key,
        INTKEY_FAMILY,
        family_version,
        [address] if inputs is None else inputs,
        [address] if outputs is None else outputs,
        intkey_payload(verb, name, value) if payload is None else payload,
        dependencies=dependencies,
        nonce=nonce,
        payload_encoding=payload_encoding,
    )


@dataclass(frozen=True)
class Sample:
    """A valid batch of two intkey transactions, with its keys. The same label gives the same bytes."""

    batch: Batch
    batch_key: str
    transaction_keys: tuple[str, ...]

    @property
    def batch_list(self) -> bytes:
        return make_batch_list([self.batch])


def make_sample(label: str) -> Sample:
    """Two transactions by two signers in a batch by a third: set a name to 7, then add 5."""
    batch_key = secp256k1.private_key_from(f"{label}/batcher")
    keys = tuple(secp256k1.private_key_from(f"{label}/signer/{index}") for index in range(2))
    batcher = secp256k1.public_key(batch_key)
    name = hashlib.sha256(label.encode()).hexdigest()[:20]
    transactions = [
        make_intkey_transaction(keys[0], batcher, "set", name, 7, nonce=f"{label}/first"),
        make_intkey_transaction(keys[1], batcher, "inc", name, 5, nonce=f"{label}/second"),
    ]
    return Sample(make_batch(batch_key, transactions), batch_key, keys)


class Mutation(NamedTuple):
    """A batch list that must be refused as a whole, and the RULE_ that it breaks.

    For a valid variant: why it is valid.
    """

    name: str
    batch_list: bytes
    rule: str


RULE_TRANSACTION_SIGNATURE = "a transaction's id is its signer's signature over its exact header bytes"
RULE_BATCH_SIGNATURE = "a batch's id is its signer's signature over its exact header bytes"
RULE_BATCHER_KEY = "a transaction's batcher_pubkey is the key that signed the batch"
RULE_PAYLOAD_HASH = "payload_sha512 is the SHA-512 of the payload"
RULE_TRANSACTION_IDS = "transaction_ids are the ids of the batch's transactions, in their order"
RULE_EMPTY_BATCH = "a batch has at least one transaction"
RULE_DUPLICATE = "a transaction is in a batch only once"
RULE_ID_FORM = "an id is 128 lower-case hex characters"
RULE_KEY_FORM = "a public key is 66 lower-case hex characters that name a point of the curve"
RULE_LOW_S = "s is in the lower half of the group order"
RULE_TRANSACTION_HEADER = "a transaction's header is a TransactionHeader"
RULE_BATCH_HEADER = "a batch's header is a BatchHeader"

_UNKNOWN_FIELD = wire.encode([(2000, b"newer")])
_NOT_A_MESSAGE = b"\x0a\xff\x01 cut short"


def mutations(batch: Batch, *, batch_key: str, transaction_keys: Sequence[str]) -> Iterator[Mutation]:
    """Every forgery of a valid batch of two transactions that this module knows. Each is a list of one bad batch.

    A signature that a change would invalidate is made again, so that only the named rule is broken. The plain bit flips
    change the sent bytes, and no signature is made again.
    """
    first, second = batch.transactions
    first_key, second_key = transaction_keys
    yield from _transaction_bit_flips(batch, batch_key)
    yield from _batch_bit_flips(batch)
    yield from _batch_forgeries(batch, batch_key)
    yield from _key_forgeries(batch, batch_key, transaction_keys)

    def with_first(changed: Transaction) -> bytes:
        return make_batch_list([make_batch(batch_key, [changed, second])])

    other_hash = hashlib.sha512(first.payload + b"!").hexdigest()
    changed = first.resigned(first_key, replace(first.header, payload_sha512=other_hash).encode())
    yield Mutation("payload_hash_of_other_bytes", with_first(changed), RULE_PAYLOAD_HASH)
    yield Mutation("transaction_id_upper_case", with_first(replace(first, signature=first.id.upper())), RULE_ID_FORM)
    high = replace(first, signature=secp256k1.to_high_s(first.id))
    yield Mutation("transaction_signature_high_s", with_first(high), RULE_LOW_S)
    changed = first.resigned(first_key, _NOT_A_MESSAGE)
    yield Mutation("transaction_header_not_decodable", with_first(changed), RULE_TRANSACTION_HEADER)
    changed = replace(first, header_bytes=first.header_bytes + _UNKNOWN_FIELD)
    yield Mutation("transaction_header_extended_unsigned", with_first(changed), RULE_TRANSACTION_SIGNATURE)
    changed = first.resigned(second_key, first.header_bytes)
    yield Mutation("transaction_signed_by_another_key", with_first(changed), RULE_TRANSACTION_SIGNATURE)
    yield Mutation("transaction_without_id", with_first(replace(first, signature="")), RULE_ID_FORM)


def variants(batch: Batch, *, batch_key: str, transaction_keys: Sequence[str]) -> Iterator[Mutation]:
    """Unusual lists that must be accepted: signed header bytes that no encoder of this schema writes."""
    first, second = batch.transactions
    reversed_fields = wire.encode(reversed(first.header.fields()))
    for name, header_bytes in (
        ("transaction_header_fields_reversed", reversed_fields),
        ("transaction_header_with_unknown_field", first.header_bytes + _UNKNOWN_FIELD),
    ):
        changed = make_batch(batch_key, [first.resigned(transaction_keys[0], header_bytes), second])
        yield Mutation(name, make_batch_list([changed]), "the header is verified as sent")
    changed = make_batch(batch_key, batch.transactions, header_bytes=batch.header_bytes + _UNKNOWN_FIELD)
    yield Mutation("batch_header_with_unknown_field", make_batch_list([changed]), "the header is verified as sent")
    plain = replace(first.header, payload_encoding="").encode()
    changed = make_batch(batch_key, [first.resigned(transaction_keys[0], plain), second])
    yield Mutation("payload_encoding_absent", make_batch_list([changed]), "1.x clients leave payload_encoding out")


def _transaction_bit_flips(batch: Batch, batch_key: str) -> Iterator[Mutation]:
    first, second = batch.transactions

    def as_sent(changed: Transaction) -> bytes:
        return make_batch_list([replace(batch, transactions=(changed, second))])

    nonce = first.header.nonce
    if not nonce:
        raise ValueError("the first transaction needs a nonce, because its last bit is flipped")
    header = replace(first.header, nonce=nonce[:-1] + chr(ord(nonce[-1]) ^ 1)).encode()
    yield Mutation("transaction_header_bit", as_sent(replace(first, header_bytes=header)), RULE_TRANSACTION_SIGNATURE)
    yield Mutation("payload_bit", as_sent(replace(first, payload=_flip(first.payload))), RULE_PAYLOAD_HASH)
    changed = replace(first, signature=_flip_hex(first.id))
    yield Mutation("transaction_id_bit", as_sent(changed), RULE_TRANSACTION_SIGNATURE)
    resigned = make_batch_list([make_batch(batch_key, [changed, second])])
    yield Mutation("transaction_id_bit_batch_resigned", resigned, RULE_TRANSACTION_SIGNATURE)


def _batch_bit_flips(batch: Batch) -> Iterator[Mutation]:
    for name, changed in (
        ("batch_header_bit", replace(batch, header_bytes=_flip(batch.header_bytes))),
        ("batch_header_extended_unsigned", replace(batch, header_bytes=batch.header_bytes + _UNKNOWN_FIELD)),
        ("batch_id_bit", replace(batch, signature=_flip_hex(batch.id))),
    ):
        yield Mutation(name, make_batch_list([changed]), RULE_BATCH_SIGNATURE)
    for name, signature, rule in (
        ("batch_id_upper_case", batch.id.upper(), RULE_ID_FORM),
        ("batch_signature_high_s", secp256k1.to_high_s(batch.id), RULE_LOW_S),
        ("batch_without_id", "", RULE_ID_FORM),
    ):
        yield Mutation(name, make_batch_list([replace(batch, signature=signature)]), rule)


def _batch_forgeries(batch: Batch, batch_key: str) -> Iterator[Mutation]:
    first, second = batch.transactions
    other_key = secp256k1.private_key_from(f"other than {batch_key}")
    for name, changed, rule in (
        (
            "batch_signed_by_another_key",
            make_batch(other_key, batch.transactions, header_bytes=batch.header_bytes),
            RULE_BATCH_SIGNATURE,
        ),
        ("batcher_is_not_the_batch_signer", make_batch(other_key, batch.transactions), RULE_BATCHER_KEY),
        (
            "transaction_ids_in_another_order",
            make_batch(batch_key, batch.transactions, transaction_ids=[second.id, first.id]),
            RULE_TRANSACTION_IDS,
        ),
        (
            "transaction_id_missing",
            make_batch(batch_key, batch.transactions, transaction_ids=[first.id]),
            RULE_TRANSACTION_IDS,
        ),
        (
            "transaction_missing",
            make_batch(batch_key, [first], transaction_ids=[first.id, second.id]),
            RULE_TRANSACTION_IDS,
        ),
        ("empty_batch", make_batch(batch_key, []), RULE_EMPTY_BATCH),
        ("transaction_twice", make_batch(batch_key, [first, second, first]), RULE_DUPLICATE),
        (
            "batch_header_not_decodable",
            make_batch(batch_key, batch.transactions, header_bytes=_NOT_A_MESSAGE),
            RULE_BATCH_HEADER,
        ),
    ):
        yield Mutation(name, make_batch_list([changed]), rule)


def _key_forgeries(batch: Batch, batch_key: str, transaction_keys: Sequence[str]) -> Iterator[Mutation]:
    """Wrong keys: every signature is valid under the signing key, but the header names another key."""
    first, second = batch.transactions
    for form, bad_key, rule in (
        ("parity_bit", _other_parity(first.header.signer_pubkey), RULE_TRANSACTION_SIGNATURE),
        ("x_bit", _off_the_curve(first.header.signer_pubkey), RULE_KEY_FORM),
        ("upper_case", first.header.signer_pubkey.upper(), RULE_KEY_FORM),
    ):
        changed = first.resigned(transaction_keys[0], replace(first.header, signer_pubkey=bad_key).encode())
        bad_list = make_batch_list([make_batch(batch_key, [changed, second])])
        yield Mutation(f"transaction_signer_key_{form}", bad_list, rule)
    signer = batch.header.signer_pubkey
    for form, bad_key, rule in (
        ("parity_bit", _other_parity(signer), RULE_BATCH_SIGNATURE),
        ("x_bit", _off_the_curve(signer), RULE_KEY_FORM),
        ("upper_case", signer.upper(), RULE_KEY_FORM),
    ):
        pairs = zip(batch.transactions, transaction_keys, strict=True)
        moved = [item.resigned(key, replace(item.header, batcher_pubkey=bad_key).encode()) for item, key in pairs]
        bad_batch = make_batch(batch_key, moved, signer_public_key=bad_key)
        yield Mutation(f"batch_signer_key_{form}", make_batch_list([bad_batch]), rule)


def _flip(data: bytes) -> bytes:
    """Flip the lowest bit of the last byte."""
    return data[:-1] + bytes([data[-1] ^ 1])


def _flip_hex(text: str) -> str:
    """Flip the lowest bit of the last digit of a lower-case hex number."""
    return text[:-1] + f"{int(text[-1], 16) ^ 1:x}"


def _other_parity(public_key: str) -> str:
    """The key of the point with the same x and the other y. The key is valid, but nobody has its private key."""
    return f"0{int(public_key[1]) ^ 1}{public_key[2:]}"


def _off_the_curve(public_key: str) -> str:
    """Flip one bit of x so that x belongs to no point."""
    for bit in range(256):
        candidate = f"{public_key[:2]}{int(public_key[2:], 16) ^ 1 << bit:064x}"
        if secp256k1.decode_public_key(candidate) is None:
            return candidate
    raise AssertionError("every neighbour is on the curve")
