from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListRequest(_message.Message):
    __slots__ = ("resource", "head", "address", "ids", "min", "max", "count")
    class Resource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESOURCE_UNSET: _ClassVar[ListRequest.Resource]
        BLOCKS: _ClassVar[ListRequest.Resource]
        BATCHES: _ClassVar[ListRequest.Resource]
        TRANSACTIONS: _ClassVar[ListRequest.Resource]
        STATE: _ClassVar[ListRequest.Resource]
    RESOURCE_UNSET: ListRequest.Resource
    BLOCKS: ListRequest.Resource
    BATCHES: ListRequest.Resource
    TRANSACTIONS: ListRequest.Resource
    STATE: ListRequest.Resource
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    resource: ListRequest.Resource
    head: str
    address: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    min: str
    max: str
    count: int
    def __init__(self, resource: _Optional[_Union[ListRequest.Resource, str]] = ..., head: _Optional[str] = ..., address: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., min: _Optional[str] = ..., max: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("status", "message", "head_id", "items", "start_index", "total_count")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ListResponse.Status]
        OK: _ClassVar[ListResponse.Status]
        INTERNAL_ERROR: _ClassVar[ListResponse.Status]
        NOT_READY: _ClassVar[ListResponse.Status]
        HEAD_NOT_FOUND: _ClassVar[ListResponse.Status]
        INVALID_PAGING: _ClassVar[ListResponse.Status]
        INVALID_ADDRESS: _ClassVar[ListResponse.Status]
        INVALID_RESOURCE: _ClassVar[ListResponse.Status]
    STATUS_UNSET: ListResponse.Status
    OK: ListResponse.Status
    INTERNAL_ERROR: ListResponse.Status
    NOT_READY: ListResponse.Status
    HEAD_NOT_FOUND: ListResponse.Status
    INVALID_PAGING: ListResponse.Status
    INVALID_ADDRESS: ListResponse.Status
    INVALID_RESOURCE: ListResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    START_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    status: ListResponse.Status
    message: str
    head_id: str
    items: _containers.RepeatedScalarFieldContainer[bytes]
    start_index: int
    total_count: int
    def __init__(self, status: _Optional[_Union[ListResponse.Status, str]] = ..., message: _Optional[str] = ..., head_id: _Optional[str] = ..., items: _Optional[_Iterable[bytes]] = ..., start_index: _Optional[int] = ..., total_count: _Optional[int] = ...) -> None: ...
