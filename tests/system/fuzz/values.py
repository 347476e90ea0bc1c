"""Targets that decode one value: payloads and entries (CBOR, JSON), settings, lists of batches.

A decoded value must encode to bytes that decode to the same value. Other input is refused as documented.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from dovetail.ledger.batch import decode_batch_list, verify_batch, verify_migration, verify_transaction
from dovetail.ledger.building import build_batch, build_transaction, encode_batch_list
from dovetail.ledger.errors import NotDecodable, RefusedBatch
from dovetail.ledger.permitted import (
    Permission,
    awaiting_migration,
    decode_permitted_families,
    encode_permitted_families,
    first_gap,
    permission_for,
    permission_refusal,
    permitted_families,
)
from dovetail.ledger.settings import SETTINGS, TRANSACTION_FAMILIES, FamilyVersion, decode_setting, encode_setting
from dovetail.ledger.signing import Signer
from families.intkey.payload import ENCODINGS, LEAF
from families.intkey.v2.payload import ENCODINGS as ENCODINGS_V2
from families.settings.candidates import decode_candidates, encode_candidates
from families.settings.client import propose_authorized_keys
from processor_sdk import Codec
from protos import raw_pb2
from tests.processor_sdk.payloads import CODECS, Part, Payload
from tests.system.fuzz.target import Input, Target, text_of

SIGNER = Signer("11" * 32)
_MESSAGE_CHARACTERS_MAX = 2_000
FULL = Payload("t", 1, 0.5, True, parts=(Part("p", b"d"),), names=["n"], counts={"c": 1}, maybe=Part("m"))


class _Codecs(Target):
    """Input: a first byte that chooses one of ``codecs``, and the bytes that this codec decodes."""

    codecs: ClassVar[list[tuple[Codec[Any], Any]]]
    """Each codec, with a value that it encodes."""

    def seeds(self) -> Iterator[bytes]:
        for index, (codec, value) in enumerate(self.codecs):
            yield bytes((index,)) + codec.encode(value)

    def run(self, data: bytes) -> None:
        source = Input(data)
        codec, _ = self.codecs[source.byte() % len(self.codecs)]
        try:
            value = codec.decode(source.rest())
        except NotDecodable:
            return
        again = codec.encode(value)
        assert codec.decode(again) == value
        assert codec.encode(codec.decode(again)) == again


class Cbor(_Codecs):
    """The CBOR reader."""

    name = "cbor"
    codecs: ClassVar = [
        (LEAF, {"name": 5}),
        (ENCODINGS["application/cbor"], ENCODINGS["application/cbor"].decode(b"\xa3dVerbcsetdNameaneValue\x01")),
        (CODECS["application/cbor"], FULL),
        (ENCODINGS_V2["application/cbor"], ENCODINGS_V2["application/cbor"].decode(b"\xa3dVerbcincdNameaneValue\x01")),
    ]


class Json(_Codecs):
    """The JSON reader."""

    name = "json"
    codecs: ClassVar = [
        (ENCODINGS["application/json"], ENCODINGS["application/json"].decode(b'{"Verb":"set","Name":"n","Value":1}')),
        (CODECS["application/json"], FULL),
    ]


class Settings(Target):
    """Leaves of settings, candidates in them, and permitted families."""

    name = "settings"

    def seeds(self) -> Iterator[bytes]:
        yield b"\0" + encode_setting({"a.b": "c", "d": "é"})
        yield b"\1"
        plan = (
            Permission(FamilyVersion("intkey", "1.0"), 0, 99),
            Permission(FamilyVersion("intkey", "2.0"), 100, None, ("1cf126", "000000aa")),
        )
        yield b"\2" + encode_permitted_families(plan).encode()
        yield b'\2[{"family":"a","version":"1","from_block":3,"until_block":3,"migrate":["aaaaaa"],"x":[{}]}]'
        yield b"\2" + b"[" * 17 + b"]" * 17

    def run(self, data: bytes) -> None:
        source = Input(data)
        (self._leaf, self._candidates, self._plan)[source.byte() % 3](source.rest())

    def _leaf(self, data: bytes) -> None:
        try:
            entries = decode_setting(data)
        except NotDecodable:
            return
        assert decode_setting(encode_setting(entries)) == entries

    def _candidates(self, data: bytes) -> None:
        try:
            candidates = decode_candidates(text_of(data))
        except NotDecodable:
            return
        assert decode_candidates(encode_candidates(candidates)) == candidates

    def _plan(self, data: bytes) -> None:
        value = text_of(data)
        # The validator accepts any value of this setting: each value determines which families are permitted.
        permitted = permitted_families(lambda _: encode_setting({TRANSACTION_FAMILIES: value}))
        assert permitted is not None
        try:
            decoded = decode_permitted_families(value)
        except NotDecodable:
            assert len(permitted) == 1
            return
        assert decoded == decode_permitted_families(encode_permitted_families(decoded))
        # A value that shuts out the settings family is read as if it named that family without limits.
        assert permitted in (decoded, (Permission(SETTINGS), *(one for one in decoded if one.family != SETTINGS)))
        for block_num in (0, 100, 2**63 - 1):
            assert permission_refusal(SETTINGS, permitted, block_num) is None
        for block_num in (0, 100, 2**63 - 1):
            awaiting_migration(decoded, block_num, lambda _: False)
            for entry in decoded[:5]:
                found = permission_for(entry.family, decoded, block_num)
                assert (found is None) == (permission_refusal(entry.family, decoded, block_num) is not None)
                if found is not None and found.covers(block_num):
                    gap = first_gap([one for one in decoded if one.family == entry.family], block_num)
                    assert gap is None or gap > block_num


class Batches(Target):
    """Lists of batches as clients send them, and single transactions."""

    name = "batches"

    def seeds(self) -> Iterator[bytes]:
        transactions = [
            build_transaction(
                SIGNER,
                batcher_pubkey=SIGNER.public_key,
                family_name="intkey",
                family_version="1.0",
                inputs=("1cf126",),
                outputs=("1cf126",),
                payload=b"p",
                payload_encoding="application/cbor",
                nonce=str(number),
                dependencies=(),
            )
            for number in range(2)
        ]
        yield encode_batch_list([build_batch(SIGNER, transactions)])
        yield encode_batch_list([build_batch(SIGNER, transactions[:1]), build_batch(SIGNER, transactions[1:])])
        yield transactions[0].raw
        yield build_batch(SIGNER, transactions).raw
        proposal = propose_authorized_keys(SIGNER, SIGNER.public_key, [SIGNER.public_key], "nonce")
        yield encode_batch_list([build_batch(SIGNER, [proposal.transaction])])

    def run(self, data: bytes) -> None:
        try:
            batches = decode_batch_list(data)
        except NotDecodable:
            batches = []
        assert sum(map(len, batches)) <= len(data)
        for raw in batches[:20]:
            for verify in (verify_batch, verify_migration):
                try:
                    verified = verify(raw)
                except RefusedBatch as refusal:
                    _check(refusal)
                    continue
                assert verify(verified.raw) == verified
                assert len(verified.raw) <= len(raw)
                assert raw_pb2.RawBatch.FromString(raw).header_signature == verified.id
        try:
            verify_transaction(data)
        except RefusedBatch as refusal:
            _check(refusal)


def _check(refusal: RefusedBatch) -> None:
    """Check that a refusal names its rule, and repeats only a little of what it refuses."""
    assert refusal.rule
    assert len(refusal.message) < _MESSAGE_CHARACTERS_MAX
