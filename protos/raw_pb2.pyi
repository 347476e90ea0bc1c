from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RawBatchList(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, batches: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RawBatch(_message.Message):
    __slots__ = ("header", "header_signature", "transactions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEADER_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    header_signature: str
    transactions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[bytes] = ..., header_signature: _Optional[str] = ..., transactions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RawBlock(_message.Message):
    __slots__ = ("header", "header_signature", "batches")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEADER_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    header_signature: str
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[bytes] = ..., header_signature: _Optional[str] = ..., batches: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RawBlockList(_message.Message):
    __slots__ = ("blocks",)
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, blocks: _Optional[_Iterable[bytes]] = ...) -> None: ...
