"""How a simulated processor handles tasks: it applies them in both protocols, and fails or lies as the seed drew.

Its messages are those of the real protocols. ``processors`` has its connections, ``programs`` the effects of
transactions.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from dovetail.ledger.settings import FamilyVersion
from dovetail.ledger.transaction import TransactionHeader, decode_header, decode_transaction
from protos import packed_pb2, processor_pb2, state_context_pb2
from protos.transaction_receipt_pb2 import StateChange
from protos.validator_pb2 import Message as Envelope
from tests.system.simulation.clock import pause
from tests.system.simulation.programs import FLAKY, Found, Invalid, steps
from tests.system.simulation.stage import Stage

OK, INVALID, ERROR = (
    processor_pb2.TpProcessResponse.OK,
    processor_pb2.TpProcessResponse.INVALID_TRANSACTION,
    processor_pb2.TpProcessResponse.INTERNAL_ERROR,
)
LIES = ("outside", "rubbish", "short", "wrong_id", "foreign", "twice")
FAR = "f" * 70
"""An address outside every namespace."""


class Behaviour(NamedTuple):
    """The behaviour of one processor.

    ``packed``: the version of packed execution, 0 for the 1.x conversation. ``life_ms``: the length of a connection,
    None for unlimited. ``lie``: one of LIES, which the processor tells in one of five answers; "" for none.
    """

    families: tuple[FamilyVersion, ...]
    packed: int
    raw_header: bool = False
    occupancy: int = 10
    apply_ms: int = 0
    life_ms: int | None = None
    lie: str = ""


class Failed(Exception):
    """A processor fails on a transaction."""


Changes = dict[str, bytes | None]
Fetch = Callable[[str], Awaitable[bytes | None]]
ListUnder = Callable[[str], Awaitable[Found]]


class Applying(ABC):
    """Applies the tasks of a processor. ``_ask`` and ``_send`` reach the node while a connection is open."""

    def __init__(self, name: str, behaviour: Behaviour, stage: Stage) -> None:
        self.name = name
        self.behaviour = behaviour
        self._stage = stage
        self._packed: deque[Envelope] = deque()
        """Packed messages that arrived. They are answered in order."""
        self._newest: tuple[str, Changes] = ("", {})
        """The context id of the newest packed message that was begun, and the writes of its units."""

    @abstractmethod
    async def _ask(self, message_type: int, request: Message) -> bytes:
        """The content of the node's answer."""

    @abstractmethod
    def _send(self, message_type: int, correlation_id: str, content: bytes) -> None: ...

    # The 1.x conversation

    async def _single(self, envelope: Envelope) -> None:
        request = processor_pb2.TpProcessRequest.FromString(envelope.content)
        context_id = request.context_id
        self._stage.contexts[context_id] = self.name
        header = decode_header(request.header_bytes or request.header.SerializeToString())
        lie = self._lie(request.migration)
        response = processor_pb2.TpProcessResponse(status=OK)
        try:
            await self._work(header)
            changes: Changes = {}
            digest = await apply(
                header, request.payload, request.migration, changes,
                lambda address: self._get(context_id, address), lambda prefix: self._list(context_id, prefix),
            )  # fmt: skip
            if lie == "outside":
                changes[FAR] = b"stolen"
            await self._write(context_id, changes, digest)
        except Invalid as invalid:
            response = processor_pb2.TpProcessResponse(status=INVALID, message=str(invalid))
        except Failed as failure:
            response = processor_pb2.TpProcessResponse(status=ERROR, message=str(failure))
        self._answer(Envelope.TP_PROCESS_RESPONSE, envelope.correlation_id, response.SerializeToString(), lie)

    async def _write(self, context_id: str, changes: Changes, digest: bytes) -> None:
        gone = [name for name, data in changes.items() if data is None]
        entries = [
            state_context_pb2.TpStateEntry(address=name, data=data)
            for name, data in changes.items()
            if data is not None
        ]
        if entries:
            written = state_context_pb2.TpStateSetRequest(context_id=context_id, entries=entries)
            content = await self._ask(Envelope.TP_STATE_SET_REQUEST, written)
            _check(state_context_pb2.TpStateSetResponse.FromString(content).status)
        if gone:
            removed = state_context_pb2.TpStateDeleteRequest(context_id=context_id, addresses=gone)
            content = await self._ask(Envelope.TP_STATE_DELETE_REQUEST, removed)
            _check(state_context_pb2.TpStateDeleteResponse.FromString(content).status)
        await self._ask(
            Envelope.TP_RECEIPT_ADD_DATA_REQUEST,
            state_context_pb2.TpReceiptAddDataRequest(context_id=context_id, data=digest),
        )

    async def _get(self, context_id: str, address: str) -> bytes:
        asked = state_context_pb2.TpStateGetRequest(context_id=context_id, addresses=[address])
        content = await self._ask(Envelope.TP_STATE_GET_REQUEST, asked)
        response = state_context_pb2.TpStateGetResponse.FromString(content)
        _check(response.status)
        (entry,) = response.entries
        return entry.data

    async def _list(self, context_id: str, prefix: str) -> Found:
        found: Found = []
        while True:
            after = found[-1][0] if found else ""
            asked = packed_pb2.StateListRequest(context_id=context_id, prefix=prefix, after=after)
            page = packed_pb2.StateListResponse.FromString(await self._ask(Envelope.STATE_LIST_REQUEST, asked))
            _check(page.status)
            found += [(entry.address, entry.data) for entry in page.entries]
            if not page.more:
                return found

    # Packed execution

    async def _work_off(self) -> None:
        while self._packed:
            await self._process(self._packed[0])
            self._packed.popleft()

    async def _process(self, envelope: Envelope) -> None:
        request = packed_pb2.PackedProcessRequest.FromString(envelope.content)
        self._stage.contexts[request.context_id] = self.name
        response = packed_pb2.PackedProcessResponse()
        there = {entry.address: entry.data for entry in request.entries}
        followed, before = self._newest
        assert request.follows in ("", followed), "it follows the one before"
        left: Changes = dict(before) if request.follows else {}
        of_this: Changes = {}
        self._newest = request.context_id, of_this
        number = 0
        lie = self._lie(False)
        for unit in request.units:
            results = response.units.add().results
            own: Changes = dict(left)
            of_unit: Changes = {}
            failed = False
            for position, raw in enumerate(unit.transactions):
                if failed:
                    break
                context_id = f"{request.context_id}:{number + position}"
                changes: Changes = {}
                result = await self._packed_one(raw, context_id, there, own, changes)
                if lie == "outside" and result.status == OK and self._stage.rng.random() < 0.4:
                    result.state_changes.add(address=FAR, value=b"stolen", type=StateChange.SET)
                results.append(result)
                failed = result.status != OK
                own.update(changes)
                of_unit.update(changes)
            number += len(unit.transactions)
            if not failed:
                left = own
                of_this.update(of_unit)
        if lie == "short":
            del response.units[-1].results[-1]
        self._answer(Envelope.PACKED_PROCESS_RESPONSE, envelope.correlation_id, response.SerializeToString(), lie)

    async def _packed_one(
        self, raw: bytes, context_id: str, there: dict[str, bytes], before: Changes, changes: Changes
    ) -> packed_pb2.PackedProcessResponse.TransactionResult:
        """Apply one transaction.

        ``before`` holds the writes of earlier units and of this unit, on top of the entries ``there``.
        """
        transaction = decode_transaction(raw)
        header = transaction.header

        async def get(address: str) -> bytes | None:
            if address in before:
                return before[address]
            return there.get(address) if address in header.inputs else await self._get(context_id, address)

        async def under(prefix: str) -> Found:
            return _laid_over(prefix, await self._list(context_id, prefix), before)

        Result = packed_pb2.PackedProcessResponse.TransactionResult  # noqa: N806
        try:
            await self._work(header)
            digest = await apply(header, transaction.payload, False, changes, get, under)
        except Invalid as invalid:
            return Result(status=INVALID, message=str(invalid))
        except Failed as failure:
            return Result(status=ERROR, message=str(failure))
        result = Result(status=OK, data=[digest])
        for name, data in changes.items():
            if data is None:
                result.state_changes.add(address=name, type=StateChange.DELETE)
            else:
                result.state_changes.add(address=name, value=data, type=StateChange.SET)
        return result

    # Behaviour

    async def _work(self, header: TransactionHeader) -> None:
        """Take the time that an apply takes, or fail."""
        stage = self._stage
        if self.behaviour.apply_ms:
            await pause(stage.rng.randint(0, self.behaviour.apply_ms))
        if not stage.calm and header.family_name == FLAKY.name and stage.rng.random() < 0.15:
            raise Failed("it fails sometimes")

    def _lie(self, migration: bool) -> str:
        if self.behaviour.lie and not self._stage.calm and self._stage.rng.random() < 0.2:
            self._stage.lied = True
            return self.behaviour.lie
        return ""

    def _answer(self, message_type: int, correlation_id: str, content: bytes, lie: str) -> None:
        if lie == "rubbish":
            content = b"\xff\xff\xff"
        elif lie == "wrong_id":
            correlation_id = "f" * 32
        elif lie == "foreign":
            # Answers for tasks of other processors, with no writes. The node must ignore them.
            verdict = processor_pb2.TpProcessResponse(status=OK).SerializeToString()
            for context_id, name in list(self._stage.contexts.items())[-8:]:
                if name != self.name:
                    self._send(Envelope.TP_PROCESS_RESPONSE, context_id, verdict)
                    self._send(Envelope.PACKED_PROCESS_RESPONSE, context_id, content)
        self._send(message_type, correlation_id, content)
        if lie == "twice":
            self._send(
                message_type, correlation_id, b"" if message_type == Envelope.PACKED_PROCESS_RESPONSE else content
            )


async def apply(
    header: TransactionHeader, payload: bytes, migration: bool, changes: Changes, get: Fetch, under: ListUnder
) -> bytes:
    """Run a program. It writes to ``changes``, and its reads see these writes. Returns its digest. Raises Invalid.

    An entry without bytes reads as none, as in every SDK.
    """
    running = steps(
        FamilyVersion(header.family_name, header.family_version), payload, header.inputs if migration else ()
    )
    answer: Any = None
    while True:
        try:
            ask = running.send(answer)
        except StopIteration as done:
            digest: bytes = done.value
            return digest
        place = ask.place
        if ask.kind == "get":
            if not place.startswith(header.inputs):
                raise Invalid(f"it reads {place}")
            answer = (changes[place] if place in changes else await get(place)) or None
        elif ask.kind == "list":
            if not place.startswith(header.inputs):
                raise Invalid(f"it lists {place}")
            answer = _laid_over(place, await under(place), changes)
        else:
            # The processor does not check this write. The validator must decide whether the write is permitted.
            changes[place] = ask.data if ask.kind == "set" else None
            answer = None


def _laid_over(prefix: str, found: Found, changes: Changes) -> Found:
    merged: Changes = {**dict(found), **{name: data for name, data in changes.items() if name.startswith(prefix)}}
    return sorted((name, data) for name, data in merged.items() if data)


def _check(status: int) -> None:
    """Status 1 is OK in all of these answers. Any other status refuses an undeclared access."""
    if status != 1:
        raise Invalid("the validator refused an access")
