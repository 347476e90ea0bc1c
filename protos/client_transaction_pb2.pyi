from protos import client_list_control_pb2 as _client_list_control_pb2
from protos import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientTransactionListRequest(_message.Message):
    __slots__ = ("head_id", "transaction_ids", "paging", "sorting")
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    SORTING_FIELD_NUMBER: _ClassVar[int]
    head_id: str
    transaction_ids: _containers.RepeatedScalarFieldContainer[str]
    paging: _client_list_control_pb2.ClientPagingControls
    sorting: _containers.RepeatedCompositeFieldContainer[_client_list_control_pb2.ClientSortControls]
    def __init__(self, head_id: _Optional[str] = ..., transaction_ids: _Optional[_Iterable[str]] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingControls, _Mapping]] = ..., sorting: _Optional[_Iterable[_Union[_client_list_control_pb2.ClientSortControls, _Mapping]]] = ...) -> None: ...

class ClientTransactionListResponse(_message.Message):
    __slots__ = ("status", "transactions", "head_id", "paging")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientTransactionListResponse.Status]
        OK: _ClassVar[ClientTransactionListResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientTransactionListResponse.Status]
        NOT_READY: _ClassVar[ClientTransactionListResponse.Status]
        NO_ROOT: _ClassVar[ClientTransactionListResponse.Status]
        NO_RESOURCE: _ClassVar[ClientTransactionListResponse.Status]
        INVALID_PAGING: _ClassVar[ClientTransactionListResponse.Status]
        INVALID_SORT: _ClassVar[ClientTransactionListResponse.Status]
        INVALID_ID: _ClassVar[ClientTransactionListResponse.Status]
    STATUS_UNSET: ClientTransactionListResponse.Status
    OK: ClientTransactionListResponse.Status
    INTERNAL_ERROR: ClientTransactionListResponse.Status
    NOT_READY: ClientTransactionListResponse.Status
    NO_ROOT: ClientTransactionListResponse.Status
    NO_RESOURCE: ClientTransactionListResponse.Status
    INVALID_PAGING: ClientTransactionListResponse.Status
    INVALID_SORT: ClientTransactionListResponse.Status
    INVALID_ID: ClientTransactionListResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    PAGING_FIELD_NUMBER: _ClassVar[int]
    status: ClientTransactionListResponse.Status
    transactions: _containers.RepeatedCompositeFieldContainer[_transaction_pb2.Transaction]
    head_id: str
    paging: _client_list_control_pb2.ClientPagingResponse
    def __init__(self, status: _Optional[_Union[ClientTransactionListResponse.Status, str]] = ..., transactions: _Optional[_Iterable[_Union[_transaction_pb2.Transaction, _Mapping]]] = ..., head_id: _Optional[str] = ..., paging: _Optional[_Union[_client_list_control_pb2.ClientPagingResponse, _Mapping]] = ...) -> None: ...

class ClientTransactionGetRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    def __init__(self, transaction_id: _Optional[str] = ...) -> None: ...

class ClientTransactionGetResponse(_message.Message):
    __slots__ = ("status", "transaction", "head_id", "message")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientTransactionGetResponse.Status]
        OK: _ClassVar[ClientTransactionGetResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientTransactionGetResponse.Status]
        NO_RESOURCE: _ClassVar[ClientTransactionGetResponse.Status]
        INVALID_ID: _ClassVar[ClientTransactionGetResponse.Status]
    STATUS_UNSET: ClientTransactionGetResponse.Status
    OK: ClientTransactionGetResponse.Status
    INTERNAL_ERROR: ClientTransactionGetResponse.Status
    NO_RESOURCE: ClientTransactionGetResponse.Status
    INVALID_ID: ClientTransactionGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status: ClientTransactionGetResponse.Status
    transaction: _transaction_pb2.Transaction
    head_id: str
    message: str
    def __init__(self, status: _Optional[_Union[ClientTransactionGetResponse.Status, str]] = ..., transaction: _Optional[_Union[_transaction_pb2.Transaction, _Mapping]] = ..., head_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
