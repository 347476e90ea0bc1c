"""Processor time and memory of this process and of a node's processes below it, and bytes on disk.

Works on Linux and macOS. The command lines that ``dovetail.node.parts`` makes show which process is which part.
"""

import contextlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from dovetail.bench import families

_MIB = 1024 * 1024


@dataclass(frozen=True)
class ProcessFigures:
    """One process during one run."""

    name: str
    cpu_s: float
    memory_mib_max: float
    """The largest resident set, sampled twice a second."""

    own_memory_mib_max: float
    """The largest memory without shared pages and pages of files, such as the store's map and libraries.

    Only on Linux; elsewhere equal to ``memory_mib_max``.
    """

    written_mib: float | None
    """MiB that the process wrote; None on systems that do not count them."""


class ProcessWatch:
    """Measures the load generator and, with ``whole_node``, the node's processes, from its creation on."""

    def __init__(self, *, whole_node: bool) -> None:
        self._whole_node = whole_node
        own = psutil.Process()
        named = [("load generator", own)]
        if whole_node:
            named += sorted((pair for child in own.children() for pair in _roles(child)), key=lambda pair: pair[0])
        roles = Counter(role for role, _ in named)
        seen: Counter[str] = Counter()
        self._watched = []
        self._busy_before_s = _busy_s()
        for role, process in named:
            seen[role] += 1
            self._watched.append(_Watched(f"{role} {seen[role]}" if roles[role] > 1 else role, process))

    def sample(self) -> None:
        """Sample the memory of all processes."""
        for watched in self._watched:
            watched.sample()

    def figures(self) -> tuple[tuple[ProcessFigures, ...], float | None]:
        """The processes, and the processor time of everything else on the machine; None without ``whole_node``."""
        self.sample()
        processes = tuple(watched.figures() for watched in self._watched)
        others_cpu_s = _busy_s() - self._busy_before_s - sum(process.cpu_s for process in processes)
        return processes, max(0.0, others_cpu_s) if self._whole_node else None


class _Watched:
    def __init__(self, name: str, process: psutil.Process) -> None:
        self._name = name
        self._process = process
        self._memory = self._own_memory = 0
        self._cpu_s = self._cpu_s_before = _cpu_s(process)
        self._written = self._written_before = _written(process)
        self.sample()

    def sample(self) -> None:
        # If a process has ended, other code ends the run.
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = self._process.memory_info()
            self._memory = max(self._memory, memory.rss)
            self._own_memory = max(self._own_memory, memory.rss - getattr(memory, "shared", 0))

    def figures(self) -> ProcessFigures:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._cpu_s = _cpu_s(self._process)
            self._written = _written(self._process)
        known = self._written is not None and self._written_before is not None
        return ProcessFigures(
            self._name,
            self._cpu_s - self._cpu_s_before,
            self._memory / _MIB,
            self._own_memory / _MIB,
            ((self._written or 0) - (self._written_before or 0)) / _MIB if known else None,
        )


def _roles(process: psutil.Process) -> list[tuple[str, psutil.Process]]:
    """A part of the node and the processes below it, each with its role; empty for any other process."""
    try:
        words: list[str] = process.cmdline()
        below = process.children(recursive=True)
        # A processor has a supervisor, workers, and a process of multiprocessing's own.
        workers = [child for child in below if "--multiprocessing-fork" in child.cmdline()]
    except psutil.NoSuchProcess:
        return []
    if "dovetail" not in words[:-1]:
        return []
    command, *arguments = words[words.index("dovetail") + 1 :]
    if command == "processor":
        module, _, handler = arguments[0].partition(":")
        name = handler.partition("_")[2] if module == families.__name__ else module.split(".")[1]
        return [(f"processor {name}", process), *((f"processor {name} worker", worker) for worker in workers)]
    if command == "validator":
        return [(command, process), *(("verifier", child) for child in below)]
    return [(command, process)] if command == "rest-api" else []


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_s() -> float:
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _written(process: psutil.Process) -> int | None:
    counters = getattr(process, "io_counters", None)
    try:
        return int(counters().write_bytes) if counters is not None else None
    except (psutil.AccessDenied, OSError):
        return None


def bytes_on_disk(folder: Path) -> int:
    """The disk space of the files below ``folder``, without the holes of sparse files."""
    return sum(os.stat(file).st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def filesystem_of(folder: Path) -> str:
    """The type of the filesystem that holds ``folder``. On a tmpfs a sync costs nothing."""
    within = [
        partition
        for partition in psutil.disk_partitions(all=True)
        if folder.resolve().is_relative_to(partition.mountpoint)
    ]
    return str(max(within, key=lambda partition: len(partition.mountpoint)).fstype) if within else "unknown"
