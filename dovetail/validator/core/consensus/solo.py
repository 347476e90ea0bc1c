"""The engine of a network of one: every block that it builds is committed, and the next is built meanwhile.

A value machine: ``step`` takes what happened and gives what to do, in this order. No batches, no clock, no sockets.
"""

from enum import Enum


class Happened(Enum):
    """What the node tells the engine."""

    WORK_READY = "a batch may be tried"
    BUILT = "the block in the making is finished"
    SEALED = "the built block is hashed and signed"
    NOTHING_BUILT = "the block in the making came to nothing"
    COMMITTED = "the built block is on disk"
    COMMIT_FAILED = "the disk refused the built block"
    ACCEPT_FAILED = "the disk refused to accept batches that the block in the making holds"
    STORAGE_TRIED_AGAIN = "the disk takes writes again"


class Do(Enum):
    """What the engine asks of the node."""

    BUILD = "start the next block, on top of the one just built"
    SEAL = "hash and sign the built block"
    COMMIT = "write the sealed block"
    DISCARD = "drop the block in the making and let its batches be tried again"


class SoloEngine:
    """One block in the making at most, one built and not committed at most."""

    def __init__(self) -> None:
        self._building = False
        self._halted = False

    def step(self, happened: Happened) -> list[Do]:
        """The effects of one event, to be carried out in order."""
        if happened is Happened.WORK_READY:
            return self._build()
        if happened is Happened.BUILT:
            # Processors work on the next block while this one is hashed, sealed and synced.
            self._building = False
            return [*self._build(), Do.SEAL]
        if happened is Happened.SEALED:
            return [Do.COMMIT]
        if happened is Happened.NOTHING_BUILT:
            self._building = False
            return []
        if happened is Happened.COMMIT_FAILED:
            self._halted = True
            self._building = False
            return [Do.DISCARD]
        if happened is Happened.ACCEPT_FAILED:
            self._building = False
            return [Do.DISCARD]
        if happened is Happened.STORAGE_TRIED_AGAIN:
            self._halted = False
        return []

    def _build(self) -> list[Do]:
        if self._building or self._halted:
            return []
        self._building = True
        return [Do.BUILD]
