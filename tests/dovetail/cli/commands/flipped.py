"""Verifies, reads and repairs stores with one wrong bit, in processes that LMDB may end.

Helpers of the test of flips, without assertions.
"""

import faulthandler
import os
import pickle
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.queries import Queries
from dovetail.validator.maintenance.child import Ended, OnStep
from dovetail.validator.maintenance.repair import CannotRepair, repair
from dovetail.validator.maintenance.verification import verify_whole
from dovetail.validator.store import StorageFailed, Store, StoreReader
from protos import client_batch_pb2, client_block_pb2, client_receipt_pb2, client_transaction_pb2
from protos.query_pb2 import ListRequest, ListResponse
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.rehearsal.rehearsal_chain import Chain, Step
from tests.dovetail.validator.history.verified import Here, flip, make_store

T = TypeVar("T")

PAGE_BYTES = 4096
LIMITS = replace(Limits(), store_map_bytes_initial=1024 * 1024)


def make(folder: Path) -> Path:
    """A store of several blocks. Most pages are in use; a few are in the list of free pages."""
    made = make_store(folder.with_name("made"))
    for number in range(6):
        _add(made, number)
    folder.mkdir()
    reader = StoreReader.open(made)
    with (folder / "data.mdb").open("wb") as file:
        reader.copy_to(file.fileno())
    reader.close()
    _add(folder, 6)
    return folder


def _add(store: Path, number: int) -> None:
    chain = Chain(store)
    batches: list[list[Step]] = [[("inc", f"n{name}", 1)] for name in range(number % 3, 20, 3)]
    chain.steps(*batches)
    chain.close()


class Outcome(Enum):
    HARMLESS = "harmless"
    FOUND = "found"
    REFUSED = "cannot be opened"
    ENDED = "ends the process"


class Answers(NamedTuple):
    """Each question about a block, batch, transaction or receipt, and its answer; the items of each list; the head."""

    single: dict[tuple[int, bytes], bytes]
    lists: dict[int, list[bytes]]
    head: str


class Seen(NamedTuple):
    """The result for one store with a wrong bit. ``lies``: the number of wrong answers.

    ``repaired``: the head after a repair; None if the store was not repaired, and then ``lost`` says why.
    """

    outcome: Outcome
    lies: int
    repaired: str | None
    lost: str


def flips(store: Path, count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Bits of the file, as byte and bit: half of them anywhere in a page, half in page headers."""
    rng = random.Random(seed)
    pages = (store / "data.mdb").stat().st_size // PAGE_BYTES
    for number in range(count):
        within = rng.randrange(PAGE_BYTES if number % 2 else 96)
        yield rng.randrange(pages) * PAGE_BYTES + within, rng.randrange(8)


def lead_nowhere(content: bytearray, table: bytes) -> None:
    """Make a record in the table of tables name a root page that does not exist."""
    at = content.find(table)
    while at >= 0:
        # The length of the record precedes its key. The root page is the last number in the record.
        root = at + len(table) + 40
        if content[at - 8 : at - 6] == (48).to_bytes(2, "little"):
            content[root : root + 8] = (10**6).to_bytes(8, "little")
        at = content.find(table, at + 1)


def try_flip(store: Path, folder: Path, at: int, bit: int, truth: Answers) -> Seen:
    """Verify, read and repair a copy of ``store`` with one bit flipped; ``folder`` is made and removed."""
    folder.mkdir()
    try:
        (folder / "data.mdb").write_bytes(flip((store / "data.mdb").read_bytes(), at, bit))
        outcome = _verified(folder)
        lies = _lies(folder, truth, complete=outcome is Outcome.HARMLESS)
        if outcome is Outcome.HARMLESS:
            return Seen(outcome, lies, None, "")
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("dovetail.validator.maintenance.repair.run_in_child", forked_child)
                patch.setattr("dovetail.validator.maintenance.repair.verify_whole", _verify_in_child)
                repair(folder, LIMITS, None, 1, lambda _: None, lambda: None, [])
            after = forked(lambda: read_all(folder))
            return Seen(outcome, lies + (after.single != truth.single), after.head, "")
        except (CannotRepair, StorageFailed) as failure:
            return Seen(outcome, lies, None, str(failure))
    finally:
        shutil.rmtree(folder)


def read_all(folder: Path, wanted: Answers | None = None) -> Answers:
    """A validator's answers to the questions of ``wanted``.

    Without ``wanted``, the questions come from the store itself.
    """
    store = Store(folder, LIMITS)
    try:
        queries = Queries(store, LIMITS)
        asked = list(wanted.single) if wanted else list(_questions(store))
        single = {}
        for message_type, content in asked:
            answer = queries.answer(message_type, content)
            if answer.status in ("OK", "NO_RESOURCE"):
                single[message_type, content] = _without_head(message_type, answer.content)
        lists: dict[int, list[bytes]] = {}
        for resource in (ListRequest.BLOCKS, ListRequest.BATCHES, ListRequest.TRANSACTIONS):
            request = ListRequest(resource=resource, count=1000).SerializeToString()
            page = ListResponse.FromString(queries.answer(Envelope.LIST_REQUEST, request).content)
            lists[resource] = list(page.items)
        return Answers(single, lists, store.head.id if store.head else "")
    finally:
        store.close()


RESPONSES: dict[int, Any] = {
    Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST: client_block_pb2.ClientBlockGetResponse,
    Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST: client_block_pb2.ClientBlockGetResponse,
    Envelope.CLIENT_BATCH_GET_REQUEST: client_batch_pb2.ClientBatchGetResponse,
    Envelope.CLIENT_TRANSACTION_GET_REQUEST: client_transaction_pb2.ClientTransactionGetResponse,
    Envelope.CLIENT_RECEIPT_GET_REQUEST: client_receipt_pb2.ClientReceiptGetResponse,
}


def _without_head(message_type: int, content: bytes) -> bytes:
    response = RESPONSES[message_type].FromString(content)
    if hasattr(response, "head_id"):
        response.head_id = ""
    serialized: bytes = response.SerializeToString()
    return b"" if response.status == response.NO_RESOURCE else serialized


def _questions(store: Store) -> Iterator[tuple[int, bytes]]:
    assert store.head is not None
    for num in range(store.head.num + 1):
        request = client_block_pb2.ClientBlockGetByNumRequest(block_num=num)
        yield Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST, request.SerializeToString()
    for name, _ in store.entries("block_ids"):
        by_id = client_block_pb2.ClientBlockGetByIdRequest(block_id=name.hex())
        yield Envelope.CLIENT_BLOCK_GET_BY_ID_REQUEST, by_id.SerializeToString()
    for name, _ in store.entries("batch_ids"):
        batch = client_batch_pb2.ClientBatchGetRequest(batch_id=name.hex())
        yield Envelope.CLIENT_BATCH_GET_REQUEST, batch.SerializeToString()
    for name, _ in store.entries("transaction_ids"):
        transaction = client_transaction_pb2.ClientTransactionGetRequest(transaction_id=name.hex())
        yield Envelope.CLIENT_TRANSACTION_GET_REQUEST, transaction.SerializeToString()
        receipt = client_receipt_pb2.ClientReceiptGetRequest(transaction_ids=[name.hex()])
        yield Envelope.CLIENT_RECEIPT_GET_REQUEST, receipt.SerializeToString()


def _verified(folder: Path) -> Outcome:
    try:
        return Outcome.FOUND if forked(lambda: _findings(folder)) else Outcome.HARMLESS
    except StorageFailed:
        return Outcome.REFUSED
    except Ended:
        return Outcome.ENDED


def _findings(folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.validator.maintenance.verification.Checkers", lambda processes: nullcontext(Here()))
        return len(verify_whole(lambda _: None, folder, 1))


def _lies(folder: Path, truth: Answers, *, complete: bool) -> int:
    """The number of wrong answers. ``complete``: no damage was found, so no answer may be missing."""
    copied = folder.with_name(f"{folder.name}-read")
    shutil.copytree(folder, copied)
    try:
        found = forked(lambda: read_all(copied, truth))
    except (StorageFailed, Ended):
        return 0
    finally:
        shutil.rmtree(copied)
    lies = int(complete and found.head != truth.head)
    lies += sum(answer not in (b"", truth.single[question]) for question, answer in found.single.items())
    if complete:
        lies += len(truth.single) - sum(
            found.single.get(question) == answer for question, answer in truth.single.items()
        )
    return lies + sum(not set(items) <= set(truth.lists[resource]) for resource, items in found.lists.items())


def forked_child(tell: OnStep, work: Callable[..., T], *arguments: Any) -> T:
    """``run_in_child`` by a fork instead of a new interpreter, without reports of progress."""
    return forked(lambda: work(tell, *arguments))


def _verify_in_child(on_step: OnStep, path: Path, processes: int) -> list[str]:
    return ["a finding"] * forked(lambda: _findings(path))


def forked(work: Callable[[], T]) -> T:
    """The result of ``work`` in a child process. Raises its StorageFailed, and Ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        faulthandler.disable()
        # Discard the log, and the text that the C library writes before it ends the process.
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        code = 1
        try:
            try:
                result: Any = (True, work())
            except StorageFailed as failure:
                result = (False, str(failure))
            except Exception:
                result = (None, traceback.format_exc())
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(result, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        raise Ended(f"signal {-code}")
    if code:
        raise RuntimeError("the process failed, which is a bug")
    done, value = pickle.loads(content)
    if done is None:
        raise RuntimeError(value)
    if not done:
        raise StorageFailed(value)
    answer: T = value
    return answer
