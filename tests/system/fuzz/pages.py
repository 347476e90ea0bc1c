"""Reads damaged copies of a store, each in a child process: ``python -m tests.system.fuzz.pages STORE``.

Each line of JSON on standard input describes one damage: ``[[position, bytes in hex], …]`` replaces bytes of data.mdb.
The answer is one line: the outcome of reading and verifying everything. LMDB trusts its pages and may crash on damaged
ones, so each damage gets a child process of its own, forked from a process that has imported everything.

        sound     everything reads as written
        found     reading was refused, or verification has findings
    ended N   signal N ended the child: LMDB, on a page that it trusted
        wrong     verification has no findings, but a read differs from what was written
        hung      the child did not end in time
        bug TEXT  an undocumented exception
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dovetail.ledger.ids import BlockId
from dovetail.ledger.limits import Limits
from dovetail.validator.client_api.queries import Queries
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.store import StorageFailed, StoreReader
from dovetail.validator.store.records import TABLES
from protos import client_block_pb2, client_state_pb2
from protos.query_pb2 import ListRequest
from protos.validator_pb2 import Message as Envelope
from tests.dovetail.validator.history.verified import verify

CHILD_S: Final = 20
"""Far more than a store of a few hundred entries needs."""

_REFUSALS: Final = (*GARBLED, msgspec.MsgspecError)


def contents(store: Path) -> str:
    """A digest of everything that can be read: entries of tables, and a validator's answers."""
    digest = hashlib.sha256()
    reader = StoreReader.open(store)
    try:
        for part in _parts(reader):
            digest.update(part)
    finally:
        reader.close()
    return digest.hexdigest()


def _parts(reader: StoreReader) -> Iterator[bytes]:
    for table in TABLES:
        if table == "meta":
            # This table is read when the store is opened. Its records have no checksum.
            continue
        for name, record in reader.entries(table):
            yield name + record
    for name, _ in reader.entries("invalid"):
        yield repr(reader.invalid(name.hex())).encode()  # type: ignore[arg-type]
    queries = Queries(reader, Limits())  # type: ignore[arg-type]
    for resource in ListRequest.Resource.values():
        asked = ListRequest(resource=resource, count=1_000).SerializeToString()  # type: ignore[arg-type]
        yield queries.answer(Envelope.LIST_REQUEST, asked).content
    assert reader.head is not None
    for num in range(reader.head.num + 1):
        block = client_block_pb2.ClientBlockGetByNumRequest(block_num=num).SerializeToString()
        yield queries.answer(Envelope.CLIENT_BLOCK_GET_BY_NUM_REQUEST, block).content
        found = reader.block(num)
        yield repr(found and reader.block_num(BlockId(found.id))).encode()
    for address in ("0" * 70, "1cf126" + "f" * 64, "f" * 70):
        leaf = client_state_pb2.ClientStateGetRequest(address=address).SerializeToString()
        yield queries.answer(Envelope.CLIENT_STATE_GET_REQUEST, leaf).content


def _classify(store: Path, sound: str) -> str:
    """The outcome, in the words above."""
    try:
        found = contents(store)
    except _REFUSALS:
        found = ""
    try:
        findings = sum(verify(store).counts.values())
    except StorageFailed:
        findings = 1
    if found == sound:
        # Verification may report damage of bytes that nothing reads.
        return "found" if findings else "sound"
    return "found" if findings or not found else "wrong"


def _run(store: Path, damage: list[tuple[int, str]], folder: Path, sound: str, answer: int) -> None:
    """Run in the child. Never returns."""
    signal.alarm(CHILD_S)
    # LMDB writes to standard error before it ends the process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    copy = folder / "store"
    copy.mkdir()
    shutil.copy(store / "data.mdb", copy / "data.mdb")
    with (copy / "data.mdb").open("r+b") as file:
        for position, changed in damage:
            file.seek(position)
            file.write(bytes.fromhex(changed))
    try:
        words = _classify(copy, sound)
    except BaseException:
        words = f"bug {traceback.format_exc()}"
    os.write(answer, json.dumps(words).encode())
    os._exit(0)


def _outcome(store: Path, damage: list[tuple[int, str]], sound: str) -> str:
    with tempfile.TemporaryDirectory(prefix="dovetail-pages-") as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _run(store, damage, Path(folder), sound, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return str(json.loads(said))
    ended = os.WTERMSIG(status)
    return "hung" if ended == signal.SIGALRM else f"ended {ended}"


def main() -> None:
    """Read damages and print outcomes, as above."""
    store = Path(sys.argv[1])
    # The undamaged store must be readable. This also loads late imports before any fork.
    sound = contents(store)
    assert not verify(store).kept
    for line in sys.stdin:
        print(json.dumps(_outcome(store, json.loads(line), sound)), flush=True)


if __name__ == "__main__":
    main()
