"""The things that all actors of a simulated world share: randomness, clock, network, transcript, the end of faults."""

import asyncio
import zlib
from collections.abc import Callable
from random import Random

from tests.system.simulation.clock import SimulatedLoop
from tests.system.simulation.wire import Network


class Stage:
    """``fail`` ends the simulation with an error.

    ``show`` prints a line of the transcript; it is None without a transcript.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: Random,
        fail: Callable[[BaseException], None],
        show: Callable[[str], None] | None,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.fail = fail
        self.network: Network
        self.ready = asyncio.Event()
        """Set when there is a genesis block."""
        self.calmed = asyncio.Event()
        """Set when faults end. From then on all processors are honest and stay."""
        self.lied = False
        """Whether some processor lied. Then honest transactions may become invalid."""
        self.contexts: dict[str, str] = {}
        """The name of the processor that was sent each context id. Lying processors use the ids of others."""
        self.digest = 0
        """A checksum of the transcript, equal for equal runs. It has nothing that the node draws at random."""
        self._show = show

    @property
    def calm(self) -> bool:
        return self.calmed.is_set()

    @property
    def traced(self) -> bool:
        """Whether the transcript is printed. Without a transcript, lines that are costly to make are left out."""
        return self._show is not None

    def trace(self, line: str) -> None:
        """Add a line to the transcript."""
        line = f"{self.loop.now_ms:>7} ms  {line}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        if self._show is not None:
            self._show(line)
