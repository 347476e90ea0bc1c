"""One wrong bit anywhere in the file is harmless, or found and repaired, or its loss is named; no answer is wrong.

DOVETAIL_TEST_FLIPS sets the number of bits, each in a copy of its own. A failure prints the seed.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.dovetail.cli.commands.flipped import Outcome, flips, forked, make, read_all, try_flip

FLIPS = int(os.environ.get("DOVETAIL_TEST_FLIPS", "30"))
SEED = int(os.environ.get("DOVETAIL_TEST_FLIPS_SEED", "7"))


@pytest.mark.timeout(60 + FLIPS * 5)
def test_a_wrong_bit_is_harmless_or_found_and_never_told_and_repaired_or_named(tmp_path: Path) -> None:
    store = make(tmp_path / "sound")
    truth = forked(lambda: read_all(store))
    assert len(truth.single) > 100
    outcomes: Counter[Outcome] = Counter()
    repaired = 0
    lost: Counter[str] = Counter()
    for number, (at, bit) in enumerate(flips(store, FLIPS, SEED)):
        seen = try_flip(store, tmp_path / str(number), at, bit, truth)
        where = f"seed {SEED}, flip {number}: byte {at} bit {bit}: {seen}"
        assert seen.lies == 0, where
        outcomes[seen.outcome] += 1
        if seen.repaired is not None:
            assert seen.repaired == truth.head, where
            repaired += 1
        elif seen.outcome is not Outcome.HARMLESS:
            assert "estore a backup" in seen.lost, where
            lost[seen.lost] += 1
    print(f"{FLIPS} flips, seed {SEED}: {dict(outcomes)}, {repaired} repaired, {lost.total()} not")
    for why, count in lost.items():
        print(count, why[:300])
    assert repaired > FLIPS // 10


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize(("at", "bit"), [(10, 3), (24, 7), (40, 4), (44, 5), (90, 0), (129, 0), (135, 3)])
def test_a_wrong_bit_in_a_first_page_is_repaired(tmp_path: Path, page: int, at: int, bit: int) -> None:
    """The first pages hold the format, the page size, the kinds of keys and the places of the tables."""
    store = make(tmp_path / "sound")
    truth = forked(lambda: read_all(store))
    seen = try_flip(store, tmp_path / "changed", page * 4096 + at, bit, truth)
    assert seen.lies == 0
    assert seen.repaired == truth.head or seen.outcome is Outcome.HARMLESS, seen.lost
