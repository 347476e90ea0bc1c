"""Simulated verifier processes: the real check, whose results arrive later and in any order."""

from collections.abc import Callable
from functools import lru_cache
from random import Random

from dovetail.ledger.batch import checked_batch
from dovetail.ledger.errors import RefusedBatch
from dovetail.validator.admission.verifier import Verified, VerifierPool
from tests.system.simulation.clock import SimulatedLoop

_checked = lru_cache(maxsize=4096)(checked_batch)


class SimulatedVerifiers(VerifierPool):
    """``on_results`` is called after results were delivered."""

    def __init__(self, loop: SimulatedLoop, rng: Random, on_results: Callable[[], None]) -> None:
        self._loop = loop
        self._rng = rng
        self._on_results = on_results
        self._closed = False
        self._asked = 0

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        results = [_checked(raw) for raw in raw_batches]
        refusals = [result for result in results if isinstance(result, RefusedBatch)]
        verified = [result for result in results if not isinstance(result, RefusedBatch)]

        def answer() -> None:
            self._asked -= 1
            if not self._closed:
                on_verified(refusals[0] if refusals else verified)
                self._on_results()

        self._asked += 1
        self._loop.call_later(self._rng.choice([0, 0, 1, 3, 20]) / 1000, answer)

    def _is_at_work(self) -> bool:
        return self._asked > 0

    def watch(self) -> None:
        """Do nothing: no process dies."""

    def close(self) -> None:
        self._closed = True
