"""A handler whose migration is given by the test, and a dispatcher without sockets that runs one slice of it."""

from collections.abc import Callable
from typing import Any

from dovetail.ledger.migration import PAYLOAD_ENCODING, PUBLIC_KEY
from processor_sdk import Context, MigrationContext, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from protos import processor_pb2, transaction_pb2
from tests.processor_sdk.scripts import NAMESPACE, OK, State

FAMILY = ("moving", "2.0")
SLICE = NAMESPACE + "00"
INSIDE = [SLICE + f"{number:062x}" for number in range(6)]
OUTSIDE = NAMESPACE + "01" + "0" * 62
ELSEWHERE = "bbbbbb" + "0" * 64

Migrate = Callable[[MigrationContext], object]


class Moving(TransactionHandler[bytes]):
    """Migrates with the test's function."""

    family_name, family_version = FAMILY
    namespaces = (NAMESPACE,)

    def __init__(self, how: Migrate) -> None:
        self._how = how

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.add_receipt_data(b"applied")

    def migrate(self, context: MigrationContext) -> None:
        return self._how(context)  # type: ignore[return-value]


class Staying(TransactionHandler[bytes]):
    """Has no migrate."""

    family_name, family_version = FAMILY
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        context.add_receipt_data(b"applied")


def header(prefixes: tuple[str, ...] = (SLICE,), **fields: Any) -> bytes:
    name, version = FAMILY
    said = {
        "family_name": name, "family_version": version, "inputs": prefixes, "outputs": prefixes,
        "signer_pubkey": PUBLIC_KEY, "payload_encoding": PAYLOAD_ENCODING,
    }  # fmt: skip
    return transaction_pb2.TransactionHeader(**(said | fields)).SerializeToString()


def run(
    handler: TransactionHandler[Any],
    state: State,
    prefixes: tuple[str, ...] = (SLICE,),
    batch_id: str = "ba" * 64,
    payload: bytes = b"",
    migration: bool = True,
    **fields: Any,
) -> processor_pb2.TpProcessResponse:
    request = processor_pb2.TpProcessRequest(
        header_bytes=header(prefixes, **fields), payload=payload, signature="ab" * 64, context_id="ctx",
        batch_id=batch_id, migration=migration,
    )  # fmt: skip
    answer = Dispatcher([handler]).single(request.SerializeToString(), state.link)
    return processor_pb2.TpProcessResponse.FromString(answer)


def migrated(how: Migrate, values: dict[str, bytes], prefixes: tuple[str, ...] = (SLICE,)) -> State:
    """Migrate and expect OK. Returns the state afterwards."""
    state = State(values)
    response = run(Moving(how), state, prefixes)
    assert (response.status, response.message) == (OK, "")
    return state


def refused(how: Migrate, values: dict[str, bytes] | None = None) -> processor_pb2.TpProcessResponse:
    """Migrate and expect no change. Returns the answer."""
    state = State(values or {})
    response = run(Moving(how), state)
    assert response.status != OK
    assert (state.values, state.receipt_data) == (values or {}, [])
    return response
