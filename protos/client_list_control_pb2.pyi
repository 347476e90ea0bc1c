from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ClientPagingControls(_message.Message):
    __slots__ = ("start", "limit")
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    start: str
    limit: int
    def __init__(self, start: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ClientPagingResponse(_message.Message):
    __slots__ = ("next", "start", "limit")
    NEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    next: str
    start: str
    limit: int
    def __init__(self, next: _Optional[str] = ..., start: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ClientSortControls(_message.Message):
    __slots__ = ("keys", "reverse")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    reverse: bool
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., reverse: bool = ...) -> None: ...
