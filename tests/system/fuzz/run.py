"""Fuzzes every target for a limited time with atheris, guided by coverage: ``tox -e fuzz -- --seconds 30``.

Each target has a process of its own, because libFuzzer ends its process. Findings are kept in a folder that is named at
the end; ``--keep`` adds a minimal set of inputs that reached new code to the corpus.
"""

import argparse
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
INPUT_BYTES_MAX: Final = 4_096
HANG_S: Final = 10
MEMORY_MIB_MAX: Final = 1_024
"""The memory limit of the whole process."""

ALLOCATION_MIB_MAX: Final = 64
"""The limit of one allocation, for an input of at most INPUT_BYTES_MAX."""

_INSTRUMENTED: Final = ["processor_sdk", "families", "dovetail", "tomllib"]
_executions = re.compile(r"stat::number_of_executed_units:\s*(\d+)").search
_coverage = re.compile(r"cov: (\d+)")


def main() -> int:
    """Exit code 0: nothing found, or no atheris; 1: something found; 2: wrong arguments."""
    parser = argparse.ArgumentParser(prog="tests.system.fuzz.run", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="which ones; default: all")
    parser.add_argument("--seconds", type=int, default=30, help="how long to search each (default 30)")
    parser.add_argument("--found", type=Path, help="where to keep findings (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reached new code to the corpus")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: skipped, atheris is not installed; it has wheels for CPython 3.11 to 3.14 on Linux, x86-64")
        return 0
    if arguments.one:
        _search_here(arguments.one, arguments.targets, rest)
    from tests.system.fuzz.targets import TARGETS

    unknown = [name for name in [*arguments.targets] if name not in TARGETS]
    if unknown or rest:
        parser.error(f"unknown: {', '.join(unknown + rest)}; targets are {', '.join(TARGETS)}")
    found = arguments.found or Path(tempfile.mkdtemp(prefix="dovetail-fuzz-"))
    found.mkdir(parents=True, exist_ok=True)
    failed = [
        name for name in arguments.targets or TARGETS if not _search(name, arguments.seconds, found, arguments.keep)
    ]
    if failed:
        print(f"fuzz: found something in {', '.join(failed)}; the inputs are in {found}")
        return 1
    if arguments.found is None:
        shutil.rmtree(found)
    return 0


def _search(name: str, seconds: int, found: Path, keep: bool) -> bool:
    """Search one target. Returns whether nothing was found."""
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dovetail-fuzz-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        limits = [f"-max_total_time={seconds}", f"-artifact_prefix={found}/{name}-", "-print_final_stats=1"]
        done = _fuzzer(name, Path(folder) / "1", *limits, str(work), str(kept))
        (found / f"{name}.log").write_text(done.stdout)
        executions = _executions(done.stdout)
        covered = _coverage.findall(done.stdout)
        print(
            f"fuzz: {name}: {executions[1] if executions else '?'} inputs in {seconds} s,"
            f" {len(list(work.iterdir()))} new ones kept, coverage {covered[-1] if covered else '?'},"
            f" {'nothing found' if done.returncode == 0 else f'exit code {done.returncode}'}",
            flush=True,
        )
        if keep and done.returncode == 0:
            _minimize(name, Path(folder), work, kept)
        return done.returncode == 0


def _minimize(name: str, folder: Path, work: Path, kept: Path) -> None:
    """Replace the corpus by the fewest of the old and new inputs that reach the same code."""
    merged = folder / "merged"
    merged.mkdir()
    done = _fuzzer(name, folder / "2", "-set_cover_merge=1", "-use_counters=0", str(merged), str(kept), str(work))
    if done.returncode == 0 and any(merged.iterdir()):
        shutil.rmtree(kept)
        shutil.copytree(merged, kept)


def _fuzzer(name: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    folder.mkdir()
    command = [
        *(sys.executable, "-m", "tests.system.fuzz.run", "--one", name, str(folder)),
        *(f"-max_len={INPUT_BYTES_MAX}", f"-timeout={HANG_S}"),
        *(f"-rss_limit_mb={MEMORY_MIB_MAX}", f"-malloc_limit_mb={ALLOCATION_MIB_MAX}"),
        *arguments,
    ]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def _search_here(name: str, folders: list[str], options: list[str]) -> None:
    """Search in this process. libFuzzer ends the process after the search."""
    import atheris

    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.system.fuzz.targets import TARGETS

    folder, *corpora = folders
    # Each instance of the target gets a folder of its own, because another process may use the files of its target.
    target = TARGETS[name](Path(tempfile.mkdtemp(dir=folder)))
    seeds = Path(folder) / "seeds"
    seeds.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(seed)
    # To merge a corpus, libFuzzer starts its own program again.
    again = Path(folder) / "again"
    words = shlex.join([sys.executable, "-m", "tests.system.fuzz.run", "--one", name, folder])
    again.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    again.chmod(0o700)
    atheris.Setup([str(again), *options, *corpora, str(seeds)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
