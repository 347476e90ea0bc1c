"""A family whose version 2.0 stores leaves in another form than 1.0, and migrates them.

This module holds the handlers of both versions, and a build of 2.0 that refuses to migrate. Each transaction adds to
numbered leaves. A leaf of 2.0 counts its migrations. If the leaf GATE holds the number of a test's port, the migration
of that leaf connects to the port and waits.
"""

import json
import socket
from contextlib import suppress
from hashlib import sha512
from typing import Any, ClassVar, NamedTuple

from dovetail.ledger.settings import FamilyVersion
from processor_sdk import Context, InvalidTransaction, MigrationContext, TransactionHandler

NAME = "e2e_moved"
NAMESPACE = sha512(NAME.encode()).hexdigest()[:6]
V1, V2 = FamilyVersion(NAME, "1.0"), FamilyVersion(NAME, "2.0")
_MODULE = "tests.system.e2e.moved_family"
HANDLER_1, HANDLER_2 = f"{_MODULE}:FirstHandler", f"{_MODULE}:SecondHandler"
REFUSING_2 = f"{_MODULE}:RefusingHandler"
REFUSAL = "a leaf that this build cannot read"
GATE = -1
"""The number of the leaf that holds the port. It is in the middle of the namespace, so some slices come before it."""

_DEADLINE_S = 60.0


class Leaf(NamedTuple):
    """A leaf of 2.0: the sum, and how often the leaf was migrated."""

    value: int
    migrated: int


def address(number: int) -> str:
    """The address of a numbered leaf."""
    return NAMESPACE + ("80" + "0" * 62 if number == GATE else sha512(b"%d" % number).hexdigest()[:64])


def payload(values: dict[int, int]) -> bytes:
    """The values to add, by number."""
    return json.dumps(list(values.items())).encode()


def leaf_of(data: bytes) -> Leaf:
    """Decode a leaf of 2.0."""
    return Leaf(*json.loads(data))


class FirstHandler(TransactionHandler[bytes]):
    """Leaves are decimal digits."""

    family_name: ClassVar[str] = NAME
    family_version: ClassVar[str] = V1.version
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Any, context: Context) -> None:
        for number, value in json.loads(transaction.payload):
            data = context.get(address(number)) or b"0"
            if not data.isdigit():
                raise InvalidTransaction(f"leaf {number} is not of version 1.0: {data!r}")
            context.set(address(number), b"%d" % (int(data) + value))


class SecondHandler(TransactionHandler[bytes]):
    """Leaves are JSON arrays."""

    family_name: ClassVar[str] = NAME
    family_version: ClassVar[str] = V2.version
    namespaces: ClassVar[tuple[str, ...]] = (NAMESPACE,)

    def apply(self, transaction: Any, context: Context) -> None:
        for number, value in json.loads(transaction.payload):
            data = context.get(address(number)) or b"[0, 0]"
            if data.isdigit():
                raise InvalidTransaction(f"leaf {number} is not of version 2.0: {data!r}")
            leaf = leaf_of(data)
            context.set(address(number), json.dumps(leaf._replace(value=leaf.value + value)).encode())

    def migrate(self, context: MigrationContext) -> None:
        for place, data in context.leaves():
            if place == address(GATE):
                _wait_at(int(data))
            migrated = Leaf(int(data), 1) if data.isdigit() else leaf_of(data)._replace(migrated=2)
            context.set(place, json.dumps(migrated).encode())


class RefusingHandler(SecondHandler):
    """Migrates some leaves, and refuses the others."""

    def migrate(self, context: MigrationContext) -> None:
        super().migrate(context)
        if context.covers(address(GATE)):
            raise InvalidTransaction(REFUSAL)


def _wait_at(port: int) -> None:
    # At a node whose migration should not wait, nothing listens at the port.
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), _DEADLINE_S) as held:
        held.recv(1)
