"""A family whose payload is a list of steps, applied through the SDK or through a bare 1.x processor.

This module holds the steps, and the two ways to apply them. A payload is a JSON array of steps, each an array of a word
and its arguments; binary values are hex. ``hold`` connects to a loopback port and continues when the connection closes,
so that a test decides how long an apply runs.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha512
from typing import Any, ClassVar, Protocol

from processor_sdk import AuthorizationException, Context, InvalidTransaction, Transaction, TransactionHandler
from tests.system.independent.bare_processor import AuthorizationError, Invalid, ProcessRequest, StateAccess

NAMESPACE = sha512(b"e2e_script").hexdigest()[:6]
HANDLER = "tests.system.e2e.script_family:ScriptHandler"
_DEADLINE_S = 60.0


def address(label: str, namespace: str = NAMESPACE) -> str:
    """An address of the family, or of another namespace."""
    return namespace + sha512(label.encode()).hexdigest()[:64]


def script(*steps: tuple[object, ...]) -> bytes:
    """The payload of these steps."""
    return json.dumps(steps).encode()


class Gate:
    """Holds applies: a loopback port to which ``hold`` connects."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_DEADLINE_S)
        self._held: list[socket.socket] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def wait(self) -> None:
        """Wait until one more apply is held."""
        self._held.append(self._listener.accept()[0])

    def open_one(self) -> None:
        """Let the apply that is held longest continue."""
        self._held.pop(0).close()

    def open(self) -> None:
        """Let all held applies continue."""
        for held in self._held:
            held.close()
        self._held.clear()

    def close(self) -> None:
        self._listener.close()
        self.open()


class ScriptHandler(TransactionHandler[bytes]):
    """The family as a handler of the SDK."""

    family_name: ClassVar[str] = "e2e_script"
    family_version: ClassVar[str] = "1.0"
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        _run(json.loads(transaction.payload), _Packed(context))


def bare_apply(request: ProcessRequest, state: StateAccess) -> None:
    """The family as the apply of a BareProcessor."""
    _run(json.loads(request.payload), _Bare(state))


class _Actions(Protocol):
    """The actions of steps."""

    refusal: type[Exception]

    def read(self, address: str) -> bytes | None: ...
    def write(self, entries: dict[str, bytes]) -> None: ...
    def remove(self, address: str) -> bool: ...
    def receipt(self, data: bytes) -> None: ...
    def event(self, event_type: str, attributes: list[tuple[str, str]], data: bytes) -> None: ...
    def invalid(self, message: str, data: bytes) -> Exception: ...


class _Packed:
    refusal: type[Exception] = AuthorizationException

    def __init__(self, context: Context) -> None:
        self.read = context.get
        self.write = context.set_many
        self.remove = context.delete
        self.receipt = context.add_receipt_data
        self.event = context.add_event

    def invalid(self, message: str, data: bytes) -> Exception:
        return InvalidTransaction(message, data)


class _Bare:
    refusal: type[Exception] = AuthorizationError

    def __init__(self, state: StateAccess) -> None:
        self._state = state
        self.receipt = state.add_receipt_data
        self.event = state.add_event

    def read(self, address: str) -> bytes | None:
        return self._state.get([address]).get(address)

    def write(self, entries: dict[str, bytes]) -> None:
        self._state.set(entries)

    def remove(self, address: str) -> bool:
        held = self.read(address) is not None
        self._state.delete([address])
        return held

    def invalid(self, message: str, data: bytes) -> Exception:
        return Invalid(message, data)


def _run(steps: list[list[Any]], actions: Any) -> None:
    for word, *arguments in steps:
        if word == "swallow":
            with suppress(actions.refusal):
                _run(arguments, actions)
        else:
            _STEPS[word](actions, *arguments)


def _expect(actions: _Actions, address: str, expected: str | None) -> None:
    found = actions.read(address)
    if (None if found is None else found.hex()) != expected:
        raise actions.invalid(f"{address} holds {found!r}, not {expected!r}", found or b"")


def _write(actions: _Actions, *pairs: str) -> None:
    actions.write({address: bytes.fromhex(data) for address, data in zip(pairs[::2], pairs[1::2], strict=True)})


def _remove(actions: _Actions, address: str, was_there: bool) -> None:
    if actions.remove(address) is not was_there:
        raise actions.invalid(f"{address} was {'not ' if was_there else ''}there", b"")


def _event(actions: _Actions, event_type: str, attributes: list[list[str]], data: str) -> None:
    actions.event(event_type, [(key, value) for key, value in attributes], bytes.fromhex(data))


def _invalid(actions: _Actions, message: str, data: str = "") -> None:
    raise actions.invalid(message, bytes.fromhex(data))


def _hold(_: _Actions, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), _DEADLINE_S) as held:
        held.recv(1)


_STEPS: dict[str, Callable[..., None]] = {
    "expect": _expect,
    "write": _write,
    "remove": _remove,
    "receipt": lambda actions, data: actions.receipt(bytes.fromhex(data)),
    "event": _event,
    "invalid": _invalid,
    "hold": _hold,
}
