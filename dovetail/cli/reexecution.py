"""Executes a ledger's history again, with processors started here or elsewhere.

The execution and comparison of a block is in ``dovetail.validator.history.replay``.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import typer

from dovetail.common.errors import INTERRUPTED, Refused
from dovetail.common.output import note, printable, program
from dovetail.ledger.settings import FamilyVersion
from dovetail.node.config import Config, ProcessorConfig
from dovetail.node.handlers import make_handlers
from dovetail.node.judged_here import judged_here
from dovetail.node.parts import INTKEY, part_name
from dovetail.node.preflight import replay_access_policy
from dovetail.node.supervisor import Events, Part, supervise
from dovetail.validator.history.replay import ProcessorsMissing, Replay, families_needed
from dovetail.validator.history.verification.chain import CheckedBlock, Verification
from dovetail.validator.history.verification.findings import Findings
from dovetail.validator.store import StoreReader
from dovetail.validator.transport.access import AccessPolicy
from dovetail.validator.transport.gateway import CannotBind

_REFRESH_S: Final = 0.2
_START_S: Final = 60
"""The seconds within which a processor that is started here must serve, also after a restart."""


class Tally:
    """The counts of blocks and transactions done, and the progress bar that shows them."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self.blocks = self.transactions = self.reexecuted_blocks = self.reexecuted_transactions = self.skipped = (
            self.pruned
        ) = 0
        self.seconds = 0.0
        self._started_s = self._shown_s = time.monotonic()

    def start(self, title: str, blocks: int) -> None:
        """Start a bar for a pass over ``blocks`` blocks."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title, total=blocks, words="")
        self._started_s = time.monotonic()
        self._bar.refresh()

    def end(self) -> None:
        """Note the time that the work took."""
        self.seconds = max(time.monotonic() - self._started_s, 1e-9)

    def step(self, transactions: int) -> None:
        """Advance by one block; ``transactions``: the number done so far."""
        self._bar.advance(self._task)
        # No refreshing thread: it would compete with the work.
        if (now_s := time.monotonic()) - self._shown_s > _REFRESH_S:
            self._shown_s = now_s
            self._bar.update(self._task, words=f"{transactions / (now_s - self._started_s):,.0f} transactions/s")
            self._bar.refresh()


def reexecute(
    reader: StoreReader,
    verification: Verification,
    findings: Findings,
    tally: Tally,
    settings: Config,
    named: Sequence[str],
    bind: str,
    wait_s: int,
) -> None:
    """Verify and execute again, with a bar for each step. Raises Refused, also if processors are missing."""
    tally.start("looking for families", verification.last - verification.first + 1)
    needed = families_needed(reader, verification.first, verification.last, lambda: tally.step(0))
    own = judged_here()
    handlers = _handlers(named, needed, own.namespaces)
    served = {family for families in handlers.values() for family in families if family in needed}
    elsewhere = {name: num for name, num in needed.items() if name not in served and name not in own.namespaces}

    access = replay_access_policy(settings, bind)

    async def run() -> None:
        def on_done(block: CheckedBlock) -> None:
            tally.reexecuted_blocks += 1
            tally.reexecuted_transactions += block.transactions
            tally.step(tally.reexecuted_transactions)

        limits = settings.validator.limits
        wait_lost_s = max(wait_s, _START_S)
        replay = Replay(bind, limits, wait_lost_s, reader, verification.node, findings.add, on_done, own, access)
        with closing(replay):
            note(f"processors may connect at {replay.endpoint}")
            if elsewhere:
                waiting = f"; waiting {wait_s} s for them: {program()} processor MODULE:HANDLER --connect"
                note(
                    f"history needs processors that are not started here: {_first_blocks(elsewhere)}"
                    + (f"{waiting} {replay.endpoint}" if wait_s else "")
                )
            with tempfile.TemporaryDirectory(prefix="dovetail-") as logs:
                work = _drive(replay, verification, tally, elsewhere, wait_s, served)
                await _beside(_parts(handlers, replay.endpoint, access, settings.processor), Path(logs), work, replay)

    try:
        asyncio.run(run())
    except CannotBind as error:
        raise Refused(f"--bind: {error}") from None
    except ProcessorsMissing as missing:
        lacking = {name: needed[name] for name in missing.families}
        migrates = " that migrates" if missing.migration else ""
        raise Refused(
            f"no processor of {_first_blocks(lacking)}{migrates} came, or came back, in time;"
            f" {tally.reexecuted_blocks} blocks were run again. Name its handler with --family MODULE:HANDLER, or start"
            " one at --bind and wait longer with --wait-s"
        ) from None


async def _drive(
    replay: Replay,
    verification: Verification,
    tally: Tally,
    elsewhere: Iterable[FamilyVersion],
    wait_s: int,
    served: Iterable[FamilyVersion],
) -> None:
    """Verify and execute block by block when every processor is connected."""
    await replay.wait_for(elsewhere, wait_s)
    await replay.wait_for(served, _START_S)
    tally.start("verifying and running again", verification.last - verification.first + 1)
    for block in verification.blocks():
        tally.blocks += 1
        tally.transactions += block.transactions
        if not block.replayable:
            tally.pruned += 1
        elif block.sound:
            await replay.run(block)
        else:
            tally.skipped += 1
    await replay.finish()


async def _beside(parts: list[Part], logs: Path, work: Coroutine[Any, Any, None], replay: Replay) -> None:
    """Do ``work`` beside the processes of ``parts``, and end them after it. Raises Refused if one refuses to serve."""
    if not parts:
        await work
        return
    working = asyncio.ensure_future(work)
    keeping = asyncio.ensure_future(supervise(parts, logs, Events(lambda _: None, lambda: None, note, lambda *_: None)))
    try:
        done, _ = await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        if working not in done:
            keeping.result()
            raise typer.Exit(INTERRUPTED)
        working.result()
    finally:
        working.cancel()
        await asyncio.wait({working})
        # A processor that is ending unregisters, and waits for the answer.
        attending = asyncio.ensure_future(replay.attend())
        keeping.cancel()
        await asyncio.wait({keeping})
        attending.cancel()
        await asyncio.gather(working, keeping, attending, return_exceptions=True)


def _handlers(
    named: Sequence[str], needed: dict[FamilyVersion, int], own: Collection[FamilyVersion]
) -> dict[str, list[FamilyVersion]]:
    """The handlers to start, each with the needed families that it serves. ``own``: judged here. Raises Refused."""
    served: dict[FamilyVersion, str] = {}
    handlers: dict[str, list[FamilyVersion]] = {}
    for handler in dict.fromkeys((*named, INTKEY)):
        families = [FamilyVersion(one.family_name, one.family_version) for one in make_handlers(handler)]
        judged = next((one for one in families if one in own), None)
        if judged is not None:
            raise Refused(f"{handler} is for {judged}, which this command judges itself, as a node does: leave it out")
        double = next((one for one in families if one in served), None)
        if double is not None:
            if handler in named:
                raise Refused(f"{handler} is for {double}, which {served[double]} executes already")
            continue
        if not any(one in needed for one in families):
            if handler in named:
                note(f"{handler} is not started: no block holds a transaction of {', '.join(map(str, families))}")
            continue
        served |= dict.fromkeys(families, handler)
        handlers[handler] = families
    return handlers


def _parts(
    handlers: dict[str, list[FamilyVersion]], endpoint: str, access: AccessPolicy, processor: ProcessorConfig
) -> list[Part]:
    keys: list[str] = []
    # An open port accepts no keys, and this environment may hold keys for another port.
    for key in ("connection_key", "validator_key"):
        os.environ.pop(f"DOVETAIL_PROCESSOR_{key}".upper(), None)
        if access.key is not None:
            keys += [f"--{key.replace('_', '-')}", getattr(processor, key)]
    parts: dict[str, Part] = {}
    for handler, families in handlers.items():
        name = part_name(families[0].name, parts)
        command = [sys.executable, "-m", "dovetail", "processor", handler, "--connect", endpoint, *keys]
        parts[name] = Part(name, command, ends=0)
    return list(parts.values())


def _first_blocks(families: dict[FamilyVersion, int]) -> str:
    return ", ".join(printable(f"{name} (first in block {num})") for name, num in sorted(families.items()))
