from protos import batch_pb2 as _batch_pb2
from protos import client_list_control_pb2 as _client_list_control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientBatchListRequest(_message.Message):
    __slots__ = ("head_id", "batch_ids", "paging", "sorting")
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    SORTING_FIELD_NUMBER: _ClassVar[int]
    head_id: str
    batch_ids: _containers.RepeatedScalarFieldContainer[str]
    paging: _client_list_control_pb2.ClientPagingControls
    sorting: _containers.RepeatedCompositeFieldContainer[_client_list_control_pb2.ClientSortControls]
    def __init__(self, head_id: _Optional[str] = ..., batch_ids: _Optional[_Iterable[str]] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingControls, _Mapping]] = ..., sorting: _Optional[_Iterable[_Union[_client_list_control_pb2.ClientSortControls, _Mapping]]] = ...) -> None: ...

class ClientBatchListResponse(_message.Message):
    __slots__ = ("status", "batches", "head_id", "paging")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBatchListResponse.Status]
        OK: _ClassVar[ClientBatchListResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBatchListResponse.Status]
        NOT_READY: _ClassVar[ClientBatchListResponse.Status]
        NO_ROOT: _ClassVar[ClientBatchListResponse.Status]
        NO_RESOURCE: _ClassVar[ClientBatchListResponse.Status]
        INVALID_PAGING: _ClassVar[ClientBatchListResponse.Status]
        INVALID_SORT: _ClassVar[ClientBatchListResponse.Status]
        INVALID_ID: _ClassVar[ClientBatchListResponse.Status]
    STATUS_UNSET: ClientBatchListResponse.Status
    OK: ClientBatchListResponse.Status
    INTERNAL_ERROR: ClientBatchListResponse.Status
    NOT_READY: ClientBatchListResponse.Status
    NO_ROOT: ClientBatchListResponse.Status
    NO_RESOURCE: ClientBatchListResponse.Status
    INVALID_PAGING: ClientBatchListResponse.Status
    INVALID_SORT: ClientBatchListResponse.Status
    INVALID_ID: ClientBatchListResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    status: ClientBatchListResponse.Status
    batches: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Batch]
    head_id: str
    paging: _client_list_control_pb2.ClientPagingResponse
    def __init__(self, status: _Optional[_Union[ClientBatchListResponse.Status, str]] = ..., batches: _Optional[_Iterable[_Union[_batch_pb2.Batch, _Mapping]]] = ..., head_id: _Optional[str] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingResponse, _Mapping]] = ...) -> None: ...

class ClientBatchGetRequest(_message.Message):
    __slots__ = ("batch_id",)
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    def __init__(self, batch_id: _Optional[str] = ...) -> None: ...

class ClientBatchGetResponse(_message.Message):
    __slots__ = ("status", "batch", "head_id", "message")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBatchGetResponse.Status]
        OK: _ClassVar[ClientBatchGetResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBatchGetResponse.Status]
        NO_RESOURCE: _ClassVar[ClientBatchGetResponse.Status]
        INVALID_ID: _ClassVar[ClientBatchGetResponse.Status]
    STATUS_UNSET: ClientBatchGetResponse.Status
    OK: ClientBatchGetResponse.Status
    INTERNAL_ERROR: ClientBatchGetResponse.Status
    NO_RESOURCE: ClientBatchGetResponse.Status
    INVALID_ID: ClientBatchGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status: ClientBatchGetResponse.Status
    batch: _batch_pb2.Batch
    head_id: str
    message: str
    def __init__(self, status: _Optional[_Union[ClientBatchGetResponse.Status, str]] = ..., batch: _Optional[_Union[_batch_pb2.Batch, _Mapping]] = ..., head_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
