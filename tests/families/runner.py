"""Applies signed transactions to one handler over a dict, through the packed dispatch as a validator would."""

from collections.abc import Sequence

from ledger.building import SignedTransaction, build_transaction
from ledger.signing import Signer
from ledger.transaction import decode_transaction
from processor_sdk import TransactionHandler
from processor_sdk.dispatch import Dispatcher
from protos import packed_pb2, validator_pb2

OK, INVALID, INTERNAL = 1, 2, 3
SIGNER = Signer("11" * 32)


class Ledger:
    """State, and what the last transactions came to."""

    def __init__(self, handler: TransactionHandler) -> None:
        self.state: dict[str, bytes] = {}
        self.events: list[tuple[str, dict[str, str]]] = []
        self.message = ""
        self._handler = handler
        self._dispatcher = Dispatcher([handler])

    def submit(self, transaction: SignedTransaction) -> int:
        """Apply one transaction, keep what an OK one writes, and give its status."""
        request = packed_pb2.PackedProcessRequest(context_id="ctx")
        request.units.add(transactions=[transaction.raw])
        for address in dict.fromkeys(decode_transaction(transaction.raw).header.inputs):
            if address in self.state:
                request.entries.add(address=address, data=self.state[address])
        content = self._dispatcher.packed(request.SerializeToString(), no_link)
        [unit] = packed_pb2.PackedProcessResponse.FromString(content).units
        [result] = unit.results
        self.message = result.message
        for change in result.state_changes:
            assert change.type == 1
            self.state[change.address] = change.value
        self.events = [
            (event.event_type, {item.key: item.value for item in event.attributes}) for event in result.events
        ]
        return result.status

    def submit_raw(self, payload: bytes, addresses: Sequence[str], encoding: str = "", signer: Signer = SIGNER) -> int:
        """Apply a transaction with any bytes as its payload."""
        return self.submit(
            build_transaction(
                signer,
                batcher_pubkey=signer.public_key,
                family_name=self._handler.family_name,
                family_version=self._handler.family_version,
                inputs=addresses,
                outputs=addresses,
                payload=payload,
                payload_encoding=encoding,
                nonce="",
            )
        )


def no_link(message_type: validator_pb2.Message.MessageType, content: bytes) -> bytes:
    raise AssertionError("fully named inputs are never asked for")
