"""The order of verification: a large submission does not hold up those after it."""

import asyncio
from itertools import pairwise

import pytest

from dovetail.validator.admission import verifier
from dovetail.validator.admission.verifier import Verified, VerifierPool
from tests.dovetail.validator.nodes import signed_batch
from tests.dovetail.validator.peers import run

_JUNK = bytes(1_000)
"""Verification refuses this batch, but its bytes count."""


def test_submissions_take_turns() -> None:
    async def test() -> None:
        ended: list[str] = []
        done = asyncio.Event()

        def ends(name: str, last: bool = False) -> None:
            ended.append(name)
            if last:
                done.set()

        pool = VerifierPool(1, lambda: None)
        try:
            large = 8 * verifier._TURN_BYTES // len(_JUNK)
            for name in ("first", "second", "third"):
                pool.verify([_JUNK] * large, lambda _, name=name: ends(name, last=name == "third"))  # type: ignore[misc]
            pool.verify([signed_batch().raw], lambda _: ends("small"))
            await done.wait()
        finally:
            pool.close()
        assert ended[0] == "small"
        assert [name for name in ended if name != "small"] == ["first", "second", "third"]

    run(test)


def test_every_batch_is_handed_out_once_in_its_order() -> None:
    """The sizes vary: a batch is larger than a turn, several fit into one job, and a batch fills its turn exactly."""

    async def test() -> None:
        sizes = [1, 1, verifier._JOB_BYTES, verifier._TURN_BYTES, verifier._TURN_BYTES + 1, 5]
        answers: dict[int, Verified] = {}
        done = asyncio.Event()

        def take(number: int, verified: Verified) -> None:
            assert number not in answers
            answers[number] = verified
            if len(answers) == len(sizes):
                done.set()

        pool = VerifierPool(1, lambda: None)
        seen: list[tuple[int, int]] = []
        next_job = pool._next_job
        numbers: dict[int, int] = {}

        def watched() -> verifier._Job:
            made = next_job()
            for submission, position, _ in made.batches:
                seen.append((numbers.setdefault(id(submission), len(numbers)), position))
            return made

        pool._next_job = watched  # type: ignore[method-assign]
        try:
            for number, size in enumerate(sizes):
                pool.verify([bytes(size)] * 3, lambda verified, number=number: take(number, verified))  # type: ignore[misc]
            await done.wait()
        finally:
            pool.close()
        assert sorted(seen) == [(number, position) for number in range(len(sizes)) for position in range(3)]
        for number in range(len(sizes)):
            positions = [position for of, position in seen if of == number]
            assert all(before < after for before, after in pairwise(positions))

    run(test)


@pytest.mark.parametrize(("processes", "each"), [(1, 1024 * 1024), (64, 128 * 1024)])
def test_the_pipes_of_many_verifiers_leave_room_for_others(
    processes: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pipes of a user share the system's limit."""
    asked: list[int] = []
    monkeypatch.setattr(verifier, "_Worker", lambda pipe_bytes, _: asked.append(pipe_bytes))
    VerifierPool(processes, lambda: None)
    assert asked == [each] * processes
