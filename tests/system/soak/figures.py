"""What a node's processes hold over time, and whether it grows.

Works on Linux, where ``/proc/PID/smaps_rollup`` tells anonymous memory.
"""

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psutil

from dovetail.bench.process_costs import bytes_on_disk

MIB: Final = 1024 * 1024
_MEMORY_ALLOWANCE_MIB: Final = 24.0
"""How much more a part may hold in the last quarter than in the second: caches that are still filling."""
_COUNT_ALLOWANCE: Final = 16
"""How many more descriptors or threads: connections that happen to be open."""


class Sample(NamedTuple):
    """The sums over all processes of one part at one moment."""

    anonymous_mib: float
    descriptors: int
    threads: int


class Growth(NamedTuple):
    """Medians of a part's second and last quarter of samples."""

    part: str
    early: Sample
    late: Sample

    @property
    def flat(self) -> bool:
        return (
            self.late.anonymous_mib <= self.early.anonymous_mib * 1.1 + _MEMORY_ALLOWANCE_MIB
            and self.late.descriptors <= self.early.descriptors + _COUNT_ALLOWANCE
            and self.late.threads <= self.early.threads + _COUNT_ALLOWANCE
        )


class Watch:
    """Samples the processes below ``up`` by part, and the data folder by its two folders."""

    def __init__(self, up_pid: int, data: Path) -> None:
        self._up = psutil.Process(up_pid)
        self._data = data
        self._samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def sample(self) -> None:
        """Take one sample of every part that runs."""
        self._samples["up"].append(_sample([self._up]))
        for child in self._up.children():
            try:
                name = _name(child)
                self._samples[name].append(_sample([child, *child.children(recursive=True)]))
            except psutil.NoSuchProcess:
                continue

    def growth(self) -> list[Growth]:
        """The growth of every part with at least eight samples."""
        found: list[Growth] = []
        for part, samples in sorted(self._samples.items()):
            quarter = len(samples) // 4
            if quarter >= 2:
                found.append(Growth(part, _median(samples[quarter : 2 * quarter]), _median(samples[-quarter:])))
        return found

    def store_bytes(self) -> int:
        """The disk space of the store."""
        return bytes_on_disk(self._data / "store")

    def log_bytes(self) -> int:
        """The disk space of the log files."""
        return bytes_on_disk(self._data / "logs")


def _name(process: psutil.Process) -> str:
    words: list[str] = process.cmdline()
    command, *arguments = words[words.index("dovetail") + 1 :] if "dovetail" in words else ["starting"]
    return f"processor {arguments[0].rpartition(':')[2]}" if command == "processor" else command


def _sample(processes: list[psutil.Process]) -> Sample:
    anonymous = descriptors = threads = 0
    for process in processes:
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            descriptors += process.num_fds()
            threads += process.num_threads()
        except (OSError, psutil.NoSuchProcess):
            continue
        anonymous += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return Sample(anonymous / 1024, descriptors, threads)


def _median(samples: list[Sample]) -> Sample:
    anonymous, descriptors, threads = zip(*samples, strict=True)
    return Sample(median(anonymous), round(median(descriptors)), round(median(threads)))
