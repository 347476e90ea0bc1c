"""Runs a small load on a store once for each of its calls to the disk. In each run, one of the calls fails.

Run in a process of its own under ``shim``: ``python -m tests.system.faults.sweep FOLDER CONTROL FAULT``. Prints the
numbers of calls, refused writes and reopened stores as JSON; raises if the result of a run differs.
"""

import errno
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.ledger.building import build_batch
from dovetail.ledger.ids import BatchId
from dovetail.ledger.limits import Limits
from dovetail.validator.core.journal.model import CommittedBatch, InvalidBatch
from dovetail.validator.store import BlockInfo, StorageFailed, StorageLost, Store, StoreReader
from dovetail.validator.store.records import TABLES
from families.intkey.payload import Verb
from tests.dovetail.rehearsal.rehearsal_chain import SIGNER, Chain
from tests.dovetail.validator.history.verified import verify
from tests.dovetail.validator.support import make_id, sealed_commit
from tests.system.faults.shim import FOR_EVER, Calls, Shim

LIMITS: Final = replace(Limits(), store_map_bytes_initial=1024 * 1024)
TRIES_MAX: Final = 5


_WRITES: Final = Calls.WRITES | Calls.HEADS
_ALL: Final = _WRITES | Calls.SYNCS | Calls.TRUNCATES


class Fault(NamedTuple):
    """Which calls fail, with which errno, and how many in a row. ``part`` is that of ``Shim.fail``."""

    kinds: Calls
    number: int
    times: int = 1
    part: int = 0
    from_creation: bool = False
    """Whether calls also fail during the creation of the store. Otherwise they fail only after all tables exist."""


FAULTS: Final = {
    "write, no space": Fault(_WRITES, errno.ENOSPC),
    "write, error": Fault(_WRITES, errno.EIO),
    "write, three errors": Fault(_WRITES, errno.EIO, 3),
    "write, in part": Fault(_WRITES, errno.ENOSPC, part=2),
    "sync, error": Fault(Calls.SYNCS, errno.EIO),
    "sync, no space": Fault(Calls.SYNCS, errno.ENOSPC),
    "anything from the creation on, error": Fault(_ALL, errno.EIO, from_creation=True),
    "anything from the creation on, in part": Fault(_ALL, errno.ENOSPC, part=2, from_creation=True),
}


class Step(NamedTuple):
    """One write of the load, and whether a reopened store holds it already."""

    write: Callable[[Store], object]
    is_done: Callable[[Store], bool]


Entries = dict[str, list[tuple[bytes, bytes]]]


def _step(verb: Verb, number: int) -> tuple[Verb, str, int]:
    return verb, f"n{number}", number


class Load(Chain):
    """The writes of a validator, recorded so that they can be repeated on another store.

    The load has accepted batches, blocks that settle some of them, verdicts without a block, and large records.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.steps_made: list[Step] = []
        self._settled: list[int] = []
        self._pending(4, 2)
        self._settled = [0, 1]
        self.steps(*([_step("set", number)] for number in range(30)))
        self._reject("one", 2)
        self._pending(3, 50)
        self._settled = [3, 4]
        self.steps(*([_step("inc", number)] for number in range(0, 30, 2)))
        self._reject("two", 5)
        self.close()

    def _commit(self, committed: list[CommittedBatch], changes: dict[str, bytes | None]) -> BlockInfo:
        made = sealed_commit(self.store, SIGNER, committed, changes)._replace(settled=self._settled)
        num = made.block.header.block_num

        def is_done(store: Store) -> bool:
            return store.head is not None and store.head.num >= num

        self.steps_made.append(Step(lambda store: store.commit_block(made), is_done))
        return self.store.commit_block(made)

    def _pending(self, count: int, transactions: int) -> None:
        name = len(self.steps_made)
        raws = [
            build_batch(SIGNER, [self.intkey("set", f"p{name}.{at}", at) for at in range(transactions)]).raw
            for _ in range(count)
        ]
        end = self.store.add_pending(raws) + count
        self.steps_made.append(Step(lambda store: store.add_pending(raws), lambda store: store.next_arrival >= end))

    def _reject(self, name: str, arrival: int) -> None:
        invalid = InvalidBatch(BatchId(make_id(name)), "invalid_transaction", "no", extended_data=bytes(5_000))
        self.store.reject([invalid], [arrival])
        self.steps_made.append(
            Step(
                lambda store: store.reject([invalid], [arrival]),
                lambda store: store.invalid(invalid.batch_id) is not None,
            )
        )


class Run:
    """Runs the steps of a load on a store in ``folder``, each until it succeeds, as a validator does."""

    def __init__(self, folder: Path, load: list[Step]) -> None:
        self._folder = folder
        self.refused = self.reopened = 0
        self._store: Store | None = None
        for step in load:
            self._until_done(step)
        if self._store is not None:
            self._store.close()

    def entries(self) -> Entries:
        """Every entry of every table, after a check that the store is sound."""
        findings = verify(self._folder)
        assert not findings.kept, [str(finding) for finding in findings.kept]
        reader = StoreReader.open(self._folder)
        try:
            return {table: list(reader.entries(table)) for table in TABLES if table != "meta"}
        finally:
            reader.close()

    def _until_done(self, step: Step) -> None:
        for _ in range(TRIES_MAX):
            try:
                if self._store is None:
                    self._store = Store(self._folder, LIMITS)
                    if step.is_done(self._store):
                        return
                step.write(self._store)
                return
            except StorageFailed:
                self.refused += 1
            except StorageLost:
                # This error ends a validator. The next validator starts with the data on the disk.
                self.reopened += 1
                if self._store is not None:
                    self._store.close()
                    self._store = None
        raise AssertionError(f"a write did not succeed in {TRIES_MAX} tries")


def sweep(folder: Path, shim: Shim, fault: Fault) -> dict[str, int]:
    """Run the load once for each call of the fault's kinds, and let that call fail.

    All runs must have the same result.
    """
    load = Load(folder / "made").steps_made
    fresh, run_in = folder / "fresh", folder / "run"
    if not fault.from_creation:
        Store(fresh, LIMITS).close()
        shutil.copytree(fresh, run_in)
    shim.fail(fault.kinds, first=FOR_EVER)
    expected = Run(run_in, load).entries()
    calls = shim.counted
    totals = {"calls": calls, "refused": 0, "reopened": 0}
    for first in range(1, calls + 1):
        shutil.rmtree(run_in)
        if not fault.from_creation:
            shutil.copytree(fresh, run_in)
        shim.fail(fault.kinds, fault.number, first=first, times=fault.times, part=fault.part)
        run = Run(run_in, load)
        failed = shim.failed
        shim.heal()
        assert failed > 0, f"call {first} of {calls} did not fail"
        assert run.entries() == expected, f"call {first} of {calls}"
        totals["refused"] += run.refused
        totals["reopened"] += run.reopened
    return totals


def main(folder: str, control: str, name: str) -> None:
    """Print the totals of one sweep."""
    print(json.dumps(sweep(Path(folder), Shim(Path(control)), FAULTS[name])))


if __name__ == "__main__":
    main(*sys.argv[1:])
