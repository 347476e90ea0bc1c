"""What all actors of one simulated world share: chance, clock, network, what was made, and whether it is calm yet."""

import asyncio
import zlib
from collections.abc import Callable
from random import Random

from tests.system.simulation.clock import SimulatedLoop
from tests.system.simulation.wire import Network


class Stage:
    """``fail`` ends the simulation with an error; ``show`` prints a line of the transcript, None where nobody reads."""

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
        """Set when faults end: everybody is honest, nobody leaves."""
        self.lied = False
        """Whether some processor lied: then an honest program may come to be judged invalid."""
        self.contexts: dict[str, str] = {}
        """Who was asked under which context id; what a liar knows of others."""
        self.digest = 0
        """Of the transcript: equal for equal runs. Nothing that the node draws by itself is in it."""
        self._show = show

    @property
    def calm(self) -> bool:
        return self.calmed.is_set()

    @property
    def traced(self) -> bool:
        """Whether somebody reads the transcript: a line may cost something then."""
        return self._show is not None

    def trace(self, line: str) -> None:
        """One line of the transcript."""
        line = f"{self.loop.now_ms:>7} ms  {line}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        if self._show is not None:
            self._show(line)
