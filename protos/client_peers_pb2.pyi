from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientPeersGetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientPeersGetResponse(_message.Message):
    __slots__ = ("status", "peers")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientPeersGetResponse.Status]
        OK: _ClassVar[ClientPeersGetResponse.Status]
        ERROR: _ClassVar[ClientPeersGetResponse.Status]
    STATUS_UNSET: ClientPeersGetResponse.Status
    OK: ClientPeersGetResponse.Status
    ERROR: ClientPeersGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    status: ClientPeersGetResponse.Status
    peers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[ClientPeersGetResponse.Status, str]] = ..., peers: _Optional[_Iterable[str]] = ...) -> None: ...
