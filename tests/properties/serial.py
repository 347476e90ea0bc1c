"""A family for comparing executions, its serial execution, and processors in memory. No sockets.

A payload is a script of reads, writes and deletes. Written values depend on everything read before, so that a different
order of transactions gives a different state. Some values have no bytes. The test draws the order in which frames are
delivered.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from dovetail.ledger.batch import VerifiedBatch, VerifiedTransaction
from dovetail.ledger.ids import BatchId, TransactionId
from dovetail.ledger.limits import Limits
from dovetail.ledger.receipt import Event, Receipt, encode_receipt
from dovetail.ledger.settings import FamilyVersion
from dovetail.validator.core.execution.model import Applied, Rejected, Result, Withdrawn
from dovetail.validator.core.journal.block_run import BlockRun
from dovetail.validator.processors.dispatch import dispatch
from dovetail.validator.processors.registry import Processors, TaskAnswered, TaskLost
from dovetail.validator.transport.gateway import Delivery
from processor_sdk import Context, InvalidTransaction, Transaction, TransactionHandler
from processor_sdk.apply.dispatch import Dispatcher
from protos import packed_pb2, processor_pb2, transaction_pb2
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.support import view_of

NAMESPACES = ("aaaaaa", "bbbbbb")
FAMILIES = (FamilyVersion("script", "1.0"), FamilyVersion("other", "2.0"))
LIMITS = Limits(state_list_entries_max=2)


def address(number: int) -> str:
    """One of sixteen addresses: two namespaces, two prefixes of eight characters in each, four addresses per prefix."""
    namespace = NAMESPACES[number // 8 % 2]
    return f"{namespace}{number // 4 % 2:02x}{number % 4:02x}".ljust(70, "0")


def prefix_of(operation: str, number: int) -> str:
    """The prefix that ``list<length>`` lists."""
    return address(number)[: int(operation.removeprefix("list"))]


class View(Protocol):
    def get(self, address: str) -> bytes | None: ...
    def set(self, address: str, data: bytes) -> None: ...
    def delete(self, address: str) -> bool: ...
    def list(self, prefix: str) -> Iterator[tuple[str, bytes]]: ...


class Fails(Exception):
    """The script says that the transaction is invalid."""


def run_script(payload: bytes, view: View) -> bytes:
    """Apply a script. Returns a digest of everything that the script read."""
    seen = hashlib.sha256(payload)
    for operation, number in json.loads(payload):
        if operation == "get":
            seen.update(repr(view.get(address(number))).encode())
        elif operation == "set":
            view.set(address(number), seen.digest()[:8] if seen.digest()[0] % 4 else b"")
        elif operation == "delete":
            seen.update(repr(view.delete(address(number))).encode())
        elif operation.startswith("list"):
            for entry in view.list(prefix_of(operation, number)):
                seen.update(repr(entry).encode())
        elif operation == "clear":
            # The list shows the state at its beginning, whatever is written meanwhile.
            for name, data in view.list(address(number)[:8]):
                seen.update(data)
                view.delete(name)
                view.set(address(number), seen.digest()[:8])
        elif operation == "fail" or (operation == "fail_if_even" and seen.digest()[0] % 2 == 0):
            raise Fails(f"failed after {seen.hexdigest()[:8]}")
    return seen.digest()


class ScriptHandler(TransactionHandler[bytes]):
    family_name, family_version = FAMILIES[0]
    namespaces = NAMESPACES

    def apply(self, transaction: Transaction[bytes], context: Context) -> None:
        try:
            digest = run_script(transaction.payload, context)
        except Fails as failure:
            raise InvalidTransaction(str(failure)) from None
        context.add_receipt_data(digest)
        context.add_event("script/ran", [("digest", digest.hex()[:8])])


class OtherHandler(ScriptHandler):
    family_name, family_version = FAMILIES[1]


class Script(NamedTuple):
    """A transaction to build: operations, declared inputs and outputs, dependencies, index of its family."""

    operations: list[tuple[str, int]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dependencies: tuple[TransactionId, ...]
    family: int


def make_batch(number: int, scripts: Sequence[Script]) -> VerifiedBatch:
    """A batch as verification returns it. Signatures are not tested here: ids are merely distinct."""
    transactions = []
    for position, script in enumerate(scripts):
        payload = json.dumps(script.operations).encode()
        family = FAMILIES[script.family]
        transaction_id = transaction_id_of(number, position)
        header = transaction_pb2.TransactionHeader(
            family_name=family.name,
            family_version=family.version,
            inputs=script.inputs,
            outputs=script.outputs,
            dependencies=script.dependencies,
            payload_sha512=hashlib.sha512(payload).hexdigest(),
        )
        raw = transaction_pb2.Transaction(
            header=header.SerializeToString(), header_signature=transaction_id, payload=payload
        ).SerializeToString()
        transactions.append(
            VerifiedTransaction(transaction_id, family, script.inputs, script.outputs, script.dependencies, raw)
        )
    declared = sum(len(script.inputs) + len(script.outputs) for script in scripts)
    return VerifiedBatch(BatchId(f"{number:0128x}"), tuple(transactions), declared, b"", "", 0)


def transaction_id_of(batch: int, position: int) -> TransactionId:
    return TransactionId(f"{batch:064x}{position:064x}")


class _SerialView:
    def __init__(self, transaction: VerifiedTransaction, state: dict[str, bytes]) -> None:
        self._transaction = transaction
        self._state = state
        self.changes: dict[str, bytes | None] = {}

    def get(self, address: str) -> bytes | None:
        if not address.startswith(self._transaction.inputs):
            raise Fails("unauthorized")
        return (self.changes[address] if address in self.changes else self._state.get(address)) or None

    def set(self, address: str, data: bytes) -> None:
        if not address.startswith(self._transaction.outputs):
            raise Fails("unauthorized")
        self.changes[address] = data

    def list(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        if not prefix.startswith(self._transaction.inputs):
            raise Fails("unauthorized")
        merged = {**self._state, **self.changes}
        return iter(sorted((name, data) for name, data in merged.items() if data and name.startswith(prefix)))

    def delete(self, address: str) -> bool:
        if not address.startswith(self._transaction.outputs):
            raise Fails("unauthorized")
        if not address.startswith(self._transaction.inputs):
            # An address outside the inputs must not be read. The answer is False only if this transaction deleted the
            # address, or wrote no bytes to it.
            held = bool(self.changes.get(address, b"unknown"))
        else:
            held = self.get(address) is not None
        self.changes[address] = None
        return held


class Outcome(NamedTuple):
    """The result of a block in comparable form: final state, and for each batch its receipts or its reason."""

    state: dict[str, bytes]
    batches: list[tuple[bytes, ...] | str]


def run_serially(
    state: dict[str, bytes], batches: Sequence[VerifiedBatch], lies: frozenset[TransactionId] = frozenset()
) -> Outcome:
    """The specification: batch after batch, transaction after transaction, over one dictionary.

    ``lies``: transactions whose processor claims a write outside their outputs.
    """
    state = dict(state)
    verdicts: list[tuple[bytes, ...] | str] = []
    failed: set[TransactionId] = set()
    for batch in batches:
        trial = dict(state)
        receipts = []
        verdict: tuple[bytes, ...] | str = ()
        if any(name in failed for transaction in batch.transactions for name in transaction.dependencies):
            verdict = "dependency_invalid"
        else:
            for transaction in batch.transactions:
                view = _SerialView(transaction, trial)
                payload = transaction_pb2.Transaction.FromString(transaction.raw).payload
                try:
                    digest = run_script(payload, view)
                    if transaction.id in lies:
                        raise Fails("its processor lies")
                except Fails:
                    verdict = "invalid_transaction"
                    break
                changes = {name: data for name, data in view.changes.items() if data is not None or name in trial}
                receipts.append(_receipt(transaction, changes, digest))
                for name, data in changes.items():
                    if data is None:
                        trial.pop(name, None)
                    else:
                        trial[name] = data
        if verdict:
            failed.update(transaction.id for transaction in batch.transactions)
        else:
            verdict = tuple(receipts)
            state = trial
        verdicts.append(verdict)
    return Outcome(state, verdicts)


def _receipt(transaction: VerifiedTransaction, changes: dict[str, bytes | None], digest: bytes) -> bytes:
    event = Event("script/ran", (("digest", digest.hex()[:8]),))
    return encode_receipt(Receipt(transaction.id, changes, (event,), (digest,)))


class Network:
    """Processors in memory, driven through the validator's registry and the SDK's dispatch.

    ``choose`` draws a number below its argument. ``lies``: packed answers for these transactions claim a write outside
    their outputs.
    """

    def __init__(self, choose: Callable[[int], int], lies: frozenset[TransactionId] = frozenset()) -> None:
        self._choose = choose
        self._lies = lies
        self._frames: dict[bytes, deque[Envelope]] = {}
        self._dispatchers: dict[bytes, Dispatcher] = {}
        self._replies: dict[bytes, deque[Envelope]] = {}
        self.processors = Processors(self._send, lambda: 0, LIMITS)
        self.messages = 0

    def connect(self, name: bytes, handlers: Sequence[TransactionHandler[bytes]], packed: bool) -> None:
        self._frames[name] = deque()
        self._replies[name] = deque()
        self._dispatchers[name] = Dispatcher(handlers)
        for handler in handlers:
            request = processor_pb2.TpRegisterRequest(
                family=handler.family_name,
                version=handler.family_version,
                namespaces=handler.namespaces,
                max_occupancy=512 if packed else 3,
                packed_version=2 if packed else 0,
                migrates=handler.migrates,
            )
            self.processors.handle(name, Envelope.TP_REGISTER_REQUEST, "r", request.SerializeToString())
            self._replies[name].clear()

    def kill(self, name: bytes) -> list[Any]:
        """Disconnect a processor. Its tasks are lost."""
        del self._dispatchers[name]
        return self.processors.probe()

    def _send(self, identity: bytes, message_type: int, correlation_id: str, content: bytes) -> Delivery:
        if identity not in self._dispatchers:
            return Delivery.GONE
        envelope = Envelope(message_type=message_type, correlation_id=correlation_id, content=content)  # type: ignore[arg-type]
        if message_type in (Envelope.TP_PROCESS_REQUEST, Envelope.PACKED_PROCESS_REQUEST):
            self._frames[identity].append(envelope)
        else:
            self._replies[identity].append(envelope)
        return Delivery.SENT

    def step(self) -> list[Any]:
        """Draw one of the processors that have work, and let it answer one message."""
        busy = sorted(name for name in self._dispatchers if self._frames[name])
        name = busy[self._choose(len(busy))]
        frames = self._frames[name]
        # 1.x requests may be answered in any order, packed messages only in the order in which they were sent.
        packed = [frame for frame in frames if frame.message_type == Envelope.PACKED_PROCESS_REQUEST]
        envelope = frames[self._choose(len(frames))]
        if envelope in packed:
            envelope = packed[0]
        frames.remove(envelope)
        self.messages += 1

        def link(message_type: int, content: bytes) -> bytes:
            self.processors.handle(name, message_type, "call", content)
            return self._replies[name].pop().content

        dispatcher = self._dispatchers[name]
        if envelope.message_type == Envelope.PACKED_PROCESS_REQUEST:
            answer_type, content = Envelope.PACKED_PROCESS_RESPONSE, dispatcher.packed(envelope.content, link)
            content = self._lie(envelope.content, content)
        else:
            answer_type, content = Envelope.TP_PROCESS_RESPONSE, dispatcher.single(envelope.content, link)
        return list(self.processors.handle(name, answer_type, envelope.correlation_id, content))

    @property
    def busy(self) -> bool:
        """Whether some processor has work."""
        return any(self._frames[name] for name in self._dispatchers)

    def run(self, run: BlockRun, transactions_max: int) -> None:
        """Run a block to its end."""
        while dispatch(run, self.processors, transactions_max) or not run.finished:
            for event in self.step():
                assert isinstance(event, TaskAnswered)
                run.complete(event.task, event.outcomes, event.namespaces)

    def _lie(self, request_content: bytes, content: bytes) -> bytes:
        request = packed_pb2.PackedProcessRequest.FromString(request_content)
        response = packed_pb2.PackedProcessResponse.FromString(content)
        for unit, answers in zip(request.units, response.units, strict=True):
            for raw, result in zip(unit.transactions, answers.results, strict=False):
                if transaction_pb2.Transaction.FromString(raw).header_signature in self._lies and result.status == 1:
                    result.state_changes.add(address="f" * 70, value=b"stolen", type="SET")
        return response.SerializeToString()


def run_on(
    network: Network,
    state: dict[str, bytes],
    batches: Sequence[VerifiedBatch],
    transactions_max: int,
    after_step: Callable[[], list[Any]] = list,
    ends_early: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run executions as block production does, until every batch has its result.

    ``ends_early`` draws whether a block ends while processors still hold tasks. The next block continues these tasks.
    """
    current: dict[str, bytes | None] = dict(state)
    verdicts: dict[int, tuple[bytes, ...] | str] = {}
    places = list(range(len(batches)))
    execution = BlockRun(view_of(dict(current)), batches, LIMITS)
    while True:
        dispatch(execution, network.processors, transactions_max)
        if execution.finished or ends_early():
            current.update(execution.changes)
            for place, result in zip(places, execution.results(), strict=True):
                if result is not None:
                    verdicts[place] = _verdict(result)
            if execution.finished:
                break
            held = execution.running()
            order = held + sorted(set(execution.not_finished()).difference(held))
            places = [places[index] for index in order]
            left = [batches[place] for place in places]
            execution = BlockRun(view_of(dict(current)), left, LIMITS, continues=execution)
            continue
        for event in [*network.step(), *after_step()]:
            if isinstance(event, TaskAnswered):
                execution.complete(event.task, event.outcomes, event.namespaces)
            elif isinstance(event, TaskLost):
                execution.abandon(event.task, event.begun)
    kept = {name: data for name, data in current.items() if data is not None}
    return Outcome(kept, [verdicts[place] for place in range(len(batches))])


def _verdict(result: Result) -> tuple[bytes, ...] | str:
    if isinstance(result, Applied):
        return result.receipts
    assert isinstance(result, Rejected | Withdrawn)
    return result.reason
