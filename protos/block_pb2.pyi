from protos import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlockHeader(_message.Message):
    __slots__ = ("block_num", "previous_block_id", "signer_pubkey", "batch_ids", "consensus", "state_root_hash")
    BLOCK_NUM_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNER_PUBKEY_FIELD_NUMBER: _ClassVar[int]
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    CONSENSUS_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_HASH_FIELD_NUMBER: _ClassVar[int]
    block_num: int
    previous_block_id: str
    signer_pubkey: str
    batch_ids: _containers.RepeatedScalarFieldContainer[str]
    consensus: bytes
    state_root_hash: str
    def __init__(self, block_num: _Optional[int] = ..., previous_block_id: _Optional[str] = ..., signer_pubkey: _Optional[str] = ..., batch_ids: _Optional[_Iterable[str]] = ..., consensus: _Optional[bytes] = ..., state_root_hash: _Optional[str] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("header", "header_signature", "batches")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEADER_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    header_signature: str
    batches: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Batch]
    def __init__(self, header: _Optional[bytes] = ..., header_signature: _Optional[str] = ..., batches: _Optional[_Iterable[_Union[_batch_pb2.Batch, _Mapping]]] = ...) -> None: ...
