from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientStatusGetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientStatusGetResponse(_message.Message):
    __slots__ = ("status", "peers", "endpoint")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientStatusGetResponse.Status]
        OK: _ClassVar[ClientStatusGetResponse.Status]
        ERROR: _ClassVar[ClientStatusGetResponse.Status]
    STATUS_UNSET: ClientStatusGetResponse.Status
    OK: ClientStatusGetResponse.Status
    ERROR: ClientStatusGetResponse.Status
    class Peer(_message.Message):
        __slots__ = ("endpoint",)
        ENDPOINT_FIELD_NUMBER: _ClassVar[int]
        endpoint: str
        def __init__(self, endpoint: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    status: ClientStatusGetResponse.Status
    peers: _containers.RepeatedCompositeFieldContainer[ClientStatusGetResponse.Peer]
    endpoint: str
    def __init__(self, status: _Optional[_Union[ClientStatusGetResponse.Status, str]] = ..., peers: _Optional[_Iterable[_Union[ClientStatusGetResponse.Peer, _Mapping]]] = ..., endpoint: _Optional[str] = ...) -> None: ...
