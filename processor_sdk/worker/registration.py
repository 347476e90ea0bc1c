"""The registration of one family: request, state and answer. No sockets, no clock."""

import hashlib
import inspect
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from processor_sdk.apply.messages import succeeded
from processor_sdk.handler import TransactionHandler
from protos import processor_pb2

PACKED_VERSION: Final = 2
PROTOCOL_VERSION: Final = 1
_UNNUMBERED: Final = 0
"""The protocol version in the answer of a 1.0 validator, which has no such field. Packed execution is absent, too."""
BUILD_ID_CHARACTERS_MAX: Final = 256
_DIGEST_CHARACTERS: Final = 12


class Registration:
    """One (family, version): its request, and its state on the current connection."""

    def __init__(self, handler: TransactionHandler[Any], max_occupancy: int, build_id: str | None) -> None:
        """``build_id``: None for ``build_of(handler)``."""
        self.family = f"{handler.family_name} {handler.family_version}"
        self.content = processor_pb2.TpRegisterRequest(
            family=handler.family_name,
            version=handler.family_version,
            namespaces=handler.namespaces,
            max_occupancy=max_occupancy,
            protocol_version=PROTOCOL_VERSION,
            request_header_style=processor_pb2.TpRegisterRequest.RAW,
            packed_version=PACKED_VERSION,
            build_id=build_of(handler) if build_id is None else build_id,
            migrates=handler.migrates,
        ).SerializeToString()
        self.reset()

    def reset(self) -> None:
        self.done = False
        self.refusals = 0
        self.retry_at: float | None = None


def build_of(handler: TransactionHandler[Any]) -> str:
    """An identifier of a handler's code, the same wherever the same code runs.

    The identifier is the version of the installed distribution whose name is the module's top package, as in ``1.4.2``.
    Without such a distribution, it is the first 12 characters of the SHA-256 of the module's source file, as in
    ``sha256:9f86d081884c``. It is empty if neither is known.
    """
    # An adapted 1.x handler holds the author's own handler.
    kind = type(getattr(handler, "wrapped", handler))
    try:
        source = Path(inspect.getfile(kind)).resolve()
        return _installed_version(kind.__module__.partition(".")[0], source) or _digest(source)
    except (TypeError, OSError):
        # The class was typed in interactively, or is inside an archive.
        return ""


def _installed_version(package: str, source: Path) -> str | None:
    """The version of the distribution that installed ``source``; None for editable ones, whose code may change."""
    try:
        found = distribution(package)
    except (PackageNotFoundError, ValueError):
        return None
    # A distribution without a RECORD is a project folder with its sources.
    recorded = found.read_text("RECORD") is not None
    installed = recorded and source.is_relative_to(Path(str(found.locate_file(""))).resolve())
    return found.version[:BUILD_ID_CHARACTERS_MAX] if installed else None


def _digest(source: Path) -> str:
    return f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()[:_DIGEST_CHARACTERS]}"


def refusal(content: bytes) -> str | None:
    """Why a serialized TpRegisterResponse refuses the registration; None if it accepts."""
    try:
        response = processor_pb2.TpRegisterResponse.FromString(content)
    except DecodeError:
        return f"{len(content)} bytes of the answer are no TpRegisterResponse"
    if not succeeded(response.status):
        return response.message or f"status {response.status}, no reason given"
    if response.protocol_version not in (_UNNUMBERED, PROTOCOL_VERSION):
        return f"the validator speaks protocol version {response.protocol_version}, this processor {PROTOCOL_VERSION}"
    return None


def remark(content: bytes) -> str:
    """What a serialized TpRegisterResponse that accepts the registration says about it; empty if nothing."""
    return processor_pb2.TpRegisterResponse.FromString(content).message
