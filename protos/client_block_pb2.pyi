from protos import block_pb2 as _block_pb2
from protos import client_list_control_pb2 as _client_list_control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientBlockListRequest(_message.Message):
    __slots__ = ("head_id", "block_ids", "paging", "sorting")
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    SORTING_FIELD_NUMBER: _ClassVar[int]
    head_id: str
    block_ids: _containers.RepeatedScalarFieldContainer[str]
    paging: _client_list_control_pb2.ClientPagingControls
    sorting: _containers.RepeatedCompositeFieldContainer[_client_list_control_pb2.ClientSortControls]
    def __init__(self, head_id: _Optional[str] = ..., block_ids: _Optional[_Iterable[str]] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingControls, _Mapping]] = ..., sorting: _Optional[_Iterable[_Union[_client_list_control_pb2.ClientSortControls, _Mapping]]] = ...) -> None: ...

class ClientBlockListResponse(_message.Message):
    __slots__ = ("status", "blocks", "head_id", "paging")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBlockListResponse.Status]
        OK: _ClassVar[ClientBlockListResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBlockListResponse.Status]
        NOT_READY: _ClassVar[ClientBlockListResponse.Status]
        NO_ROOT: _ClassVar[ClientBlockListResponse.Status]
        NO_RESOURCE: _ClassVar[ClientBlockListResponse.Status]
        INVALID_PAGING: _ClassVar[ClientBlockListResponse.Status]
        INVALID_SORT: _ClassVar[ClientBlockListResponse.Status]
        INVALID_ID: _ClassVar[ClientBlockListResponse.Status]
    STATUS_UNSET: ClientBlockListResponse.Status
    OK: ClientBlockListResponse.Status
    INTERNAL_ERROR: ClientBlockListResponse.Status
    NOT_READY: ClientBlockListResponse.Status
    NO_ROOT: ClientBlockListResponse.Status
    NO_RESOURCE: ClientBlockListResponse.Status
    INVALID_PAGING: ClientBlockListResponse.Status
    INVALID_SORT: ClientBlockListResponse.Status
    INVALID_ID: ClientBlockListResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    status: ClientBlockListResponse.Status
    blocks: _containers.RepeatedCompositeFieldContainer[_block_pb2.Block]
    head_id: str
    paging: _client_list_control_pb2.ClientPagingResponse
    def __init__(self, status: _Optional[_Union[ClientBlockListResponse.Status, str]] = ..., blocks: _Optional[_Iterable[_Union[_block_pb2.Block, _Mapping]]] = ..., head_id: _Optional[str] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingResponse, _Mapping]] = ...) -> None: ...

class ClientBlockGetByIdRequest(_message.Message):
    __slots__ = ("block_id",)
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    block_id: str
    def __init__(self, block_id: _Optional[str] = ...) -> None: ...

class ClientBlockGetByNumRequest(_message.Message):
    __slots__ = ("block_num",)
    BLOCK_NUM_FIELD_NUMBER: _ClassVar[int]
    block_num: int
    def __init__(self, block_num: _Optional[int] = ...) -> None: ...

class ClientBlockGetByTransactionIdRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class ClientBlockGetByBatchIdRequest(_message.Message):
    __slots__ = ("batch_id",)
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    def __init__(self, batch_id: _Optional[str] = ...) -> None: ...

class ClientBlockGetResponse(_message.Message):
    __slots__ = ("status", "block", "head_id", "message")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBlockGetResponse.Status]
        OK: _ClassVar[ClientBlockGetResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBlockGetResponse.Status]
        NO_RESOURCE: _ClassVar[ClientBlockGetResponse.Status]
        INVALID_ID: _ClassVar[ClientBlockGetResponse.Status]
    STATUS_UNSET: ClientBlockGetResponse.Status
    OK: ClientBlockGetResponse.Status
    INTERNAL_ERROR: ClientBlockGetResponse.Status
    NO_RESOURCE: ClientBlockGetResponse.Status
    INVALID_ID: ClientBlockGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status: ClientBlockGetResponse.Status
    block: _block_pb2.Block
    head_id: str
    message: str
    def __init__(self, status: _Optional[_Union[ClientBlockGetResponse.Status, str]] = ..., block: _Optional[_Union[_block_pb2.Block, _Mapping]] = ..., head_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
