from protos import transaction_receipt_pb2 as _transaction_receipt_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientReceiptGetRequest(_message.Message):
    __slots__ = ("transaction_ids",)
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    transaction_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, transaction_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ClientReceiptGetResponse(_message.Message):
    __slots__ = ("status", "receipts")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSET: _ClassVar[ClientReceiptGetResponse.Status]
        OK: _ClassVar[ClientReceiptGetResponse.Status]
        INTERNAL_ERROR: _ClassVar[ClientReceiptGetResponse.Status]
        NO_RESOURCE: _ClassVar[ClientReceiptGetResponse.Status]
        INVALID_ID: _ClassVar[ClientReceiptGetResponse.Status]
    STATUS_UNSET: ClientReceiptGetResponse.Status
    OK: ClientReceiptGetResponse.Status
    INTERNAL_ERROR: ClientReceiptGetResponse.Status
    NO_RESOURCE: ClientReceiptGetResponse.Status
    INVALID_ID: ClientReceiptGetResponse.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    status: ClientReceiptGetResponse.Status
    receipts: _containers.RepeatedCompositeFieldContainer[_transaction_receipt_pb2.TransactionReceipt]
    def __init__(self, status: _Optional[_Union[ClientReceiptGetResponse.Status, str]] = ..., receipts: _Optional[_Iterable[_Union[_transaction_receipt_pb2.TransactionReceipt, _Mapping]]] = ...) -> None: ...
