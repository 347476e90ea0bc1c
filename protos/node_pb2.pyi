from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusWaitCancel(_message.Message):
    __slots__ = ("correlation_id",)
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    correlation_id: str
    def __init__(self, correlation_id: _Optional[str] = ...) -> None: ...

class NodeStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatusResponse(_message.Message):
    __slots__ = ("status", "head_id", "head_num", "pending_batches", "totals", "families", "config", "system", "timestamp")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[NodeStatusResponse.Status]
        OK: _ClassVar[NodeStatusResponse.Status]
        NOT_READY: _ClassVar[NodeStatusResponse.Status]
    STATUS_UNSET: NodeStatusResponse.Status
    OK: NodeStatusResponse.Status
    NOT_READY: NodeStatusResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_NUM_FIELD_NUMBER: _ClassVar[int]
    PENDING_BATCHES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    status: NodeStatusResponse.Status
    head_id: str
    head_num: int
    pending_batches: int
    totals: Totals
    families: _containers.RepeatedCompositeFieldContainer[FamilyTotals]
    config: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    system: System
    timestamp: str
    def __init__(self, status: _Optional[_Union[NodeStatusResponse.Status, str]] = ..., head_id: _Optional[str] = ..., head_num: _Optional[int] = ..., pending_batches: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., families: _Optional[_Iterable[_Union[FamilyTotals, _Mapping]]] = ..., config: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., system: _Optional[_Union[System, _Mapping]] = ..., timestamp: _Optional[str] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("blocks_committed", "blocks_claimed", "batches_committed", "batches_invalid", "transactions_committed", "transactions_invalid")
    BLOCKS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_CLAIMED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_INVALID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_INVALID_FIELD_NUMBER: _ClassVar[int]
    blocks_committed: int
    blocks_claimed: int
    batches_committed: int
    batches_invalid: int
    transactions_committed: int
    transactions_invalid: int
    def __init__(self, blocks_committed: _Optional[int] = ..., blocks_claimed: _Optional[int] = ..., batches_committed: _Optional[int] = ..., batches_invalid: _Optional[int] = ..., transactions_committed: _Optional[int] = ..., transactions_invalid: _Optional[int] = ...) -> None: ...

class FamilyTotals(_message.Message):
    __slots__ = ("family_name", "family_version", "totals")
    FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    family_name: str
    family_version: str
    totals: Totals
    def __init__(self, family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("key", "number", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: str
    number: int
    text: str
    def __init__(self, key: _Optional[str] = ..., number: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class System(_message.Message):
    __slots__ = ("percent_cpu", "percent_memory", "network_rx", "network_tx")
    PERCENT_CPU_FIELD_NUMBER: _ClassVar[int]
    PERCENT_MEMORY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_RX_FIELD_NUMBER: _ClassVar[int]
    NETWORK_TX_FIELD_NUMBER: _ClassVar[int]
    percent_cpu: float
    percent_memory: float
    network_rx: int
    network_tx: int
    def __init__(self, percent_cpu: _Optional[float] = ..., percent_memory: _Optional[float] = ..., network_rx: _Optional[int] = ..., network_tx: _Optional[int] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    def __init__(self, text: _Optional[bytes] = ...) -> None: ...
