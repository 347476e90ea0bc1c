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

class NotAllowed(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class NodeStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeStatusResponse(_message.Message):
    __slots__ = ("status", "head_id", "head_num", "pending_batches", "totals", "families", "config", "system", "timestamp", "warnings", "conditions")
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
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    status: NodeStatusResponse.Status
    head_id: str
    head_num: int
    pending_batches: int
    totals: Totals
    families: _containers.RepeatedCompositeFieldContainer[FamilyTotals]
    config: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    system: System
    timestamp: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    def __init__(self, status: _Optional[_Union[NodeStatusResponse.Status, str]] = ..., head_id: _Optional[str] = ..., head_num: _Optional[int] = ..., pending_batches: _Optional[int] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., families: _Optional[_Iterable[_Union[FamilyTotals, _Mapping]]] = ..., config: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., system: _Optional[_Union[System, _Mapping]] = ..., timestamp: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("condition", "seconds", "message")
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    condition: str
    seconds: float
    message: str
    def __init__(self, condition: _Optional[str] = ..., seconds: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

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

class ProcessorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProcessorsResponse(_message.Message):
    __slots__ = ("processors", "timestamp")
    PROCESSORS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    processors: _containers.RepeatedCompositeFieldContainer[ProcessorStatus]
    timestamp: str
    def __init__(self, processors: _Optional[_Iterable[_Union[ProcessorStatus, _Mapping]]] = ..., timestamp: _Optional[str] = ...) -> None: ...

class ProcessorStatus(_message.Message):
    __slots__ = ("connection_id", "state", "families", "packed_version", "max_occupancy", "in_flight_tasks", "in_flight_transactions", "done", "invalid", "internal_errors", "apply_ms_p50", "apply_ms_p95", "apply_ms_p99", "connected_s", "last_heard_s", "in_process")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSET: _ClassVar[ProcessorStatus.State]
        TAKES_WORK: _ClassVar[ProcessorStatus.State]
        DRAINING: _ClassVar[ProcessorStatus.State]
        SILENT: _ClassVar[ProcessorStatus.State]
        STUCK: _ClassVar[ProcessorStatus.State]
    STATE_UNSET: ProcessorStatus.State
    TAKES_WORK: ProcessorStatus.State
    DRAINING: ProcessorStatus.State
    SILENT: ProcessorStatus.State
    STUCK: ProcessorStatus.State
    class Family(_message.Message):
        __slots__ = ("family_name", "family_version", "build_id", "migrates", "namespaces", "idle")
        FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
        FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
        BUILD_ID_FIELD_NUMBER: _ClassVar[int]
        MIGRATES_FIELD_NUMBER: _ClassVar[int]
        NAMESPACES_FIELD_NUMBER: _ClassVar[int]
        IDLE_FIELD_NUMBER: _ClassVar[int]
        family_name: str
        family_version: str
        build_id: str
        migrates: bool
        namespaces: _containers.RepeatedScalarFieldContainer[str]
        idle: bool
        def __init__(self, family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., build_id: _Optional[str] = ..., migrates: bool = ..., namespaces: _Optional[_Iterable[str]] = ..., idle: bool = ...) -> None: ...
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    PACKED_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_OCCUPANCY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_TASKS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    APPLY_MS_P50_FIELD_NUMBER: _ClassVar[int]
    APPLY_MS_P95_FIELD_NUMBER: _ClassVar[int]
    APPLY_MS_P99_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_S_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARD_S_FIELD_NUMBER: _ClassVar[int]
    IN_PROCESS_FIELD_NUMBER: _ClassVar[int]
    connection_id: str
    state: ProcessorStatus.State
    families: _containers.RepeatedCompositeFieldContainer[ProcessorStatus.Family]
    packed_version: int
    max_occupancy: int
    in_flight_tasks: int
    in_flight_transactions: int
    done: int
    invalid: int
    internal_errors: int
    apply_ms_p50: float
    apply_ms_p95: float
    apply_ms_p99: float
    connected_s: float
    last_heard_s: float
    in_process: bool
    def __init__(self, connection_id: _Optional[str] = ..., state: _Optional[_Union[ProcessorStatus.State, str]] = ..., families: _Optional[_Iterable[_Union[ProcessorStatus.Family, _Mapping]]] = ..., packed_version: _Optional[int] = ..., max_occupancy: _Optional[int] = ..., in_flight_tasks: _Optional[int] = ..., in_flight_transactions: _Optional[int] = ..., done: _Optional[int] = ..., invalid: _Optional[int] = ..., internal_errors: _Optional[int] = ..., apply_ms_p50: _Optional[float] = ..., apply_ms_p95: _Optional[float] = ..., apply_ms_p99: _Optional[float] = ..., connected_s: _Optional[float] = ..., last_heard_s: _Optional[float] = ..., in_process: bool = ...) -> None: ...

class FamiliesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FamiliesResponse(_message.Message):
    __slots__ = ("status", "head_id", "head_num", "restricted", "families", "timestamp")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEAD_ID_FIELD_NUMBER: _ClassVar[int]
    HEAD_NUM_FIELD_NUMBER: _ClassVar[int]
    RESTRICTED_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    status: NodeStatusResponse.Status
    head_id: str
    head_num: int
    restricted: bool
    families: _containers.RepeatedCompositeFieldContainer[FamilyStatus]
    timestamp: str
    def __init__(self, status: _Optional[_Union[NodeStatusResponse.Status, str]] = ..., head_id: _Optional[str] = ..., head_num: _Optional[int] = ..., restricted: bool = ..., families: _Optional[_Iterable[_Union[FamilyStatus, _Mapping]]] = ..., timestamp: _Optional[str] = ...) -> None: ...

class FamilyStatus(_message.Message):
    __slots__ = ("family_name", "family_version", "permission", "from_block", "until_block", "migrates", "migration", "migration_message", "processors", "migrating_processors", "pending")
    class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PERMISSION_UNSET: _ClassVar[FamilyStatus.Permission]
        PERMITTED: _ClassVar[FamilyStatus.Permission]
        WAITING: _ClassVar[FamilyStatus.Permission]
        ENDED: _ClassVar[FamilyStatus.Permission]
        NOT_PERMITTED: _ClassVar[FamilyStatus.Permission]
    PERMISSION_UNSET: FamilyStatus.Permission
    PERMITTED: FamilyStatus.Permission
    WAITING: FamilyStatus.Permission
    ENDED: FamilyStatus.Permission
    NOT_PERMITTED: FamilyStatus.Permission
    class Migration(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MIGRATION_UNSET: _ClassVar[FamilyStatus.Migration]
        NONE: _ClassVar[FamilyStatus.Migration]
        DUE: _ClassVar[FamilyStatus.Migration]
        DONE: _ClassVar[FamilyStatus.Migration]
        REFUSED: _ClassVar[FamilyStatus.Migration]
    MIGRATION_UNSET: FamilyStatus.Migration
    NONE: FamilyStatus.Migration
    DUE: FamilyStatus.Migration
    DONE: FamilyStatus.Migration
    REFUSED: FamilyStatus.Migration
    class Pending(_message.Message):
        __slots__ = ("reason", "batches")
        REASON_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        reason: str
        batches: int
        def __init__(self, reason: _Optional[str] = ..., batches: _Optional[int] = ...) -> None: ...
    FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    FROM_BLOCK_FIELD_NUMBER: _ClassVar[int]
    UNTIL_BLOCK_FIELD_NUMBER: _ClassVar[int]
    MIGRATES_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROCESSORS_FIELD_NUMBER: _ClassVar[int]
    MIGRATING_PROCESSORS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    family_name: str
    family_version: str
    permission: FamilyStatus.Permission
    from_block: int
    until_block: int
    migrates: _containers.RepeatedScalarFieldContainer[str]
    migration: FamilyStatus.Migration
    migration_message: str
    processors: int
    migrating_processors: int
    pending: _containers.RepeatedCompositeFieldContainer[FamilyStatus.Pending]
    def __init__(self, family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., permission: _Optional[_Union[FamilyStatus.Permission, str]] = ..., from_block: _Optional[int] = ..., until_block: _Optional[int] = ..., migrates: _Optional[_Iterable[str]] = ..., migration: _Optional[_Union[FamilyStatus.Migration, str]] = ..., migration_message: _Optional[str] = ..., processors: _Optional[int] = ..., migrating_processors: _Optional[int] = ..., pending: _Optional[_Iterable[_Union[FamilyStatus.Pending, _Mapping]]] = ...) -> None: ...

class PendingDropRequest(_message.Message):
    __slots__ = ("batch_ids", "family_name", "family_version", "signer_pubkey", "count_only", "reason")
    BATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNER_PUBKEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    batch_ids: _containers.RepeatedScalarFieldContainer[str]
    family_name: str
    family_version: str
    signer_pubkey: str
    count_only: bool
    reason: str
    def __init__(self, batch_ids: _Optional[_Iterable[str]] = ..., family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., signer_pubkey: _Optional[str] = ..., count_only: bool = ..., reason: _Optional[str] = ...) -> None: ...

class PendingDropResponse(_message.Message):
    __slots__ = ("status", "message", "batches", "left", "executing", "families", "signers")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[PendingDropResponse.Status]
        OK: _ClassVar[PendingDropResponse.Status]
        INVALID_REQUEST: _ClassVar[PendingDropResponse.Status]
        STORAGE_FAILED: _ClassVar[PendingDropResponse.Status]
    STATUS_UNSET: PendingDropResponse.Status
    OK: PendingDropResponse.Status
    INVALID_REQUEST: PendingDropResponse.Status
    STORAGE_FAILED: PendingDropResponse.Status
    class Family(_message.Message):
        __slots__ = ("family_name", "family_version", "batches")
        FAMILY_NAME_FIELD_NUMBER: _ClassVar[int]
        FAMILY_VERSION_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        family_name: str
        family_version: str
        batches: int
        def __init__(self, family_name: _Optional[str] = ..., family_version: _Optional[str] = ..., batches: _Optional[int] = ...) -> None: ...
    class Signer(_message.Message):
        __slots__ = ("signer_pubkey", "batches")
        SIGNER_PUBKEY_FIELD_NUMBER: _ClassVar[int]
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        signer_pubkey: str
        batches: int
        def __init__(self, signer_pubkey: _Optional[str] = ..., batches: _Optional[int] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    SIGNERS_FIELD_NUMBER: _ClassVar[int]
    status: PendingDropResponse.Status
    message: str
    batches: int
    left: int
    executing: int
    families: _containers.RepeatedCompositeFieldContainer[PendingDropResponse.Family]
    signers: _containers.RepeatedCompositeFieldContainer[PendingDropResponse.Signer]
    def __init__(self, status: _Optional[_Union[PendingDropResponse.Status, str]] = ..., message: _Optional[str] = ..., batches: _Optional[int] = ..., left: _Optional[int] = ..., executing: _Optional[int] = ..., families: _Optional[_Iterable[_Union[PendingDropResponse.Family, _Mapping]]] = ..., signers: _Optional[_Iterable[_Union[PendingDropResponse.Signer, _Mapping]]] = ...) -> None: ...
