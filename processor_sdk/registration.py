"""What a processor says of one family to a validator, and what the validator makes of it. No sockets, no clock."""

from typing import Any, Final

from google.protobuf.message import DecodeError

from processor_sdk.handler import TransactionHandler
from protos import processor_pb2

PACKED_VERSION: Final = 1
PROTOCOL_VERSION: Final = 1


class Registration:
    """One (family, version): what to ask for, and how far it got on the current connection."""

    def __init__(self, handler: TransactionHandler[Any], max_occupancy: int) -> None:
        self.family = f"{handler.family_name} {handler.family_version}"
        self.content = processor_pb2.TpRegisterRequest(
            family=handler.family_name,
            version=handler.family_version,
            namespaces=handler.namespaces,
            max_occupancy=max_occupancy,
            protocol_version=PROTOCOL_VERSION,
            request_header_style=processor_pb2.TpRegisterRequest.RAW,
            packed_version=PACKED_VERSION,
        ).SerializeToString()
        self.reset()

    def reset(self) -> None:
        """A new connection: nothing is registered."""
        self.done = False
        self.refusals = 0
        self.retry_at: float | None = None


def refusal(content: bytes) -> str | None:
    """Why a serialized TpRegisterResponse is none that a processor can work with; None where it is."""
    try:
        response = processor_pb2.TpRegisterResponse.FromString(content)
    except DecodeError:
        return f"{len(content)} bytes of the answer are no TpRegisterResponse"
    if response.status != processor_pb2.TpRegisterResponse.OK:
        return response.message or f"status {response.status}, no reason given"
    if response.protocol_version != PROTOCOL_VERSION:
        return f"the validator speaks protocol version {response.protocol_version}, this processor {PROTOCOL_VERSION}"
    return None
