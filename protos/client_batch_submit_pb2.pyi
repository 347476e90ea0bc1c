from protos import batch_pb2 as _batch_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientBatchStatus(_message.Message):
    __slots__ = ("batch_id", "status", "invalid_transactions", "reason", "family_name", "family_version", "dependency", "message", "omitted_bytes")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBatchStatus.Status]
        COMMITTED: _ClassVar[ClientBatchStatus.Status]
        INVALID: _ClassVar[ClientBatchStatus.Status]
        PENDING: _ClassVar[ClientBatchStatus.Status]
        UNKNOWN: _ClassVar[ClientBatchStatus.Status]
    STATUS_UNSET: ClientBatchStatus.Status
    COMMITTED: ClientBatchStatus.Status
    INVALID: ClientBatchStatus.Status
    PENDING: ClientBatchStatus.Status
    UNKNOWN: ClientBatchStatus.Status
    class InvalidTransaction(_message.Message):
        __slots__ = ("transaction_id", "message", "extended_data")
        TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        EXTENDED_DATA_FIELD_NUMBER: _ClassVar[int]
        transaction_id: str
        message: str
        extended_data: bytes
        def __init__(self, transaction_id: _Optional[str] = ..., message: _Optional[str] = ..., extended_data: _Optional[bytes] = ...) -> None: ...
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INVALID_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    status: ClientBatchStatus.Status
    invalid_transactions: _containers.RepeatedCompositeFieldContainer[ClientBatchStatus.InvalidTransaction]
    reason: str
    family_name: str
    family_version: str
    dependency: str
    message: str
    omitted_bytes: int
    def __init__(self, batch_id: _Optional[str] = ..., status: _Optional[_Union[ClientBatchStatus.Status, str]] = ..., invalid_transactions: _Optional[_Iterable[_Union[ClientBatchStatus.InvalidTransaction, _Mapping]]] = ..., reason: _Optional[str] = ..., family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., dependency: _Optional[str] = ..., message: _Optional[str] = ..., omitted_bytes: _Optional[int] = ...) -> None: ...

class ClientBatchSubmitRequest(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[_batch_pb2.Batch]
    def __init__(self, batches: _Optional[_Iterable[_Union[_batch_pb2.Batch, _Mapping]]] = ...) -> None: ...

class ClientBatchSubmitResponse(_message.Message):
    __slots__ = ("status", "reason", "message", "batch_ids")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBatchSubmitResponse.Status]
        OK: _ClassVar[ClientBatchSubmitResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBatchSubmitResponse.Status]
        INVALID_BATCH: _ClassVar[ClientBatchSubmitResponse.Status]
        QUEUE_FULL: _ClassVar[ClientBatchSubmitResponse.Status]
    STATUS_UNSET: ClientBatchSubmitResponse.Status
    OK: ClientBatchSubmitResponse.Status
    INTERNAL_ERROR: ClientBatchSubmitResponse.Status
    INVALID_BATCH: ClientBatchSubmitResponse.Status
    QUEUE_FULL: ClientBatchSubmitResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    status: ClientBatchSubmitResponse.Status
    reason: str
    message: str
    batch_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[ClientBatchSubmitResponse.Status, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., batch_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ClientBatchStatusRequest(_message.Message):
    __slots__ = ("batch_ids", "wait", "timeout")
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    batch_ids: _containers.RepeatedScalarFieldContainer[str]
    wait: bool
    timeout: int
    def __init__(self, batch_ids: _Optional[_Iterable[str]] = ..., wait: bool = ..., timeout: _Optional[int] = ...) -> None: ...

class ClientBatchStatusResponse(_message.Message):
    __slots__ = ("status", "batch_statuses", "message")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientBatchStatusResponse.Status]
        OK: _ClassVar[ClientBatchStatusResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientBatchStatusResponse.Status]
        NO_RESOURCE: _ClassVar[ClientBatchStatusResponse.Status]
        INVALID_ID: _ClassVar[ClientBatchStatusResponse.Status]
    STATUS_UNSET: ClientBatchStatusResponse.Status
    OK: ClientBatchStatusResponse.Status
    INTERNAL_ERROR: ClientBatchStatusResponse.Status
    NO_RESOURCE: ClientBatchStatusResponse.Status
    INVALID_ID: ClientBatchStatusResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BATCH_STATUSES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    status: ClientBatchStatusResponse.Status
    batch_statuses: _containers.RepeatedCompositeFieldContainer[ClientBatchStatus]
    message: str
    def __init__(self, status: _Optional[_Union[ClientBatchStatusResponse.Status, str]] = ..., batch_statuses: _Optional[_Iterable[_Union[ClientBatchStatus, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...
