"""Target: family payloads through the SDK's dispatcher and the handlers of intkey and settings, over any entries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dovetail.ledger.settings import AUTHORIZED_KEYS, encode_setting, setting_address
from dovetail.ledger.transaction import decode_transaction
from families.intkey.handler import IntkeyHandler
from families.intkey.payload import LEAF
from families.intkey.v2.handler import IntkeyHandler as IntkeyHandlerV2
from families.settings.client import propose_authorized_keys, vote
from families.settings.handler import SettingsHandler
from processor_sdk import TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from protos import processor_pb2, state_context_pb2, transaction_pb2
from protos.validator_pb2 import Message as Envelope
from tests.system.fuzz.target import Input, Target, chunk
from tests.system.fuzz.values import SIGNER

_ENCODINGS: Final = ("", "application/cbor", "application/json", "application/protobuf", "application/octet-stream")
_KEYS_AT: Final = setting_address(AUTHORIZED_KEYS)
_KEYS_KNOWN: Final = 1
_LEAF_EVERYWHERE: Final = 2


class Families(Target):
    """Input: handler, flags, encoding, the stored value, the payload."""

    name = "families"

    def __init__(self, folder: Path) -> None:
        self._handlers: list[TransactionHandler[Any]] = [IntkeyHandler(), IntkeyHandlerV2(), SettingsHandler()]
        self._dispatcher = Dispatcher(self._handlers)

    def seeds(self) -> Iterator[bytes]:
        payloads = [b"\xa3dVerbcsetdNameaneValue\x01", b"\xa3dVerbcincdNameaneValue\x01"]
        for handler in range(2):
            for payload in payloads:
                yield bytes((handler, _LEAF_EVERYWHERE, 1)) + chunk(LEAF.encode({"n": 4})) + payload
                yield bytes((handler, 0, 0)) + chunk(b"") + payload
            yield bytes((handler, 0, 2)) + chunk(b"") + b'{"Verb":"dec","Name":"n","Value":1}'
        proposal = propose_authorized_keys(SIGNER, SIGNER.public_key, [SIGNER.public_key], "1")
        voted = vote(SIGNER, SIGNER.public_key, proposal.proposal_id, AUTHORIZED_KEYS, accept=True, nonce="2")
        for signed in (proposal.transaction, voted):
            payload = decode_transaction(signed.raw).payload
            yield bytes((2, _KEYS_KNOWN, 0)) + chunk(b"") + payload
            yield bytes((2, _KEYS_KNOWN | _LEAF_EVERYWHERE, 3)) + chunk(encode_setting({"a": "b"})) + payload

    def run(self, data: bytes) -> None:
        source = Input(data)
        handler = self._handlers[source.byte() % len(self._handlers)]
        flags, encoding = source.byte(), _ENCODINGS[source.byte() % len(_ENCODINGS)]
        leaf, payload = source.chunk(), source.rest()

        def link(message_type: int, content: bytes) -> bytes:
            """A state that has the leaf at every address or at none. Writes are accepted but not kept."""
            if message_type == Envelope.TP_STATE_GET_REQUEST:
                asked = state_context_pb2.TpStateGetRequest.FromString(content)
                answer = state_context_pb2.TpStateGetResponse(status="OK")
                for address in asked.addresses:
                    data = leaf if flags & _LEAF_EVERYWHERE else b""
                    if address == _KEYS_AT and flags & _KEYS_KNOWN:
                        data = encode_setting({AUTHORIZED_KEYS: SIGNER.public_key})
                    answer.entries.add(address=address, data=data)
                return answer.SerializeToString()
            if message_type == Envelope.TP_STATE_SET_REQUEST:
                entries = state_context_pb2.TpStateSetRequest.FromString(content).entries
                changed = [entry.address for entry in entries]
                return state_context_pb2.TpStateSetResponse(status="OK", addresses=changed).SerializeToString()
            if message_type == Envelope.TP_STATE_DELETE_REQUEST:
                gone = state_context_pb2.TpStateDeleteRequest.FromString(content).addresses
                return state_context_pb2.TpStateDeleteResponse(status="OK", addresses=gone).SerializeToString()
            if message_type == Envelope.TP_EVENT_ADD_REQUEST:
                return state_context_pb2.TpEventAddResponse(status="OK").SerializeToString()
            return state_context_pb2.TpReceiptAddDataResponse(status="OK").SerializeToString()

        header = transaction_pb2.TransactionHeader(
            family_name=handler.family_name,
            family_version=handler.family_version,
            inputs=handler.namespaces,
            outputs=handler.namespaces,
            payload_encoding=encoding,
            signer_pubkey=SIGNER.public_key,
        )
        request = processor_pb2.TpProcessRequest(header=header, payload=payload, context_id="c", signature="ab" * 64)
        content = request.SerializeToString()
        answer = self._dispatcher.single(content, link)
        response = processor_pb2.TpProcessResponse.FromString(answer)
        # No payload or entry makes a handler fail: the verdict is OK or INVALID, and the same each time.
        assert response.status in (response.OK, response.INVALID_TRANSACTION), response.message
        assert self._dispatcher.single(content, link) == answer
