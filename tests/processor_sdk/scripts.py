"""A family whose payloads are scripts, a state that answers the SDK's calls, and a plain interpreter as the oracle."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.ledger.ids import TransactionId
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from protos import packed_pb2, processor_pb2, state_context_pb2, transaction_pb2, validator_pb2

FAMILY, VERSION, NAMESPACE = "script", "1.0", "aaaaaa"
OK, INVALID, INTERNAL = 1, 2, 3
LIST_ENTRIES_MAX = 2
"""The number of entries in a page of State."""
Script = Sequence[Sequence[Any]]


def address(number: int, namespace: str = NAMESPACE) -> str:
    return namespace + f"{number:064x}"


class ScriptHandler(TransactionHandler[bytes]):
    """Executes the payload's list of operations, and adds the read values to the receipt data."""

    family_name = FAMILY
    family_version = VERSION
    namespaces = (NAMESPACE,)

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        for operation, *arguments in json.loads(transaction.payload):
            if operation == "get":
                data = context.get(arguments[0])
                context.add_receipt_data(b"none" if data is None else b"data " + data)
            elif operation == "get_many":
                found = context.get_many(arguments[0])
                context.add_receipt_data(repr(sorted(found.items())).encode())
            elif operation == "list":
                context.add_receipt_data(repr(list(context.list(arguments[0]))).encode())
            elif operation == "list_and_change":
                # Writes during the iteration must not show in the entries.
                for name, data in context.list(arguments[0]):
                    context.add_receipt_data(repr((name, data)).encode())
                    context.set(arguments[1], b"while listing")
                    context.delete(arguments[2])
            elif operation == "set":
                context.set(arguments[0], arguments[1].encode())
            elif operation == "delete":
                context.add_receipt_data(b"held" if context.delete(arguments[0]) else b"not held")
            elif operation == "event":
                context.add_event(arguments[0], [("key", "value")], b"data")
            elif operation == "invalid":
                raise InvalidTransaction(arguments[0], b"extended")
            elif operation == "bug":
                raise ZeroDivisionError("a bug of the handler")


class Spec(NamedTuple):
    """A transaction to make: its declarations and its script."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    script: Script

    def header_bytes(self) -> bytes:
        return transaction_pb2.TransactionHeader(
            family_name=FAMILY, family_version=VERSION, inputs=self.inputs, outputs=self.outputs
        ).SerializeToString()

    def payload(self) -> bytes:
        return json.dumps(self.script).encode()

    def raw(self) -> bytes:
        return transaction_pb2.Transaction(
            header=self.header_bytes(), header_signature="ab" * 64, payload=self.payload()
        ).SerializeToString()

    def transaction_id(self) -> TransactionId:
        return TransactionId("ab" * 64)


class State:
    """Answers state calls over a dict, as a validator does inside one context. ``calls`` records them."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.values = dict(values)
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []
        self.receipt_data: list[bytes] = []
        self.event_types: list[str] = []

    def link(self, message_type: int, content: bytes) -> bytes:
        message = validator_pb2.Message
        if message_type == message.TP_STATE_GET_REQUEST:
            get = state_context_pb2.TpStateGetRequest.FromString(content)
            self.calls.append(("get", get.context_id, tuple(get.addresses)))
            reply = state_context_pb2.TpStateGetResponse(status=state_context_pb2.TpStateGetResponse.OK)
            for name in get.addresses:
                reply.entries.add(address=name, data=self.values.get(name, b""))
            return reply.SerializeToString()
        if message_type == message.STATE_LIST_REQUEST:
            asked = packed_pb2.StateListRequest.FromString(content)
            self.calls.append(("list", asked.context_id, (asked.prefix, asked.after)))
            behind = sorted(name for name in self.values if name.startswith(asked.prefix) and name > asked.after)
            page = packed_pb2.StateListResponse(
                status=packed_pb2.StateListResponse.OK, more=len(behind) > LIST_ENTRIES_MAX
            )
            for name in behind[:LIST_ENTRIES_MAX]:
                page.entries.add(address=name, data=self.values[name])
            return page.SerializeToString()
        if message_type == message.TP_STATE_SET_REQUEST:
            put = state_context_pb2.TpStateSetRequest.FromString(content)
            names = [entry.address for entry in put.entries]
            self.calls.append(("set", put.context_id, tuple(names)))
            self.values.update({entry.address: entry.data for entry in put.entries})
            return state_context_pb2.TpStateSetResponse(
                addresses=names, status=state_context_pb2.TpStateSetResponse.OK
            ).SerializeToString()
        if message_type == message.TP_STATE_DELETE_REQUEST:
            delete = state_context_pb2.TpStateDeleteRequest.FromString(content)
            self.calls.append(("delete", delete.context_id, tuple(delete.addresses)))
            for name in delete.addresses:
                self.values.pop(name, None)
            return state_context_pb2.TpStateDeleteResponse(
                addresses=delete.addresses, status=state_context_pb2.TpStateDeleteResponse.OK
            ).SerializeToString()
        if message_type == message.TP_RECEIPT_ADD_DATA_REQUEST:
            self.receipt_data.append(state_context_pb2.TpReceiptAddDataRequest.FromString(content).data)
            return state_context_pb2.TpReceiptAddDataResponse(
                status=state_context_pb2.TpReceiptAddDataResponse.OK
            ).SerializeToString()
        event = state_context_pb2.TpEventAddRequest.FromString(content).event
        self.event_types.append(event.event_type)
        return state_context_pb2.TpEventAddResponse(status=state_context_pb2.TpEventAddResponse.OK).SerializeToString()


def packed_request(
    units: Iterable[Sequence[Spec]],
    values: Mapping[str, bytes],
    context_id: str = "ctx",
    batch_id: str = "ba" * 64,
    follows: str = "",
) -> bytes:
    """A packed request as validators build it: its entries hold every fully named input that has data."""
    request = packed_pb2.PackedProcessRequest(context_id=context_id, follows=follows)
    named: dict[str, None] = {}
    for unit in units:
        request.units.add(transactions=[spec.raw() for spec in unit], batch_id=batch_id)
        named.update(dict.fromkeys(name for spec in unit for name in spec.inputs if len(name) == 70))
    for name in named:
        if name in values:
            request.entries.add(address=name, data=values[name])
    return request.SerializeToString()


def single(
    dispatcher: Dispatcher, spec: Spec, state: State, style: str = "raw", batch_id: str = "ba" * 64
) -> processor_pb2.TpProcessResponse:
    request = processor_pb2.TpProcessRequest(
        payload=spec.payload(), signature="ab" * 64, context_id="ctx", batch_id=batch_id
    )
    if style == "raw":
        request.header_bytes = spec.header_bytes()
    else:
        request.header.CopyFrom(transaction_pb2.TransactionHeader.FromString(spec.header_bytes()))
    return processor_pb2.TpProcessResponse.FromString(dispatcher.single(request.SerializeToString(), state.link))


def packed(
    dispatcher: Dispatcher, batches: Sequence[Sequence[Spec]], state: State
) -> list[list[packed_pb2.PackedProcessResponse.TransactionResult]]:
    response = packed_pb2.PackedProcessResponse.FromString(
        dispatcher.packed(packed_request(batches, state.values), state.link)
    )
    return [list(unit.results) for unit in response.units]


class Outcome(NamedTuple):
    """The outcome of one transaction."""

    status: int
    receipt_data: tuple[bytes, ...] = ()


def interpret(spec: Spec, values: Mapping[str, bytes]) -> tuple[Outcome, dict[str, bytes]]:
    """The expected outcome of ``spec`` on ``values``, computed without the SDK. Entries without bytes read as none."""
    state = dict(values)
    own: dict[str, bool] = {}
    seen: list[bytes] = []
    for operation, *arguments in spec.script:
        if operation in ("get", "get_many"):
            names = [arguments[0]] if operation == "get" else list(dict.fromkeys(arguments[0]))
            if not all(_covered(name, spec.inputs) for name in names):
                return Outcome(INVALID), dict(values)
            if operation == "get":
                seen.append(b"data " + state[names[0]] if state.get(names[0]) else b"none")
            else:
                seen.append(repr(sorted((name, state[name]) for name in names if state.get(name))).encode())
        elif operation in ("list", "list_and_change"):
            prefix = arguments[0]
            if len(prefix) % 2 or prefix.strip("0123456789abcdef") or not prefix.startswith(spec.inputs):
                return Outcome(INVALID), dict(values)
            entries = sorted(item for item in state.items() if item[0].startswith(prefix) and item[1])
            if operation == "list":
                seen.append(repr(entries).encode())
                continue
            seen += [repr(item).encode() for item in entries]
            if entries:
                if not all(_covered(name, spec.outputs) and name.startswith(NAMESPACE) for name in arguments[1:]):
                    return Outcome(INVALID), dict(values)
                state[arguments[1]] = b"while listing"
                own[arguments[1]] = True
                state.pop(arguments[2], None)
                own[arguments[2]] = False
        elif operation in ("set", "delete"):
            name = arguments[0]
            if not _covered(name, spec.outputs) or not name.startswith(NAMESPACE):
                return Outcome(INVALID), dict(values)
            if operation == "set":
                state[name] = arguments[1].encode()
                own[name] = bool(arguments[1])
            else:
                held = bool(state.get(name)) if _covered(name, spec.inputs) else own.get(name, True)
                seen.append(b"held" if held else b"not held")
                state.pop(name, None)
                own[name] = False
        elif operation == "invalid":
            return Outcome(INVALID), dict(values)
        elif operation == "bug":
            return Outcome(INTERNAL), dict(values)
    return Outcome(OK, tuple(seen)), state


def _covered(name: str, declared: Iterable[str]) -> bool:
    well_formed = len(name) == 70 and set(name) <= set("0123456789abcdef")
    return well_formed and any(name.startswith(prefix) for prefix in declared)
