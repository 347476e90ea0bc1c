"""Codecs: they convert between the bytes of a payload or a state entry and a typed value.

A codec is any object with the two methods of ``Codec``; a family may write its own. No state access, no verdicts.
"""

from dovetail.ledger.errors import NotDecodable
from processor_sdk.codecs.cbor import CborCodec
from processor_sdk.codecs.codec import Codec
from processor_sdk.codecs.json import JsonCodec
from processor_sdk.codecs.protobuf import ProtobufCodec
from processor_sdk.codecs.raw import RawCodec

__all__ = ["CborCodec", "Codec", "JsonCodec", "NotDecodable", "ProtobufCodec", "RawCodec"]
