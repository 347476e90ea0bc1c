"""Targets that read garbled files: records, trie nodes, configuration, genesis.

``pages`` damages whole stores.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from dovetail.common.errors import Refused
from dovetail.ledger.block import decode_block_header, is_sealed
from dovetail.ledger.errors import InvalidKey, NotDecodable
from dovetail.ledger.ids import BatchId, BlockId
from dovetail.ledger.settings import FamilyVersion
from dovetail.node.config import load
from dovetail.validator.core.journal.model import InvalidBatch
from dovetail.validator.core.state import merkle, nodes, walk
from dovetail.validator.core.state.nodes import EMPTY, Ref
from dovetail.validator.history.verification.state import GARBLED
from dovetail.validator.node import CannotStart, _read_genesis
from dovetail.validator.store import BlockInfo, StorageFailed, records
from protos import block_pb2
from tests.dovetail.validator.support import NodeMemory, address
from tests.system.fuzz.target import Input, Target, chunk
from tests.system.fuzz.values import Batches

_NAME: Final = b"k" * 8
_LEAVES: Final = 100


class Records(Target):
    """Each record of the store, decoded and encoded again."""

    name = "records"

    def seeds(self) -> Iterator[bytes]:
        header = block_pb2.BlockHeader(block_num=1, signer_pubkey="ab" * 33, batch_ids=["b"]).SerializeToString()
        info = BlockInfo(1, BlockId("ab" * 64), Ref(b"r" * 32, 7, 3), 1, 2, 3, 4, header)
        invalid = InvalidBatch(BatchId("ab" * 64), "invalid_transaction", "no", extended_data=b"x")
        for kind, record in enumerate(
            (
                records.encode_block_info(info),
                records.encode_batch(1, 2, b"batch"),
                records.encode_transaction(1, 2, b"receipt"),
                records.sealed("pending", _NAME, b"batch"),
                _NAME + records.encode_invalid(invalid),
                records.encode_numbers([1, 2, 3]),
                records.encode_queue(records.QueueRecord(1.5, (1, 2), (FamilyVersion("intkey", "1.0"),))),
                header,
            )
        ):
            yield bytes((kind,)) + record

    def run(self, data: bytes) -> None:
        source = Input(data)
        kind, record = source.byte() % 8, source.rest()
        try:
            again = self._decoded(kind, record)
        except (struct.error, msgspec.MsgspecError, UnicodeDecodeError, NotDecodable):
            return
        assert again is None or again == record

    def _decoded(self, kind: int, record: bytes) -> bytes | None:
        if kind == 0:
            return records.encode_block_info(records.decode_block_info(1, record))
        if kind == 1:
            _, block_num, first_transaction, raw = records.decode_batch(1, record)
            return records.encode_batch(block_num, first_transaction, raw)
        if kind == 2:
            _, batch_number, position, receipt = records.decode_transaction(1, record)
            return records.encode_transaction(batch_number, position, receipt)
        if kind == 3:
            content = records.opened("pending", _NAME, record)
            return None if content is None else records.sealed("pending", _NAME, content)
        if kind == 4:
            records.decode_invalid(record)
            return None
        if kind == 5:
            return records.encode_numbers(records.decode_numbers(record))
        if kind == 6:
            records.decode_queue(record)
            return None
        decode_block_header(record)
        with suppress(InvalidKey):
            is_sealed(BlockId("ab" * 64), record)
        return None


class Trie(Target):
    """Trie nodes of any form, read in every way. Wrong nodes are refused, and every read ends."""

    name = "trie"

    def seeds(self) -> Iterator[bytes]:
        for count in (1, 2, 5):
            memory = NodeMemory()
            memory.apply({address(number * 7, f"{number:x}a"): b"value" for number in range(count)})
            memory.apply({address(0, "0b"): b"x"})
            yield bytes((memory.root.number,)) + b"".join(
                chunk(memory.nodes[number]) for number in range(1, memory.root.number + 1)
            )
        # The seeds have a branch that names itself as its child, and two branches that name each other.
        child = Ref(b"h" * 32, 1, 1)
        loop, _ = nodes.encode_branch("", {"0": child, "1": child})
        yield b"\1" + chunk(loop)
        there, _ = nodes.encode_branch("0", {"0": Ref(b"h" * 32, 2, 1), "1": child})
        yield b"\2" + chunk(loop) + chunk(there)

    def run(self, data: bytes) -> None:
        source = Input(data)
        top = source.byte()
        stored: dict[int, bytes] = {}
        while not source.is_over:
            stored[len(stored) + 1] = source.chunk()
        reads = 0

        def read(number: int) -> bytes:
            nonlocal reads
            reads += 1
            assert reads < 5_000, "an endless read"
            if number not in stored:
                raise StorageFailed(f"the store lacks entry {number} of nodes")
            return stored[number]

        root = Ref(b"r" * 32, top, 3) if top else EMPTY
        somewhere = [address(0, "0b"), "0" * 70, "f" * 70]
        ways: list[Callable[[], object]] = [
            partial(merkle.update, read, root, {somewhere[0]: b"new", somewhere[2]: None}, 1_000),
            lambda: list(islice(walk.under(read, root, "", "0b"), _LEAVES)),
        ]
        for at in somewhere:
            ways += [partial(merkle.get, read, root, at), partial(walk.subtree, read, root, at[:2])]
            if top:
                ways.append(partial(walk.position, read, root, at))
        if top:
            ways.append(lambda: list(islice(walk.leaves(read, root), _LEAVES)))
            ways.append(lambda: list(islice(walk.leaves(read, root, 1, backwards=True), _LEAVES)))
        ways += [partial(nodes.node_hash, node) for node in list(stored.values())[:3]]
        for way in ways:
            reads = 0
            with suppress(*GARBLED):
                way()


class Configuration(Target):
    """A configuration file, followed by environment variables. A zero byte precedes each variable."""

    name = "config"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "config.toml"

    def seeds(self) -> Iterator[bytes]:
        yield (
            b'[validator]\nbind = "tcp://127.0.0.1:4004"\ndata_dir = "/d"\nverifier_processes = 2\n'
            b'[rest_api]\ntrusted_proxies = ["10.0.0.0/8", "::1"]\ntimeout_s = 3\n[limits]\nbody_bytes_max = 9\n'
        )
        yield b'[processor]\nconnect = "tcp://[::1]:4004"\nworkers = 3\nmetrics = "h:1"\nbuild_id = "x"\n'
        yield b"\0DOVETAIL_VALIDATOR_BIND=tcp://*:1\0DOVETAIL_REST_API_TRUSTED_PROXIES=10.0.0.0/8,::1\0HOME=/"
        yield b"\0DOVETAIL_LIMITS_BODY_BYTES_MAX=9\0DOVETAIL_VALIDATOR_PORT_4004_TCP_ADDR=1\0DOVETAIL_HOME=/x"
        yield b"[limits]\nx = 1979-05-27T07:32:00Z\n[[validator]]\n"

    def run(self, data: bytes) -> None:
        content, *variables = data.split(b"\0")
        self._file.write_bytes(content)
        # Environment variables as a process gets them: without zero bytes, decoded as the system decodes them.
        environ = {"HOME": "/home/fuzz"}
        for variable in variables[:8]:
            name, _, value = variable.decode(errors="surrogateescape").partition("=")
            environ[name] = value
        try:
            config = load(config_file=self._file, environ=environ, flags={})
        except Refused:
            return
        assert config.validator.limits == config.rest_api.limits
        assert min(vars(config.validator.limits).values()) >= 1


class Genesis(Target):
    """The genesis file, and every batch in it."""

    name = "genesis"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "genesis.batch"
        self._batches = Batches(folder)

    def seeds(self) -> Iterator[bytes]:
        # GenesisData has the fields of a list of batches.
        yield from self._batches.seeds()

    def run(self, data: bytes) -> None:
        self._file.write_bytes(data)
        try:
            batches = _read_genesis(self._file)
        except CannotStart:
            return
        assert batches
        self._batches.run(data)
