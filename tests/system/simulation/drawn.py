"""The properties of a world that its seed draws: limits, the behaviour of processors, faults of the disk."""

from random import Random

from dovetail.ledger.limits import Limits
from dovetail.ledger.settings import FamilyVersion
from tests.system.simulation.applying import LIES, Behaviour
from tests.system.simulation.disk import Fault
from tests.system.simulation.programs import HOT_NEXT
from tests.system.simulation.stage import Stage


class DiskFaults:
    """Draws when the disk of a world fails, is slow, or crashes with the machine.

    There are no faults once the world is calm.
    """

    def __init__(self, stage: Stage) -> None:
        rng = stage.rng
        self._stage = stage
        self._refusals = rng.choice([0.0, 0.0, 0.01, 0.05])
        self._crashes = rng.choice([0.0, 0.0, 0.005, 0.02])
        self._slow_ms = rng.choice([0, 0, 3, 60])
        self._full_until_ms = 0

    def next(self) -> Fault:
        if self._stage.calm:
            return Fault.NONE
        rng = self._stage.rng
        if self._slow_ms:
            self._stage.loop.stand_still(rng.randint(0, self._slow_ms))
        if self._stage.loop.now_ms < self._full_until_ms:
            return Fault.REFUSED
        drawn = rng.random()
        fault = Fault.NONE
        if drawn < self._refusals:
            fault = rng.choice([Fault.REFUSED, Fault.NOT_SYNCED])
            if rng.random() < 0.3:
                # From now on the disk is full for a while.
                self._full_until_ms = self._stage.loop.now_ms + rng.randint(1, 3_000)
        elif drawn > 1 - self._crashes:
            fault = rng.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
        if fault is not Fault.NONE:
            self._stage.trace(f"the disk: {fault.value}")
        return fault


def draw_behaviour(rng: Random, families: list[FamilyVersion], packed: float, number: int) -> Behaviour:
    """Draw the behaviour of a processor. ``packed``: the probability of the packed protocol."""
    served = tuple(families) if number == 0 else tuple(rng.sample(families, rng.randint(1, len(families))))
    if rng.random() < 0.5:
        served += (HOT_NEXT,)
    return Behaviour(
        families=served,
        packed=rng.choice([1, 2, 2]) if rng.random() < packed else 0,
        raw_header=rng.random() < 0.5,
        occupancy=rng.choice([1, 10, 100, 100]),
        apply_ms=rng.choice([0, 1, 5, 30, 100]),
        life_ms=rng.choice([None, 300, 1_000, 4_000]),
        lie=rng.choice(["", "", "", *LIES]),
    )


def draw_limits(rng: Random) -> Limits:
    ping_ms = rng.choice([300, 1_000, 10_000])
    return Limits(
        pending_batches_max=rng.choice([12, 60, 1_000]),
        pending_transactions_max=rng.choice([30, 300]),
        block_transactions_max=rng.choice([3, 20, 100]),
        block_execution_ms_max=rng.choice([20, 200, 1_000]),
        dependency_wait_ms=rng.choice([500, 3_000, 10_000]),
        internal_error_back_off_ms=rng.choice([10, 200]),
        internal_error_tries_max=rng.choice([2, 5]),
        processor_lost_back_off_ms_max=rng.choice([100, 5_000]),
        processor_ping_ms=ping_ms,
        processor_silence_ms=3 * ping_ms,
        message_bytes_max=rng.choice([3_000, 32 * 1024 * 1024]),
        packed_bytes_max=rng.choice([1_500, 2 * 1024 * 1024]),
        packed_transactions_max=rng.choice([1, 8, 64, 64]),
        state_list_entries_max=rng.choice([1, 3, 100]),
        status_ids_waited_for_max=rng.choice([10, 1_000]),
        status_unknown_ids_waited_for_max=rng.choice([0, 2, 100]),
        store_map_bytes_initial=1 << 20,
    )
