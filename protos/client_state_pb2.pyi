from protos import client_list_control_pb2 as _client_list_control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientStateListRequest(_message.Message):
    __slots__ = ("state_root", "address", "paging", "sorting")
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    SORTING_FIELD_NUMBER: _ClassVar[int]
    state_root: str
    address: str
    paging: _client_list_control_pb2.ClientPagingControls
    sorting: _containers.RepeatedCompositeFieldContainer[_client_list_control_pb2.ClientSortControls]
    def __init__(self, state_root: _Optional[str] = ..., address: _Optional[str] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingControls, _Mapping]] = ..., sorting: _Optional[_Iterable[_Union[_client_list_control_pb2.ClientSortControls, _Mapping]]] = ...) -> None: ...

class ClientStateListResponse(_message.Message):
    __slots__ = ("status", "entries", "state_root", "paging")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientStateListResponse.Status]
        OK: _ClassVar[ClientStateListResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientStateListResponse.Status]
        NOT_READY: _ClassVar[ClientStateListResponse.Status]
        NO_ROOT: _ClassVar[ClientStateListResponse.Status]
        NO_RESOURCE: _ClassVar[ClientStateListResponse.Status]
        INVALID_PAGING: _ClassVar[ClientStateListResponse.Status]
        INVALID_SORT: _ClassVar[ClientStateListResponse.Status]
        INVALID_ADDRESS: _ClassVar[ClientStateListResponse.Status]
        INVALID_ROOT: _ClassVar[ClientStateListResponse.Status]
    STATUS_UNSET: ClientStateListResponse.Status
    OK: ClientStateListResponse.Status
    INTERNAL_ERROR: ClientStateListResponse.Status
    NOT_READY: ClientStateListResponse.Status
    NO_ROOT: ClientStateListResponse.Status
    NO_RESOURCE: ClientStateListResponse.Status
    INVALID_PAGING: ClientStateListResponse.Status
    INVALID_SORT: ClientStateListResponse.Status
    INVALID_ADDRESS: ClientStateListResponse.Status
    INVALID_ROOT: ClientStateListResponse.Status
    class Entry(_message.Message):
        __slots__ = ("address", "data")
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        address: str
        data: bytes
        def __init__(self, address: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    status: ClientStateListResponse.Status
    entries: _containers.RepeatedCompositeFieldContainer[ClientStateListResponse.Entry]
    state_root: str
    paging: _client_list_control_pb2.ClientPagingResponse
    def __init__(self, status: _Optional[_Union[ClientStateListResponse.Status, str]] = ..., entries: _Optional[_Iterable[_Union[ClientStateListResponse.Entry, _Mapping]]] = ..., state_root: _Optional[str] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingResponse, _Mapping]] = ...) -> None: ...

class ClientStateGetRequest(_message.Message):
    __slots__ = ("state_root", "address")
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    state_root: str
    address: str
    def __init__(self, state_root: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class ClientStateGetResponse(_message.Message):
    __slots__ = ("status", "value", "state_root")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientStateGetResponse.Status]
        OK: _ClassVar[ClientStateGetResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientStateGetResponse.Status]
        NOT_READY: _ClassVar[ClientStateGetResponse.Status]
        NO_ROOT: _ClassVar[ClientStateGetResponse.Status]
        NO_RESOURCE: _ClassVar[ClientStateGetResponse.Status]
        INVALID_ADDRESS: _ClassVar[ClientStateGetResponse.Status]
        INVALID_ROOT: _ClassVar[ClientStateGetResponse.Status]
    STATUS_UNSET: ClientStateGetResponse.Status
    OK: ClientStateGetResponse.Status
    INTERNAL_ERROR: ClientStateGetResponse.Status
    NOT_READY: ClientStateGetResponse.Status
    NO_ROOT: ClientStateGetResponse.Status
    NO_RESOURCE: ClientStateGetResponse.Status
    INVALID_ADDRESS: ClientStateGetResponse.Status
    INVALID_ROOT: ClientStateGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STATE_ROOT_FIELD_NUMBER: _ClassVar[int]
    status: ClientStateGetResponse.Status
    value: bytes
    state_root: str
    def __init__(self, status: _Optional[_Union[ClientStateGetResponse.Status, str]] = ..., value: _Optional[bytes] = ..., state_root: _Optional[str] = ...) -> None: ...
