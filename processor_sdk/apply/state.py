"""The state that transactions read, fetched from the validator: for packed execution and the 1.x conversation.

No handlers and no verdicts (``processor_sdk.apply.dispatch``). No sockets: state calls go through a ``Link``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from google.protobuf.message import DecodeError, Message

from dovetail.ledger.addresses import AccessList
from dovetail.ledger.limits import STATE_REQUEST_ADDRESSES_MAX
from dovetail.ledger.listing import Entry, changes_under, overlaid
from processor_sdk.apply.messages import succeeded
from processor_sdk.context import Context
from processor_sdk.errors import AuthorizationException, InternalError, StateUnavailable
from protos import packed_pb2, state_context_pb2, validator_pb2

CALL_BYTES_MAX: Final = 1024 * 1024
"""The most bytes of addresses and values in one writing call, unless a single value is larger."""

Link = Callable[[validator_pb2.Message.MessageType, bytes], bytes]
"""Sends a state request (message type, content) to the validator and returns the content of the answer.

Raises StateUnavailable if there will be no answer.
"""


class Overlay:
    """The state that the transactions of one packed request read: its entries, overlaid with its units' changes."""

    def __init__(
        self, request: packed_pb2.PackedProcessRequest, link: Link, before: Mapping[str, bytes | None] | None = None
    ) -> None:
        """``before``: the changes of the previous request, if this request builds on that one."""
        self._request = request
        self._context_id = request.context_id
        self._link = link
        self._values: dict[str, bytes | None] = {entry.address: entry.data for entry in request.entries}
        if before:
            self._values.update(before)
        self.left: dict[str, bytes | None] = {}
        """The changes of the finished units."""
        self._named: Collection[str] = ()
        self._unit_start = 0
        self._position = 0
        self.unit: dict[str, bytes | None] = {}

    def begin(self, position: int, readable: AccessList) -> None:
        """Note that the transaction at ``position`` of the current unit reads next."""
        self._position = position
        self._named = readable.entries

    def drop_unit(self) -> None:
        """Drop the changes of the current unit, which failed."""
        self.unit = {}

    def end_unit(self, transactions: int) -> None:
        """End the current unit, which has ``transactions`` transactions. Later units see its changes."""
        self._values.update(self.unit)
        self.left.update(self.unit)
        self.unit = {}
        self._unit_start += transactions

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        unknown: list[str] = []
        for address in addresses:
            if address in self.unit:
                data = self.unit[address]
            elif address in self._values:
                data = self._values[address]
            elif address in self._named:
                continue  # The request's entries hold every fully named input that has data.
            else:
                unknown.append(address)
                continue
            if data is not None:
                found[address] = data
        if unknown:
            fetched = _get_state(self._link, self._own_context_id, unknown)
            # Kept for the whole request, because all its units run over the same state.
            for address in unknown:
                self._values[address] = fetched.get(address)
            found.update(fetched)
        return found

    def under(self, prefix: str) -> Iterator[Entry]:
        """See ``StateBefore``. Raises InternalError if the validator cannot list."""
        _require_lists(prefix, self._request.units[0].batch_id)
        pages = _list_state(self._link, self._own_context_id, prefix)
        # ``_values`` also holds values that were only read. They come from the same state, so they change nothing here.
        known = overlaid(pages, changes_under(self._values, prefix))
        return overlaid(known, changes_under(self.unit, prefix))

    @property
    def _own_context_id(self) -> str:
        return f"{self._context_id}:{self._unit_start + self._position}"


class StateCalls:
    """The 1.x conversation of one transaction."""

    def __init__(self, context_id: str, batch_id: str, link: Link) -> None:
        self._context_id = context_id
        self._batch_id = batch_id
        self._link = link
        self._values: dict[str, bytes | None] = {}

    def fetch(self, addresses: Collection[str]) -> Mapping[str, bytes]:
        """See ``StateBefore``. Asks once for each address."""
        values = self._values
        unknown = [address for address in addresses if address not in values]
        if unknown:
            fetched = _get_state(self._link, self._context_id, unknown)
            for address in unknown:
                values[address] = fetched.get(address)
        return {address: data for address in addresses if (data := values[address]) is not None}

    def under(self, prefix: str) -> Iterator[Entry]:
        """See ``StateBefore``. Raises InternalError if the validator cannot list."""
        _require_lists(prefix, self._batch_id)
        # The writes are sent after the apply, so the validator lists the state before the transaction.
        return _list_state(self._link, self._context_id, prefix)

    def flush(self, context: Context) -> None:
        """Send the transaction's effects to the validator, in as many calls as their size needs."""
        written: dict[str, bytes] = {}
        removed: list[str] = []
        written_bytes = removed_bytes = 0
        for address, data in context.changes.items():
            if data is None:
                removed_bytes += len(address)
                if removed_bytes > CALL_BYTES_MAX:
                    self._delete(removed)
                    removed, removed_bytes = [], len(address)
                removed.append(address)
                continue
            written_bytes += len(address) + len(data)
            if written and written_bytes > CALL_BYTES_MAX:
                self._set(written)
                written, written_bytes = {}, len(address) + len(data)
            written[address] = data
        if written:
            self._set(written)
        if removed:
            self._delete(removed)
        for data in context.receipt_data:
            receipt_request = state_context_pb2.TpReceiptAddDataRequest(context_id=self._context_id, data=data)
            receipt_reply = state_context_pb2.TpReceiptAddDataResponse()
            _ask(self._link, validator_pb2.Message.TP_RECEIPT_ADD_DATA_REQUEST, receipt_request, receipt_reply)
            _require_ok(receipt_reply.status, receipt_reply)
        for event in context.events:
            event_request = state_context_pb2.TpEventAddRequest(context_id=self._context_id, event=event)
            event_reply = state_context_pb2.TpEventAddResponse()
            _ask(self._link, validator_pb2.Message.TP_EVENT_ADD_REQUEST, event_request, event_reply)
            _require_ok(event_reply.status, event_reply)

    def _set(self, written: dict[str, bytes]) -> None:
        request = state_context_pb2.TpStateSetRequest(context_id=self._context_id)
        for address, data in written.items():
            request.entries.add(address=address, data=data)
        reply = state_context_pb2.TpStateSetResponse()
        _ask(self._link, validator_pb2.Message.TP_STATE_SET_REQUEST, request, reply)
        _require_authorized(reply.status, reply, "write", list(written))
        # 1.x validators answer OK without addresses if the context has already ended.
        missing = written.keys() - set(reply.addresses)
        if missing:
            raise StateUnavailable(f"the validator wrote all but {len(missing)} of {len(written)} addresses")

    def _delete(self, removed: list[str]) -> None:
        request = state_context_pb2.TpStateDeleteRequest(context_id=self._context_id, addresses=removed)
        reply = state_context_pb2.TpStateDeleteResponse()
        _ask(self._link, validator_pb2.Message.TP_STATE_DELETE_REQUEST, request, reply)
        _require_authorized(reply.status, reply, "delete", removed)


def _get_state(link: Link, context_id: str, addresses: list[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for start in range(0, len(addresses), STATE_REQUEST_ADDRESSES_MAX):
        found.update(_get_some(link, context_id, addresses[start : start + STATE_REQUEST_ADDRESSES_MAX]))
    return found


def _get_some(link: Link, context_id: str, addresses: list[str]) -> dict[str, bytes]:
    request = state_context_pb2.TpStateGetRequest(context_id=context_id, addresses=addresses)
    reply = state_context_pb2.TpStateGetResponse()
    _ask(link, validator_pb2.Message.TP_STATE_GET_REQUEST, request, reply)
    _require_authorized(reply.status, reply, "read", addresses)
    asked = set(addresses)
    return {entry.address: entry.data for entry in reply.entries if entry.address in asked}


def _require_lists(prefix: str, batch_id: str) -> None:
    """Raise InternalError if the validator sends no batch id: such validators never answer STATE_LIST_REQUEST."""
    if not batch_id:
        raise InternalError(
            f"cannot list {prefix!r}: list needs Dovetail's validator in a release that has it; this validator is an"
            f" older one, or of the Sawtooth 1.x line, whose protocol has no message for it. Run the processor beside a"
            f" newer Dovetail, or get single addresses"
        )


def _list_state(link: Link, context_id: str, prefix: str) -> Iterator[Entry]:
    """The entries under ``prefix``. Each page is fetched when the one before is used up."""
    request = packed_pb2.StateListRequest(context_id=context_id, prefix=prefix)
    more = True
    while more:
        page = packed_pb2.StateListResponse()
        _ask(link, validator_pb2.Message.STATE_LIST_REQUEST, request, page)
        _require_authorized(page.status, page, "list", [prefix])
        if page.status == packed_pb2.StateListResponse.STATUS_UNSET:
            # No release of the validator leaves it out, so this is no list.
            raise StateUnavailable("the validator answered StateListResponse with status 0")
        for entry in page.entries:
            if not entry.address.startswith(prefix) or entry.address <= request.after:
                after = f"behind {request.after!r} under {prefix!r}"
                raise StateUnavailable(f"the validator listed {entry.address[:80]!r} when asked for what lies {after}")
            request.after = entry.address
            yield entry.address, entry.data
        more = page.more
        if more and not page.entries:
            raise StateUnavailable(f"the validator says that more lies under {prefix!r}, and sent an empty page")


def _ask(link: Link, message_type: validator_pb2.Message.MessageType, request: Message, reply: Message) -> None:
    """Send a state request, and parse its answer into ``reply``. Raises StateUnavailable."""
    content = link(message_type, request.SerializeToString())
    try:
        reply.ParseFromString(content)
    except DecodeError:
        raise StateUnavailable(f"{len(content)} bytes from the validator are no {reply.DESCRIPTOR.name}") from None


def _require_authorized(status: int, reply: Message, verb: str, addresses: list[str]) -> None:
    if status == state_context_pb2.TpStateGetResponse.AUTHORIZATION_ERROR:
        raise AuthorizationException(f"the validator does not let this transaction {verb} all of {addresses[:8]}")
    _require_ok(status, reply)


def _require_ok(status: int, reply: Message) -> None:
    if not succeeded(status):
        raise StateUnavailable(f"the validator answered {reply.DESCRIPTOR.name} with status {status}")
