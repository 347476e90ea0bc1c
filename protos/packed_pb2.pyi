from protos import events_pb2 as _events_pb2
from protos import processor_pb2 as _processor_pb2
from protos import state_context_pb2 as _state_context_pb2
from protos import transaction_receipt_pb2 as _transaction_receipt_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PackedProcessRequest(_message.Message):
    __slots__ = ("context_id", "entries", "units", "follows")
    class Unit(_message.Message):
        __slots__ = ("transactions", "batch_id")
        TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
        BATCH_ID_FIELD_NUMBER: _ClassVar[int]
        transactions: _containers.RepeatedScalarFieldContainer[bytes]
        batch_id: str
        def __init__(self, transactions: _Optional[_Iterable[bytes]] = ..., batch_id: _Optional[str] = ...) -> None: ...
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    entries: _containers.RepeatedCompositeFieldContainer[_state_context_pb2.TpStateEntry]
    units: _containers.RepeatedCompositeFieldContainer[PackedProcessRequest.Unit]
    follows: str
    def __init__(self, context_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[_state_context_pb2.TpStateEntry, _Mapping]]] = ..., units: _Optional[_Iterable[_Union[PackedProcessRequest.Unit, _Mapping]]] = ..., follows: _Optional[str] = ...) -> None: ...

class PackedProcessResponse(_message.Message):
    __slots__ = ("units",)
    class TransactionResult(_message.Message):
        __slots__ = ("status", "message", "extended_data", "state_changes", "events", "data")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        EXTENDED_DATA_FIELD_NUMBER: _ClassVar[int]
        STATE_CHANGES_FIELD_NUMBER: _ClassVar[int]
        EVENTS_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        status: _processor_pb2.TpProcessResponse.Status
        message: str
        extended_data: bytes
        state_changes: _containers.RepeatedCompositeFieldContainer[_transaction_receipt_pb2.StateChange]
        events: _containers.RepeatedCompositeFieldContainer[_events_pb2.Event]
        data: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, status: _Optional[_Union[_processor_pb2.TpProcessResponse.Status, str]] = ..., message: _Optional[str] = ..., extended_data: _Optional[bytes] = ..., state_changes: _Optional[_Iterable[_Union[_transaction_receipt_pb2.StateChange, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[_events_pb2.Event, _Mapping]]] = ..., data: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class UnitResult(_message.Message):
        __slots__ = ("results",)
        RESULTS_FIELD_NUMBER: _ClassVar[int]
        results: _containers.RepeatedCompositeFieldContainer[PackedProcessResponse.TransactionResult]
        def __init__(self, results: _Optional[_Iterable[_Union[PackedProcessResponse.TransactionResult, _Mapping]]] = ...) -> None: ...
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[PackedProcessResponse.UnitResult]
    def __init__(self, units: _Optional[_Iterable[_Union[PackedProcessResponse.UnitResult, _Mapping]]] = ...) -> None: ...

class StateListRequest(_message.Message):
    __slots__ = ("context_id", "prefix", "after")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    prefix: str
    after: str
    def __init__(self, context_id: _Optional[str] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class StateListResponse(_message.Message):
    __slots__ = ("status", "entries", "more")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[StateListResponse.Status]
        OK: _ClassVar[StateListResponse.Status]
        AUTHORIZATION_ERROR: _ClassVar[StateListResponse.Status]
    STATUS_UNSET: StateListResponse.Status
    OK: StateListResponse.Status
    AUTHORIZATION_ERROR: StateListResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    status: StateListResponse.Status
    entries: _containers.RepeatedCompositeFieldContainer[_state_context_pb2.TpStateEntry]
    more: bool
    def __init__(self, status: _Optional[_Union[StateListResponse.Status, str]] = ..., entries: _Optional[_Iterable[_Union[_state_context_pb2.TpStateEntry, _Mapping]]] = ..., more: bool = ...) -> None: ...
