"""From a validator's request to its answer: decodes the request, runs the handler, encodes the effects. Always answers.

Serves both protocols: one transaction with state calls (Sawtooth 1.x), and packed execution (many transactions over a
local overlay). No sockets: state calls go through a ``Link``. The catch-all for handlers' exceptions is here.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from dovetail.ledger import migration
from dovetail.ledger.addresses import AccessList
from dovetail.ledger.transaction import Transaction, decode_transaction
from processor_sdk.apply.messages import check_size, encode_answer, report, transaction_of
from processor_sdk.apply.progress import Family, Progress
from processor_sdk.apply.state import Link, Overlay, StateCalls
from processor_sdk.context import Context, StateBefore
from processor_sdk.errors import InternalError, InvalidTransaction, StateUnavailable
from processor_sdk.handler import TransactionHandler
from processor_sdk.migration import INHERITED_MIGRATE, NO_MIGRATION, MigrationContext, check_migration
from processor_sdk.transaction import with_payload
from protos import packed_pb2, processor_pb2

MESSAGE_CHARACTERS_MAX: Final = 4096
EXTENDED_BYTES_MAX: Final = 65_536

_OK: Final = processor_pb2.TpProcessResponse.OK

_log = logging.getLogger(__name__)


class ApplyResult(NamedTuple):
    """How one apply, or one slice of a migration, ended. ``status``: a TpProcessResponse.Status.

    ``context``: the effects if the status is OK. ``error``: the exception if the status is INTERNAL_ERROR.
    """

    status: processor_pb2.TpProcessResponse.Status
    message: str = ""
    context: Context | None = None
    error: BaseException | None = None


class Dispatcher:
    """Handlers by the exact name and version of their family."""

    def __init__(
        self,
        handlers: Iterable[TransactionHandler[Any]],
        progress: Progress | None = None,
        interrupt: type[KeyboardInterrupt] = KeyboardInterrupt,
        contexts: tuple[type[Context], type[MigrationContext]] = (Context, MigrationContext),
    ) -> None:
        """``progress`` records each apply. ``interrupt``: the exception that ends an apply without an answer.

        ``contexts``: the context classes for an apply and for a slice of a migration.

        Raises TypeError for a handler whose declaration is wrong (``TransactionHandler.check_declaration``), and
        ValueError for two handlers of the same family and version.
        """
        self._progress = progress or Progress()
        self._interrupt = interrupt
        self._context, self._migration_context = contexts
        self._handlers: dict[Family, TransactionHandler[Any]] = {}
        for handler in handlers:
            handler.check_declaration()
            family = (handler.family_name, handler.family_version)
            if family in self._handlers:
                raise ValueError(f"two handlers for the family {family[0]} {family[1]}")
            self._handlers[family] = handler
        self._left: tuple[str, Mapping[str, bytes | None]] = ("", {})
        """The context id of the latest packed request, and the changes of its units."""

    def packed(self, content: bytes, link: Link) -> bytes:
        """Answer a serialized PackedProcessRequest by a serialized PackedProcessResponse (``protos/packed.proto``).

        The answer has the request's units. For an undecodable request it has one unit with one INTERNAL_ERROR.
        """
        response = packed_pb2.PackedProcessResponse()
        try:
            request = packed_pb2.PackedProcessRequest.FromString(content)
        except DecodeError:
            error = InternalError(f"{len(content)} bytes from the validator are no PackedProcessRequest")
            _refuse(response.units.add().results.add(), error)
            return response.SerializeToString()
        followed, left = self._left
        if request.follows not in ("", followed):
            error = InternalError(f"it follows {request.follows[:80]!r}, and the one before it was {followed!r}")
            for _ in request.units:
                _refuse(response.units.add().results.add(), error)
            return response.SerializeToString()
        overlay = Overlay(request, link, left if request.follows else None)
        self._left = request.context_id, overlay.left
        progress = self._progress
        alone = len(request.units) == 1 and len(request.units[0].transactions) == 1
        # One clock reading for each apply: the end of one is the begin of the next.
        at = progress.now()
        for unit in request.units:
            results = response.units.add().results
            batch_id, transactions = unit.batch_id, unit.transactions
            for position, raw in enumerate(transactions):
                result = results.add()
                try:
                    transaction = decode_transaction(raw)
                    header = transaction.header
                    family = (header.family_name, header.family_version)
                    progress.begin(transaction.id, batch_id, family, alone, at)
                    readable = AccessList(header.inputs)
                    overlay.begin(position, readable)
                    context = self._apply(transaction, family, readable, overlay)
                    report(result, context)
                except self._interrupt:
                    raise
                except BaseException as error:
                    result.Clear()
                    _refuse(result, error)
                    at = progress.end(result.status)
                    overlay.drop_unit()
                    break
                at = progress.end(_OK)
                overlay.unit.update(context.changes)
            overlay.end_unit(len(transactions))
        return encode_answer(response)

    def single(self, content: bytes, link: Link) -> bytes:
        """Answer a serialized TpProcessRequest, in either header style (WIRE.md), by a serialized TpProcessResponse."""
        response = processor_pb2.TpProcessResponse()
        try:
            try:
                request = processor_pb2.TpProcessRequest.FromString(content)
            except DecodeError:
                raise InternalError(f"{len(content)} bytes from the validator are no TpProcessRequest") from None
            calls = StateCalls(request.context_id, request.batch_id, link)
            transaction = transaction_of(request)
            header = transaction.header
            family = (header.family_name, header.family_version)
            self._progress.begin(transaction.id, request.batch_id, family, True, self._progress.now())
            # The public migration key proves nothing. Only ``migration``, which the validator sets, marks a migration.
            if request.migration:
                check_migration(transaction)
                calls.flush(self.migrated(family, header.inputs, calls))
            else:
                calls.flush(self._apply(transaction, family, AccessList(header.inputs), calls))
            response.status = _OK
        except self._interrupt:
            raise
        except BaseException as error:
            _refuse(response, error)
        self._progress.end(response.status)
        return response.SerializeToString()

    def migrated(self, family: Family, prefixes: tuple[str, ...], before: StateBefore) -> MigrationContext:
        """Run the handler's ``migrate`` on the slice under ``prefixes``; nothing is sent.

        Raises InvalidTransaction if the handler refuses, makes a forbidden or too large write, or declares no migrate.
        Other exceptions of ``migrate`` and ``before`` pass through.
        """
        handler = self._handler(family)
        if not handler.migrates:
            raise InvalidTransaction(
                f"the handler of {family[0]} {family[1]} declares no migrate: run a build of this version that does, or"
                f" permit the version without the member migrate; {INHERITED_MIGRATE}"
            )
        context = self._migration_context(prefixes, handler.namespaces, before)
        self._run("migrate", family, context, handler.migrate, context)
        return context

    def run_apply(self, family: Family, transaction: Transaction, before: StateBefore) -> ApplyResult:
        """Apply ``transaction``, whatever version it names, with the handler of ``family``; nothing is sent."""
        inputs = AccessList(transaction.header.inputs)
        return self._result_of(lambda: self._apply(transaction, family, inputs, before))

    def run_slice(self, family: Family, prefixes: tuple[str, ...], before: StateBefore) -> ApplyResult:
        """Migrate the slice under ``prefixes`` with the handler of ``family``; nothing is sent."""
        return self._result_of(lambda: self.migrated(family, prefixes, before))

    def _result_of(self, run: Callable[[], Context]) -> ApplyResult:
        try:
            return ApplyResult(_OK, context=run())
        except self._interrupt:
            raise
        except InvalidTransaction as error:
            return ApplyResult(processor_pb2.TpProcessResponse.INVALID_TRANSACTION, _text(error))
        except BaseException as error:
            message = f"{type(error).__name__}: {_text(error)}"
            return ApplyResult(processor_pb2.TpProcessResponse.INTERNAL_ERROR, message, error=error)

    def _handler(self, family: Family) -> TransactionHandler[Any]:
        handler = self._handlers.get(family)
        if handler is None:
            raise InternalError(f"no handler here for the family {family[0]} {family[1]}")
        return handler

    def _apply(self, transaction: Transaction, family: Family, readable: AccessList, before: StateBefore) -> Context:
        header = transaction.header
        handler = self._handler(family)
        # For a handler without migrate the migration key is a key like any other.
        if handler.migrates and header.signer_pubkey == migration.PUBLIC_KEY:
            raise InvalidTransaction(NO_MIGRATION)
        try:
            decoded = with_payload(transaction, handler.encodings)
        except InvalidTransaction:
            raise
        except Exception as error:
            encoding = header.payload_encoding or next(iter(handler.encodings))
            raise InternalError(
                f"the codec of {encoding} raised {_name(error)}: {_text(error)}; a codec refuses with NotDecodable or"
                " ValueError"
            ) from error
        writable = readable if header.outputs == header.inputs else AccessList(header.outputs)
        context = self._context(readable, writable, handler.namespaces, before)
        self._run("apply", family, context, handler.apply, decoded, context)
        return context

    def _run(
        self, method: str, family: Family, context: Context, call: Callable[..., object], *arguments: object
    ) -> None:
        # The return value is checked because "async def" and "return a refusal" would otherwise count as success.
        try:
            result = call(*arguments)
            if result is not None:
                raise TypeError(f"{method} of {family[0]} returned {type(result).__name__}, not None")
        except (InvalidTransaction, StateUnavailable, self._interrupt):
            raise
        except BaseException as error:
            if context.refused is None:
                raise
            raise context.refused from error
        if context.refused is not None:
            raise context.refused
        check_size(context)


def _refuse(
    result: processor_pb2.TpProcessResponse | packed_pb2.PackedProcessResponse.TransactionResult, error: BaseException
) -> None:
    if isinstance(error, InvalidTransaction):
        result.status = processor_pb2.TpProcessResponse.INVALID_TRANSACTION
        result.message = _text(error)
        result.extended_data = _extended_data(error)
        _log.debug("invalid: %s", result.message)
        return
    _log.error("an apply ended without a verdict", exc_info=error)
    result.status = processor_pb2.TpProcessResponse.INTERNAL_ERROR
    result.message = f"{type(error).__name__}: {_text(error)}"


def _name(error: BaseException) -> str:
    """The exception's class, with its module unless it is built in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    """The exception's message, shortened and encodable. The ``str`` of a handler's exception may fail."""
    try:
        text = str(error)
    except BaseException as failure:
        return f"(no message: its str() raised {type(failure).__name__})"
    return text[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()


def _extended_data(error: InvalidTransaction) -> bytes:
    """``extended_data``, shortened. A subclass may hold any object there."""
    try:
        data: object = error.extended_data
    except BaseException:
        return b""
    return data[:EXTENDED_BYTES_MAX] if isinstance(data, bytes) else b""
