"""A whole node under everything at once, for as long as asked: ``python -m tests.system.soak``, ``tox -e soak``.

Paced valid and invalid load, hostile traffic, kill -9 of every part, family upgrades, and a probe that measures what a
calm client sees. The report says whether memory, descriptors and threads stay flat, and whether the ledger is sound.
"""

import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx
import psutil
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from dovetail.ledger.building import SignedBatch, build_batch, build_transaction, encode_batch_list
from dovetail.ledger.signing import Signer
from tests.system.e2e.network import Network
from tests.system.e2e.process import Process, ProcessFailed
from tests.system.faults.checks import committed
from tests.system.faults.client import Client
from tests.system.faults.load import MIXED, Kind, Load
from tests.system.soak import family
from tests.system.soak.figures import MIB, Watch
from tests.system.soak.hostile import Target, one_burst

_SAMPLE_S: Final = 5.0
_PROBE_S: Final = 1.0
_BURST_S: Final = 2.0
_WAIT_S: Final = 60.0


class Stopped(Exception):
    """The soak ends while a loop waits."""


class Soak:
    """The node and all that happens to it. Each loop runs in a thread of its own until ``stop``."""

    def __init__(self, folder: Path, seed: int, rate: float, kill_every_s: float, upgrade_every_s: float) -> None:
        self.stop = threading.Event()
        self.random = Random(seed)
        self.network = Network(folder, DOVETAIL_VALIDATOR_VERIFIER_PROCESSES="2")
        self.up = self.network.up()
        self.watch = Watch(self.up.pid, self.network.data)
        self.clients = [
            Client(self.network.rest_url, PacedLoad(seed, f"c{number}", rate / 2, self.stop), self._wait_until_serving)
            for number in range(2)
        ]
        self.events: Counter[str] = Counter()
        self.probes_ms: list[float] = []
        self.failures: list[str] = []
        self._kill_every_s = kill_every_s
        self._upgrade_every_s = upgrade_every_s
        self._versions: list[str] = []

    def run(self, seconds: float, progress: Callable[[float], None]) -> None:
        """Let everything happen at once for so long."""
        loops = (self._sample, self._probe, self._attack, self._kill, self._upgrade)
        threads = [threading.Thread(target=self._guarded, args=(loop,), daemon=True) for loop in loops]
        begin = time.monotonic()
        for thread in (*self.clients, *threads):
            thread.start()
        while (passed := time.monotonic() - begin) < seconds and not self.failures and self.up.running:
            progress(passed)
            self.stop.wait(1)
        self.stop.set()
        for thread in threads:
            thread.join(2 * _WAIT_S)
        self._wait_until_serving()
        for client in self.clients:
            client.finish(2 * _WAIT_S)

    def end(self) -> int:
        """End the node. Returns the exit code of ``up``."""
        return self.up.terminate()

    def lost(self) -> list[str]:
        """Accepted batches whose final status and chain disagree."""
        chain = committed(self.network.data)
        on_chain = set(chain)
        found = [] if len(chain) == len(on_chain) else [f"{len(chain) - len(on_chain)} batches are on the chain twice"]
        for client in self.clients:
            found += [f"{name} was accepted and is not settled" for name in client.accepted - client.ended.keys()]
            found += [
                f"{name} was reported {word}"
                for name, word in client.ended.items()
                if (name in on_chain) != (word == "COMMITTED")
            ]
        return found

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Stopped:
            pass
        except Exception as failure:
            self.failures.append(f"{loop.__name__.strip('_')}: {type(failure).__name__}: {failure}")

    def _pause(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise Stopped

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.network.rest_url}/readyz", timeout=5, trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise ProcessFailed(f"the node was not ready for {_WAIT_S:g} s")

    def _sample(self) -> None:
        while True:
            self.watch.sample()
            self._pause(_SAMPLE_S)

    def _probe(self) -> None:
        """Measure how long a calm client waits for an answer about the node."""
        with httpx.Client(base_url=self.network.rest_url, timeout=_WAIT_S, trust_env=False) as http:
            while True:
                begin = time.monotonic()
                try:
                    http.get("/healthz")
                    http.get("/blocks", params={"count": 1})
                    self.probes_ms.append((time.monotonic() - begin) * 1000)
                except httpx.TransportError:
                    # The REST API was killed.
                    self.events["probe cut"] += 1
                self._pause(_PROBE_S)

    def _attack(self) -> None:
        rest, validator = (urlsplit(url).port or 0 for url in (self.network.rest_url, self.network.validator_url))
        target = Target(rest, validator, Random(self.random.random()))
        while True:
            self.events[one_burst(target)] += 1
            self._pause(_BURST_S)

    def _kill(self) -> None:
        """Kill a part, a worker or a verifier every now and then. ``up`` or its parent starts another."""
        while True:
            self._pause(self._kill_every_s)
            parts = psutil.Process(self.up.pid).children()
            part = self.random.choice(parts)
            below = part.children()
            victim = self.random.choice([part, *below])
            try:
                self.events[f"kill {_kind(part)}{'' if victim is part else ' child'}"] += 1
                victim.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue

    def _upgrade(self) -> None:
        """Let one version of the counter family follow another, planned, used and ended while everything runs."""
        signer = Signer(self.random.randbytes(32).hex())
        processor: Process | None = None
        for number in range(1, 1_000):
            version = f"{number}.0"
            following = self._processor(version)
            if processor is not None:
                self._until(partial(self._plan, f"{number - 1}.0", version))
            self._until(partial(self._commit, signer, version))
            self.events["upgrade"] += 1
            if processor is not None:
                processor.terminate()
            processor = following
            self._versions.append(version)
            self._pause(self._upgrade_every_s)

    def handlers(self) -> list[str]:
        """The versions of the counter family that the ledger holds."""
        return self._versions

    def _processor(self, version: str) -> Process:
        kept = self.network.environment
        self.network.environment = kept | {family.VERSION_VARIABLE: version}
        try:
            return self.network.processor(family.HANDLER)
        finally:
            self.network.environment = kept

    def _plan(self, old: str, new: str) -> bool:
        words = ("upgrade", "plan", family.FAMILY, old, new, "--at", "+3", "--until", "+6", "--yes", "--json")
        return self.network.run(*words, "--url", self.network.rest_url).code == 0

    def _commit(self, signer: Signer, version: str) -> bool:
        place = (family.address("soak"),)
        transaction = build_transaction(
            signer,
            batcher_pubkey=signer.public_key,
            family_name=family.FAMILY,
            family_version=version,
            inputs=place,
            outputs=place,
            payload=b"",
            payload_encoding="",
            nonce=os.urandom(8).hex(),
        )
        batch = build_batch(signer, [transaction])
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{self.network.rest_url}/batches"
        try:
            answer = httpx.post(
                url,
                params={"wait": 20},
                content=encode_batch_list([batch]),
                headers=headers,
                timeout=_WAIT_S,
                trust_env=False,
            )
        except httpx.TransportError:
            return False
        return answer.status_code == 201

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5 * _WAIT_S
        while not done():
            if time.monotonic() > deadline:
                raise ProcessFailed(f"no success in {5 * _WAIT_S:g} s")
            self._pause(1)


class PacedLoad(Load):
    """A load that makes at most ``rate`` batches a second, so that an hour of it fits on a disk."""

    def __init__(self, seed: int, mark: str, rate: float, stop: threading.Event) -> None:
        super().__init__(seed, mark)
        self._rate = rate
        self._stop = stop
        self._next_s = time.monotonic()

    def make(self, count: int, kinds: Collection[Kind] = MIXED) -> list[SignedBatch]:
        self._stop.wait(max(0.0, self._next_s - time.monotonic()))
        self._next_s = max(self._next_s, time.monotonic() - 1) + count / self._rate
        return super().make(count, kinds)


def _kind(part: psutil.Process) -> str:
    words: list[str] = part.cmdline()
    return words[words.index("dovetail") + 1] if "dovetail" in words else "part"


app = typer.Typer(add_completion=False)


@app.command()
def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 60,
    rate: Annotated[float, typer.Option(min=1, help="Valid and invalid batches a second.")] = 60,
    kill_every: Annotated[float, typer.Option(min=1, help="Seconds between two kills.")] = 30,
    upgrade_every: Annotated[float, typer.Option(min=1, help="Seconds between two upgrades.")] = 240,
    seed: Annotated[int, typer.Option(min=0, help="Decides the batches, bursts and kills.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Run a node under everything at once, and report what grew. Exit code 1 if anything did, or is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), seed, rate, kill_every, upgrade_every)
        columns = (TextColumn("soak"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("", total=minutes * 60)
            soak.run(minutes * 60, lambda passed: progress.update(bar, completed=passed))
        growth = soak.watch.growth()
        sizes = {"store_mib": soak.watch.store_bytes() / MIB, "log_mib": soak.watch.log_bytes() / MIB}
        code = soak.end()
        wrong = [*soak.failures, *soak.lost()[:10]]
        if code:
            wrong.append(f"up ended with {code}")
        wrong += [f"{one.part} grew: {one.early} to {one.late}" for one in growth if not one.flat]
        verified = _verify(soak)
        if not verified.get("sound"):
            wrong.append(f"the chain is not sound: {verified}")
        probes = sorted(soak.probes_ms)
        report = {
            "batches": sum(len(client.ended) for client in soak.clients),
            "probe_ms": {f"p{at}": probes[min(len(probes) - 1, len(probes) * at // 100)] for at in (50, 95, 99)},
            **sizes,
            "events": dict(soak.events),
            "parts": {one.part: {"early": one.early._asdict(), "late": one.late._asdict()} for one in growth},
            "verified": verified,
            "wrong": wrong,
        }
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        _show(report)
    raise typer.Exit(bool(wrong))


def _verify(soak: Soak) -> dict[str, object]:
    """``chain verify --reexecute`` with a processor for every version of the counter family."""
    kept, network = soak.network.environment, soak.network
    bind = network.validator_url
    words = ("chain", "verify", "--data-dir", str(network.data), "--reexecute", "--json", "--bind", bind)
    for version in soak.handlers():
        network.environment = kept | {family.VERSION_VARIABLE: version}
        network.processor(family.HANDLER)
    network.environment = kept
    try:
        done = network.start(*words)
        while done.running:
            time.sleep(0.5)
        report: dict[str, object] = json.loads("\n".join(done.out) or "{}")
        return report
    finally:
        network.close()


def _show(report: dict[str, object]) -> None:
    console = Console()
    table = Table("part", "anonymous MiB", "descriptors", "threads", title="second quarter and last quarter, medians")
    for part, figures in report["parts"].items():  # type: ignore[attr-defined]
        early, late = figures["early"], figures["late"]
        table.add_row(
            part,
            f"{early['anonymous_mib']:.0f} {late['anonymous_mib']:.0f}",
            f"{early['descriptors']} {late['descriptors']}",
            f"{early['threads']} {late['threads']}",
        )
    console.print(table)
    for name in ("batches", "probe_ms", "store_mib", "log_mib", "events", "verified", "wrong"):
        console.print(f"{name}: {report[name]}", markup=False)


if __name__ == "__main__":
    app()
