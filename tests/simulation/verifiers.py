"""Fake verifier processes: the real check, whose results come at a later moment, and not in the order of the asking."""

from collections.abc import Callable
from functools import lru_cache
from random import Random

from ledger.batch import VerifiedBatch, verify_batch
from ledger.errors import RefusedBatch
from tests.simulation.clock import SimulatedLoop
from validator.verifier import Verified, VerifierPool


@lru_cache(maxsize=4096)
def _verify(raw: bytes) -> VerifiedBatch | RefusedBatch:
    try:
        return verify_batch(raw)
    except RefusedBatch as refusal:
        return refusal


class SimulatedVerifiers(VerifierPool):
    """``on_results`` is called after results were handed on."""

    def __init__(self, loop: SimulatedLoop, rng: Random, on_results: Callable[[], None]) -> None:
        self._loop = loop
        self._rng = rng
        self._on_results = on_results
        self._closed = False

    def verify(self, raw_batches: list[bytes], on_verified: Callable[[Verified], None]) -> None:
        results = [_verify(raw) for raw in raw_batches]
        refusals = [result for result in results if isinstance(result, RefusedBatch)]
        verified = [result for result in results if not isinstance(result, RefusedBatch)]

        def answer() -> None:
            if not self._closed:
                on_verified(refusals[0] if refusals else verified)
                self._on_results()

        self._loop.call_later(self._rng.choice([0, 0, 1, 3, 20]) / 1000, answer)

    def watch(self) -> None:
        """None dies."""

    def close(self) -> None:
        self._closed = True
