from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class BlockConsensus(_message.Message):
    __slots__ = ("engine", "height", "time_ms")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    engine: str
    height: int
    time_ms: int
    def __init__(self, engine: _Optional[str] = ..., height: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...
